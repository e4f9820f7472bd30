"""What the streaming queries of a driver tell, for Prometheus."""

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
from cassieq_spark.spark.progress import Progress, progress


class QueryMetrics(StreamingQueryListener, Collector):
    """Publishes what the cassieq sources of a session's queries tell of each batch.

    Reads nothing from Cassandra: all of it comes with Spark's progress. Add it with
    ``spark.streams.addListener(QueryMetrics())``; the same one to each session of a driver.

    Args:
        registry: Where it is published; one listener for each registry.

    Raises:
        ValueError: The registry has such a listener already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._sources: dict[str, tuple[QuerySource, ...]] = {}
        registry.register(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take over what the batch tells."""
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
        """Forget where the group stands: others may change that, and nobody tells us now."""
        run = str(event.runId)
        with self._lock:
            if run in self._sources:
                self._sources[run] = tuple(map(_idle, self._sources[run]))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query."""
        with self._lock:
            self._sources.pop(str(event.runId), None)

    def describe(self) -> Iterator[Metric]:
        """For the registry: what there will be, so that it takes only one listener."""
        return query_families([])

    def collect(self) -> Iterator[Metric]:
        """For the registry: the metrics of all queries that run."""
        with self._lock:
            sources = [each for found in self._sources.values() for each in found]
        # Queries of two sessions may have one name; the later one counts.
        return query_families({each.labels: each for each in sources}.values())


def _idle(source: QuerySource) -> QuerySource:
    last = source.last
    return replace(
        source,
        last=Progress(
            queue=last.queue,
            group=last.group,
            lost_leases=last.lost_leases,
            dead=last.dead,
            skipped=last.skipped,
        ),
    )
