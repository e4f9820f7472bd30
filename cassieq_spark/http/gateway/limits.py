"""How much the gateway takes at once; more is refused, rather than held in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from cassieq_spark.http.gateway.budgets import Pool, Sender
from cassieq_spark.http.gateway.refusals import RefusedError, too_busy
from cassieq_spark.settings.gateway import Limits

__all__ = ["WHOLE", "Body", "Limits", "Room"]

#: What a connection adds to the scope of a request whose body has arrived before it is served.
WHOLE = "cassieq.whole"

#: What is left of a body that is refused is not read.
_CLOSE = {"Connection": "close"}

#: Each may hold its messages and what is made of them, some four times `Limits.answer_bytes`.
_LOOKS = 2
#: One account's share of the answers that are being sent.
_SHARE = 4


class Room:
    """What is taken now, of what may be. For one loop.

    Attributes:
        requests: Requests that are under way.
        held: Bytes of their bodies.
        polls: Those of the requests that wait for messages.
        answers: Bytes of large answers that are being sent, by account.
        looks: Looks are read and encoded by so many at a time: what they come to is known then.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.requests = Pool(
            "requests",
            "requests under way",
            limits.requests,
            limits.account_requests,
            limits.key_requests,
        )
        self.held = Pool(
            "bytes",
            "bytes of bodies under way",
            limits.held_bytes,
            limits.account_bytes,
            limits.key_bytes,
        )
        self.polls = Pool(
            "longPolls",
            "gets that wait",
            limits.polls,
            limits.account_polls,
            limits.key_polls,
        )
        self.answers: Counter[str] = Counter()
        self.looks = asyncio.Semaphore(_LOOKS)

    def check_answers(self, account: str) -> None:
        """See that an account reads its answers, before there is one more.

        Raises:
            RefusedError: 429; too many bytes are still being sent, to it or to all.
        """
        mine, every = self.answers[account], self.answers.total()
        if mine > self._limits.held_bytes // _SHARE or every > self._limits.held_bytes:
            raise too_busy(f"{mine} bytes of answers are being sent to this account: read them")

    @contextmanager
    def answer(self, account: str, count: int) -> Iterator[None]:
        """Count an answer until it is sent."""
        self.answers[account] += count
        try:
            yield
        finally:
            self.answers[account] -= count
            if not self.answers[account]:
                del self.answers[account]

    @contextmanager
    def decoded(self, sender: Sender, count: int) -> Iterator[None]:
        """Room for what a compressed body has come to, besides the body.

        Raises:
            RefusedError: 429; there is none.
        """
        self.held.take(sender, count)
        try:
            yield
        finally:
            self.held.give(sender, count)


class Body:
    """The body of a request, as far as there is room for it: for what has arrived.

    Args:
        pool: Where its bytes are counted, until `let_go`.
        limits: How fast it has to arrive.
        request: The request.
        sender: Who sends it.
        limit: Most bytes that it may have.
    """

    def __init__(
        self, pool: Pool, limits: Limits, request: Request, sender: Sender, limit: int
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._request = request
        self._sender = sender
        self._limit = limit
        #: Bytes that it has taken room for.
        self.held = 0

    async def read(self) -> bytes:
        """All of it.

        Raises:
            RefusedError: 408; it arrives too slowly. 413; it is too large. 429; there is no room
                for it now.
        """
        told = self._request.headers.get("content-length", "0")
        self._check_size(int(told) if told.isdecimal() else 0)
        if self._request.scope.get(WHOLE):
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body: bytes = message.get("body", b"")
            self._take(len(body))
            return body
        limits, loop = self._limits, asyncio.get_running_loop()
        until = loop.time() + limits.head_time.total_seconds()
        parts: list[bytes] = []
        try:
            async with asyncio.timeout_at(until) as deadline:
                async for part in self._request.stream():
                    self._take(len(part))
                    if part:
                        parts.append(part)
                        deadline.reschedule(until + self.held / limits.body_rate)
        except TimeoutError:
            raise RefusedError(
                f"{self.held} bytes of the body have arrived so far: a body has to arrive with "
                f"{limits.body_rate} bytes a second at least",
                408,
                _CLOSE,
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def let_go(self) -> None:
        """Give the room back: the body is done with."""
        if self.held:
            self._pool.give(self._sender, self.held)

    def _take(self, count: int) -> None:
        self._check_size(self.held + count)
        if not count:
            return
        self._pool.take(self._sender, count)
        self.held += count

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise RefusedError(
                f"the body has more than {self._limit} bytes, which is the limit: put it "
                "elsewhere and a reference to it into the queue, or send several batches",
                413,
                _CLOSE,
            )
