"""Repairs amid publishes and readers, crashing anywhere: I1, I3, I7 and I10 of docs/design.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.errors import (
    ContentionError,
    InvariantError,
    NotAppliedError,
    OutcomeUnknownError,
)
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Once
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import BucketSlice, Chunk, PendingBlock, QueueId, Range
from cassieq_spark.repair.report import Outcome
from cassieq_spark.repair.scan import buckets_of
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Row, Rows, Slice, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import WrappedStore
from cassieq_spark.testing.tombstones import TombstoneStore
from tests.support.ailing_queue import AilingQueueStore, copy_of
from tests.unit.repair.repaired_queue import BUCKET_SIZE, WRITE_TIMEOUT, RepairedQueue

GROUPS = st.sampled_from(["billing", "shipping"])
COUNTS = st.integers(1, 14)
KEY_LIFETIME = timedelta(minutes=3)
#: Deleted rows that a read may come across, with two groups that take turns.
MOST_TOMBSTONES = 4


class Crash(BaseException):
    """The repair's process ends: nothing may catch it."""


class CrashingStore(WrappedStore):
    """Crashes at the ``left``-th call: before it takes effect, after it, or amid deletions."""

    def __init__(self, store: Store, left: int, *, late: bool) -> None:
        super().__init__(store)
        self._left = left
        self._late = late

    def _is_last(self) -> bool:
        self._left -= 1
        if self._left == 0 and not self._late:
            raise Crash
        return self._left == 0

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        last = self._is_last()
        applied = super().cas(partition, ops)
        if last:
            raise Crash
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        if self._is_last():
            raise Crash
        return super().read_rows(partition, which, serial=serial)

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        if self._is_last():
            raise Crash
        return super().read_chunks(queue_id, slices)

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        wanted = list(buckets)
        if self._is_last():
            super().delete_buckets(queue_id, wanted[::2])
            raise Crash
        super().delete_buckets(queue_id, wanted)

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        if self._is_last():
            raise Crash
        return super().scan(table, kinds)


def _wading() -> RepairedQueue:
    queue = RepairedQueue()
    queue.store = TombstoneStore(queue.store)  # type: ignore[assignment]
    return queue


@dataclass
class World:
    """A queue, and what must be true of it."""

    queue: RepairedQueue = field(default_factory=_wading)
    published: dict[UUID, Range] = field(default_factory=dict)
    unpublished: list[UUID] = field(default_factory=list)
    crashed: bool = False

    @property
    def tombstones(self) -> TombstoneStore:
        store = self.queue.store
        assert isinstance(store, TombstoneStore)
        return store

    def publish(self, counts: Sequence[int]) -> None:
        start = max((each.stop for each in self.published.values()), default=0)
        for block, count in zip(self.queue.publish(*counts), counts, strict=True):
            self.published[block] = Range(start, start + count)
            start += count

    def put(self, count: int) -> None:
        """Publish messages one by one, each under a key of its own."""
        for _ in range(count):
            start = max((each.stop for each in self.published.values()), default=0)
            self.queue.clock.advance(timedelta(milliseconds=1))
            block = self.queue.write(1)
            once = Once(f"key:{block}", KEY_LIFETIME, self.queue.clock())
            done = publish(
                Ledger(self.queue.store, self.queue.queue_id), [PendingBlock(block, 1)], batch=once
            )
            assert done.monotons == Range(start, start + 1)
            self.published[block] = Range(start, start + 1)

    def check(self) -> None:
        """Nothing that a group is owed is missing, and the ledger has no hole there."""
        finalised, stored = self.queue.finalised, self.queue.buckets()
        assert finalised <= self.floor()
        for block, monotons in self.published.items():
            assert self.alive(monotons, finalised, block) <= stored
        at = None
        for each in Ledger(self.queue.store, self.queue.queue_id).read_blocks():
            assert at in (None, each.monotons.start)
            assert self.published[each.block] == each.monotons
            at = each.monotons.stop

    def check_repaired(self) -> None:
        """After a whole repair run: besides, what is settled is gone, and so is all garbage."""
        finalised, stored = self.queue.finalised, self.queue.buckets()
        assert finalised == self.floor()
        expected: set[tuple[UUID, int]] = set()
        for block, monotons in self.published.items():
            alive = self.alive(monotons, finalised, block)
            expected |= alive
            if self.crashed and alive:
                # Buckets that a crash has left below a straddling `finalised` go with their block.
                expected |= {each for each in stored if each[0] == block}
        assert stored == expected
        assert set(self.queue.ledger_blocks()) == {
            block for block, monotons in self.published.items() if monotons.stop > finalised
        }

    def floor(self) -> int:
        """Lowest monoton that any group is owed; nobody reads meanwhile."""
        groups = [
            ConsumerGroup(Ledger(self.queue.store, self.queue.queue_id), name)
            for name in self.queue.leases
        ]
        return min((group.read(every_waiting=True).floor for group in groups), default=0)

    @staticmethod
    def alive(monotons: Range, finalised: int, block: UUID) -> set[tuple[UUID, int]]:
        """The buckets that hold messages at or above ``finalised``."""
        offsets = monotons & Range(finalised, max(finalised, monotons.stop))
        within = Range(offsets.start - monotons.start, offsets.stop - monotons.start)
        return {(block, bucket) for bucket in buckets_of(within, BUCKET_SIZE)}

    def repair(self, store: Store | None = None) -> None:
        self.tombstones.limit, self.tombstones.most = MOST_TOMBSTONES, 0
        report = self.queue.repair(store=store or self.queue.store)
        self.tombstones.limit = None
        assert report.is_whole
        assert not report.failed, report.to_json()
        assert self.tombstones.most <= MOST_TOMBSTONES

    def race(self, group: str, count: int, at_call: int) -> None:
        """Somebody reads in the middle of a repair run."""
        troubled = FaultyStore(self.queue.store)
        troubled.interrupt(lambda: self.queue.consume(group, count), after=at_call)
        self.repair(troubled)

    def crash(self, at_call: int, *, late: bool) -> None:
        self.crashed = True
        with suppress(Crash):
            self.queue.repair(store=CrashingStore(self.queue.store, at_call, late=late))


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.lists(COUNTS, min_size=1, max_size=3)),
    st.tuples(st.just("put"), COUNTS),
    st.tuples(st.just("write"), COUNTS),
    st.tuples(st.just("consume"), GROUPS, COUNTS),
    st.tuples(st.just("forget"), GROUPS, COUNTS),
    st.tuples(st.just("pass time"), st.sampled_from([timedelta(minutes=2), WRITE_TIMEOUT])),
    st.tuples(st.just("repair")),
    st.tuples(st.just("race"), GROUPS, COUNTS, st.integers(0, 20)),
    st.tuples(st.just("crash"), st.integers(1, 40), st.booleans()),
)


