"""What all requests of one server share."""

from __future__ import annotations

import asyncio

from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.accounts import Accounts
from cassieq_spark.http.gateway.access import Access
from cassieq_spark.http.gateway.doorman import Doorman
from cassieq_spark.http.gateway.holdings import Holdings
from cassieq_spark.http.gateway.limits import Limits, Room
from cassieq_spark.http.gateway.metrics import Metrics
from cassieq_spark.http.gateway.puts import Puts
from cassieq_spark.http.gateway.settles import Settles
from cassieq_spark.http.gateway.turns import Turns

_READY_SECONDS = 5.0
#: Nobody can be called so; to look for it takes one read.
_NOBODY = "-"


class Gateway:
    """Puts, gets and settles for requests, and knows who may. For one loop.

    Args:
        client: How the queues are reached; connected.
        accounts: Who may use them.
        limits: How much is taken at once.
        doorman: Lets connections in.
    """

    def __init__(
        self, client: AsyncClient, accounts: Accounts, limits: Limits, doorman: Doorman
    ) -> None:
        self.client = client
        self.accounts = accounts
        self.limits = limits
        self.room = Room(limits)
        self.access = Access(accounts, limits.skew, as_cassieq=limits.cassieq_signatures)
        self.puts = Puts(client, limits.linger)
        self.turns = Turns(client, limits.batch_count, limits.linger, limits.answer_bytes)
        self.holdings = Holdings(client, limits)
        self.settles = Settles(client, self.turns)
        self.metrics = Metrics(self.room, doorman)
        self._stopping = False

    def stop(self) -> None:
        """Be ready no more, and let nobody wait: the server is about to end."""
        self._stopping = True
        self.turns.stop()

    async def close(self) -> None:
        """Publish what is left, give back what nobody got, and wait for what is under way."""
        self.stop()
        await self.puts.close()
        await self.turns.close()
        await self.settles.close()
        await self.holdings.close()

    async def why_not_ready(self) -> str | None:
        """What keeps it from serving; None if nothing does. One read."""
        if self._stopping:
            return "the gateway is about to end"
        look = asyncio.to_thread(self.accounts.find, _NOBODY)
        try:
            await asyncio.wait_for(look, _READY_SECONDS)
        except (CassieqError, TimeoutError):
            return "Cassandra does not answer, or refuses"
        return None
