"""Metrics of the streaming queries of a driver, for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from cassieq_spark.monitoring.metrics import QuerySource, query_families
from cassieq_spark.processes import StaysHere
from cassieq_spark.spark.progress import Progress, progress


class QueryMetrics(StaysHere, StreamingQueryListener, Collector):
    """Publishes the figures that the cassieq sources of queries report for each batch.

    The figures come with Spark's progress; nothing is read from Cassandra. Add the listener with
    ``spark.streams.addListener(QueryMetrics())``, the same object to each session of a driver.

    Args:
        registry: Where to publish; one listener per registry.

    Raises:
        ValueError: The registry has such a listener already.
    """

    _instead = "it publishes in the driver; add it to the streams of a session there"

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._sources: dict[str, tuple[QuerySource, ...]] = {}
        registry.register(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no figures yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Store the figures of the batch."""
        told = event.progress
        query, run = told.name or str(told.id), str(told.runId)
        duration = timedelta(milliseconds=told.batchDuration)
        with self._lock:
            before = {each.source: each for each in self._sources.get(run, ())}
            self._sources[run] = tuple(
                QuerySource(
                    query=query,
                    source=number,
                    batches=1 + (before[number].batches if number in before else 0),
                    messages=each.messages + (before[number].messages if number in before else 0),
                    duration=duration,
                    last=each,
                )
                for number, each in enumerate(progress(told))
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Drop the figures of the group: other readers change them, and Spark reports no more."""
        run = str(event.runId)
        with self._lock:
            if run in self._sources:
                self._sources[run] = tuple(
                    replace(
                        source,
                        last=Progress(
                            queue=source.last.queue,
                            group=source.last.group,
                            lost_leases=source.last.lost_leases,
                            dead=source.last.dead,
                            skipped=source.last.skipped,
                        ),
                    )
                    for source in self._sources[run]
                )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Drop the figures of the query."""
        with self._lock:
            self._sources.pop(str(event.runId), None)

    def describe(self) -> Iterator[Metric]:
        """All metrics without values, for the registry, so that it refuses a second listener."""
        return query_families([])

    def collect(self) -> Iterator[Metric]:
        """The metrics of all running queries, for the registry."""
        with self._lock:
            sources = [each for found in self._sources.values() for each in found]
        # If queries of two sessions have the same name, the later one counts.
        return query_families({each.labels: each for each in sources}.values())
