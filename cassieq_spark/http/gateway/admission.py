"""How much the gateway takes at once; more is refused, rather than held in memory."""

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
from cassieq_spark.http.gateway.errors import Budget, RefusedError, over_budget, too_busy
from cassieq_spark.settings.gateway import Limits

#: What a connection adds to the scope of a request whose body has arrived before it is served.
WHOLE = "cassieq.whole"

#: What is left of a body that is refused is not read.
_CLOSE = {"Connection": "close"}

_LOOKS = 4
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


K = TypeVar("K")


class Sender(NamedTuple):
    """Who sends a request: an account, and the name of its key. The administrator has neither."""

    account: str
    key: str


ADMIN = Sender("", "")


class Pool:
    """Something that all requests share, such as bytes of memory. For one loop.

    A key gets no more than its budget, an account no more than its own, and all together no more
    than there is. An account that holds more than would be left gets no more either: so one alone
    has half of the pool at most, and something is always left for others.

    Args:
        what: What it is called in answers and metrics.
        unit: What it is called in sentences.
        in_all: How much there is.
        of_account: The budget of an account.
        of_key: The budget of a key.
    """

    def __init__(self, what: str, unit: str, in_all: int, of_account: int, of_key: int) -> None:
        self._what = what
        self._unit = unit
        self._in_all = in_all
        self._of_account = of_account
        self._of_key = of_key
        self._accounts: dict[str, int] = {}
        self._keys: dict[Sender, int] = {}
        #: How much is taken.
        self.taken = 0

    def take(self, sender: Sender, count: int = 1) -> None:
        """Take some for a sender; see `give`.

        Raises:
            RefusedError: 429; it says which budget does not allow it.
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
        self.add(sender, count)

    def add(self, sender: Sender, count: int) -> None:
        """Count what a sender has already, whatever it may have."""
        self.taken += count
        self._accounts[sender.account] = self._accounts.get(sender.account, 0) + count
        self._keys[sender] = self._keys.get(sender, 0) + count

    def give(self, sender: Sender, count: int = 1) -> None:
        """Give back what was taken."""
        self.taken -= count
        _take_away(self._keys, sender, count)
        _take_away(self._accounts, sender.account, count)

    @contextmanager
    def one(self, sender: Sender) -> Iterator[None]:
        """Take one for as long as the context lasts.

        Raises:
            RefusedError: See `take`.
        """
        self.take(sender)
        try:
            yield
        finally:
            self.give(sender)

    def _refusal(self, of: str, limit: int, whose: str, held: int) -> RefusedError:
        budget = Budget(self._what, of, limit)
        return over_budget(budget, f"{whose} {held} {self._unit}; the limit is {limit}")


def _take_away(held: dict[K, int], key: K, count: int) -> None:
    held[key] -= count
    if not held[key]:
        # Those who hold nothing any more take no memory.
        del held[key]


logger = logging.getLogger(__name__)

#: The messages of an account could not be counted.
NOT_COUNTED = "gateway.not_counted"

#: How long a count is good for.
_QUEUES_KEPT_SECONDS = 5.0
_MESSAGES_KEPT = timedelta(seconds=30)
_MOST_ACCOUNTS = 10_000


@dataclass(slots=True)
class _Account:
    """What is known of an account.

    Attributes:
        queues: Its queues, as read; those that were made here since are among them.
        queues_until: Until when they are good.
        messages: How many messages its queues stored when they were counted, and have got since.
        messages_until: Until when that is good.
        count: Counts them, in the background.
    """

    queues: set[str] = field(default_factory=set)
    queues_until: float = 0.0
    messages: int = 0
    messages_until: float = 0.0
    count: asyncio.Task[None] | None = None


class Holdings:
    """Keeps what accounts store within their budgets. For one loop.

    A put costs neither a read nor an LWT: messages are counted in the background, every half
    minute while the account puts, by one scan of the table of queues and two reads for each queue
    of it. So an account may exceed its budget by what other gateways and other programs put
    between two counts, and by the batches under way. What nobody has counted yet is let pass.

    Args:
        client: How the queues are reached.
        limits: The budgets.
    """

    def __init__(self, client: AsyncClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._accounts: dict[str, _Account] = {}

    async def check_queues(self, account: str, names: Iterable[str]) -> None:
        """Let queues be made, or not. A scan of the table of queues, once in five seconds.

        Args:
            account: Whose they are.
            names: Their full names; those that exist count once.

        Raises:
            RefusedError: 429; there would be too many.
        """
        known = self._known(account)
        if known.queues_until < time.monotonic():
            found = await self._client.queues(f"{account}:")
            known.queues = {each.name for each in found}
            known.queues_until = time.monotonic() + _QUEUES_KEPT_SECONDS
        new, limit = set(names) - known.queues, self._limits.account_queues
        if new and len(known.queues) + len(new) > limit:
            raise over_budget(
                Budget("queues", "account", limit),
                f"account {account!r} has {len(known.queues)} queues, and would have "
                f"{len(new)} more; the limit is {limit}",
                retry_after=timedelta(seconds=_QUEUES_KEPT_SECONDS),
            )
        known.queues |= new

    def check_messages(self, account: str) -> None:
        """Let messages be put, or not.

        Raises:
            RefusedError: 429; too many are stored.
        """
        known, limit = self._known(account), self._limits.account_messages
        if known.count is None and known.messages_until < time.monotonic():
            known.count = asyncio.create_task(self._count(account, known))
        if known.messages >= limit:
            raise over_budget(
                Budget("messages", "account", limit),
                f"the queues of account {account!r} store about {known.messages} messages; the "
                f"limit is {limit}, until the sweep deletes what is settled",
                retry_after=_MESSAGES_KEPT,
            )

    def add_messages(self, account: str, count: int) -> None:
        """Count messages that were put here."""
        self._known(account).messages += count

    async def close(self) -> None:
        """Count no more."""
        counts = [each.count for each in self._accounts.values() if each.count]
        for task in counts:
            task.cancel()
        await asyncio.gather(*counts, return_exceptions=True)

    def _known(self, account: str) -> _Account:
        known = self._accounts.get(account)
        if known is None:
            if len(self._accounts) >= _MOST_ACCOUNTS:
                idle = (name for name, each in self._accounts.items() if each.count is None)
                for name in list(idle):
                    del self._accounts[name]
            known = self._accounts[account] = _Account()
        return known

    async def _count(self, account: str, known: _Account) -> None:
        before, total = known.messages, 0
        try:
            # One after the other: this is in no hurry, and others need the threads.
            for queue in await self._client.queues(f"{account}:"):
                try:
                    total += await self._client.stored(queue.name)
                except QueueStateError:
                    # It was deleted since.
                    continue
            # What came meanwhile may be counted twice; the next count puts it right.
            known.messages = total + known.messages - before
        except CassieqError as error:
            logger.warning(
                "the messages of account %s could not be counted: %s",
                account,
                error,
                extra={"action": NOT_COUNTED, "account": account},
            )
        finally:
            known.messages_until = time.monotonic() + _MESSAGES_KEPT.total_seconds()
            known.count = None
