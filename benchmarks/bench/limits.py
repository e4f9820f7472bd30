"""The limit: one client process with nothing but the driver, moving the same chunks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from cassandra import OperationTimedOut, Timeout
from cassandra.cluster import ResponseFuture

from benchmarks.bench.lab import Lab
from benchmarks.bench.payloads import BATCHES, Payload
from benchmarks.bench.streams import Took
from cassieq_spark.arrow.chunks import Cutter, cut
from cassieq_spark.model import DEFAULT_BUCKET_SIZE, DEFAULT_CHUNK_SIZE, Chunk
from cassieq_spark.producer.blocks import new_block_id

#: Whatever is fastest here: more make the driver's one connection busy.
_WRITES_IN_FLIGHT = 4
_READS_IN_FLIGHT = 3
_CHUNKS_PER_PAGE = 8
_TIMED_OUT = (OperationTimedOut, Timeout)
_PATIENCE_SECONDS = 30

_WRITE = "INSERT INTO cassieq.chunk (queue_id, block, bucket, start, stop, data) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: E501
_READ = (
    "SELECT start, stop, data FROM cassieq.chunk WHERE queue_id = ? AND block = ? AND bucket = ?"
)
_QUEUE = "bench@0"


class Limit:
    """Chunks of one payload, cut beforehand, and where they were written last."""

    def __init__(self, lab: Lab, payload: Payload) -> None:
        self._cql = lab.cql
        self._write = lab.cql.prepare(_WRITE)
        self._read = lab.cql.prepare(_READ)
        self._read.fetch_size = _CHUNKS_PER_PAGE
        self._count = payload.count
        batches = pq.read_table(payload.files(max(BATCHES))).to_batches()
        self._chunks = list(cut(batches, _default_cutter()))
        self._block: UUID | None = None

    def write(self) -> Took:
        """Write the chunks, a few at a time."""
        self._block = block = new_block_id()
        began = time.perf_counter()
        values = ((_QUEUE, block, *_columns(chunk)) for chunk in self._chunks)
        for _ in self._pipeline(self._write, values, _WRITES_IN_FLIGHT):
            pass
        return Took(self._count, time.perf_counter() - began)

    def read(self) -> Took:
        """Read the chunks, a few buckets at a time, and do nothing with them."""
        if self._block is None:
            self.write()
        buckets = dict.fromkeys(chunk.bucket for chunk in self._chunks)
        began = time.perf_counter()
        wanted = ((_QUEUE, self._block, bucket) for bucket in buckets)
        rows = [
            row for page in self._pipeline(self._read, wanted, _READS_IN_FLIGHT) for row in page
        ]
        seconds = time.perf_counter() - began
        if len(rows) != len(self._chunks):
            raise AssertionError(f"{len(self._chunks)} chunks were there, {len(rows)} came back")
        return Took(self._count, seconds)

    def _pipeline(
        self, statement: Any, values: Iterable[tuple[Any, ...]], in_flight: int
    ) -> Iterator[list[Any]]:
        waiting: deque[tuple[ResponseFuture, tuple[Any, ...]]] = deque()
        for each in values:
            waiting.append((self._cql.execute_async(statement, each), each))
            if len(waiting) >= in_flight:
                yield self._rows(statement, *waiting.popleft())
        while waiting:
            yield self._rows(statement, *waiting.popleft())

    def _rows(self, statement: Any, future: ResponseFuture, values: tuple[Any, ...]) -> list[Any]:
        try:
            return list(future.result())
        except _TIMED_OUT:
            # A node that does not answer for seconds is to spoil one round, not the whole run.
            return list(self._cql.execute(statement, values, timeout=_PATIENCE_SECONDS))


def _columns(chunk: Chunk) -> tuple[Any, ...]:
    return chunk.bucket, chunk.start, chunk.stop, chunk.data


def _default_cutter() -> Cutter:
    return Cutter(
        chunk_size=DEFAULT_CHUNK_SIZE,
        bucket_size=DEFAULT_BUCKET_SIZE,
        chunk_bytes=256 << 10,
        compression="lz4",
        max_message_bytes=8 << 20,
    )
