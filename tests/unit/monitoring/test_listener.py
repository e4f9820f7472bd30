from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryTerminatedEvent,
)

from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.monitoring import QueryMetrics
from cassieq_spark.monitoring.metrics import OF_QUERIES
from cassieq_spark.spark.source.offsets import Offset, encode, initial_offset

ID, RUN = uuid4(), uuid4()
NOW = "2026-11-20T12:00:00.000Z"
REPORT = {
    "backlog": 15,
    "dead": 1,
    "leased": 5,
    "lost_leases": 3,
    "next": 20,
    "oldest_age_ms": 1500,
    "pointer": 5,
    "skipped": 4,
    "v": 1,
    "waiting": 2,
}


def source(ranges: str, report: Mapping[str, int] | None, *, group: str = "g") -> dict[str, Any]:
    leased = (LeasedSlot(0, Ranges.parse(ranges), 1),)
    end = encode(Offset(QueueId("q@1"), group, uuid4(), 9, leased))
    return {
        "description": "cassieq",
        "startOffset": json.dumps(initial_offset("q", group)),
        "endOffset": json.dumps(end),
        "latestOffset": json.dumps(report),
        "numInputRows": 0,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
        "metrics": {},
    }


def progressed(*sources: dict[str, Any], name: str | None = "delays", run: UUID = RUN):
    return QueryProgressEvent.fromJson(
        {
            "progress": {
                "id": str(ID),
                "runId": str(run),
                "name": name,
                "timestamp": NOW,
                "batchId": 3,
                "batchDuration": 2500,
                "durationMs": {},
                "eventTime": {},
                "stateOperators": [],
                "sources": list(sources),
                "sink": {"description": "none", "numOutputRows": -1, "metrics": {}},
                "observedMetrics": {},
                "numInputRows": 0,
                "inputRowsPerSecond": 0.0,
                "processedRowsPerSecond": 0.0,
            }
        }
    )


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listener(registry: CollectorRegistry) -> QueryMetrics:
    return QueryMetrics(registry)


def published(registry: CollectorRegistry, query: str = "delays", number: int = 0):
    labels = {"query": query, "source": str(number)}
    return {
        sample.name.removeprefix("cassieq_query_"): sample.value
        for family in registry.collect()
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    }


def test_what_a_batch_tells_is_published(listener: QueryMetrics, registry: CollectorRegistry):
    listener.onQueryProgress(progressed(source("0-5", REPORT)))

    assert published(registry) == {
        "batches_total": 1,
        "messages_total": 5,
        "batch_messages": 5,
        "batch_duration_seconds": 2.5,
        "backlog_messages": 15,
        "leased_messages": 5,
        "waiting_messages": 2,
        "oldest_age_seconds": 1.5,
        "lost_lease_messages_total": 3,
        "dead_messages_total": 1,
        "skipped_messages_total": 4,
    }
    assert len(published(registry)) == len(OF_QUERIES)


def test_messages_and_batches_add_up(listener: QueryMetrics, registry: CollectorRegistry):
    listener.onQueryProgress(progressed(source("0-5", REPORT)))
    listener.onQueryProgress(progressed(source("5-7", REPORT)))

    found = published(registry)

    assert (found["batches_total"], found["messages_total"], found["batch_messages"]) == (2, 7, 2)


def test_sources_are_told_apart_and_a_query_without_a_name_goes_by_its_id(
    listener: QueryMetrics, registry: CollectorRegistry
):
    event = progressed(source("0-5", REPORT), source("0-3", REPORT, group="h"), name=None)
    listener.onQueryProgress(event)

    messages = [published(registry, str(ID), at)["messages_total"] for at in (0, 1)]

    assert messages == [5, 3]


def test_figures_that_a_replayed_batch_does_not_have_are_left_out(
    listener: QueryMetrics, registry: CollectorRegistry
):
    listener.onQueryProgress(progressed(source("0-5", None)))

    assert published(registry).keys() == {
        "batches_total",
        "messages_total",
        "batch_messages",
        "batch_duration_seconds",
    }


def test_an_idle_query_does_not_know_where_its_group_stands(
    listener: QueryMetrics, registry: CollectorRegistry
):
    listener.onQueryProgress(progressed(source("0-5", REPORT)))
    listener.onQueryIdle(
        QueryIdleEvent.fromJson({"id": str(ID), "runId": str(RUN), "timestamp": NOW})
    )

    found = published(registry)

    assert (found["batch_messages"], found["messages_total"]) == (0, 5)
    assert (found["lost_lease_messages_total"], found["dead_messages_total"]) == (3, 1)
    assert "backlog_messages" not in found


def test_a_query_that_has_ended_is_forgotten(listener: QueryMetrics, registry: CollectorRegistry):
    listener.onQueryProgress(progressed(source("0-5", REPORT)))
    ended = {"id": str(ID), "runId": str(RUN), "exception": None, "errorClassOnException": None}
    listener.onQueryTerminated(QueryTerminatedEvent.fromJson(ended))

    assert published(registry) == {}


def test_two_queries_of_one_name_are_not_published_twice(
    listener: QueryMetrics, registry: CollectorRegistry
):
    for run in (RUN, uuid4()):
        listener.onQueryProgress(progressed(source("0-5", REPORT), run=run))

    samples = [sample for family in registry.collect() for sample in family.samples]

    assert len(samples) == len(OF_QUERIES)


def test_a_registry_takes_one_listener(listener: QueryMetrics, registry: CollectorRegistry):
    with pytest.raises(ValueError, match="Duplicated"):
        QueryMetrics(registry)