@given(st.lists(STEPS, max_size=30))
def test_a_repair_deletes_what_is_settled_and_never_more(steps: list[tuple[object, ...]]):
    world = World()
    for step in steps:
        match step:
            case ("publish", list(counts)):
                world.publish(counts)
            case ("put", int(count)):
                world.put(count)
            case ("write", int(count)):
                world.unpublished.append(world.queue.write(count))
            case ("consume", str(group), int(count)):
                world.queue.consume(group, count)
            case ("forget", str(group), int(count)):
                world.queue.consume(group, count, ack=False)
            case ("pass time", timedelta() as by):
                world.queue.clock.advance(by)
            case ("race", str(group), int(count), int(call)):
                world.race(group, count, call)
            case ("crash", int(call), bool(late)):
                world.crash(call, late=late)
            case _:
                world.repair()
        world.check()

    world.queue.clock.advance(WRITE_TIMEOUT)
    world.repair()

    world.check()
    world.check_repaired()


@given(
    counts=st.lists(COUNTS, min_size=1, max_size=4),
    at_call=st.integers(1, 40),
    late=st.booleans(),
)
def test_wherever_a_repair_crashes_the_next_one_finishes(
    counts: list[int], at_call: int, *, late: bool
):
    world = World()
    world.publish(counts)
    world.queue.settle("billing", sum(counts))
    world.queue.write(5)
    world.queue.clock.advance(WRITE_TIMEOUT)

    world.crash(at_call, late=late)
    world.repair()

    assert world.queue.finalised == sum(counts)
    assert not world.queue.buckets()
    assert not world.queue.ledger_blocks()


ERRORS = (
    NotAppliedError("no"),
    OutcomeUnknownError("who knows"),
    ContentionError("lost"),
    InvariantError("contradicts itself"),
    KeyError("kind"),
)
DONE = st.one_of(
    st.tuples(st.just("publish"), COUNTS),
    st.tuples(st.just("write"), COUNTS),
    st.tuples(st.just("consume"), COUNTS, st.booleans()),
    st.tuples(st.just("pass time"), st.sampled_from([timedelta(minutes=2), timedelta(hours=30)])),
    st.tuples(st.just("purge")),
)


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), DONE), min_size=1, max_size=20),
    ailing=st.sampled_from("abc"),
    error=st.sampled_from(ERRORS),
    after=st.integers(0, 60),
)
def test_what_ails_one_queue_changes_nothing_of_what_is_done_for_another(
    steps: list[tuple[str, tuple[object, ...]]], ailing: str, error: Exception, after: int
):
    first = RepairedQueue("a", max_deliveries=2, expire_after=timedelta(days=1))
    queues = {"a": first} | {
        name: RepairedQueue(name, beside=first, max_deliveries=2, dead_letter_queue="a")
        for name in "bc"
    }
    for name, step in steps:
        queue = queues[name]
        match step:
            case ("publish", int(count)):
                queue.publish(count)
            case ("write", int(count)):
                queue.write(count)
            case ("consume", int(count), bool(ack)):
                queue.consume("billing", count, ack=ack)
            case ("pass time", timedelta() as by):
                queue.clock.advance(by)
            case _:
                queue.purge()
    well = copy_of(first.store)
    expected = first.repair(store=well)

    report = first.repair(
        store=AilingQueueStore(first.store, queues[ailing].queue_id, error, after=after)
    )

    # What is dead goes from one queue to another: that one is no other's business.
    others = set("abc") - {ailing, "a"}
    assert set(report.failed) <= {ailing}
    for name in others:
        if not expected.queues[name].counts.dead_lettered:
            assert report.queues[name].counts == expected.queues[name].counts
            assert stored_of(first.store, name) == stored_of(well, name)
    assert (report.outcome is Outcome.SOME_FAILED) == bool(report.failed)


def stored_of(store: MemoryStore, name: str) -> object:
    """The buckets of a queue, and its ledgers."""
    ids = {f"{name}@{version}" for version in range(30)}
    buckets = {key for key in store._chunks if key[0] in ids}
    ledgers = {
        partition.key: rows
        for partition, rows in store._rows.items()
        if partition.table is Table.LEDGER and partition.key[0] in ids
    }
    return buckets, ledgers
