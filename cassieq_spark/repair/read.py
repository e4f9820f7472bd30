"""What the repair reads of queues.

First it sees all of them: heads and groups, not what they hold. These are plain reads of different
moments, so they only decide whether a step looks at a queue now or at the next run: what they miss
is late, never lost. A step that has something to do reads serially, in an order that makes its
decision safe.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from cassieq_spark.errors import ConnectError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import GroupState, Head, Slot, slots_of
from cassieq_spark.groups.state import head_of as group_head_of
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group, LedgerHead, group_of, head_of, seek_pin_of
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.store.protocol import (
    Row,
    Slice,
    Store,
    partition_of_queue,
)
from cassieq_spark.store.tables import Table

logger = logging.getLogger(__name__)

#: A queue could not be seen before the steps; they look at it themselves.
NOT_SEEN = "repair.not_seen"

_OF_LEDGER = ("group", "head", "seek_pin")
_OF_GROUP_STATE = ("head", "registration", "slot")


@dataclass(frozen=True, slots=True)
class SeenLedger:
    """A ledger, but for its blocks.

    Attributes:
        head: Its head.
        groups: The registered groups.
        seek_pins: The monotons to which groups are being moved.
    """

    head: LedgerHead
    groups: tuple[Group, ...]
    seek_pins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SeenState:
    """The state of a group, but for what waits.

    Attributes:
        head: Its head.
        registrations: To which registration it belongs; at most one.
        slots: Those that hold messages.
    """

    head: Head
    registrations: frozenset[int]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one queue.

    Attributes:
        ledger: Its ledger.
        states: The state of each group that has one, read after the ledger.
        now: The server's clock, read before.
        ahead: How far it was ahead of this machine's, if they disagree; see `Rows.ahead`.
    """

    ledger: SeenLedger
    states: Mapping[str, SeenState]
    now: datetime
    ahead: timedelta = timedelta(0)

    def seen_state_of(self, group: Group) -> SeenState | None:
        """The state of this very registration; None if there is none."""
        found = self.states.get(group.name)
        return found if found and group.registered_as in found.registrations else None

    def state_of(self, group: Group) -> GroupState | None:
        """All of a group's state; None if it has none, or if messages may wait."""
        found = self.seen_state_of(group)
        if found is None:
            return None
        # I7: what waits was offered, and is not finalised. And waiting rows are counted.
        may_wait = found.head.waiting_version and found.head.pointer > self.ledger.head.finalised
        return None if may_wait else GroupState(found.head, found.slots, (), self.now)

    # The rest says whether a step has anything to do. True is no more than a reason to look again
    # at the next run.

    @property
    def has_nothing_owed(self) -> bool:
        """Whether all that was published is settled for every group, or there is none."""
        head = self.ledger.head
        return not self.ledger.groups or head.finalised == head.next

    @property
    def is_trimmed(self) -> bool:
        """Whether no row is left of a block that is settled; False may mean: not known."""
        return self.ledger.head.trimmed == self.ledger.head.finalised

    def has_nothing_to_finalise(self, queue: QueueDefinition) -> bool:
        """Whether a group is still owed ``finalised``, or nothing goes without one.

        Leaves out what a crash has left.
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
    """See every queue that is or was. Two scans that leave out blocks and what waits, and a read.

    A queue whose rows can't be made sense of is left out: the steps look at it themselves.

    Args:
        store: Where the queues are kept.
        name: Of a queue that is or was; its row comes with the time.

    Raises:
        StoreError: A scan failed, be it for the rows of one queue only; see `see_each`.
    """
    clocks = store.read_rows(partition_of_queue(name))
    now = clocks.now
    if now is None:
        return {}
    strange: set[QueueId] = set()
    ledgers: dict[QueueId, SeenLedger] = {}
    for queue_id, rows in groupby(store.scan(Table.LEDGER, _OF_LEDGER), _queue_id):
        found = list(rows)
        with _told_strange(queue_id, strange):
            if (ledger := _ledger_of(found)) is not None:
                ledgers[queue_id] = ledger
    states: defaultdict[QueueId, dict[str, SeenState]] = defaultdict(dict)
    for (queue_id, group), rows in groupby(
        store.scan(Table.GROUP_STATE, _OF_GROUP_STATE), _group_key
    ):
        found = list(rows)
        with _told_strange(queue_id, strange):
            if (state := _seen_state_of(found)) is not None:
                states[queue_id][group] = state
    return {
        key: Seen(ledger, states.get(key, {}), now, clocks.ahead)
        for key, ledger in ledgers.items()
        if key not in strange
    }


def see_each(store: Store, queue_ids: Iterable[QueueId]) -> dict[QueueId, Seen]:
    """See queues one by one, as `see` does; those that can't be seen are left out.

    Raises:
        ConnectError: No node answers.
    """
    strange: set[QueueId] = set()
    found: dict[QueueId, Seen] = {}
    for queue_id in queue_ids:
        with _told_strange(queue_id, strange):
            if (seen := see(Ledger(store, queue_id))) is not None:
                found[queue_id] = seen
    return found


def see(ledger: Ledger) -> Seen | None:
    """See one queue; None if it has no ledger. A read, and one for each group."""
    found = ledger.read(Slice(kinds=_OF_LEDGER))
    seen = _ledger_of(found.rows)
    if seen is None or found.now is None:
        return None
    groups = [ConsumerGroup(ledger, known.name) for known in seen.groups]
    which = Slice(kinds=_OF_GROUP_STATE)
    read = {group.name: _seen_state_of(group.read_rows(which).rows) for group in groups}
    return Seen(seen, {name: each for name, each in read.items() if each}, found.now, found.ahead)


def read_ledger(ledger: Ledger) -> tuple[LedgerHead, list[LedgerBlock]]:
    """Read a ledger serially, the head first. A read, and one more for a thousand blocks.

    Every block from below the head's ``next`` and fence is there, from ``finalised`` on: should
    another repair run have trimmed some in between, it is told as it stands then, by one more
    read.

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
    """The monotons of ``within`` for which the ledger has no row (I1); pure."""
    return Ranges.of(within) - Ranges.of(*(block.monotons for block in blocks))


