"""How many queues and messages accounts have, as far as their budgets need to know."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import CassieqError, QueueStateError
from cassieq_spark.http.gateway.refusals import Budget, over_budget
from cassieq_spark.settings.gateway import Limits

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
