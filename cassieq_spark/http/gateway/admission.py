"""Admission control: limits of what requests hold at a time, and of what accounts store.

| class | limits |
|---|---|
| `Pool` | one resource that requests share, such as bytes of bodies: in all, by account, by key |
| `Admission` | the pools, and large answers that are being sent |
| `Body` | size and speed of one body |
| `StorageQuotas` | queues and messages that an account stores |
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, TypeVar

from starlette.requests import ClientDisconnect, Request

from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import CassieqError, QueueStateError
from cassieq_spark.http.gateway.errors import Quota, RefusedError, over_quota, too_busy
from cassieq_spark.settings.gateway import Limits

logger = logging.getLogger(__name__)

#: The messages of an account could not be counted.
NOT_COUNTED = "gateway.not_counted"

#: A connection sets this in the scope of a request whose whole body has arrived.
WHOLE = "cassieq-whole"

K = TypeVar("K")

#: The rest of a refused body is not read.
_CLOSE = {"Connection": "close"}
#: Peeks that are read and encoded at a time, as their size is known only then. Each may hold its
#: messages and their encoding, about four times `Limits.answer_bytes`.
_PEEKS = 2
#: An account gets at most a quarter of the bytes for answers.
_SHARES = 4
#: How long a list and a count are valid.
_QUEUES_KEPT_SECONDS = 5.0
_MESSAGES_KEPT = timedelta(seconds=30)
_MOST_ACCOUNTS = 10_000


class Sender(NamedTuple):
    """The account and the name of the key that sent a request; both empty for an administrator."""

    account: str
    key: str


ADMIN = Sender("", "")


class Pool:
    """A resource that all requests share, such as bytes of memory. For one loop.

    A key gets at most its quota, an account at most its own, and all together at most the whole.
    An account that holds more than would be left for others gets no more either, so one account
    alone gets at most half.

    Args:
        what: The name in answers and metrics.
        unit: The name in sentences.
        in_all: The whole.
        of_account: The quota of an account.
        of_key: The quota of a key.
    """

    def __init__(self, what: str, unit: str, in_all: int, of_account: int, of_key: int) -> None:
        self._what, self._unit = what, unit
        self._in_all, self._of_account, self._of_key = in_all, of_account, of_key
        self._accounts: dict[str, int] = {}
        self._keys: dict[Sender, int] = {}
        #: How much is taken.
        self.taken = 0

    def take(self, sender: Sender, count: int = 1) -> None:
        """Take some for a sender, until `give`.

        Raises:
            RefusedError: 429; it names the quota that is reached.
        """
        account, left = sender.account, self._in_all - self.taken - count
        of_account, of_key = self._accounts.get(account, 0), self._keys.get(sender, 0)
        if account and of_key + count > self._of_key:
            whose = f"key {sender.key!r} of account {account!r} has"
            raise self._refusal("key", self._of_key, whose, of_key)
        if account and of_account + count > self._of_account:
            whose = f"account {account!r} has"
            raise self._refusal("account", self._of_account, whose, of_account)
        if left < 0:
            raise self._refusal("all", self._in_all, "all accounts together have", self.taken)
        if account and of_account > left:
            whose = f"no account gets more than is left for the others: account {account!r} has"
            raise self._refusal("share", self._in_all, whose, of_account)
        self.taken += count
        self._accounts[account] = of_account + count
        self._keys[sender] = of_key + count

    def give(self, sender: Sender, count: int = 1) -> None:
        """Give back what was taken."""
        self.taken -= count
        _subtract(self._keys, sender, count)
        _subtract(self._accounts, sender.account, count)

    def _refusal(self, of: str, limit: int, whose: str, held: int) -> RefusedError:
        why = f"{whose} {held} {self._unit}; the limit is {limit}"
        return over_quota(Quota(self._what, of, limit), why)


def _subtract(held: dict[K, int], key: K, count: int) -> None:
    held[key] -= count
    if not held[key]:
        # A sender that holds nothing takes no memory.
        del held[key]


class Admission:
    """What all requests hold now. For one loop.

    Attributes:
        requests: Requests under way.
        held: Bytes of their bodies.
        polls: Requests that wait for messages.
        answers: Bytes of large answers that are being sent, by account.
        peeks: Limits how many peeks are read and encoded at a time.
    """

    def __init__(self, limits: Limits) -> None:
        it = self._limits = limits
        self.requests = Pool(
            "requests", "requests under way", it.requests, it.account_requests, it.key_requests
        )
        self.held = Pool(
            "bytes", "bytes of bodies under way", it.held_bytes, it.account_bytes, it.key_bytes
        )
        self.polls = Pool(
            "longPolls",
            "requests that wait for messages",
            it.polls,
            it.account_polls,
            it.key_polls,
        )
        self.answers: Counter[str] = Counter()
        self.peeks = asyncio.Semaphore(_PEEKS)

    def check_answers(self, account: str) -> None:
        """Refuse another answer while an account does not read those that it has.

        Raises:
            RefusedError: 429; too many bytes are still being sent, to it or to all.
        """
        mine, every = self.answers[account], self.answers.total()
        if mine > self._limits.held_bytes // _SHARES or every > self._limits.held_bytes:
            raise too_busy(f"{mine} bytes of answers are being sent to this account: read them")

    @contextmanager
    def answer(self, account: str, count: int) -> Iterator[None]:
        """Count the bytes of an answer until it is sent."""
        self.answers[account] += count
        try:
            yield
        finally:
            _subtract(self.answers, account, count)

    @contextmanager
    def decoded(self, sender: Sender, count: int) -> Iterator[None]:
        """Take bytes for the decoded messages of a compressed body; see `Pool.take`."""
        self.held.take(sender, count)
        try:
            yield
        finally:
            self.held.give(sender, count)


class Body:
    """The body of a request; its bytes are taken from the pool as they arrive.

    Args:
        pool: The pool; it has the bytes again after `release`.
        limits: How fast the body must arrive.
        request: The request.
        sender: The sender.
        limit: Most bytes; 0: the request takes no body.
    """

    def __init__(
        self, pool: Pool, limits: Limits, request: Request, sender: Sender, limit: int
    ) -> None:
        self._pool, self._sender = pool, sender
        self._limits, self._limit = limits, limit
        self._request = request
        #: Bytes that it has taken from the pool.
        self.held = 0

    async def read(self) -> bytes:
        """Read all of it.

        Raises:
            RefusedError: 400; the request takes no body. 408; it arrives too slowly. 413; it is
                too large. 429; the pool has no more bytes.
        """
        length = self._request.headers.get("content-length", "0")
        self._check_size(int(length) if length.isdecimal() else 0)
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
                f"{self.held} bytes of the body have arrived so far: a body must arrive at "
                f"{limits.body_rate} bytes a second at least",
                408,
                _CLOSE,
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def release(self) -> None:
        """Give its bytes back to the pool."""
        if self.held:
            self._pool.give(self._sender, self.held)

    def _take(self, count: int) -> None:
        self._check_size(self.held + count)
        if count:
            self._pool.take(self._sender, count)
            self.held += count

    def _check_size(self, size: int) -> None:
        if size <= self._limit:
            return
        if not self._limit:
            why = "this request takes no body: parameters are a part of the URL"
            raise RefusedError(why, 400, _CLOSE)
        raise RefusedError(
            f"the body has more than {self._limit} bytes, which is the limit: store it elsewhere "
            "and put a reference into the queue, or send several batches",
            413,
            _CLOSE,
        )


def has_body(request: Request) -> bool:
    """Whether a request announces a body."""
    headers = dict(request.scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


@dataclass(slots=True)
class _Usage:
    """What an account stores, as far as it is known.

    Attributes:
        queues: Its queues when they were listed, and those created here since.
        queues_until: The time until which the list is valid.
        messages: Its stored messages when they were counted, and those put here since.
        messages_until: The time until which the count is valid.
        count: The task that counts.
    """

    queues: set[str] = field(default_factory=set)
    queues_until: float = 0.0
    messages: int = 0
    messages_until: float = 0.0
    count: asyncio.Task[None] | None = None


class StorageQuotas:
    """Keeps what accounts store within their quotas. For one loop.

    A put costs neither a read nor an LWT for this. Messages are counted in the background, every
    30 seconds while the account puts: a scan of the table of queues, and two reads for each of its
    queues. So an account may exceed its quota: by messages that other gateways and programs put
    between two counts, and by batches under way. Puts before the first count are not refused.
    """

    def __init__(self, client: AsyncClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._accounts: dict[str, _Usage] = {}

    async def check_queues(self, account: str, names: Iterable[str]) -> None:
        """Refuse new queues beyond the quota. A scan of the table of queues each 5 seconds.

        ``names`` are full names; queues that exist do not count twice.

        Raises:
            RefusedError: 429; the account would have too many queues.
        """
        usage = self._usage(account)
        if usage.queues_until < time.monotonic():
            found = await self._client.queues(f"{account}:")
            usage.queues = {each.name for each in found}
            usage.queues_until = time.monotonic() + _QUEUES_KEPT_SECONDS
        new, limit = set(names) - usage.queues, self._limits.account_queues
        if new and len(usage.queues) + len(new) > limit:
            raise over_quota(
                Quota("queues", "account", limit),
                f"account {account!r} has {len(usage.queues)} queues, and would have "
                f"{len(new)} more; the limit is {limit}",
                retry_after=timedelta(seconds=_QUEUES_KEPT_SECONDS),
            )
        usage.queues |= new

    def check_messages(self, account: str) -> None:
        """Refuse messages beyond the quota.

        Raises:
            RefusedError: 429; the account stores too many messages.
        """
        usage, limit = self._usage(account), self._limits.account_messages
        if usage.count is None and usage.messages_until < time.monotonic():
            usage.count = asyncio.create_task(self._count(account, usage))
        if usage.messages >= limit:
            raise over_quota(
                Quota("messages", "account", limit),
                f"the queues of account {account!r} store about {usage.messages} messages; the "
                f"limit is {limit}, until the repair deletes what is settled",
                retry_after=_MESSAGES_KEPT,
            )

    def add_messages(self, account: str, count: int) -> None:
        """Count messages that were put here."""
        self._usage(account).messages += count

    async def close(self) -> None:
        """Stop counting."""
        counts = [each.count for each in self._accounts.values() if each.count]
        for task in counts:
            task.cancel()
        await asyncio.gather(*counts, return_exceptions=True)

    def _usage(self, account: str) -> _Usage:
        usage = self._accounts.get(account)
        if usage is None:
            if len(self._accounts) >= _MOST_ACCOUNTS:
                idle = (name for name, each in self._accounts.items() if each.count is None)
                for name in list(idle):
                    del self._accounts[name]
            usage = self._accounts[account] = _Usage()
        return usage

    async def _count(self, account: str, usage: _Usage) -> None:
        before, total = usage.messages, 0
        try:
            # One queue after the other: counting is not urgent, and requests need the threads.
            for queue in await self._client.queues(f"{account}:"):
                try:
                    total += await self._client.stored(queue.name)
                except QueueStateError:
                    # The queue was deleted meanwhile.
                    continue
            # Messages put meanwhile may count twice, until the next count.
            usage.messages = total + usage.messages - before
        except CassieqError as error:
            logger.warning(
                "the messages of account %s could not be counted: %s",
                account,
                error,
                extra={"action": NOT_COUNTED, "account": account},
            )
        finally:
            usage.messages_until = time.monotonic() + _MESSAGES_KEPT.total_seconds()
            usage.count = None
