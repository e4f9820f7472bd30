"""Exact figures of queues, for Prometheus and for a terminal.

    store -> snapshot (reads, no LWT) -> readings (reads again what changed)
        -> metrics (pure) -> exporter: HTTP, ``cassieq exporter`` -> board (pure) -> ``cassieq
        top``
    Spark's progress -> listener (`QueryMetrics`) -> metrics (pure) -> a registry of the driver

| event | result |
|---|---|
| Cassandra cannot be reached | ``/metrics`` answers: ``cassieq_up`` 0, no figures |
| one queue cannot be read | ``cassieq_scrape_errors_total`` grows; only its figures are missing |
| a query ends | its metrics are removed |

`QueryMetrics` needs Spark; it and the exporter need prometheus-client, ``cassieq top`` does not:
``pip install 'cassieq-spark[metrics]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cassieq_spark.monitoring.listener import QueryMetrics

__all__ = ["QueryMetrics"]


def __getattr__(name: str) -> object:
    if name == "QueryMetrics":
        from cassieq_spark.monitoring import listener  # noqa: PLC0415 (needs Spark)

        return listener.QueryMetrics
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
