"""Admission control: limits what requests hold at a time, and what accounts store.

| class | limits |
|---|---|
| `Admission` | requests, bytes of bodies and long polls at a time; answers that are being sent |
| `StorageQuotas` | queues, messages and bytes that an account stores |
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from cassieq_spark.client import AsyncClient
from cassieq_spark.client.shares import Shares
from cassieq_spark.errors import CassieqError, QueueStateError
from cassieq_spark.http.serving.bodies import Pool, Sender, subtract
from cassieq_spark.http.serving.errors import Quota, RefusedError, over_quota, too_busy
from cassieq_spark.settings.gateway import Limits

logger = logging.getLogger(__name__)

#: The messages of an account could not be counted.
NOT_COUNTED = "gateway.not_counted"

#: Most peeks that are read and encoded at a time: the size of a peek is known only then. Each may
#: hold its messages and their encoding, about four times `Limits.answer_bytes`.
_PEEKS = 2
#: Most batches decoded at a time. More would not be faster: decoding holds the interpreter.
_DECODERS = 2
#: Most requests about queues under way at a time, of one account and of all accounts together: a
#: request about queues may take hundreds of reads, a request about messages takes a few.
_ABOUT_QUEUES, _ABOUT_QUEUES_IN_ALL = 2, 8
#: An account gets at most a quarter of the bytes for answers.
_SHARES = 4
#: Bodies that arrive before their signature can be checked have half as many bytes as all others.
_UNSIGNED_SHARE = 2
#: How long a list of queues is valid, and a count of messages.
_QUEUES_KEPT_SECONDS = 5.0
_MESSAGES_KEPT = timedelta(seconds=30)
_MOST_ACCOUNTS = 10_000
#: Most names of an account, including deleted queues, per queue that it may have: the rows of
#: deleted queues stay, and every list of queues reads them.
_NAMES_FOR_EACH_QUEUE = 10


class Admission:
    """Counts what the requests under way hold, and refuses more. Bound to one event loop.

    Attributes:
        requests: Requests under way.
        held: Bytes of their bodies.
        unsigned: Bytes of arriving SQS bodies whose signature is checked afterwards. They are
            counted apart, so that strangers keep no other bodies out.
        polls: Requests that wait for messages.
        answers: Bytes of large answers that are being sent, by account.
        decoders: Limits how many batches are decoded at a time: until a batch is decoded, only the
            bytes of its body are counted.
    """

    def __init__(self, limits: Limits) -> None:
        it = self._limits = limits
        self.requests = Pool(
            "requests", "requests under way", it.requests, it.account_requests, it.key_requests
        )
        self.held = Pool(
            "bytes", "bytes of bodies under way", it.held_bytes, it.account_bytes, it.key_bytes
        )
        size = it.held_bytes // _UNSIGNED_SHARE
        self.unsigned = Pool(
            "unsignedBytes", "bytes of bodies that arrive unsigned", size, size, size
        )
        self.polls = Pool(
            "longPolls",
            "requests that wait for messages",
            it.polls,
            it.account_polls,
            it.key_polls,
        )
        self.answers: Counter[str] = Counter()
        self._peeks, self._own_peeks = asyncio.Semaphore(_PEEKS), Shares(1)
        self.decoders = asyncio.Semaphore(_DECODERS)
        self._about_queues = asyncio.Semaphore(_ABOUT_QUEUES_IN_ALL)
        self._own_about_queues = Shares(_ABOUT_QUEUES)

    def check_answers(self, account: str) -> None:
        """Refuse another answer while an account does not read its earlier answers.

        Raises:
            RefusedError: 429; too many bytes are still being sent, to the account or to all.
        """
        mine, every = self.answers[account], self.answers.total()
        if mine > self._limits.held_bytes // _SHARES or every > self._limits.held_bytes:
            raise too_busy(f"{mine} bytes of answers are being sent to this account: read them")

    @asynccontextmanager
    async def about_queues(self, account: str) -> AsyncIterator[None]:
        """Wait until another request about queues, which may take many reads, may begin."""
        async with self._own_about_queues.held(account), self._about_queues:
            yield

    @asynccontextmanager
    async def peek(self, account: str) -> AsyncIterator[None]:
        """Wait until another peek may begin; see `check_answers` for errors."""
        async with self._own_peeks.held(account), self._peeks:
            self.check_answers(account)
            yield

    @contextmanager
    def answer(self, account: str, count: int) -> Iterator[None]:
        """Count the bytes of an answer until it is sent."""
        self.answers[account] += count
        try:
            yield
        finally:
            subtract(self.answers, account, count)

    @contextmanager
    def decoded(self, sender: Sender, count: int) -> Iterator[None]:
        """Take bytes for the decoded messages of a compressed body; see `Pool.take`."""
        self.held.take(sender, count)
        try:
            yield
        finally:
            self.held.give(sender, count)


@dataclass(slots=True)
class _Usage:
    """The storage of an account, as far as it is known.

    Attributes:
        queues: Its queues when they were listed, and queues created here since.
        deleted: The names of queues that were deleted when queues were listed.
        queues_until: The time until which the list is valid.
        messages: Its stored messages when they were counted, and messages put here since.
        bytes: The bytes of these messages; messages put here since count with the size put.
        messages_until: The time until which the count is valid.
        count: The task that counts.
    """

    queues: set[str] = field(default_factory=set)
    deleted: frozenset[str] = frozenset()
    queues_until: float = 0.0
    messages: int = 0
    bytes: int = 0
    messages_until: float = 0.0
    count: asyncio.Task[None] | None = None


class StorageQuotas:
    """Keeps what accounts store within their quotas. Bound to one event loop.

    The quotas cost a put neither a read nor an LWT. Messages are counted in the background, every
    30 seconds while the account puts: a scan of the table of queues, a read per queue of the
    account, and two per partition. So an account may exceed its quota by messages that other
    gateways and programs put between two counts, and by batches under way. Puts before the first
    count are not refused.
    """

    def __init__(self, client: AsyncClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._accounts: dict[str, _Usage] = {}

    async def check_queues(self, account: str, names: Iterable[str]) -> None:
        """Refuse new queues beyond the quota. One scan of the table of queues per 5 seconds.

        ``names`` are full names; existing queues do not count twice.

        Raises:
            RefusedError: 429; the account would have too many queues. 409; the account would have
                used too many names.
        """
        usage = self._usage(account)
        if usage.queues_until < time.monotonic():
            found = await self._client.queue_names(f"{account}:")
            usage.queues, usage.deleted = set(found.used), found.deleted
            usage.queues_until = time.monotonic() + _QUEUES_KEPT_SECONDS
        new, limit = set(names) - usage.queues, self._limits.account_queues
        known, most = usage.queues | usage.deleted, limit * _NAMES_FOR_EACH_QUEUE
        if new - known and len(known | new) > most:
            # Waiting does not help, so the status is not 429.
            raise RefusedError(
                f"account {account!r} has used {len(known)} names for queues, deleted ones "
                f"included, and would use {len(new - known)} more; the limit is {most}: use the "
                "name of a deleted queue again",
                409,
                quota=Quota("queueNames", "account", most),
            )
        if new and len(usage.queues) + len(new) > limit:
            raise over_quota(
                Quota("queues", "account", limit),
                f"account {account!r} has {len(usage.queues)} queues, and would have "
                f"{len(new)} more; the limit is {limit}",
                retry_after=timedelta(seconds=_QUEUES_KEPT_SECONDS),
            )
        usage.queues |= new

    async def check_schedules(self, account: str) -> None:
        """Refuse a new schedule beyond the quota. One scan of the table of queues.

        Runners decode the schedules of all accounts every ten seconds.

        Raises:
            RefusedError: 429; the account has as many schedules as it may have.
        """
        found = await self._client.queue_names(f"{account}:")
        limit = self._limits.account_schedules
        if found.schedules >= limit:
            raise over_quota(
                Quota("schedules", "account", limit),
                f"the queues of account {account!r} have {found.schedules} schedules; the limit "
                f"is {limit}: delete some",
                retry_after=timedelta(seconds=_QUEUES_KEPT_SECONDS),
            )

    def check_messages(self, account: str) -> None:
        """Refuse messages beyond the quotas of messages and of their bytes.

        Raises:
            RefusedError: 429; the account stores too many messages, or too large ones.
        """
        usage, limits = self._usage(account), self._limits
        if usage.count is None and usage.messages_until < time.monotonic():
            usage.count = asyncio.create_task(self._count(account, usage))
        for what, unit, stored, limit in (
            ("messages", "messages", usage.messages, limits.account_messages),
            ("storedBytes", "bytes of messages", usage.bytes, limits.account_stored_bytes),
        ):
            if stored >= limit:
                raise over_quota(
                    Quota(what, "account", limit),
                    f"the queues of account {account!r} store about {stored} {unit}; the limit "
                    f"is {limit}, until the repair deletes what is settled",
                    retry_after=_MESSAGES_KEPT,
                )

    def add_messages(self, account: str, count: int, size: int) -> None:
        """Count messages that were put here, and their bytes."""
        usage = self._usage(account)
        usage.messages += count
        usage.bytes += size

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
        before, before_bytes, total, total_bytes = usage.messages, usage.bytes, 0, 0
        try:
            # One queue after the other: counting is not urgent, and requests need the threads.
            for queue in await self._client.queues(f"{account}:"):
                try:
                    stored = await self._client.stored(queue.name)
                except QueueStateError:
                    # The queue was deleted meanwhile.
                    continue
                total += stored.messages
                total_bytes += stored.bytes
            # Messages put meanwhile may count twice, until the next count.
            usage.messages = total + usage.messages - before
            usage.bytes = total_bytes + usage.bytes - before_bytes
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
