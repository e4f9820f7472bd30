"""How much the gateway takes at once; more is refused, rather than held in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from starlette.requests import Request

from cassieq_spark.errors import OptionError
from cassieq_spark.gateway.refusals import RefusedError, too_busy

_MIB = 1 << 20
_LOOKS = 4
#: One account's share of the answers that are being sent.
_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the gateway takes.

    Attributes:
        body_bytes: Most bytes of one message.
        batch_bytes: Most bytes of the body of a batch.
        batch_count: Most messages of a batch, and most receipts of one request.
        answer_bytes: Most bytes of messages that are read for one answer, or for those of one
            turn; a message at least. JSON takes up to three times as many.
        held_bytes: Most bytes of bodies at a time; and of large answers that are being sent, of
            which an account may have a quarter before it is refused another one.
        requests: Most requests at a time, those that wait included.
        wait: How long a request may wait for messages.
        lease: How long a request may keep messages from others, by holding them or by giving them
            back for later.
        read_lease: The same, without the right to update messages.
        skew: By how much the clock of who signs a request may differ from ours.
        cassieq_signatures: Whether requests that are signed as CassieQ's clients do are taken:
            verb, path and time only.
        linger: How long a put waits for others to be published with, and a turn of gets and acks
            for those that the last one has answered.
    """

    body_bytes: int = 8 * _MIB
    batch_bytes: int = 32 * _MIB
    batch_count: int = 10_000
    answer_bytes: int = 32 * _MIB
    held_bytes: int = 256 * _MIB
    requests: int = 2_000
    wait: timedelta = timedelta(seconds=60)
    lease: timedelta = timedelta(hours=12)
    read_lease: timedelta = timedelta(minutes=15)
    skew: timedelta = timedelta(minutes=1)
    cassieq_signatures: bool = False
    linger: timedelta = timedelta(milliseconds=2)

    def __post_init__(self) -> None:
        counts = (self.body_bytes, self.batch_bytes, self.batch_count, self.held_bytes)
        if min(*counts, self.answer_bytes, self.requests) < 1:
            raise OptionError("every limit of the gateway must be at least 1")


class Room:
    """What is taken now, of what may be. For one loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: Requests that are under way.
        self.requests = 0
        #: Bytes of their bodies.
        self.held_bytes = 0
        #: Bytes of large answers that are being sent, by account.
        self.answers: Counter[str] = Counter()
        #: Looks are read and encoded by so many at a time: what they come to is known then.
        self.looks = asyncio.Semaphore(_LOOKS)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Room for one request.

        Raises:
            RefusedError: 429; there is none.
        """
        if self.requests >= self._limits.requests:
            raise too_busy(f"{self.requests} requests are under way, which is the limit")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def body(self, request: Request, limit: int) -> Iterator[Body]:
        """Room for the body of a request, until it is done with; see `Body`."""
        body = Body(self, request, limit)
        try:
            yield body
        finally:
            self.held_bytes -= body.held

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
    def decoded(self, count: int) -> Iterator[None]:
        """Room for what a compressed body has come to, besides the body.

        Raises:
            RefusedError: 429; there is none.
        """
        self.hold(count)
        try:
            yield
        finally:
            self.held_bytes -= count

    def hold(self, count: int) -> None:
        """Take room for bytes.

        Raises:
            RefusedError: 429; there is none.
        """
        if self.held_bytes + count > self._limits.held_bytes:
            raise too_busy(f"{self.held_bytes} bytes of messages are under way already")
        self.held_bytes += count


class Body:
    """The body of a request, as far as there is room for it."""

    def __init__(self, room: Room, request: Request, limit: int) -> None:
        self._room = room
        self._request = request
        self._limit = limit
        #: Bytes that it has taken room for.
        self.held = 0

    async def read(self) -> bytes:
        """All of it.

        Raises:
            RefusedError: 413; it is too large. 429; there is no room for it now.
        """
        told = self._request.headers.get("content-length", "0")
        self._take(int(told) if told.isdecimal() else 0)
        parts: list[bytes] = []
        size = 0
        async for part in self._request.stream():
            size += len(part)
            self._take(size)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, size: int) -> None:
        if size > self._limit:
            raise RefusedError(
                f"the body has more than {self._limit} bytes, which is the limit: put it "
                "elsewhere and a reference to it into the queue, or send several batches",
                413,
                # What is left of it is not read.
                {"Connection": "close"},
            )
        if size > self.held:
            self._room.hold(size - self.held)
            self.held = size
