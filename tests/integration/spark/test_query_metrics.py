from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import QueryTerminatedEvent

from cassieq_spark.monitoring import QueryMetrics
from tests.support.spark_session import QueueOnSpark


class SeenAtTheEnd(QueryMetrics):
    """Keeps what was published when the query ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.seen: dict[str, float] = {}
        self.labels: set[tuple[str, str]] = set()
        self.ended = threading.Event()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        samples = [sample for family in self.collect() for sample in family.samples]
        self.seen = {sample.name: sample.value for sample in samples}
        self.labels = {pair for sample in samples for pair in sample.labels.items()}
        super().onQueryTerminated(event)
        self.ended.set()


def test_a_query_tells_its_batches_to_prometheus(queue: QueueOnSpark):
    queue.publish(queue.numbers(1_000))
    registry = CollectorRegistry()
    listener = SeenAtTheEnd(registry)
    queue.spark.streams.addListener(listener)
    try:
        queue.drain("g", maxMessagesPerTrigger="400")
        assert listener.ended.wait(60)
    finally:
        queue.spark.streams.removeListener(listener)

    assert listener.seen["cassieq_query_messages_total"] == 1_000
    assert listener.seen["cassieq_query_batches_total"] >= 3
    assert listener.seen["cassieq_query_batch_duration_seconds"] > 0
    assert listener.seen["cassieq_query_lost_lease_messages_total"] == 0
    assert {("queue", queue.definition.name), ("group", "g"), ("source", "0")} <= listener.labels
    assert not [sample for family in registry.collect() for sample in family.samples]
