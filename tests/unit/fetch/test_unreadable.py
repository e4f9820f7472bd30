"""Chunks that something else has written: each is an error of its own messages alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from cassieq_spark.errors import LeaseLostError, UnreadableError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import Unreadable, fetch
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import BucketSlice, Chunk, QueueId, Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import make_queue

COUNT = 14
EVERY = Range(0, COUNT)


class Scene:
    """Fourteen messages, four to a chunk and eight to a bucket."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.queue = make_queue(self.store)
        values = pa.array([b"%d" % number for number in range(COUNT)])
        batch = pa.record_batch({"value": values})
        written = write_block(self.store, self.queue, [batch], SinkOptions(queue="q"))
        publish(Ledger(self.store, self.queue.queue_id), [written])
        self.block = written.block

    def put(self, start: int, stop: int, data: bytes = b"nonsense") -> None:
        bucket = start // self.queue.bucket_size
        chunk = Chunk(bucket, start, stop, data)
        self.store.write_chunks(self.queue.queue_id, self.block, [chunk])

    def remove(self, start: int) -> None:
        for chunks in self.store._chunks.values():
            chunks.pop(start, None)

    def read(self, wanted: Range = EVERY) -> tuple[list[int], Ranges]:
        """Which messages come, all of them as they were put; and which can't be read."""
        found = Unreadable()
        pieces = find_pieces(
            Ledger(self.store, self.queue.queue_id), Ranges.of(wanted), deliveries=None
        )
        batches = fetch(self.store, self.queue, pieces, on_unreadable=found.add)
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert all(row["value"] == b"%d" % row["monoton"] for row in rows)
        lost = Ranges.of(*(part for each in found.by_reason().values() for part in each))
        return [row["monoton"] for row in rows], lost


def without(*gone: range) -> list[int]:
    return [each for each in range(COUNT) if not any(each in part for part in gone)]


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 4), (0, 0), (0, -1), (0, 1), (0, 5), (0, 2**62)], ids=str
)
def test_its_messages_are_left_out_whatever_its_row_says(start: int, stop: int):
    scene = Scene()
    scene.put(start, stop)

    assert scene.read() == (without(range(4)), Ranges.parse("0-4"))


@pytest.mark.parametrize("start", [4, 8, 12])
def test_those_behind_it_come(start: int):
    scene = Scene()
    scene.put(start, start + 4)
    stop = min(start + 4, COUNT)

    assert scene.read() == (without(range(start, stop)), Ranges.of(Range(start, stop)))


def test_two_in_a_row_are_told_one_by_one():
    scene = Scene()
    scene.put(4, 9)
    scene.put(8, 9)

    assert scene.read() == (without(range(4, 12)), Ranges.parse("4-12"))


def test_one_in_the_middle_of_another_takes_nothing_away():
    scene = Scene()
    scene.put(1, 3)
    scene.put(13, 16)

    assert scene.read() == (without(), Ranges())


def test_only_what_is_wanted_of_it_is_told():
    scene = Scene()
    scene.put(4, 8)

    assert scene.read(Range(2, 6)) == ([2, 3], Ranges.parse("4-6"))
    assert scene.read(Range(6, 9)) == ([8], Ranges.parse("6-8"))


def test_a_chunk_that_overlaps_the_one_before_gives_only_what_comes_after_it():
    scene = Scene()
    (whole,) = (chunks[0] for chunks in scene.store._chunks.values() if 0 in chunks)
    values = pa.record_batch({"value": pa.array([b"2", b"3"])})
    written = write_block(scene.store, scene.queue, [values], SinkOptions(queue="q"))
    part = scene.store._chunks[scene.queue.queue_id, written.block, 0][0]
    scene.remove(0)
    scene.put(0, 4, whole.data)
    scene.put(2, 4, part.data)

    assert scene.read() == (without(), Ranges())


def test_what_is_missing_is_lost_and_not_unreadable():
    scene = Scene()
    scene.remove(4)
    with pytest.raises(LeaseLostError, match="message 4 is not in the store"):
        scene.read()
    scene.put(0, 4)

    with pytest.raises(LeaseLostError, match="message 4 is not in the store"):
        scene.read()


def test_nobody_to_be_told_makes_it_an_error_that_names_them():
    scene = Scene()
    scene.put(4, 8)
    pieces = find_pieces(
        Ledger(scene.store, scene.queue.queue_id), Ranges.of(EVERY), deliveries=None
    )

    with pytest.raises(UnreadableError, match=r"messages \[4, 8\) are unreadable: .* offset 4"):
        list(fetch(scene.store, scene.queue, pieces))


class _OtherReplica(WrappedStore):
    """Answers the first read of each chunk with nonsense."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.reads = 0
        self._seen: set[int] = set()

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        self.reads += 1
        for where, chunk in super().read_chunks(queue_id, slices):
            is_new = chunk.start not in self._seen
            self._seen.add(chunk.start)
            yield where, replace(chunk, data=b"nonsense") if is_new else chunk


def test_what_another_replica_has_whole_is_read():
    scene = Scene()
    other = _OtherReplica(scene.store)
    pieces = find_pieces(
        Ledger(scene.store, scene.queue.queue_id), Ranges.of(EVERY), deliveries=None
    )

    batches = list(fetch(other, scene.queue, pieces))

    assert sum(batch.num_rows for batch in batches) == COUNT
    assert other.reads == 1 + 4
