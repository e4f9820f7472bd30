"""Requests to Cassandra: repeated while that is safe, and several at once for chunks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from cassandra.cluster import ResponseFuture, ResultSet
from cassandra.pool import Host
from cassandra.query import BoundStatement, Statement

from cassieq_spark.backoff import pauses_within
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.cassandra.mapping import (
    DRIVER_ERRORS,
    Request,
    is_repeatable,
    translate,
)
from cassieq_spark.store.cassandra.session import BULK, BULK_READ, SharedSession
from cassieq_spark.store.cassandra.statements import fill_in
from cassieq_spark.store.tables import Table

_T = TypeVar("_T")
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0
#: A task waits for a round trip after so many bytes; others wait for these on the connection.
BYTES_IN_FLIGHT = 4 << 20
REQUESTS_IN_FLIGHT = 64
#: Slices under way besides the one that is being taken.
SLICES_AHEAD = 2
#: What a page should be worth; how many rows that is, is learnt as they come.
PAGE_BYTES = 2 << 20
#: Rows of the first page: a chunk is at most about 256 KiB, unless a message is larger.
FIRST_PAGE_ROWS = 8
MOST_PAGE_ROWS = 256


def bind(session: SharedSession, text: str, values: tuple[Any, ...], doing: str) -> BoundStatement:
    """Prepare a text if it is new, and bind values to it."""
    statement = insist(session, Request.READ, doing, lambda: session.prepared(text)).bind(values)
    # True of all that is sent alone; what rides in a conditional batch is not judged by this.
    statement.is_idempotent = True
    return statement


def execute(  # noqa: PLR0913 - what, how, and how to speak of it
    session: SharedSession,
    statement: Statement,
    *,
    profile: str,
    request: Request,
    doing: str,
    paging_state: bytes | None = None,
    host: Host | None = None,
) -> ResultSet:
    """Send a statement and wait for its first page, or the one at ``paging_state``.

    Only ``host`` coordinates it, if one is given.
    """
    return insist(
        session,
        request,
        doing,
        lambda: session.driver.execute(
            statement, execution_profile=profile, paging_state=paging_state, host=host
        ),
    )


def start(session: SharedSession, statement: Statement, *, profile: str) -> ResponseFuture:
    """Send a statement without waiting; whatever goes wrong shows when its result is asked for."""
    return session.driver.execute_async(statement, execution_profile=profile)


def insist(session: SharedSession, request: Request, doing: str, call: Callable[[], _T]) -> _T:
    """Call until it succeeds, fails for good, or patience is out.

    Raises:
        StoreError: Ours for the driver's last error.
    """
    pauses = patience(session)
    while True:
        try:
            return call()
        except DRIVER_ERRORS as error:
            if not (is_repeatable(error, request) and pause(pauses)):
                raise translate(error, request, doing, session.options) from error


def patience(session: SharedSession) -> Iterator[float]:
    """Pauses, in seconds, between the attempts at one request."""
    return pauses_within(
        session.options.patience, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, shortest_part=0.2
    )


def pause(pauses: Iterator[float]) -> bool:
    """Sleep before the next attempt; False, at once, if patience is out."""
    seconds = next(pauses, None)
    if seconds is None:
        return False
    time.sleep(seconds)
    return True


@dataclass(frozen=True, slots=True)
class _InFlight:
    statement: BoundStatement
    future: ResponseFuture
    size_bytes: int


class Pipeline:
    """Sends statements and waits for the oldest when too much is in flight.

    As a context manager it returns when all are acknowledged; after an error, when none is under
    way any more.

    Args:
        session: Where to send them.
        doing: What they do, for errors.
    """

    def __init__(self, session: SharedSession, doing: str) -> None:
        self._session = session
        self._doing = doing
        self._in_flight: deque[_InFlight] = deque()
        self._bytes = 0

    def send(self, statement: BoundStatement, size_bytes: int = 0) -> None:
        """Send a statement that is safe to repeat, once there is room for its bytes.

        Raises:
            StoreError: An earlier one failed.
        """
        while self._in_flight and (
            self._bytes + size_bytes > BYTES_IN_FLIGHT
            or len(self._in_flight) >= REQUESTS_IN_FLIGHT
        ):
            self._settle_oldest()
        future = start(self._session, statement, profile=BULK)
        self._in_flight.append(_InFlight(statement, future, size_bytes))
        self._bytes += size_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        try:
            while error is None and self._in_flight:
                self._settle_oldest()
        finally:
            self._abandon()

    def _settle_oldest(self) -> None:
        oldest = self._in_flight.popleft()
        self._bytes -= oldest.size_bytes
        try:
            oldest.future.result()
        except DRIVER_ERRORS as error:
            if not is_repeatable(error, Request.WRITE):
                options = self._session.options
                raise translate(error, Request.WRITE, self._doing, options) from error
            execute(
                self._session,
                oldest.statement,
                profile=BULK,
                request=Request.WRITE,
                doing=self._doing,
            )

    def _abandon(self) -> None:
        # The driver cannot call a request back; each ends within the request timeout.
        while self._in_flight:
            with suppress(*DRIVER_ERRORS):
                self._in_flight.popleft().future.result()


class ChunkReader:
    """Reads slices of one queue, in order, some ahead.

    Args:
        session: Where to read.
        queue_id: The queue they belong to.
    """

    def __init__(self, session: SharedSession, queue_id: QueueId) -> None:
        self.session = session
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
        session, piece = self._reader.session, self.piece
        text = fill_in("read_chunks", session.options.keyspace, Table.CHUNK)
        values = (
            self._reader.queue_id,
            piece.block,
            piece.bucket,
            self._next_start,
            piece.stop,
        )
        statement = bind(session, text, values, self._reader.doing)
        statement.fetch_size = self._reader.page_rows
        return start(session, statement, profile=BULK_READ)

    def _page(self, future: ResponseFuture) -> list[Chunk]:
        pauses = patience(self._reader.session)
        while True:
            try:
                rows = future.result().current_rows
            except DRIVER_ERRORS as error:
                if not (is_repeatable(error, Request.READ) and pause(pauses)):
                    options = self._reader.session.options
                    raise translate(error, Request.READ, self._reader.doing, options) from error
                # From where it broke off: rows come in the order of their start.
                future = self._future = self._ask()
            else:
                return [_chunk(self.piece.bucket, *row) for row in rows]


def _taken(ahead: deque[_SliceReader]) -> Iterator[tuple[BucketSlice, Chunk]]:
    reader = ahead[0]
    for chunk in reader.chunks():
        yield reader.piece, chunk
    ahead.popleft()


def _chunk(bucket: int, start: int, stop: int | None, data: bytes | None) -> Chunk:
    """A row as it is, or with nothing in it where something else than a writer has left nulls."""
    return Chunk(bucket, start, start if stop is None else stop, data or b"")
