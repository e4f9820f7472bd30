"""Expiry: what a group has not consumed after so long as its queue says counts as settled."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from uuid import UUID, uuid4

from cassieq_spark.backoff import attempts
from cassieq_spark.dead_letters.claims import ADMIN_GROUP
from cassieq_spark.errors import ContentionError, InvariantError, QueueStateError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.group import ConsumerGroup, registration_key
from cassieq_spark.groups.plan import look_ahead, row_is_dead
from cassieq_spark.groups.state import RAN_OUT, GroupState, Slot, Waiting, as_read
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.repair.actions import EXPIRED
from cassieq_spark.repair.context import Context, Scanned
from cassieq_spark.repair.plan import aged, is_of_the_future
from cassieq_spark.repair.read import Seen
from cassieq_spark.repair.report import Counts
from cassieq_spark.store.protocol import (
    Op,
    Store,
    Update,
    When,
)

logger = logging.getLogger(__name__)

#: Rows of a group that one compare-and-set takes away, and that it adds.
_ROWS_AT_ONCE = 500
#: Blocks that are read at once.
_BLOCKS_READ = 500


@dataclass(frozen=True, slots=True)
class Expiry:
    """What carrying out ``ops`` at once lets expire; nothing, without ops.

    Attributes:
        count: How many messages.
        pointer: First monoton not offered to the group, afterwards.
        rows: What had been offered before, and waited.
        ops: The operations.
    """

    count: int
    pointer: int
    rows: tuple[Slot | Waiting, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """Settle what a group has not consumed after so long as its queue says: ``count`` and more.

    That is what the group was never offered, or what waits, once it is too old. What is leased
    stays, as does what is dead: that is to be dead-lettered. What is delayed beyond now and lies
    before messages that are too old goes to waiting rows, as if a reader had stepped over it.

    An LWT and some reads for up to 500 waiting rows, whatever the number of messages.

    Attributes:
        queue: Which queue; its messages expire.
        group: Which group, by its registration: another one of that name is left alone.
        count: How many messages had expired when it was planned.
    """

    queue: QueueDefinition
    group: Group
    count: int

    @property
    def queue_id(self) -> QueueId:
        """Whose messages these are."""
        return self.queue.queue_id

    def __str__(self) -> str:
        return f"let {self.count} message(s) of group {self.group.name!r} expire"

    def apply(self, store: Store) -> Counts:
        """See `Action.apply`.

        Raises:
            ContentionError: Lost to readers again and again.
            InvariantError: The ledger has a hole there (I1).
        """
        expired = 0
        ledger = Ledger(store, self.queue.queue_id)
        while count := _expire_some(ledger, self.queue, self.group):
            expired += count
        return Counts(expired=expired)


def expire_step(context: Context, queue: QueueDefinition, _: Scanned | None) -> list[Expire]:
    """Let expire what is too old, group by group. No read in a queue in which nothing expires.

    What expires without any group is finalised, see `finalise_step`.

    One read if what is stored is young; else one more, and for each group four serial ones, and
    three plain ones if nothing is too old for it.
    """
    seen = context.seen(queue)
    if queue.expire_after is None or (seen is not None and _is_young(context.store, queue, seen)):
        return []
    planned = []
    ledger = context.ledger(queue)
    for known in ledger.read_groups():
        found = _find(ConsumerGroup(ledger, known.name), queue, known, uuid4())
        if found is not None and found.count:
            planned.append(Expire(queue, known, found.count))
    return planned


def _is_young(store: Store, queue: QueueDefinition, seen: Seen) -> bool:
    """Whether no group can be owed what is too old: a read, unless all is settled."""
    if queue.expire_after is None or seen.has_nothing_owed:
        return True
    first = Ledger(store, queue.queue_id).read_block_of(seen.ledger.head.finalised)
    if first is None or is_of_the_future(first, seen.now):
        return False
    return first.published_at >= seen.now - queue.expire_after


def plan_expiry(  # noqa: PLR0913 (what is there, what is too old, and for whom)
    state: GroupState,
    blocks: Sequence[LedgerBlock],
    *,
    stop: int,
    cutoff: datetime,
    max_deliveries: int,
    token: UUID,
) -> Expiry:
    """Plan what to let expire. Pure.

    Args:
        state: The group, all of it.
        blocks: Those from the floor on that were published before ``cutoff``, in order.
        stop: The ledger's ``next``.
        cutoff: What has been visible since before this is too old.
        max_deliveries: The queue's limit; 0 for none.
        token: Put into the slots that are emptied.
    """
    old = Ranges.of(*(each.monotons for each in blocks if each.young_since < cutoff))
    changes = Changes(state)
    rows = [
        row
        for row in _outstanding(state)
        if not row.monotons - old and not row_is_dead(row, max_deliveries)
    ][:_ROWS_AT_ONCE]
    for row in rows:
        if isinstance(row, Waiting):
            changes.remove_waiting(row)
        else:
            # I5, I6: still nobody's, and none of it settled since it was read.
            changes.empty_slot(row, token, RAN_OUT, as_read(row, "monotons"))
    pointer = state.head.pointer
    ahead = look_ahead(
        _few_delayed([each for each in blocks if each.monotons.stop > pointer], state.now),
        Range(pointer, max(pointer, stop)),
        limit=0,
        max_bytes=None,
        not_before=cutoff,
        now=state.now,
    )
    if ahead.skipped:
        pointer = ahead.pointer
        changes.move_pointer(pointer)
        for each in ahead.waiting:
            changes.add_waiting(each)
    count = ahead.skipped + sum(row.monotons.count for row in rows)
    return Expiry(count, pointer, tuple(rows), changes.ops())


def _expire_some(ledger: Ledger, queue: QueueDefinition, known: Group) -> int:
    group = ConsumerGroup(ledger, known.name)
    for _ in attempts():
        token = uuid4()
        found = _find(group, queue, known, token)
        if found is None or not found.count:
            return 0
        went_in = group.try_cas(found.ops)
        if went_in is None:
            went_in = token in group.read_registrations(serial=True).values()
        if went_in:
            _tell(group, queue, found)
            return found.count
    raise ContentionError(f"{group}: its readers were faster again and again")


def _find(
    group: ConsumerGroup, queue: QueueDefinition, known: Group, token: UUID
) -> Expiry | None:
    """Plan an expiry that puts ``token`` into the state; None if there is no such group."""
    if queue.expire_after is None:
        return None
    # The token first: whatever is read after it belongs to this registration, and no seek has
    # come between if it is the same when the plan goes in.
    before = group.read_registrations(serial=True).get(known.registered_as)
    if before is None:
        return None
    try:
        state = group.read(every_waiting=True)
    except QueueStateError:
        return None
    stop = group.ledger.read_head().next
    cutoff = state.sure_now - queue.expire_after
    expiry = plan_expiry(
        state,
        _read_old_blocks(group, state, stop, cutoff),
        stop=stop,
        cutoff=cutoff,
        # Dead letters that nobody redrives do expire.
        max_deliveries=0 if group.name == ADMIN_GROUP else queue.max_deliveries,
        token=token,
    )
    key = registration_key(known.registered_as)
    ours = Update(key, {"lease": token}, when=(When("lease", "=", before),))
    return Expiry(expiry.count, expiry.pointer, expiry.rows, (ours, *expiry.ops))


def _read_old_blocks(
    group: ConsumerGroup, state: GroupState, stop: int, cutoff: datetime
) -> list[LedgerBlock]:
    """The blocks from the floor on, up to the first that was published at ``cutoff`` or later.

    Two reads for each 500 of them. Those of the future do not count as later. Where the clocks of
    coordinators differ by less, an older one may come behind that; its turn comes later.
    """
    floor = state.floor

    def is_old(block: LedgerBlock) -> bool:
        return min(block.published_at, block.there_by or block.published_at) < cutoff

    try:
        return list(takewhile(is_old, aged(_stream(group.ledger, floor, stop), state.sure_now)))
    except InvariantError as error:
        if group.read(every_waiting=True).floor == floor:
            raise
        # Settled by readers and trimmed by another repair run since.
        raise ContentionError(f"{group} goes on while its messages are looked at") from error


def _stream(ledger: Ledger, at: int, stop: int) -> Iterator[LedgerBlock]:
    while at < stop:
        some = ledger.locate(Range(at, stop), limit=_BLOCKS_READ)
        yield from some
        at = some[-1].monotons.stop


def _outstanding(state: GroupState) -> list[Slot | Waiting]:
    """What was offered, or stepped over, and nobody holds."""
    ran_out = [slot for slot in state.slots if slot.monotons and slot.due_at < state.sure_now]
    return [*ran_out, *state.waiting]


def _few_delayed(blocks: Sequence[LedgerBlock], now: datetime) -> list[LedgerBlock]:
    """The first blocks, as far as stepping over them makes no more rows than fit."""
    delayed = 0
    for number, block in enumerate(blocks):
        delayed += block.visible_at is not None and block.visible_at > now
        if delayed > _ROWS_AT_ONCE:
            return list(blocks[:number])
    return list(blocks)


def _tell(group: ConsumerGroup, queue: QueueDefinition, expired: Expiry) -> None:
    logger.warning(
        "%s: %d messages have expired, as nobody consumed them within %s; the "
        "group continues at monoton %d",
        group,
        expired.count,
        queue.expire_after,
        expired.pointer,
        extra={
            "action": EXPIRED,
            "queue": group.queue_id,
            "group": group.name,
            "count": expired.count,
        },
    )
