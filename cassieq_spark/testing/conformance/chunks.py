"""Chunks: written, read, deleted and scanned in bulk."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid1

import pytest

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import SHAPES, Table
from cassieq_spark.testing.conformance.rows import block, fresh_ledger, fresh_queue_id, put, sink

MIB = 1 << 20
BUCKET_SIZE = 40
CHUNK_SIZE = 10


class ChunkContract:
    """Bulk writes, reads, deletes."""

    def test_chunks_come_back_in_order_slice_after_slice(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        chunks = _chunks(3 * BUCKET_SIZE)
        store.write_chunks(queue_id, block, iter(chunks))
        slices = [_bucket(block, number) for number in (2, 0, 1)]

        found = list(store.read_chunks(queue_id, iter(slices)))

        assert found == [
            (piece, chunk) for piece in slices for chunk in chunks if chunk.bucket == piece.bucket
        ]

    @pytest.mark.parametrize(
        ("start", "stop", "starts"),
        [(0, 40, [0, 10, 20, 30]), (10, 30, [10, 20]), (5, 21, [10, 20]), (31, 40, [])],
    )
    def test_a_slice_has_the_chunks_that_start_within_it(
        self, store: Store, start: int, stop: int, starts: list[int]
    ) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        store.write_chunks(queue_id, block, _chunks(BUCKET_SIZE))

        found = store.read_chunks(queue_id, [BucketSlice(block, 0, start, stop)])

        assert [chunk.start for _, chunk in found] == starts

    def test_slices_of_nothing_have_no_chunks(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        store.write_chunks(queue_id, block, [])
        store.write_chunks(queue_id, block, _chunks(BUCKET_SIZE))
        empty = BucketSlice(block, 0, 10, 10)
        missing_bucket = _bucket(block, 7)
        missing_block = _bucket(uuid1(), 0)

        assert list(store.read_chunks(queue_id, [])) == []
        assert list(store.read_chunks(queue_id, [empty, missing_bucket, missing_block])) == []

    def test_one_bucket_may_be_read_in_several_slices(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        store.write_chunks(queue_id, block, _chunks(BUCKET_SIZE))
        slices = [BucketSlice(block, 0, 0, 10), BucketSlice(block, 0, 10, 40)]

        found = list(store.read_chunks(queue_id, slices))

        starts = [(piece.start, chunk.start) for piece, chunk in found]
        assert starts == [(0, 0), (10, 10), (10, 20), (10, 30)]

    def test_writing_again_changes_nothing(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        chunks = _chunks(BUCKET_SIZE)

        store.write_chunks(queue_id, block, chunks)
        store.write_chunks(queue_id, block, chunks[1:3])

        assert _read(store, queue_id, block) == chunks

    def test_large_chunks_come_back_whole(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        chunks = [Chunk(0, at, at + 1, bytes([at]) * MIB) for at in range(16)]

        store.write_chunks(queue_id, block, iter(chunks))

        assert _read(store, queue_id, block) == chunks

    def test_many_small_chunks_of_one_bucket_come_back_in_order(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        chunks = [Chunk(0, at, at + 1, b"%d" % at) for at in range(600)]

        store.write_chunks(queue_id, block, chunks)

        assert _read(store, queue_id, block) == chunks

    def test_a_read_may_be_abandoned(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        chunks = [Chunk(at, at, at + 1, bytes(MIB // 4)) for at in range(16)]
        store.write_chunks(queue_id, block, chunks)
        reading = store.read_chunks(queue_id, [BucketSlice(block, at, 0, 40) for at in range(16)])

        next(reading)
        _close(reading)

        assert _read(store, queue_id, block, bucket=15) == chunks[15:]

    def test_an_error_of_the_iterable_of_chunks_passes_through(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        chunks = _chunks(BUCKET_SIZE)

        def failing() -> Iterator[Chunk]:
            yield chunks[0]
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            store.write_chunks(queue_id, block, failing())

        store.write_chunks(queue_id, block, chunks)
        assert _read(store, queue_id, block) == chunks

    def test_deleted_buckets_are_gone_and_others_stay(self, store: Store) -> None:
        queue_id, block, other = fresh_queue_id(), uuid1(), uuid1()
        chunks = _chunks(3 * BUCKET_SIZE)
        for written in (block, other):
            store.write_chunks(queue_id, written, chunks)

        store.delete_buckets(queue_id, [(block, 0), (block, 2), (block, 9)])

        assert _read(store, queue_id, block, bucket=0) == []
        assert _read(store, queue_id, block, bucket=1) == chunks[4:8]
        assert _read(store, queue_id, block, bucket=2) == []
        assert _read(store, queue_id, other, bucket=0) == chunks[:4]

    def test_a_deleted_bucket_stays_deleted_when_its_writer_comes_late(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        chunks = _chunks(BUCKET_SIZE)
        store.write_chunks(queue_id, block, chunks[:2])

        store.delete_buckets(queue_id, [(block, 0)])
        store.write_chunks(queue_id, block, chunks)

        assert _read(store, queue_id, block) == []

    def test_a_bucket_is_deleted_also_if_its_writers_clock_is_ahead(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), _an_hour_ahead(uuid1())
        chunks = _chunks(BUCKET_SIZE)
        store.write_chunks(queue_id, block, chunks)

        store.delete_buckets(queue_id, [(block, 0)])
        assert _read(store, queue_id, block) == []

        store.write_chunks(queue_id, block, chunks)
        assert _read(store, queue_id, block) == []

    def test_a_scan_shows_chunks_without_their_data(self, store: Store) -> None:
        queue_id, block = fresh_queue_id(), uuid1()
        store.write_chunks(queue_id, block, _chunks(2 * BUCKET_SIZE))

        found = [row for row in store.scan(Table.CHUNK) if row["queue_id"] == queue_id]

        assert sorted((row["bucket"], row["start"], row["stop"]) for row in found) == [
            (at // BUCKET_SIZE, at, at + CHUNK_SIZE)
            for at in range(0, 2 * BUCKET_SIZE, CHUNK_SIZE)
        ]
        assert all(set(row) == {"queue_id", "block", "bucket", "start", "stop"} for row in found)
        assert {row["block"] for row in found} == {block}

    def test_a_scan_of_another_table_shows_whole_rows(self, store: Store) -> None:
        ledger, shape = fresh_ledger(), SHAPES[Table.LEDGER]
        put(store, ledger, sink("a"), batch_id=1)
        put(store, ledger, sink("b"), batch_id=2)

        found = [row for row in store.scan(Table.LEDGER) if row["queue_id"] == ledger.key[0]]

        assert [(row["name"], row["batch_id"]) for row in found] == [("a", 1), ("b", 2)]
        assert set(found[0]) == {*shape.partition, *shape.clustering, *shape.columns}

    def test_a_scan_of_kinds_shows_their_rows_only_partition_by_partition(
        self, store: Store
    ) -> None:
        ledgers = [fresh_ledger() for _ in range(3)]
        for ledger in ledgers:
            put(store, ledger, block(0), stop=5)
            put(store, ledger, ("head", 0, ""), next=5)
            put(store, ledger, sink("a"), batch_id=1)
        put(store, fresh_ledger(), block(0), stop=5)

        scanned = store.scan(Table.LEDGER, ("head", "sink"))

        keys = {ledger.key[0] for ledger in ledgers}
        found = [(row["queue_id"], row["kind"]) for row in scanned if row["queue_id"] in keys]
        together = dict.fromkeys(queue_id for queue_id, _ in found)
        assert found == [(queue_id, kind) for queue_id in together for kind in ("head", "sink")]
        assert set(together) == keys


def _chunks(count: int) -> list[Chunk]:
    return [
        Chunk(at // BUCKET_SIZE, at, at + CHUNK_SIZE, b"messages from %d" % at)
        for at in range(0, count, CHUNK_SIZE)
    ]


def _bucket(block: UUID, number: int) -> BucketSlice:
    return BucketSlice(block, number, number * BUCKET_SIZE, (number + 1) * BUCKET_SIZE)


def _read(store: Store, queue_id: QueueId, block: UUID, bucket: int = 0) -> list[Chunk]:
    piece = BucketSlice(block, bucket, 0, 1 << 40)
    return [chunk for _, chunk in store.read_chunks(queue_id, [piece])]


def _an_hour_ahead(block: UUID) -> UUID:
    ticks = block.time + 3600 * 10_000_000
    time = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF)
    return UUID(fields=(*time, *block.fields[3:]), version=1)


def _close(reading: Iterator[object]) -> None:
    if close := getattr(reading, "close", None):
        close()
