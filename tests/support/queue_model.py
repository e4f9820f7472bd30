"""A queue in plain Python, message by message: checks every compare-and-set that is applied.

Invariants are those of docs/design.md section 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from cassieq_spark.delivery import state as delivery
from cassieq_spark.ledger import state as ledger
from cassieq_spark.model import Draft, LedgerBlock, QueueId, SinkBatch, block_time, to_millis
from cassieq_spark.stats import GroupStats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    Partition,
    partition_of_delivery,
    partition_of_ledger,
)
from cassieq_spark.store.tables import Table
from tests.support.faults import FakeClock


@dataclass(frozen=True)
class Place:
    """Where a message is that was offered and is owed; without a token it waits."""

    token: UUID | None
    due: int
    deliveries: int


@dataclass
class GroupModel:
    """What a group has been given."""

    starts_at: int
    head: delivery.Head | None = None
    slots: tuple[delivery.Slot, ...] = ()
    places: dict[int, Place] = field(default_factory=dict)
    handed: Counter[int] = field(default_factory=Counter)

    @property
    def pointer(self) -> int:
        return self.head.pointer if self.head else self.starts_at

    @property
    def floor(self) -> int:
        return min([self.pointer, *self.places])

    def held_by(self, token: UUID | None) -> dict[int, Place]:
        return {at: place for at, place in self.places.items() if place.token == token is not None}

    @property
    def tokens(self) -> set[UUID | None]:
        """Who has messages now; None if some wait."""
        return {None} | {place.token for place in self.places.values()}

    @property
    def everything_done(self) -> bool:
        """Whether all that was offered is settled, and had been handed out before that."""
        offered = range(self.starts_at, self.pointer)
        return not self.places and all(self.handed[at] for at in offered)

    def due(self, now: int) -> dict[int, Place]:
        return {at: place for at, place in self.places.items() if _is_due(place, now)}


class QueueModel:
    """Looks at the rows after each compare-and-set and asks whether it may be so.

    Attributes:
        publishing: Drafts that a publisher tries to publish now, with their batch.
        finished: Tokens whose batch its reader has declared done.
        retaken: Tokens that a replaying reader takes up again.
    """

    def __init__(
        self, store: MemoryStore, queue_id: QueueId, clock: FakeClock, lease: timedelta
    ) -> None:
        self._store = store
        self._queue_id = queue_id
        self._clock = clock
        self._lease = lease
        self.groups: dict[str, GroupModel] = {}
        self.publishing: list[tuple[Sequence[Draft], SinkBatch | None]] = []
        self.published: dict[UUID, LedgerBlock] = {}
        self.sinks: dict[str, int] = {}
        self.finished: set[UUID] = set()
        self.retaken: set[UUID] = set()
        self._tokens: set[UUID] = set()
        self.head, self._blocks = self._read_ledger()

    @property
    def now(self) -> int:
        return to_millis(self._clock.now)

    def watch(self, partition: Partition) -> None:
        """Check what a compare-and-set on ``partition`` has changed."""
        if partition.table is Table.LEDGER:
            self._watch_ledger()
        elif partition.table is Table.DELIVERY:
            self._watch_group(partition.key[1])

    def stats_of(self, name: str) -> GroupStats:
        """What `queue_stats` has to say."""
        group, now = self.groups[name], self.now
        due = group.due(now)
        leased = [at for at, place in group.places.items() if place.token and at not in due]
        depth = self.head.next - group.pointer + len(group.places)
        oldest = [each for each in self._blocks if group.floor in each.monotons]
        return GroupStats(
            group=name,
            depth=depth,
            leased=len(leased),
            due=len(due),
            waiting=len(group.places) - len(due) - len(leased),
            oldest_age=self._clock.now - oldest[0].published_at if depth else None,
            pointer=group.pointer,
            floor=group.floor,
        )

    def check_chunks(self) -> None:
        """I3, I7: each message that is not finalised is in exactly one chunk."""
        stored = Counter(
            (row["block"], offset)
            for row in self._store.scan(Table.CHUNK)
            for offset in range(row["start"], row["stop"])  # type: ignore[arg-type]
        )
        for block in self._blocks:
            for monoton in range(block.monotons.start, block.monotons.stop):
                if monoton >= self.head.finalised:
                    assert stored[block.block, monoton - block.monotons.start] == 1, (block, "I3")

    # -- the ledger ---------------------------------------------------------------------------

    def _read_ledger(self) -> tuple[ledger.LedgerHead, list[LedgerBlock]]:
        rows = self._store.read_rows(partition_of_ledger(self._queue_id)).rows
        (head,) = (ledger.head_of(row) for row in rows if row["kind"] == "head")
        return head, [ledger.block_of(row) for row in rows if row["kind"] == "block"]

    def _watch_ledger(self) -> None:
        old, old_blocks = self.head, self._blocks
        self.head, self._blocks = head, blocks = self._read_ledger()
        self._check_tiling()
        assert head.next >= old.next, "I1"
        assert head.finalised >= old.finalised, "I7"
        assert head.fence >= old.fence, "I10"
        gone = {each.block for each in old_blocks} - {each.block for each in blocks}
        for block in old_blocks:
            kept = block in blocks
            assert kept or block.block in gone, (block, "I2: changed")
            assert kept or block.monotons.stop <= head.finalised, (block, "I2: trimmed")
        self._watch_publication(old, [each for each in blocks if each not in old_blocks])
        self._watch_groups(old)
        assert head.finalised <= min(
            (group.floor for group in self.groups.values()), default=head.next
        ), "I7"

    def _check_tiling(self) -> None:
        at = self._blocks[0].monotons.start if self._blocks else self.head.finalised
        assert at <= self.head.finalised, "I1: hole at the low end"
        for block in self._blocks:
            assert block.monotons.start == at, (block, "I1")
            at = block.monotons.stop
        assert at == self.head.next, "I1"

    def _watch_publication(self, old: ledger.LedgerHead, new: Sequence[LedgerBlock]) -> None:
        sinks = self._read_sinks()
        changed = {name: last for name, last in sinks.items() if self.sinks.get(name) != last}
        self.sinks = sinks
        if not new:
            assert not changed, "I4: a sink moved without its messages"
            return
        assert new[0].monotons.start == old.next, "I1"
        drafts = [Draft(each.block, len(each.monotons)) for each in new]
        batches = [batch for tried, batch in self.publishing if list(tried) == drafts]
        assert batches, (drafts, "nobody publishes this any more")
        batch = batches[0]
        assert changed == ({batch.sink: batch.batch_id} if batch else {}), "I4"
        for block in new:
            assert block.block not in self.published, (block, "I1: published twice")
            assert block_time(block.block) > old.fence, (block, "I10")
            assert block.published_at == self._clock.now
            self.published[block.block] = block

    def _read_sinks(self) -> dict[str, int]:
        rows = self._store.read_rows(partition_of_ledger(self._queue_id)).rows
        sinks = {str(row["name"]): row["batch_id"] for row in rows if row["kind"] == "sink"}
        for name, last in self.sinks.items():
            assert sinks[name] >= last, "I4"  # type: ignore[operator]
        return sinks  # type: ignore[return-value]

    def _watch_groups(self, old: ledger.LedgerHead) -> None:
        rows = self._store.read_rows(partition_of_ledger(self._queue_id)).rows
        found = [ledger.group_of(row) for row in rows if row["kind"] == "group"]
        new = [each for each in found if each.name not in self.groups]
        assert self.head.groups_version == old.groups_version + len(new), "I7"
        for group in new:
            assert old.finalised <= group.starts_at <= old.next, (group, "I7")
            self.groups[group.name] = GroupModel(group.starts_at)

    # -- delivery -----------------------------------------------------------------------------

    def _watch_group(self, name: str) -> None:
        group = self.groups[name]
        rows = self._store.read_rows(partition_of_delivery(self._queue_id, name)).rows
        old_head, old_slots, old_places = group.head, group.slots, group.places
        old_pointer = group.pointer
        group.head, group.slots = delivery.head_of(rows[0]), delivery.slots_of(rows)
        group.places = _places(group.slots, delivery.waiting_of(rows))
        if old_head is None:
            assert group.pointer == group.starts_at
            assert not group.places
            return
        assert old_pointer <= group.pointer <= self.head.next, "I5"
        assert all(at < group.pointer for at in group.places), "I5: offered, and not"
        for at in sorted({*old_places, *group.places, *range(old_pointer, group.pointer)}):
            was, now = old_places.get(at), group.places.get(at)
            if was != now:
                self._check_move(at, was, now, group, fresh=at >= old_pointer)
            assert now is None or now.deliveries == group.handed[at], (at, now, "I8")
        self._check_rows(group, old_head, old_slots, rows)
        self._tokens |= {slot.lease for slot in group.slots}

    def _check_move(
        self, at: int, was: Place | None, now: Place | None, group: GroupModel, *, fresh: bool
    ) -> None:
        move = (at, was, now)
        lasts_until = self.now + self._lease // timedelta(milliseconds=1)
        if now is None:
            assert was is not None, (move, "I5: stepped over")
            assert was.token in self.finished, (move, "I6: settled without its token")
        elif now.token is None:
            assert was is not None, (move, "I5: a settled or fresh message waits")
            assert _is_due(was, self.now), (move, "I6: taken too early")
        elif was is not None and was.token == now.token:
            again = now.deliveries - was.deliveries
            assert again == 0 or (again == 1 and now.token in self.retaken), (move, "I8")
            assert now.due in (self.now, lasts_until), move
            group.handed[at] += again
        else:
            assert fresh or was is not None, (move, "I5: settled, and leased again")
            assert was is None or _is_due(was, self.now), (move, "I6: taken too early")
            assert now.token not in self._tokens, (move, "I6: token used twice")
            assert now.due == lasts_until, move
            group.handed[at] += 1

    def _check_rows(
        self,
        group: GroupModel,
        old_head: delivery.Head,
        old_slots: Sequence[delivery.Slot],
        rows: Sequence[object],
    ) -> None:
        assert group.head is not None
        assert group.head.waiting_from >= old_head.waiting_from
        waiting = delivery.waiting_of(rows)  # type: ignore[arg-type]
        assert all(each.due >= group.head.waiting_from for each in waiting), "out of sight"
        assert [slot.number for slot in group.slots] == list(range(len(group.slots)))
        if len(group.slots) > len(old_slots):
            assert all(slot.monotons for slot in group.slots), "a slot was free"
        fresh = {slot.lease for slot in group.slots if slot.monotons} - self._tokens
        leased = [slot for slot in group.slots if slot.lease in fresh and slot.monotons]
        assert len(leased) <= 1, "a batch is one range"


def _places(
    slots: Sequence[delivery.Slot], waiting: Sequence[delivery.Waiting]
) -> dict[int, Place]:
    owed = [
        (slot.monotons, Place(slot.lease, to_millis(slot.due_at), slot.deliveries))
        for slot in slots
    ]
    owed += [(each.monotons, Place(None, each.due, each.deliveries)) for each in waiting]
    places: dict[int, Place] = {}
    for monotons, place in owed:
        for at in range(monotons.start, monotons.stop):
            assert at not in places, (at, place, places[at], "I5, I6: in two places")
            places[at] = place
    return places


def _is_due(place: Place, now: int) -> bool:
    return place.due <= now if place.token is None else place.due < now
