"""What the repair reads of queues: the survey of all queues, and what a step reads of one queue.

The survey reads heads and groups, but no blocks and no waiting rows. These are plain reads at
different moments, so they decide only whether a step looks at a queue in this run or in the next.
A step that has something to do reads serially, in an order that makes its decision safe.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

from cassieq_spark.errors import ConnectError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import GroupState, Head, Slot, slots_of
from cassieq_spark.groups.state import head_of as group_head_of
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group, LedgerHead, group_of, head_of, seek_pin_of
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.store.protocol import Row, Slice, Store, partition_of_queue
from cassieq_spark.store.tables import Table

logger = logging.getLogger(__name__)

#: The survey could not read a queue; each step reads it.
NOT_SEEN = "repair.not_seen"

_OF_LEDGER = ("group", "head", "seek_pin")
_OF_GROUP_STATE = ("head", "registration", "slot")


@dataclass(frozen=True, slots=True)
class SeenLedger:
    """A ledger without its blocks; ``seek_pins`` are the monotons to which groups are moved."""

    head: LedgerHead
    groups: tuple[Group, ...]
    seek_pins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SeenState:
    """The state of a group without waiting rows.

    Attributes:
        head: The head of the state.
        registrations: The registration that the state belongs to; at most one.
        slots: The slots that hold messages.
    """

    head: Head
    registrations: frozenset[int]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One queue in the survey.

    Attributes:
        ledger: The ledger of the queue.
        states: The state of each group that has a state, read after the ledger.
        now: The server's time, read before both.
        ahead: How far the server's clock is ahead of this machine's; see `Rows.ahead`.
    """

    ledger: SeenLedger
    states: Mapping[str, SeenState]
    now: datetime
    ahead: timedelta = timedelta(0)

    def seen_state_of(self, group: Group) -> SeenState | None:
        """The state of this registration of a group; None if it has no state."""
        found = self.states.get(group.name)
        return found if found and group.registered_as in found.registrations else None

    def state_of(self, group: Group) -> GroupState | None:
        """The whole state of a group; None if it has no state, or if messages may wait."""
        found = self.seen_state_of(group)
        if found is None:
            return None
        # I7: waiting messages were offered, and are not finalised. And changes are counted.
        may_wait = found.head.waiting_version and found.head.pointer > self.ledger.head.finalised
        return None if may_wait else GroupState(found.head, found.slots, (), self.now)

    # The rest shows whether a step has nothing to do in this run.

    @property
    def has_nothing_owed(self) -> bool:
        """True if every group has settled all messages that were published."""
        head = self.ledger.head
        return not self.ledger.groups or head.finalised == head.next

    @property
    def is_trimmed(self) -> bool:
        """True if no row of a settled block is left; False if rows are left, or may be."""
        return self.ledger.head.trimmed == self.ledger.head.finalised

    def has_nothing_to_finalise(self, queue: QueueDefinition) -> bool:
        """True if a group is owed the message at ``finalised``, or no message is there to expire.

        Blocks that a crash has left are not considered.
        """
        head, groups = self.ledger.head, self.ledger.groups
        if not groups:
            return queue.expire_after is None or head.finalised == head.next
        is_pinned = any(position <= head.finalised for position in self.ledger.seek_pins)
        return is_pinned or any(self._keeps_finalised(group) for group in groups)

    def _keeps_finalised(self, group: Group) -> bool:
        found = self.seen_state_of(group)
        if found is None:
            return False
        held = [slot.monotons.start for slot in found.slots]
        return min([found.head.pointer, *held]) <= self.ledger.head.finalised


