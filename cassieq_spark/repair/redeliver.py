"""The step redeliver: dead-letters messages that readers have left, and reports what is stuck."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.deliveries import LONGEST_BACKOFF, row_is_dead
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.plan import mark_dead
from cassieq_spark.groups.state import RAN_OUT, GroupState, Slot, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead, created_at_of, group_of, head_of, seek_pin_of
from cassieq_spark.model import OnDead, QueueDefinition, QueueId, Ranges, from_millis
from cassieq_spark.queues.clocks import seems_ahead
from cassieq_spark.repair.context import Context, Scanned
from cassieq_spark.repair.diagnosis import partition_option
from cassieq_spark.repair.read import Seen, by_kind
from cassieq_spark.repair.report import Counts
from cassieq_spark.store.protocol import CLOCKS_APART, Row, Slice, Store

#: How long the repair leaves dead messages to readers, if no token can settle them.
GRACE = timedelta(minutes=1)
#: How long, at least, it leaves messages of a lease that ran out to the query that had the lease:
#: the query may have processed them, and acks them when it is started again.
PATIENCE = timedelta(hours=1)
#: A seek, or the creation of a group, that takes longer has broken off.
BROKEN_OFF = timedelta(minutes=10)
#: How many times its lease a reader may take to come back.
_LEASES = 10


@dataclass(frozen=True, slots=True)
class DeadLetterMessages:
    """Dead-letter the messages of a waiting row or a slot, as a reader would.

    Two LWTs and a few reads; three LWTs for a slot, whose messages are marked dead first.
    """

    queue: QueueDefinition
    group: str
    dead: Slot | Waiting

    @property
    def queue_id(self) -> QueueId:
        """The queue of the messages."""
        return self.queue.queue_id

    def __str__(self) -> str:
        target = self.queue.dead_letter_queue
        fate = "drop" if target is None else f"move to queue {target!r} the"
        return f"{fate} dead messages {self.dead.monotons.short} of group {self.group!r}"

    def apply(self, store: Store) -> Counts:
        """Dead-letter the messages; see `RepairAction.apply`.

        It also counts messages that are left, because a reader was faster, or copying failed.
        """
        group = ConsumerGroup(Ledger(store, self.queue_id), self.group)
        dead = _mark_slot_dead(group, self.dead) if isinstance(self.dead, Slot) else self.dead
        count = 0 if dead is None else dead_letter_messages(store, self.queue, group, [dead])
        left = self.dead.monotons.count - count
        return Counts(dead_lettered=count, not_dead_lettered=left)


def redeliver_step(
    context: Context, queue: QueueDefinition, _: Scanned | None
) -> Iterable[DeadLetterMessages]:
    """Find dead messages, and report what is stuck. No read if the survey shows neither.

    Otherwise one plain read, and three per group.
    """
    seen = context.seen(queue)
    if seen is not None and _is_quiet(queue, seen):
        return []
    ledger = context.ledger(queue)
    found = ledger.read(Slice(kinds=("head", "group", "seek_pin")))
    if found.now is None:
        return []
    notes = context.report.queues[queue.label].notes
    rows = by_kind(found.rows)
    for row in rows["seek_pin"]:
        notes += _broken_seek(queue, row, found.now)
    is_paused = False
    for head in map(head_of, rows["head"]):
        notes += _fence_ahead(queue, head, found.now)
        is_paused = head.paused
    planned: list[DeadLetterMessages] = []
    for row in rows["group"]:
        group = group_of(row)
        state = _read_state(ConsumerGroup(ledger, group.name), group.registered_as)
        if state is None:
            notes += _never_opened(queue, row, found.now)
            continue
        context.compare_clocks(state.now, state.ahead)
        notes += _ahead(queue, group.name, state)
        dead = _find_dead(state, queue)
        if queue.on_dead is OnDead.STOP:
            notes += _stopped(queue, group.name, dead)
            continue
        # The leases of this group are claims; only a redrive or a purge knows their outcome.
        if group.name != ADMIN_GROUP:
            planned += [DeadLetterMessages(queue, group.name, each) for each in dead]
        if not is_paused:
            notes += _overdue(queue, group.name, state)
    return planned


def _find_dead(state: GroupState, queue: QueueDefinition) -> list[Slot | Waiting]:
    """The dead messages that no reader has taken for a while."""
    late = state.sure_now - GRACE
    given_up = state.sure_now - max(PATIENCE, _LEASES * queue.lease)
    slots = [
        slot
        for slot in state.slots
        if slot.monotons and slot.due_at < given_up and row_is_dead(slot, queue.max_deliveries)
    ]
    waiting = [
        each
        for each in state.waiting
        if from_millis(each.due) < late and row_is_dead(each, queue.max_deliveries)
    ]
    return [*slots, *waiting]


def _mark_slot_dead(group: ConsumerGroup, slot: Slot) -> Waiting | None:
    """Mark the messages of a slot dead; None if the slot has changed: a reader has them."""
    try:
        state = group.read()
    except QueueStateError:
        return None
    token, changes = uuid4(), Changes(state)
    dead = mark_dead(changes, slot, token, RAN_OUT)

    def was_applied(slots: Sequence[Slot], _: object) -> bool:
        return any(each.lease == token for each in slots)

    return dead if group.carry_out(changes.ops(), was_applied) else None


def _read_state(group: ConsumerGroup, registered_as: int) -> GroupState | None:
    """Read a group's state, if any. A change between the reads only makes an action fail."""
    if registered_as not in group.read_registrations():
        return None
    try:
        state = group.read()
        return state if state.all_waiting else group.read(every_waiting=True)
    except QueueStateError:
        return None


