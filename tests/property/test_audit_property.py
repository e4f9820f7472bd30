"""The audit finds what was damaged, message by message, and nothing while others are at work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark.errors import QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.queues import delete_queue, purge_queue
from cassieq_spark.repair.diagnosis import Problem
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Row, Rows, Slice, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore
from tests.unit.repair.repaired_queue import (
    BUCKET_SIZE,
    CHUNK_SIZE,
    WRITE_TIMEOUT,
    RepairedQueue,
    data_of,
)

COUNTS = st.integers(1, 14)
PLACES = st.integers(0, 40)
DAMAGES = st.one_of(
    st.tuples(st.just("lose a chunk"), PLACES),
    st.tuples(st.just("lose a bucket"), PLACES),
    st.tuples(st.just("truncate a chunk"), PLACES),
    st.tuples(st.just("one too many"), PLACES, st.integers(0, 13), st.integers(1, 4)),
    st.tuples(st.just("one astray"), PLACES, st.integers(0, 13), st.integers(1, 4)),
    st.tuples(st.just("a stranger"), COUNTS),
)


def damage(queue: RepairedQueue, what: tuple[object, ...]) -> None:
    """Change what is stored, behind everybody's back."""
    chunks = [
        (block, chunk)
        for (_, block, _), bucket in sorted(queue.store._chunks.items())
        for _, chunk in sorted(bucket.items())
    ]
    if not chunks:
        return
    block, chunk = chunks[int(str(what[1])) % len(chunks)]
    match what:
        case ("lose a chunk", _):
            queue.damage(block, lambda each: each.start != chunk.start)
        case ("lose a bucket", _):
            queue.store.delete_buckets(queue.queue_id, [(block, chunk.bucket)])
        case ("truncate a chunk", int(number)):
            queue.overwrite(block, chunk.start, chunk.data[: len(chunk.data) * number // 50])
        case ("one too many", _, int(start), int(count)):
            other = Chunk(start // BUCKET_SIZE, start, start + count, data_of(count))
            queue.store.write_chunks(queue.queue_id, block, [other])
        case ("one astray", _, int(start), int(count)):
            other = Chunk(20, start, start + count, data_of(count))
            queue.store.write_chunks(queue.queue_id, block, [other])
        case ("a stranger", int(count)):
            queue.write(count)


def expected(queue: RepairedQueue) -> set[tuple[Problem, int]]:
    """What is wrong, looked up message by message."""
    wrong: set[tuple[Problem, int]] = set()
    for block in Ledger(queue.store, queue.queue_id).read_blocks():
        chunks = [
            chunk
            for (_, owner, _), bucket in queue.store._chunks.items()
            for chunk in bucket.values()
            if owner == block.block
        ]
        offsets = [*range(block.count)]
        if block.kept is not None:
            offsets = [offset for part in block.kept.offsets for offset in numbers(part)]
        for monoton, offset in enumerate(offsets, block.monotons.start):
            if monoton < queue.finalised:
                continue
            copies = [each for each in chunks if each.start <= offset < each.stop]
            at_home = [each for each in copies if each.bucket == offset // BUCKET_SIZE]
            problems = {
                Problem.MISSING: not copies,
                Problem.OVERLAPPING: len(copies) > 1,
                Problem.MISPLACED: any(map(is_astray, copies)),
                Problem.UNREADABLE: any(
                    is_truncated(each) and is_looked_for(offset, each) for each in at_home
                ),
            }
            wrong |= {(problem, monoton) for problem, is_so in problems.items() if is_so}
    return wrong


def is_astray(chunk: Chunk) -> bool:
    offsets = (chunk.start, chunk.stop - 1)
    return any(offset // BUCKET_SIZE != chunk.bucket for offset in offsets)


def is_looked_for(offset: int, chunk: Chunk) -> bool:
    """Whether readers of a message come by a chunk: they begin at a multiple of the chunk size."""
    return chunk.start >= offset - offset % CHUNK_SIZE


def is_truncated(chunk: Chunk) -> bool:
    return chunk.data != data_of(chunk.stop - chunk.start)


@given(
    counts=st.lists(COUNTS, min_size=1, max_size=4),
    settled=st.integers(0, 30),
    damages=st.lists(DAMAGES, min_size=1, max_size=5),
    repeats=st.sets(st.integers(0, 40), max_size=12),
)
# Two findings apart: what is read again has to be looked at for each.
@example(
    counts=[3], settled=0, repeats=(), damages=[("lose a chunk", 0), ("one too many", 0, 1, 2)]
)
# A chunk that reaches beyond its bucket, and can't be read.
@example(
    counts=[9, 13],
    settled=0,
    repeats=(),
    damages=[("lose a bucket", 2), ("one too many", 0, 3, 2), ("truncate a chunk", 35)],
)
# One that reaches beyond the next multiple of the chunk size, where readers begin anew.
@example(
    counts=[3], settled=0, repeats=(), damages=[("one too many", 0, 0, 3), ("truncate a chunk", 0)]
)
# One that reaches beyond its block, which is followed by another block.
@example(
    counts=[3, 1],
    settled=0,
    repeats=(),
    damages=[("lose a chunk", 0), ("one too many", 0, 2, 2), ("truncate a chunk", 0)],
)
def test_what_is_damaged_is_found_and_nothing_else(
    counts: list[int],
    settled: int,
    damages: list[tuple[object, ...]],
    repeats: Collection[int],
):
    queue = RepairedQueue()
    queue.publish(*counts, repeats=repeats)
    queue.settle("billing", min(settled, sum(counts)))
    queue.repair(Step.FINALISE)
    for what in damages:
        damage(queue, what)

    report = queue.repair(Step.AUDIT, verify_data=True, explain=True)
    keys_only = queue.repair(Step.AUDIT)

    wrong = expected(queue)
    by_keys = {each for each in wrong if each[0] is not Problem.UNREADABLE}
    orders = report.queues["orders"]
    assert found(orders.findings) == wrong
    assert found(keys_only.queues["orders"].findings) == by_keys
    assert report.is_whole is not bool(wrong)
    assert [each.finding for each in orders.diagnoses] == orders.findings
    for each in orders.diagnoses:
        owed = {monoton for one in each.owed for part in one.monotons for monoton in numbers(part)}
        assert owed == {at for at in numbers(each.finding.monotons) if at >= queue.finalised}
    published = {block.block for block in Ledger(queue.store, queue.queue_id).read_blocks()}
    stored = {block for block, _ in queue.buckets()}
    assert {orphan.block for orphan in orders.orphans} == stored - published


def found(findings: Iterable) -> set[tuple[Problem, int]]:
    return {(each.problem, monoton) for each in findings for monoton in numbers(each.monotons)}


def numbers(part) -> range:
    return range(part.start, part.stop)


class BusyStore(WrappedStore):
    """Lets others do something before its calls, and amid a scan or a read of chunks."""

    def __init__(self, store: Store, actions: Sequence[tuple[int, Callable[[], None]]]) -> None:
        super().__init__(store)
        self._actions = sorted(actions, key=lambda action: action[0])
        self._calls = 0
        self.taken = 0

    def _pass(self) -> None:
        self._calls += 1
        while self._actions and self._actions[0][0] <= self._calls:
            _, action = self._actions.pop(0)
            self.taken += 1
            action()

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        raise AssertionError(f"an audit writes nothing: {partition} {ops}")

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._pass()
        return super().read_rows(partition, which, serial=serial)

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        for found_chunk in super().read_chunks(queue_id, slices):
            self._pass()
            yield found_chunk

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        # As in Cassandra, a scan is no snapshot: each bucket is as it is when its turn comes.
        self._pass()
        seen: set[tuple[UUID, int]] = set()
        while True:
            rows = (dict(row) for row in super().scan(table, kinds))
            keyed = [(tuple(str(row[name]) for name in sorted(row)), row) for row in rows]
            fresh = [(key, row) for key, row in keyed if key not in seen]
            if not fresh:
                return
            key, row = fresh[0]
            seen.add(key)  # type: ignore[arg-type]
            yield row
            self._pass()


ACTIONS = st.one_of(
    st.tuples(st.just("publish"), COUNTS),
    st.tuples(st.just("write"), COUNTS),
    st.tuples(st.just("settle"), st.sampled_from(["billing", "shipping"]), COUNTS),
    st.tuples(st.just("repair")),
    st.tuples(st.just("finish")),
    st.tuples(st.just("pass time"), st.sampled_from([timedelta(minutes=2), WRITE_TIMEOUT])),
    st.tuples(st.just("purge")),
    st.tuples(st.just("delete")),
)


def act(queue: RepairedQueue, action: tuple[object, ...]) -> None:
    with suppress(QueueStateError):
        match action:
            case ("publish", int(count)):
                queue.publish(count)
            case ("write", int(count)):
                queue.write(count)
            case ("settle", str(group), int(count)):
                queue.settle(group, count)
            case ("finish",):
                for group in queue.leases or ["billing"]:
                    queue.settle(group, 1000)
                queue.repair()
            case ("pass time", timedelta() as by):
                queue.clock.advance(by)
            case ("purge",):
                purge_queue(queue.store, "orders", force=True)
            case ("delete",):
                delete_queue(queue.store, "orders", force=True)
            case _:
                queue.repair()


@given(
    before=st.lists(ACTIONS, max_size=6),
    during=st.lists(st.tuples(st.integers(1, 30), ACTIONS), min_size=1, max_size=8),
    verify_data=st.booleans(),
)
def test_nothing_is_lost_while_others_publish_settle_repair_and_delete(
    before: list[tuple[object, ...]],
    during: list[tuple[int, tuple[object, ...]]],
    *,
    verify_data: bool,
):
    queue = RepairedQueue()
    queue.publish(9, 5)
    for action in before:
        act(queue, action)
    actions = [(at, lambda what=what: act(queue, what)) for at, what in during]
    busy = BusyStore(queue.store, actions)

    report = queue.repair(Step.AUDIT, store=busy, verify_data=verify_data, explain=True)

    assert report.is_whole, list(report.problems())
