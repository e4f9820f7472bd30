"""The store on Apache Cassandra."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from cassandra.cluster import ResultSet
from cassandra.pool import Host
from cassandra.query import BatchStatement, BatchType

from cassieq_spark.model import BucketSlice, Chunk, QueueId, block_timestamp
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.clocks import NodeClocks, judge
from cassieq_spark.store.cassandra.mapping import Request
from cassieq_spark.store.cassandra.promises import read_serially
from cassieq_spark.store.cassandra.requests import ChunkReader, Pipeline, bind, execute
from cassieq_spark.store.cassandra.session import (
    BULK,
    CAS,
    READ,
    SharedSession,
    join,
    leave,
)
from cassieq_spark.store.cassandra.statements import (
    Statement,
    columns_of,
    fill_in,
    scan_of,
    selection_of,
    statement_of,
    timed_delete_of,
    timed_insert_of,
)
from cassieq_spark.store.checks import check_ops
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Row, RowKey, Rows, Slice, Value
from cassieq_spark.store.tables import Table

#: Rows per page of a read of one kind, as its rows are small.
_PAGE_ROWS = 10_000
#: Rows per page of a scan: each row may be in a partition of its own, and some of these are on
#: disk.
_SCAN_PAGE_ROWS = 1_000
#: Rows per page of a scan of chunks: Cassandra reads their payload from disk, even if not asked
#: for.
_CHUNK_PAGE_ROWS = 200


class CassandraStore:
    """Implements `Store` on one keyspace.

    Args:
        options: Cluster and keyspace. Stores of one process with equal options share a session;
            after a fork the child makes its own.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._begin(options)
        _ = self._session

    def _begin(self, options: ConnectionOptions) -> None:
        self._options = options
        self._keyspace = options.keyspace
        self._joined: SharedSession | None = None

    def __reduce__(self) -> tuple[Callable[..., CassandraStore], tuple[ConnectionOptions]]:
        """Pickle the options alone; the copy joins the session of the process that uses it."""
        return _unconnected, (self._options,)

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        """Send all operations as one conditional batch; see `Store.cas`."""
        check_ops(partition, ops)
        session, doing = self._session, f"compare-and-set on {partition}"
        batch = BatchStatement(BatchType.UNLOGGED)
        for op in ops:
            batch.add(bind(session, statement_of(self._keyspace, partition, op), doing))
        result = execute(session, batch, profile=CAS, request=Request.CAS, doing=doing)
        # A batch that is refused answers with one row per conditioned row; the first column of
        # each is "[applied]".
        return bool(result.current_rows[0][0])

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        """Read rows of one partition, in pages; see `Store.read_rows`."""
        session, doing = self._session, f"read of {partition}"
        statement = bind(session, selection_of(self._keyspace, partition, which), doing)
        statement.fetch_size = page_rows(which)
        read = (
            partial(read_serially, session, partition, statement, doing=doing)
            if serial
            else partial(
                execute, session, statement, profile=READ, request=Request.READ, doing=doing
            )
        )
        found, here, host = _read_all(session.clocks, read)
        if host is not None and judge(session.driver, session.clocks, host):
            # Others are asked first by now, and plans go by the clock of the read.
            found, here, _ = _read_all(session.clocks, read)
        columns = columns_of(partition.table)
        rows = [dict(zip(columns, row[:-2], strict=True)) for row in found]
        return Rows(rows, found[0][-1], here) if found else Rows(rows)

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        """Write a row with a time to live; see `Store.write_row`."""
        statement = timed_insert_of(
            self._keyspace, partition, row, values, timestamp=timestamp, ttl=ttl
        )
        self._write(statement, f"write of {partition}")

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        """Delete a row with a time to live; see `Store.delete_row`."""
        statement = timed_delete_of(self._keyspace, partition, row, timestamp=timestamp)
        self._write(statement, f"deletion in {partition}")

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        """Write chunks, up to `BYTES_IN_FLIGHT` at a time; see `Store.write_chunks`."""
        session, doing = self._session, f"write of chunks of {queue_id}, block {block}"
        text = fill_in("write_chunk", self._keyspace, Table.CHUNK)
        timestamp = block_timestamp(block)
        with Pipeline(session, doing) as pipeline:
            for chunk in chunks:
                row = (chunk.bucket, chunk.start, chunk.stop, chunk.data)
                statement = Statement(text, (queue_id, block, *row, timestamp))
                pipeline.send(bind(session, statement, doing), len(chunk.data))

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        """Read chunks, about 2 MB of each of three slices in flight; see `Store.read_chunks`."""
        return ChunkReader(self._session, queue_id).read(slices)

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        """Delete buckets, several at a time; see `Store.delete_buckets`."""
        session, doing = self._session, f"deletion of buckets of {queue_id}"
        text = fill_in("delete_bucket", self._keyspace, Table.CHUNK)
        with Pipeline(session, doing) as pipeline:
            for block, bucket in buckets:
                # Newer than all that the block ever writes, whatever the clocks of writer and
                # repair say, so a late write is deleted, too. And newer than what any other
                # program has written there.
                timestamp = max(block_timestamp(block) + 1, time.time_ns() // 1000)
                statement = Statement(text, (timestamp, queue_id, block, bucket))
                pipeline.send(bind(session, statement, doing))

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        """Read a table in pages; see `Store.scan`."""
        session, doing = self._session, f"scan of {table}"
        columns = columns_of(table)
        statement = bind(session, scan_of(self._keyspace, table, kinds), doing)
        statement.fetch_size = _CHUNK_PAGE_ROWS if table is Table.CHUNK else _SCAN_PAGE_ROWS
        read = partial(
            execute, session, statement, profile=READ, request=Request.READ, doing=doing
        )
        for page in _pages(read):
            for row in page.current_rows:
                yield dict(zip(columns, row, strict=True))

    def close(self) -> None:
        """Leave the session, which ends with the last store of this process; see `Store.close`."""
        if self._joined is not None:
            leave(self._joined, self)
            self._joined = None

    def _write(self, statement: Statement, doing: str) -> None:
        session = self._session
        bound = bind(session, statement, doing)
        execute(session, bound, profile=BULK, request=Request.WRITE, doing=doing)

    @property
    def _session(self) -> SharedSession:
        session = self._joined
        if session is None or session.pid != os.getpid():
            session = self._joined = join(self._options, self)
        return session


def _unconnected(options: ConnectionOptions) -> CassandraStore:
    """A store that joins the session of its process with the first request."""
    store = CassandraStore.__new__(CassandraStore)
    store._begin(options)  # noqa: SLF001 (our own)
    return store


def page_rows(which: Slice) -> int | None:
    """Rows per page of a read; None if all rows are one page, and so one consistent snapshot.

    Rows of several kinds, such as head and slots, are read together because a decision depends on
    all of them. If they came in pages, a message that moves from a later row to an earlier row
    between two pages would be in neither.
    """
    return None if len(which.kinds) > 1 else _PAGE_ROWS


def _read_all(
    clocks: NodeClocks, read: Callable[..., ResultSet]
) -> tuple[list[tuple[Any, ...]], datetime | None, Host | None]:
    """All rows; the time when the first of them came, by our clock; and the node that sent it."""
    found: list[tuple[Any, ...]] = []
    here, host = None, None
    for page in _pages(read):
        if not found and page.current_rows:
            here, host = datetime.now(UTC), page.response_future.coordinator_host
            clocks.see(host.address, *page.current_rows[0][-2:])
        found += page.current_rows
    return found, here, host


def _pages(read: Callable[..., ResultSet]) -> Iterator[ResultSet]:
    page = read()
    yield page
    while page.paging_state is not None:
        page = read(paging_state=page.paging_state)
        yield page
