"""Chunks of bucket after bucket, read a bounded amount ahead of whoever takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

from cassandra.cluster import ResponseFuture

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.cassandra.mapping import (
    DRIVER_ERRORS,
    Request,
    is_repeatable,
    translate,
)
from cassieq_spark.store.cassandra.requests import Patience, bind, start
from cassieq_spark.store.cassandra.session import BULK_READ, Link
from cassieq_spark.store.cassandra.statements import fill_in
from cassieq_spark.store.tables import Table

#: Slices under way besides the one that is being taken.
SLICES_AHEAD = 2
#: What a page should be worth; how many rows that is, is learnt as they come.
PAGE_BYTES = 2 << 20
#: Rows of the first page: a chunk is at most about 256 KiB, unless a message is larger.
FIRST_PAGE_ROWS = 8
MOST_PAGE_ROWS = 256


class ChunkReader:
    """Reads slices of one queue, in order, some ahead.

    Args:
        link: Where to read.
        queue_id: The queue they belong to.
    """

    def __init__(self, link: Link, queue_id: QueueId) -> None:
        self.link = link
        self.queue_id = queue_id
        self.doing = f"read of chunks of {queue_id}"
        self.page_rows = FIRST_PAGE_ROWS

    def read(self, slices: Iterable[BucketSlice]) -> Iterator[tuple[BucketSlice, Chunk]]:
        """The chunks of each slice, in order; may be closed early."""
        wanted = (piece for piece in slices if piece.start < piece.stop)
        ahead: deque[_SliceReader] = deque()
        try:
            for piece in wanted:
                ahead.append(_SliceReader(self, piece))
                if len(ahead) > SLICES_AHEAD:
                    yield from _taken(ahead)
            while ahead:
                yield from _taken(ahead)
        finally:
            for reader in ahead:
                reader.abandon()

    def learn(self, chunks: list[Chunk]) -> None:
        """Fit the next pages to the size of these chunks."""
        if chunks:
            mean_bytes = sum(len(chunk.data) for chunk in chunks) // len(chunks) + 1
            self.page_rows = max(1, min(MOST_PAGE_ROWS, PAGE_BYTES // mean_bytes))


def _taken(ahead: deque[_SliceReader]) -> Iterator[tuple[BucketSlice, Chunk]]:
    reader = ahead[0]
    for chunk in reader.chunks():
        yield reader.piece, chunk
    ahead.popleft()


class _SliceReader:
    """One slice, of which one page is always under way."""

    def __init__(self, reader: ChunkReader, piece: BucketSlice) -> None:
        self.piece = piece
        self._reader = reader
        self._next_start = piece.start
        self._future: ResponseFuture | None = self._ask()

    def chunks(self) -> Iterator[Chunk]:
        while self._future is not None:
            page = self._page(self._future)
            self._reader.learn(page)
            if page:
                self._next_start = page[-1].start + 1
            # A request of its own per page: the answer that lost a race against a speculative one
            # may still come, and must not be taken for the next page.
            self._future = self._ask() if self._future.has_more_pages else None
            yield from page

    def abandon(self) -> None:
        """Wait for what is under way, as the driver cannot call it back."""
        if self._future is not None:
            with suppress(*DRIVER_ERRORS):
                self._future.result()
            self._future = None

    def _ask(self) -> ResponseFuture:
        link, piece = self._reader.link, self.piece
        text = fill_in("read_chunks", link.options.keyspace, Table.CHUNK)
        values = (
            self._reader.queue_id,
            piece.block,
            piece.bucket,
            self._next_start,
            piece.stop,
        )
        statement = bind(link, text, values, self._reader.doing)
        statement.fetch_size = self._reader.page_rows
        return start(link, statement, profile=BULK_READ)

    def _page(self, future: ResponseFuture) -> list[Chunk]:
        patience = Patience(self._reader.link.options.patience)
        while True:
            try:
                rows = future.result().current_rows
            except DRIVER_ERRORS as error:
                if not (is_repeatable(error, Request.READ) and patience.pause()):
                    options = self._reader.link.options
                    raise translate(error, Request.READ, self._reader.doing, options) from error
                # From where it broke off: rows come in the order of their start.
                future = self._future = self._ask()
            else:
                return [_chunk(self.piece.bucket, *row) for row in rows]


def _chunk(bucket: int, start: int, stop: int | None, data: bytes | None) -> Chunk:
    """A row as it is, or with nothing in it where something else than a writer has left nulls."""
    return Chunk(bucket, start, start if stop is None else stop, data or b"")
