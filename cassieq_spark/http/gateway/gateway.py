"""The parts of a server that its requests share, and its metrics for Prometheus."""

from __future__ import annotations

import asyncio
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.accounts import Accounts
from cassieq_spark.http.gateway.admission import Admission, StorageQuotas
from cassieq_spark.http.gateway.authorization import Authorizer
from cassieq_spark.http.gateway.coalescer import Coalescer, Settlements
from cassieq_spark.http.gateway.pop_receipts import PopReceipts
from cassieq_spark.http.gateway.producers import ProducerPool
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.http.serving.errors import Quota
from cassieq_spark.settings.gateway import Limits

_READY_SECONDS = 5.0
#: A name that no account can have; looking for it costs one read.
_NO_ACCOUNT = "-"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Gateway:
    """The parts of a server that requests share; its client is connected.

    Bound to one event loop.
    """

    def __init__(
        self,
        client: AsyncClient,
        accounts: Accounts,
        limits: Limits,
        connections: ConnectionLimiter,
    ) -> None:
        self.client = client
        self.accounts = accounts
        self.limits = limits
        self.admission = Admission(limits)
        self.storage = StorageQuotas(client, limits)
        self.receipts = PopReceipts(accounts.secrets)
        self.authorizer = Authorizer(accounts, limits.skew, as_cassieq=limits.cassieq_signatures)
        self.producers = ProducerPool(client, limits.linger)
        self.coalescer = Coalescer(client, limits.batch_count, limits.linger, limits.answer_bytes)
        self.settlements = Settlements(client, self.coalescer)
        self.metrics = Metrics(self.admission, connections)
        self._look: asyncio.Task[bool] | None = None
        self._stopping = False

    def stop(self) -> None:
        """Stop being ready, and answer the requests that wait for messages."""
        self._stopping = True
        self.coalescer.stop()

    async def close(self) -> None:
        """Publish pending puts, release messages that no request got, and wait for calls."""
        self.stop()
        await self.producers.close()
        await self.coalescer.close()
        await self.settlements.close()
        await self.storage.close()

    async def why_not_ready(self) -> str | None:
        """Why the gateway is not ready; None if it is. One read for all that ask at once."""
        if self._stopping:
            return "the gateway is shutting down"
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._looked())
        # One read answers all requests that arrive meanwhile, as strangers may send them. It goes
        # on if the request that began it is cancelled.
        answers = await asyncio.shield(self._look)
        return None if answers else "Cassandra does not answer, or refuses"

    async def _looked(self) -> bool:
        """True if Cassandra answers."""
        look = asyncio.to_thread(self.accounts.find, _NO_ACCOUNT)
        try:
            await asyncio.wait_for(look, _READY_SECONDS)
        except (CassieqError, TimeoutError):
            return False
        return True


class Metrics:
    """Counts and times requests, and counts what is refused."""

    def __init__(self, admission: Admission, connections: ConnectionLimiter) -> None:
        registry = self._registry = CollectorRegistry()
        requests = Counter(
            "cassieq_gateway_requests",
            "Requests that were answered.",
            ("operation", "status"),
            registry=registry,
        )
        seconds = Histogram(
            "cassieq_gateway_request_seconds",
            "Time from a request to its answer, waiting for messages included.",
            ("operation",),
            buckets=_BUCKETS,
            registry=registry,
        )
        # Cached, because finding a metric by its labels takes as long as counting.
        self._requests_of = cache(
            lambda operation, status: requests.labels(operation, str(status))
        )
        self._seconds_of = cache(seconds.labels)
        self._refused = Counter(
            "cassieq_gateway_refused",
            "Requests and connections refused because a quota or limit is reached, and whose.",
            ("quota", "of"),
            registry=registry,
        )
        for name, meaning, value in (
            ("requests_under_way", "Requests now.", lambda: admission.requests.taken),
            ("long_polls", "Requests that wait for messages now.", lambda: admission.polls.taken),
            ("held_bytes", "Bytes of bodies held now.", lambda: admission.held.taken),
            ("connections", "Connections now.", lambda: connections.count),
        ):
            Gauge(f"cassieq_gateway_{name}", meaning, registry=registry).set_function(value)
        connections.on_refused = self.refused

    def refused(self, quota: Quota) -> None:
        """Count a refusal."""
        self._refused.labels(quota.what, quota.of).inc()

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests_of(operation, status).inc()
        self._seconds_of(operation).observe(seconds)

    def text(self) -> bytes:
        """All metrics, in Prometheus's text format."""
        return generate_latest(self._registry)
