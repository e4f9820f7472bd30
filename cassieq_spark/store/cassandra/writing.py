"""Plain, idempotent requests in a pipeline, a bounded number of bytes in flight."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from cassandra.cluster import ResponseFuture
from cassandra.query import BoundStatement

from cassieq_spark.store.cassandra.mapping import DRIVER_ERRORS, Request, is_repeatable, translate
from cassieq_spark.store.cassandra.requests import execute, start
from cassieq_spark.store.cassandra.session import BULK, Link

#: The driver's one connection per node answers ConnectionBusy not far above.
BYTES_IN_FLIGHT = 1 << 20
REQUESTS_IN_FLIGHT = 64


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
        link: Where to send them.
        doing: What they do, for errors.
    """

    def __init__(self, link: Link, doing: str) -> None:
        self._link = link
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
        future = start(self._link, statement, profile=BULK)
        self._in_flight.append(_InFlight(statement, future, size_bytes))
        self._bytes += size_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
                options = self._link.options
                raise translate(error, Request.WRITE, self._doing, options) from error
            execute(
                self._link,
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
