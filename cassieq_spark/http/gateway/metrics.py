"""Figures of one server, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cassieq_spark.http.gateway.doorman import Doorman
from cassieq_spark.http.gateway.limits import Room
from cassieq_spark.http.gateway.refusals import Budget

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