def see_all(store: Store, name: str) -> dict[QueueId, Seen]:
    """Survey all queues, without blocks and waiting rows. Two scans and one read.

    Queues whose rows are invalid are left out: the steps read them, and fail.

    Args:
        store: Where the queues are kept.
        name: Name of any queue; the server's time is read with its row.

    Raises:
        StoreError: A scan failed; the rows of one queue may be the cause, see `see_one`.
    """
    clocks = store.read_rows(partition_of_queue(name))
    now = clocks.now
    if now is None:
        return {}
    strange: set[QueueId] = set()
    ledgers: dict[QueueId, SeenLedger] = {}
    by_queue = groupby(store.scan(Table.LEDGER, _OF_LEDGER), itemgetter("queue_id"))
    for queue_id, rows in by_queue:
        found = list(rows)
        with _told_strange(queue_id, strange):
            if (ledger := _ledger_of(found)) is not None:
                ledgers[queue_id] = ledger
    states: defaultdict[QueueId, dict[str, SeenState]] = defaultdict(dict)
    state_rows = store.scan(Table.GROUP_STATE, _OF_GROUP_STATE)
    for (queue_id, group), rows in groupby(state_rows, itemgetter("queue_id", "consumer_group")):
        found = list(rows)
        with _told_strange(queue_id, strange):
            if (state := _seen_state_of(found)) is not None:
                states[queue_id][group] = state
    return {
        key: Seen(ledger, states.get(key, {}), now, clocks.ahead)
        for key, ledger in ledgers.items()
        if key not in strange
    }


def see_one(store: Store, queue_id: QueueId) -> Seen | None:
    """Survey one queue as `see` does; None also if the queue cannot be read.

    Raises:
        ConnectError: No node answers.
    """
    with _told_strange(queue_id, set()):
        return see(Ledger(store, queue_id))
    return None


def see(ledger: Ledger) -> Seen | None:
    """Survey one queue; None if it has no ledger. One read, and one per group."""
    found = ledger.read(Slice(kinds=_OF_LEDGER))
    seen = _ledger_of(found.rows)
    if seen is None or found.now is None:
        return None
    groups = [ConsumerGroup(ledger, known.name) for known in seen.groups]
    which = Slice(kinds=_OF_GROUP_STATE)
    read = {group.name: _seen_state_of(group.read_rows(which).rows) for group in groups}
    return Seen(seen, {name: each for name, each in read.items() if each}, found.now, found.ahead)


def read_ledger(ledger: Ledger) -> tuple[LedgerHead, list[LedgerBlock]]:
    """Read a ledger serially, the head first. One read, and one per thousand blocks.

    The blocks below the head's ``next`` and fence are complete from ``finalised`` on. If another
    repair run has trimmed some blocks between the reads, ``finalised`` is read again.

    Raises:
        QueueStateError: There is no such ledger.
    """
    head = ledger.read_head(serial=True)
    blocks = ledger.read_blocks(start=head.trimmed, serial=True)
    alive = Range(head.finalised, head.next)
    if missing_rows(blocks, alive):
        finalised = ledger.read_head(serial=True).finalised
        head = replace(head, finalised=min(finalised, head.next))
    return head, blocks


def missing_rows(blocks: Iterable[LedgerBlock], within: Range) -> Ranges:
    """The monotons of ``within`` for which the ledger has no row (I1)."""
    return Ranges.of(within) - Ranges.of(*(block.monotons for block in blocks))


def _ledger_of(rows: Iterable[Row]) -> SeenLedger | None:
    kinds = by_kind(rows)
    if not kinds["head"]:
        return None
    return SeenLedger(
        head_of(kinds["head"][0]),
        tuple(map(group_of, kinds["group"])),
        tuple(seek_pin_of(row).position for row in kinds["seek_pin"]),
    )


def _seen_state_of(rows: Iterable[Row]) -> SeenState | None:
    kinds = by_kind(rows)
    if not kinds["head"]:
        return None
    return SeenState(
        group_head_of(kinds["head"][0]),
        frozenset(int(str(row["ordinal"])) for row in kinds["registration"]),
        tuple(slot for slot in slots_of(kinds["slot"]) if slot.monotons),
    )


@contextmanager
def _told_strange(queue_id: QueueId, strange: set[QueueId]) -> Iterator[None]:
    """Log an error of one queue, and leave the queue out: each step reads it, and reports it."""
    try:
        yield
    except ConnectError:
        raise
    except Exception as error:  # noqa: BLE001 (rows of one queue must not hide the others)
        strange.add(queue_id)
        logger.warning(
            "queue %s: could not be read in the survey: %s",
            queue_id,
            error,
            extra={"action": NOT_SEEN, "queue": queue_id},
        )


def by_kind(rows: Iterable[Row]) -> defaultdict[str, list[Row]]:
    """Rows of a ledger or a group state, by their kind."""
    kinds: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[str(row["kind"])].append(row)
    return kinds
