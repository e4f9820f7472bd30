"""What all requests of one server share."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.accounts import Accounts
from cassieq_spark.http.gateway.admission import Holdings, Room
from cassieq_spark.http.gateway.authorization import Access
from cassieq_spark.http.gateway.coalescer import Settles, Turns
from cassieq_spark.http.gateway.connections import Doorman
from cassieq_spark.http.gateway.errors import Budget
from cassieq_spark.http.gateway.producers import Puts
from cassieq_spark.settings.gateway import Limits

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


_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts requests and messages.

    Args:
        room: What is under way.
        doorman: What there is of connections; its refusals are counted, too.
    """

    def __init__(self, room: Room, doorman: Doorman) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "cassieq_gateway_requests",
            "Requests that were answered.",
            ("operation", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "cassieq_gateway_request_seconds",
            "Time from a request to its answer, waiting for messages included.",
            ("operation",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        under_way = Gauge(
            "cassieq_gateway_requests_under_way", "Requests now.", registry=self._registry
        )
        under_way.set_function(lambda: room.requests.taken)
        polls = Gauge("cassieq_gateway_long_polls", "Gets that wait now.", registry=self._registry)
        polls.set_function(lambda: room.polls.taken)
        held = Gauge(
            "cassieq_gateway_held_bytes", "Bytes of bodies held now.", registry=self._registry
        )
        held.set_function(lambda: room.held.taken)

        connections = Gauge(
            "cassieq_gateway_connections", "Connections now.", registry=self._registry
        )
        connections.set_function(lambda: doorman.count)
        self._refused = Counter(
            "cassieq_gateway_refused",
            "Requests and connections that a budget or limit did not allow, and whose.",
            ("budget", "of"),
            registry=self._registry,
        )
        doorman.on_refused = self.refused

    def refused(self, budget: Budget) -> None:
        """Count a refusal."""
        self._refused.labels(budget.what, budget.of).inc()

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(operation, str(status)).inc()
        self._seconds.labels(operation).observe(seconds)

    def text(self) -> bytes:
        """All figures, as Prometheus reads them."""
        return generate_latest(self._registry)
