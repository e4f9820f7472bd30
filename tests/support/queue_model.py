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
from cassieq_spark.model import (
    Draft,
    LedgerBlock,
    QueueId,
    Ranges,
    SinkBatch,
    block_time,
    to_millis,
)
from cassieq_spark.stats import GroupStats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    Partition,
    Row,
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
    registered_as: int
    token: UUID | None = None
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
        settled: Single messages that the reader with a token has declared done.
        retaken: Tokens that a replaying reader takes up again, or gives back in part.
    """

    def __init__(
        self, store: MemoryStore, queue_id: QueueId, clock: FakeClock, lease: timedelta
    ) -> None:
        self._store = store
        self._queue_id = queue_id
        self._clock = clock
        self._lease = lease
        self.groups: dict[str, GroupModel] = {}
        self.holds: dict[int, ledger.Hold] = {}
        self.publishing: list[tuple[Sequence[Draft], SinkBatch | None]] = []
        self.published: dict[UUID, LedgerBlock] = {}
        self.sinks: dict[str, int] = {}
        self.finished: set[UUID] = set()
        self.settled: set[tuple[UUID | None, int]] = set()
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
        held = [each.position for each in self.holds.values() if each.group == name]
        floor = min([group.floor, *held])
        oldest = [each for each in self._blocks if floor in each.monotons]
        return GroupStats(
            group=name,
            depth=depth,
            leased=len(leased),
            due=len(due),
            waiting=len(group.places) - len(due) - len(leased),
            oldest_age=self._clock.now - oldest[0].published_at
            if floor < self.head.next
            else None,
            pointer=group.pointer,
            floor=floor,
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
        for hold in self.holds.values():
            assert head.finalised <= hold.position, (hold, "I7")

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
        holds = [ledger.hold_of(row) for row in rows if row["kind"] == "hold"]
        new = [each for each in found if each.name not in self.groups]
        removed = self.groups.keys() - {each.name for each in found}
        placed = [each for each in holds if each.number not in self.holds]
        changes = len(new) + len(removed) + len(placed)
        assert self.head.groups_version == old.groups_version + changes, "I7"
        assert changes <= 1
        for name in removed:
            del self.groups[name]
        for group in new:
            assert old.finalised <= group.starts_at <= old.next, (group, "I7")
            assert group.registered_as == self.head.groups_version
            self.groups[group.name] = GroupModel(group.starts_at, group.registered_as)
        for hold in placed:
            assert old.finalised <= hold.position <= old.next, (hold, "I7")
        self.holds = {hold.number: hold for hold in holds}
        assert {hold.group for hold in holds} <= self.groups.keys()

    # -- delivery -----------------------------------------------------------------------------

    def _watch_group(self, name: str) -> None:
        rows = self._store.read_rows(partition_of_delivery(self._queue_id, name)).rows
        found = [row for row in rows if row["kind"] == "registration"]
        assert len(found) == (1 if rows else 0), "one registration, or nothing is left"
        group = self.groups.get(name)
        if group is None or not found or found[0]["ordinal"] != group.registered_as:
            return  # left by a group that is removed
        sought = group.token not in (None, found[0]["lease"])
        group.token = found[0]["lease"]  # type: ignore[assignment]
        old_head, old_slots, old_places = group.head, group.slots, group.places
        old_pointer = group.pointer
        group.head, group.slots = delivery.head_of(rows[0]), delivery.slots_of(rows)
        group.places = _places(group.slots, delivery.waiting_of(rows))
        if old_head is None:
            assert group.pointer == group.starts_at
            assert not group.places
            return
        if sought:
            self._check_seek(name, group, old_head, old_slots)
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

    def _check_seek(
        self,
        name: str,
        group: GroupModel,
        old_head: delivery.Head,
        old_slots: Sequence[delivery.Slot],
    ) -> None:
        """A group begins anew elsewhere."""
        assert group.head is not None
        assert self.head.finalised <= group.pointer <= self.head.next, "I7"
        held = [each.position for each in self.holds.values() if each.group == name]
        assert min(held) <= group.pointer, "I7: a sweep could pass it"
        assert not group.places, "I5"
        assert group.head.waiting_version > old_head.waiting_version, "I5"
        assert group.head.waiting_from >= old_head.waiting_from
        for old, new in zip(old_slots, group.slots, strict=True):
            assert not old.monotons or new.lease not in self._tokens, (old, new, "I6")
        self._tokens |= {slot.lease for slot in group.slots}
        group.starts_at = group.pointer
        group.handed.clear()

    def _check_move(
        self, at: int, was: Place | None, now: Place | None, group: GroupModel, *, fresh: bool
    ) -> None:
        move = (at, was, now)
        lasts_until = self.now + self._lease // timedelta(milliseconds=1)
        if now is None:
            assert was is not None, (move, "I5: stepped over")
            done = was.token in self.finished or (was.token, at) in self.settled
            assert done, (move, "I6: settled without its token")
        elif now.token is None:
            assert was is not None, (move, "I5: a settled or fresh message waits")
            theirs = was.token in self.retaken
            assert theirs or _is_due(was, self.now), (move, "I6: taken too early")
            assert now.deliveries == was.deliveries, (move, "I8")
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
        rows: Sequence[Row],
    ) -> None:
        assert group.head is not None
        for row in rows:
            if row["kind"] in ("slot", "waiting"):
                assert str(Ranges.parse(row["ranges"])) == row["ranges"]  # type: ignore[arg-type]
            if row["kind"] == "waiting":
                assert str(row["ranges"]).startswith(f"{row['position']}-"), "not where it is"
        assert group.head.waiting_from >= old_head.waiting_from
        waiting = delivery.waiting_of(rows)
        assert all(each.due >= group.head.waiting_from for each in waiting), "out of sight"
        assert [slot.number for slot in group.slots] == list(range(len(group.slots)))
        if len(group.slots) > len(old_slots):
            now = self._clock.now
            taken = [bool(slot.monotons) or slot.due_at > now for slot in group.slots]
            assert all(taken), "a slot was free"
        fresh = {slot.lease for slot in group.slots if slot.monotons} - self._tokens
        leased = [slot for slot in group.slots if slot.lease in fresh and slot.monotons]
        assert len(leased) <= 1, "a batch is one row"


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
        for at in members(monotons):
            assert at not in places, (at, place, places[at], "I5, I6: in two places")
            places[at] = place
    return places


def members(monotons: Ranges) -> list[int]:
    """Message by message."""
    return [at for part in monotons for at in range(part.start, part.stop)]


def _is_due(place: Place, now: int) -> bool:
    return place.due <= now if place.token is None else place.due < now
