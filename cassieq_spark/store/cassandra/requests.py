"""Requests to Cassandra: repeated while that is safe, and several at a time for chunks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

from cassandra import query
from cassandra.cluster import ResponseFuture, ResultSet
from cassandra.pool import Host
from cassandra.query import BoundStatement

from cassieq_spark.backoff import pauses_within
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.cassandra.mapping import (
    DRIVER_ERRORS,
    Request,
    is_repeatable,
    translate,
)
from cassieq_spark.store.cassandra.session import BULK, BULK_READ, SharedSession
from cassieq_spark.store.cassandra.statements import Statement, fill_in
from cassieq_spark.store.tables import Table

_T = TypeVar("_T")
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0
#: How many bytes a task sends before it waits for answers. Other tasks on the connection wait for
#: these bytes.
BYTES_IN_FLIGHT = 4 << 20
REQUESTS_IN_FLIGHT = 64
#: How many slices are read ahead of the current one.
SLICES_AHEAD = 2
#: The bytes that a page should have; the size of earlier pages decides how many rows these are.
PAGE_BYTES = 2 << 20
#: Rows of the first page: a chunk is at most about 256 KiB, unless a message is larger.
FIRST_PAGE_ROWS = 8
MOST_PAGE_ROWS = 256


def bind(session: SharedSession, statement: Statement, doing: str) -> BoundStatement:
    """Prepare a text if it is new, and bind its values."""
    prepared = insist(session, Request.READ, doing, lambda: session.prepared(statement.text))
    bound = prepared.bind(statement.values)
    # True of all statements that are sent alone; the driver ignores it in a conditional batch.
    bound.is_idempotent = True
    return bound


def execute(  # noqa: PLR0913 - what, how, and how to call it in errors
    session: SharedSession,
    statement: query.Statement,
    *,
    profile: str,
    request: Request,
    doing: str,
    paging_state: bytes | None = None,
    host: Host | None = None,
) -> ResultSet:
    """Send a statement and wait for its first page, or for the page at ``paging_state``.

    If ``host`` is given, no other node coordinates the request.
    """

    def call() -> ResultSet:
        return session.driver.execute(
            statement, execution_profile=profile, paging_state=paging_state, host=host
        )

    return insist(session, request, doing, call)


def start(session: SharedSession, statement: query.Statement, *, profile: str) -> ResponseFuture:
    """Send a statement without waiting; the result of its future raises any error."""
    return session.driver.execute_async(statement, execution_profile=profile)


def insist(session: SharedSession, request: Request, doing: str, call: Callable[[], _T]) -> _T:
    """Repeat a call until it succeeds, fails for good, or has no time left for repetitions.

    Raises:
        StoreError: The call failed; the driver's last error is the cause.
    """
    pauses = patience(session)
    while True:
        try:
            return call()
        except DRIVER_ERRORS as error:
            if not (is_repeatable(error, request) and pause(pauses)):
                raise translate(error, request, doing, session.options) from error


def patience(session: SharedSession) -> Iterator[float]:
    """The pauses between the attempts of one request, in seconds."""
    return pauses_within(
        session.options.patience, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, shortest_part=0.2
    )


def pause(pauses: Iterator[float]) -> bool:
    """Sleep before the next attempt; False, at once, if there is no time for another one."""
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
    """Sends statements, and waits for the oldest one when too much is in flight.

    A context manager, which ends when all statements are acknowledged; after an error, when none
    is in flight any more.

    Args:
        session: The session that sends the statements.
        doing: The statements in words, for errors.
    """

    def __init__(self, session: SharedSession, doing: str) -> None:
        self._session = session
        self._doing = doing
        self._in_flight: deque[_InFlight] = deque()
        self._bytes = 0

    def send(self, statement: BoundStatement, size_bytes: int = 0) -> None:
        """Send a statement that is safe to repeat, once there is room for its bytes.

        Raises:
            StoreError: An earlier statement failed.
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
            statement, doing = oldest.statement, self._doing
            execute(self._session, statement, profile=BULK, request=Request.WRITE, doing=doing)

    def _abandon(self) -> None:
        # The driver can't cancel a request; each ends within the request timeout.
        while self._in_flight:
            with suppress(*DRIVER_ERRORS):
                self._in_flight.popleft().future.result()


class ChunkReader:
    """Reads slices of one queue in order, some slices ahead.

    Args:
        session: The session that reads the slices.
        queue_id: The queue.
    """

    def __init__(self, session: SharedSession, queue_id: QueueId) -> None:
        self.session = session
        self.queue_id = queue_id
        self.doing = f"read of chunks of {queue_id}"
        self.page_rows = FIRST_PAGE_ROWS

    def read(self, slices: Iterable[BucketSlice]) -> Iterator[tuple[BucketSlice, Chunk]]:
        """The chunks of each slice in order; a caller may stop early by closing the iterator."""
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
        """Choose the number of rows of the next pages by the size of these chunks."""
        if chunks:
            mean_bytes = sum(len(chunk.data) for chunk in chunks) // len(chunks) + 1
            self.page_rows = max(1, min(MOST_PAGE_ROWS, PAGE_BYTES // mean_bytes))


class _SliceReader:
    """Reads one slice, always with one page in flight."""

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
            # Each page is a request of its own. The second answer to a speculative request may
            # come late, and must not be taken for the next page.
            self._future = self._ask() if self._future.has_more_pages else None
            yield from page

    def abandon(self) -> None:
        """Wait for the page that is in flight, as the driver can't cancel it."""
        if self._future is not None:
            with suppress(*DRIVER_ERRORS):
                self._future.result()
            self._future = None

    def _ask(self) -> ResponseFuture:
        session, piece, queue_id = self._reader.session, self.piece, self._reader.queue_id
        text = fill_in("read_chunks", session.options.keyspace, Table.CHUNK)
        values = (queue_id, piece.block, piece.bucket, self._next_start, piece.stop)
        bound = bind(session, Statement(text, values), self._reader.doing)
        bound.fetch_size = self._reader.page_rows
        return start(session, bound, profile=BULK_READ)

    def _page(self, future: ResponseFuture) -> list[Chunk]:
        pauses = patience(self._reader.session)
        while True:
            try:
                rows = future.result().current_rows
            except DRIVER_ERRORS as error:
                if not (is_repeatable(error, Request.READ) and pause(pauses)):
                    options = self._reader.session.options
                    raise translate(error, Request.READ, self._reader.doing, options) from error
                # Continue behind the last chunk, as chunks come in the order of their start.
                future = self._future = self._ask()
            else:
                return [_chunk(self.piece.bucket, *row) for row in rows]


def _taken(ahead: deque[_SliceReader]) -> Iterator[tuple[BucketSlice, Chunk]]:
    reader = ahead[0]
    for chunk in reader.chunks():
        yield reader.piece, chunk
    ahead.popleft()


def _chunk(bucket: int, start: int, stop: int | None, data: bytes | None) -> Chunk:
    """A row as a chunk; an empty chunk where another program has left nulls."""
    return Chunk(bucket, start, start if stop is None else stop, data or b"")
