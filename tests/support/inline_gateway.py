"""A gateway's coalescer without threads, whose requests are cancelled at chosen moments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, cast

from cassieq_spark import AsyncClient, Client, Message
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client.exchange import Exchange, RoundResult
from cassieq_spark.http.gateway.coalescer import Coalescer

_MOST = 1000
_AT_ONCE = timedelta(0)


class Leaves(Enum):
    """When the client of a request goes away."""

    NEVER = "never"
    BEFORE = "before its round"
    DURING = "while its messages are leased"
    AFTER = "when it has its answer, which is not sent yet"


@dataclass(frozen=True, slots=True)
class Request:
    """A request for so many messages at most."""

    most: int
    leaves: Leaves = Leaves.NEVER


@dataclass(frozen=True, slots=True)
class Served:
    """What the requests got.

    Attributes:
        answers: The messages of each request whose client has not gone away.
        stale: The receipts that were not acked.
    """

    answers: Sequence[Sequence[Message]]
    stale: Sequence[Receipt]


class InlineGateway:
    """Serves requests by a coalescer, each call within the loop: a run can be repeated.

    A round has about ``most_bytes`` bytes at most.
    """

    def __init__(self, client: Client, most_bytes: int = 32 << 20) -> None:
        self._client = client
        self._runner = asyncio.Runner()
        self._coalescer = Coalescer(cast("AsyncClient", self), _MOST, _AT_ONCE, most_bytes)
        self._leaving: dict[asyncio.Task[Any], Leaves] = {}

    def serve(
        self, queue: str, group: str, requests: Sequence[Request], acks: Sequence[Receipt] = ()
    ) -> Served:
        """Serve requests that arrive together, and ack messages for another one."""
        return self._runner.run(self._serve(queue, group, requests, acks))

    def close(self) -> None:
        """End the loop."""
        self._runner.close()

    # As the coalescer sees it, this is the client of asyncio, and its exchange.

    def exchange(self, queue: str, group: str, **settings: Any) -> _Exchange:
        return _Exchange(self, self._client.exchange(queue, group, **settings))

    def someone_leaves(self, *, now: Leaves, then: Leaves) -> None:
        """Cancel requests: some at once, others before they learn of their answers."""
        for task, leaves in self._leaving.items():
            if leaves is now:
                task.cancel()
            elif leaves is then:
                asyncio.get_running_loop().call_soon(task.cancel)

    async def _serve(
        self, queue: str, group: str, requests: Sequence[Request], acks: Sequence[Receipt]
    ) -> Served:
        asked = [
            asyncio.create_task(
                self._coalescer.receive(queue, group, most=each.most, lease=None, wait=_AT_ONCE)
            )
            for each in requests
        ]
        acked = asyncio.create_task(self._ack(queue, group, acks))
        # They arrive; the round begins after that.
        await asyncio.sleep(0)
        leaves = [each.leaves for each in requests]
        self._leaving = dict(zip(asked, leaves, strict=True))
        self.someone_leaves(now=Leaves.BEFORE, then=Leaves.BEFORE)
        await asyncio.wait([*asked, acked])
        # What nobody got is given back.
        while rest := asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}:
            await asyncio.wait(rest)
        return Served([each.result() for each in asked if not each.cancelled()], acked.result())

    async def _ack(self, queue: str, group: str, acks: Sequence[Receipt]) -> list[Receipt]:
        good = await self._coalescer.ack(queue, group, acks) if acks else []
        return [receipt for receipt, is_good in zip(acks, good, strict=True) if not is_good]


class _Exchange:
    def __init__(self, gateway: InlineGateway, exchange: Exchange) -> None:
        self._gateway = gateway
        self._exchange = exchange

    async def round(self, *given: Any, **options: Any) -> RoundResult:
        told = self._exchange.round(*given, **options)
        self._gateway.someone_leaves(now=Leaves.DURING, then=Leaves.AFTER)
        return told

    async def give_back(self, messages: Sequence[Message]) -> None:
        self._exchange.give_back(messages)
