"""The step expire: settles messages that a group has not consumed within the queue's limit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from uuid import UUID, uuid4

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ContentionError, InvariantError, QueueStateError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.deliveries import row_is_dead
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lookahead import look_ahead
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.state import (
    RAN_OUT,
    GroupState,
    Slot,
    Waiting,
    as_read,
    change_token,
    slot_values,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.repair.actions import EXPIRED
from cassieq_spark.repair.context import Context, Scanned
from cassieq_spark.repair.plan import aged
from cassieq_spark.repair.read import Seen
from cassieq_spark.repair.report import Counts
from cassieq_spark.store.protocol import Op, Store

logger = logging.getLogger(__name__)

#: How many rows of a group one compare-and-set deletes, and how many it adds.
_ROWS_AT_ONCE = 500
#: How many blocks are read at once.
_BLOCKS_READ = 500
#: Maximum number of compare-and-sets for a group in one run. Before each, all that is too old is
#: read again, so without a limit the reads would grow with the square of the delayed blocks and
#: waiting rows.
_MOST_PASSES = 20


@dataclass(frozen=True, slots=True)
class _Expiry:
    """One of the compare-and-sets that let messages expire.

    Attributes:
        too_old: How many messages this compare-and-set and those after it let expire.
        count: How many messages this one lets expire; 0 if it only steps over delayed messages.
        pointer: The group's pointer after it.
        ops: The operations of the compare-and-set.
    """

    too_old: int
    count: int
    pointer: int
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """Settle messages of a group that have been visible for longer than the queue's limit.

    The action settles messages that the group was never offered, and messages that wait. Leased
    messages stay, and so do dead messages, which must be dead-lettered. Messages whose delay is
    not over, and which lie before messages that are too old, go to waiting rows, as if a reader
    had stepped over them.

    One LWT and some reads for up to 500 waiting rows that are deleted, and 500 blocks of delayed
    messages that are stepped over, whatever the number of messages. After 20 of these LWTs, the
    next repair run continues.

    Attributes:
        queue: The queue.
        group: The registration of a group; another group of that name is left alone.
        count: How many messages had expired when the action was planned; by now there may be more.
    """

    queue: QueueDefinition
    group: Group
    count: int

    @property
    def queue_id(self) -> QueueId:
        """The queue of the messages."""
        return self.queue.queue_id

    def __str__(self) -> str:
        return f"let {self.count} message(s) of group {self.group.name!r} expire"

    def apply(self, store: Store) -> Counts:
        """Settle the messages, and count them; see `RepairAction.apply`.

        Raises:
            ContentionError: Readers won every attempt.
            InvariantError: The ledger has a hole among these messages (I1).
        """
        expired, is_left = 0, True
        ledger = Ledger(store, self.queue.queue_id)
        for _ in range(_MOST_PASSES):
            done = _expire_some(ledger, self.queue, self.group)
            expired += done.count if done is not None else 0
            is_left = done is not None and done.count < done.too_old
            if not is_left:
                break
        return Counts(expired=expired, postponed=int(is_left))


def expire_step(context: Context, queue: QueueDefinition, _: Scanned | None) -> list[Expire]:
    """Let messages expire, group by group. No read if the queue has no such limit.

    One read if the oldest message is young. If not, one read more, and four serial reads per
    group, and three plain reads for a group without a message that is too old. Without groups,
    `finalise_step` lets messages expire.
    """
    seen = context.seen(queue)
    if queue.expire_after is None or (seen is not None and _is_young(context, queue, seen)):
        return []
    planned = []
    ledger = context.ledger(queue)
    for known in ledger.read_groups():
        found = _find(ConsumerGroup(ledger, known.name), queue, known, uuid4())
        if found is not None and found.too_old:
            planned.append(Expire(queue, known, found.too_old))
    return planned


def _is_young(context: Context, queue: QueueDefinition, seen: Seen) -> bool:
    """True if no group is owed a message that is too old. One read, unless all are settled."""
    if queue.expire_after is None or seen.has_nothing_owed:
        return True
    first = context.oldest(queue, seen)
    return first is not None and first.published_at >= seen.now - queue.expire_after


def _plan(  # noqa: PLR0913 (what is there, what is too old, for which groups)
    state: GroupState,
    blocks: Sequence[LedgerBlock],
    *,
    stop: int,
    skip_before: datetime,
    max_deliveries: int,
    token: UUID,
) -> _Expiry:
    """Plan the expiry of messages that became visible before ``skip_before``.

    ``blocks`` are the blocks from the floor on that were published before ``skip_before``;
    ``stop`` is the ledger's ``next``; ``token`` goes into the slots that are emptied.
    """
    old = Ranges.of(*(each.monotons for each in blocks if each.young_since < skip_before))
    changes = Changes(state)
    ran_out = [slot for slot in state.slots if slot.monotons and slot.due_at < state.sure_now]
    outstanding: list[Slot | Waiting] = [*ran_out, *state.waiting]
    old_rows = [
        (row, part)
        for row in outstanding
        if (part := _too_old(row, old)) and not row_is_dead(row, max_deliveries)
    ]
    rows = old_rows[:_ROWS_AT_ONCE]
    for row, part in rows:
        if isinstance(row, Waiting):
            changes.remove_waiting(row)
            continue
        # I5, I6: the lease has run out, and no message is settled since the read.
        still = (RAN_OUT, as_read(row, "monotons"))
        if rest := row.monotons - part:
            changes.change_slot(row, slot_values(monotons=rest), *still)
        else:
            changes.empty_slot(row, token, *still)
    pointer = state.head.pointer
    beyond = [each for each in blocks if each.monotons.stop > pointer]
    skip = partial(
        look_ahead,
        fresh=Range(pointer, max(pointer, stop)),
        limit=0,
        max_bytes=None,
        skip_before=skip_before,
        now=state.now,
    )
    skipped, never_offered = 0, skip(beyond).skipped
    if never_offered:
        # If delayed messages before them take all rows, this one only steps over those.
        lookahead = skip(_few_delayed(beyond, state.now))
        skipped, pointer = lookahead.skipped, lookahead.pointer
        changes.move_pointer(pointer)
        for each in lookahead.waiting:
            changes.add_waiting(each)
    too_old = never_offered + sum(part.count for _, part in old_rows)
    count = skipped + sum(part.count for _, part in rows)
    return _Expiry(too_old, count, pointer, changes.ops())


def _too_old(row: Slot | Waiting, old: Ranges) -> Ranges:
    """The old messages of a row: all of the row or none; of a parked row, any part."""
    part = row.monotons & old
    is_parked = isinstance(row, Slot) and row.is_parked
    return part if is_parked or part == row.monotons else Ranges()


def _expire_some(ledger: Ledger, queue: QueueDefinition, known: Group) -> _Expiry | None:
    """Let messages expire by one compare-and-set; None if there are none to expire."""
    group = ConsumerGroup(ledger, known.name)
    for _ in attempts():
        token = uuid4()
        found = _find(group, queue, known, token)
        if found is None or not found.too_old:
            return None
        is_applied = group.try_cas(found.ops)
        if is_applied is None:
            is_applied = token in group.read_registrations(serial=True).values()
        if is_applied:
            if found.count:
                _tell(group, queue, found)
            return found
    raise ContentionError(f"{group}: its readers were faster in every attempt")


def _tell(group: ConsumerGroup, queue: QueueDefinition, done: _Expiry) -> None:
    logger.warning(
        "%s: %d messages have expired, as nobody consumed them within %s; the group "
        "continues at monoton %d",
        group,
        done.count,
        queue.expire_after,
        done.pointer,
        extra={
            "action": EXPIRED,
            "queue": group.queue_id,
            "group": group.name,
            "count": done.count,
        },
    )


def _find(
    group: ConsumerGroup, queue: QueueDefinition, known: Group, token: UUID
) -> _Expiry | None:
    """Plan an expiry that puts ``token`` into the registration; None if there is no such group."""
    if queue.expire_after is None:
        return None
    # The registration's token is read first. If it is the same when the plan is applied, all that
    # was read belongs to this registration, and no seek has moved the group meanwhile.
    before = group.read_registrations(serial=True).get(known.registered_as)
    if before is None:
        return None
    try:
        state = group.read(every_waiting=True)
    except QueueStateError:
        return None
    stop = group.ledger.read_head().next
    skip_before = state.sure_now - queue.expire_after
    expiry = _plan(
        state,
        _read_old_blocks(group, state, stop, skip_before),
        stop=stop,
        skip_before=skip_before,
        # Dead letters that nobody redrives do expire.
        max_deliveries=0 if group.name == ADMIN_GROUP else queue.max_deliveries,
        token=token,
    )
    ours = change_token(known.registered_as, before, token)
    return replace(expiry, ops=(ours, *expiry.ops))


def _read_old_blocks(
    group: ConsumerGroup, state: GroupState, stop: int, skip_before: datetime
) -> list[LedgerBlock]:
    """The blocks from the floor on, up to the first that was not published before ``skip_before``.

    Two reads per 500 blocks. A block of the future does not end the search. If the clocks of
    coordinators differ by less, an older block may come after that first one, and expires later.
    """
    floor = state.floor

    def is_old(block: LedgerBlock) -> bool:
        return min(block.published_at, block.there_by or block.published_at) < skip_before

    def stream(at: int) -> Iterator[LedgerBlock]:
        while at < stop:
            some = group.ledger.locate(Range(at, stop), limit=_BLOCKS_READ)
            yield from some
            at = some[-1].monotons.stop

    try:
        return list(takewhile(is_old, aged(stream(floor), state.sure_now)))
    except InvariantError as error:
        if group.read(every_waiting=True).floor == floor:
            raise
        # Readers have settled these messages since, and another repair run has trimmed them.
        raise ContentionError(f"{group} goes on while its messages are looked at") from error


def _few_delayed(blocks: Sequence[LedgerBlock], now: datetime) -> list[LedgerBlock]:
    """The first blocks, as many as can be stepped over without more rows than fit."""
    delayed = 0
    for number, block in enumerate(blocks):
        delayed += block.visible_at is not None and block.visible_at > now
        if delayed > _ROWS_AT_ONCE:
            return list(blocks[:number])
    return list(blocks)
