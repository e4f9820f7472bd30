"""The exchange for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client.exchange import Exchange, Exchanged
from cassieq_spark.client.receiving import Wanted
from cassieq_spark.client.threads import Threads


class AsyncExchange:
    """`Exchange` as a coroutine; made by `AsyncClient.exchange`. One turn at a time."""

    def __init__(self, threads: Threads, exchange: Exchange) -> None:
        self._threads = threads
        self._exchange = exchange

    async def turn(self, receipts: Sequence[Receipt], wanted: Wanted) -> Exchanged:
        """See `Exchange.turn`. It must not be cancelled: what it leases would be lost sight of."""
        return await self._threads.run(partial(self._exchange.turn, receipts, wanted))