def _is_quiet(queue: QueueDefinition, seen: Seen) -> bool:
    """True if no message is dead or overdue, and nothing is stuck."""
    states = [(group.name, seen.state_of(group)) for group in seen.ledger.groups]
    is_fenced = any(_fence_ahead(queue, seen.ledger.head, seen.now))
    return not (seen.ledger.seek_pins or is_fenced) and all(
        state is not None
        and not _find_dead(state, queue)
        and not any(_overdue(queue, name, state))
        and not any(_ahead(queue, name, state))
        for name, state in states
    )


def _broken_seek(queue: QueueDefinition, row: Row, now: datetime) -> Iterator[str]:
    pin = seek_pin_of(row)
    if (since := _since(row, now)) is not None:
        yield (
            f"moving group {pin.group!r} to monoton {pin.position} broke off {since}, and keeps "
            "all messages from there on in the store; repeat it: cassieq group seek "
            f"{queue.name} {pin.group} --to {pin.position}{partition_option(queue)}"
        )


def _fence_ahead(queue: QueueDefinition, head: LedgerHead, now: datetime) -> Iterator[str]:
    if head.fence > now + CLOCKS_APART and not head.is_closed:
        yield (
            f"its fence is {_show(head.fence - now)} ahead, raised by a wrong clock: all puts are "
            f"refused until then; lower it: cassieq queue fix-clocks {queue.name}"
        )


def _stopped(queue: QueueDefinition, group: str, dead: Sequence[Slot | Waiting]) -> Iterator[str]:
    if dead:
        monotons = Ranges.union(each.monotons for each in dead)
        yield (
            f"group {group!r} stops at the dead messages {monotons.short}, and is given nothing "
            "behind them; deliver them again, or let them go to the dead-letter queue: cassieq "
            f"group resume {queue.name} {group} --retry | --dead-letter{partition_option(queue)}"
        )


def _ahead(queue: QueueDefinition, group: str, state: GroupState) -> Iterator[str]:
    if count := seems_ahead(state, queue.lease):
        yield (
            f"{count} message(s) of group {group!r} were leased by a clock that is ahead, or for "
            "longer than a day; if that was not intended, make them due: cassieq queue "
            f"fix-clocks {queue.name}"
        )


def _never_opened(queue: QueueDefinition, row: Row, now: datetime) -> Iterator[str]:
    if (since := _since(row, now)) is not None:
        group = group_of(row)
        yield (
            f"creating group {group.name!r} broke off {since}, and it keeps all messages from "
            f"monoton {group.starts_at} on in the store; start a reader of it, or delete it: "
            f"cassieq group delete {queue.name} {group.name}"
        )


def _since(row: Row, now: datetime) -> str | None:
    """How long ago a row was written, if its writer must have broken off since; else None."""
    begun = created_at_of(row)
    if begun is None:
        return "at an unknown time"
    return f"{_show(now - begun)} ago" if now - begun > BROKEN_OFF else None


def _overdue(queue: QueueDefinition, group: str, state: GroupState) -> Iterator[str]:
    """Report messages that are alive and have been due so long that there can be no reader."""
    late = state.now - _LEASES * queue.lease - LONGEST_BACKOFF
    # Dead ones are dead-lettered; but those of a redrive only the next redrive takes.
    most = 0 if group == ADMIN_GROUP else queue.max_deliveries
    due = [
        (slot.due_at, slot.monotons.count)
        for slot in state.slots
        if slot.monotons
        and not slot.is_parked
        and slot.due_at < late
        and not row_is_dead(slot, most)
    ]
    due += [
        (from_millis(each.due), each.monotons.count)
        for each in state.waiting
        if not row_is_dead(each, most) and from_millis(each.due) < late
    ]
    if not due:
        return
    since, count = _show(state.now - min(due)[0]), sum(count for _, count in due)
    if group == ADMIN_GROUP:
        yield (
            f"a redrive broke off {since} ago with {count} dead letter(s); the next redrive finds "
            f"out what became of them: cassieq dead redrive {queue.name}"
        )
    else:
        yield (
            f"{count} message(s) of group {group!r} have been due for up to {since}, and no "
            "reader takes them, unless its retryBackoff is longer; start a reader, or delete the "
            f"group: cassieq group delete {queue.name} {group}"
        )


def _show(age: timedelta) -> str:
    return str(timedelta(seconds=age // timedelta(seconds=1)))