def read_floor(ledger: Ledger) -> int | None:
    """Lowest monoton that any group is owed; None without groups. Three reads for each group.

    Raises:
        ContentionError: A group's readers were faster than the repair again and again.
    """
    states = read_group_states(ledger)
    return min((state.floor for state in states.values()), default=None)


def _ledger_of(rows: Iterable[Row]) -> SeenLedger | None:
    kinds = _by_kind(rows)
    if not kinds["head"]:
        return None
    return SeenLedger(
        head_of(kinds["head"][0]),
        tuple(map(group_of, kinds["group"])),
        tuple(seek_pin_of(row).position for row in kinds["seek_pin"]),
    )


def _seen_state_of(rows: Iterable[Row]) -> SeenState | None:
    kinds = _by_kind(rows)
    if not kinds["head"]:
        return None
    return SeenState(
        group_head_of(kinds["head"][0]),
        frozenset(int(str(row["ordinal"])) for row in kinds["registration"]),
        tuple(slot for slot in slots_of(kinds["slot"]) if slot.monotons),
    )


@contextmanager
def _told_strange(queue_id: QueueId, strange: set[QueueId]) -> Iterator[None]:
    """What can't be seen now is looked at by each step: it fails there, and is reported."""
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


def _by_kind(rows: Iterable[Row]) -> defaultdict[str, list[Row]]:
    kinds: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[str(row["kind"])].append(row)
    return kinds


def _queue_id(row: Any) -> QueueId:
    return QueueId(row["queue_id"])


def _group_key(row: Any) -> tuple[QueueId, str]:
    return QueueId(row["queue_id"]), row["consumer_group"]
