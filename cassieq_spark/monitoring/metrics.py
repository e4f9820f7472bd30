"""Figures as metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client.metrics_core import Metric

from cassieq_spark.model import to_millis
from cassieq_spark.monitoring.catalogue import (
    BACKLOG,
    BATCH_DURATION,
    BATCH_MESSAGES,
    BATCHES,
    DEAD,
    DEAD_LETTERS,
    DEPTH,
    DUE,
    ERRORS,
    FENCE,
    FINALISED,
    LEASED,
    LEASES,
    LOST,
    MESSAGES,
    OF_QUERIES,
    OLDEST_AGE,
    PAUSED,
    POINTER,
    PUBLISHED,
    QUERY_AGE,
    QUERY_DEAD,
    QUERY_LEASED,
    QUERY_WAITING,
    READ_AT,
    READ_FOR,
    REPAIR_PROBLEMS,
    REPAIRED,
    REPAIRED_AT,
    REPAIRED_FOR,
    SETTLED,
    SKIPPED,
    STORED,
    UP,
    WAITING,
    Family,
    Sample,
)
from cassieq_spark.monitoring.rates import settled
from cassieq_spark.monitoring.runs import LastRuns
from cassieq_spark.monitoring.snapshot import QueueFigures, Snapshot
from cassieq_spark.repair.history import PastRun
from cassieq_spark.repair.steps import Step
from cassieq_spark.spark.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySource:
    """A source of a query, as of its last trigger.

    Attributes:
        query: Name of the query, or its id.
        source: Which of its sources, from 0.
        batches: Triggers that have ended since the listener was added.
        messages: Messages in their batches.
        duration: How long the last one took.
        last: What it told.
    """

    query: str
    source: int
    batches: int
    messages: int
    duration: timedelta
    last: Progress

    @property
    def labels(self) -> tuple[str, ...]:
        """Values of the labels of `OF_QUERIES`."""
        return (self.query, str(self.source), self.last.queue, self.last.group)


def families(
    snapshot: Snapshot | None, repairs: LastRuns, errors: Mapping[str, int]
) -> Iterator[Metric]:
    """What an exporter publishes.

    Args:
        snapshot: What was read last; None if Cassandra is away: then there are no figures.
        repairs: The runs of the repair that count.
        errors: Readings that failed, by queue; ``""`` for what is of no queue.
    """
    yield UP.of([((), snapshot is not None)])
    known = set(errors) | {""}
    if snapshot is None:
        yield _count_errors(errors, known)
        return
    yield READ_AT.of([((), snapshot.begun_at.timestamp())])
    yield READ_FOR.of([((), snapshot.took.total_seconds())])
    yield _count_errors(errors, known | {queue.name for queue in snapshot.queues})
    yield from _queue_families(snapshot.queues)
    yield from _group_families(snapshot.queues)
    yield from _repair_families(repairs)


def query_families(sources: Iterable[QuerySource]) -> Iterator[Metric]:
    """What a listener publishes; a figure that the last trigger did not tell is left out."""
    told = [(each.labels, _query_values(each)) for each in sources]
    for family in OF_QUERIES:
        values = [(labels, figures[family]) for labels, figures in told]
        yield family.of((labels, value) for labels, value in values if value is not None)


def _count_errors(errors: Mapping[str, int], names: Iterable[str]) -> Metric:
    return ERRORS.of(((name,), errors.get(name, 0)) for name in sorted(names))


def _queue_families(queues: Iterable[QueueFigures]) -> Iterator[Metric]:
    figures = {queue.name: _queue_values(queue) for queue in queues}
    for family in (PUBLISHED, FINALISED, STORED, PAUSED, FENCE, DEAD_LETTERS):
        values = [((name,), values[family]) for name, values in figures.items()]
        yield family.of((labels, value) for labels, value in values if value is not None)


def _queue_values(queue: QueueFigures) -> Mapping[Family, float | None]:
    stats = queue.stats
    return {
        PUBLISHED: stats.next,
        FINALISED: stats.finalised,
        STORED: stats.next - stats.finalised,
        PAUSED: queue.paused,
        FENCE: None if queue.fence is None else queue.fence.timestamp(),
        DEAD_LETTERS: queue.dead_letters,
    }


def _group_families(queues: Iterable[QueueFigures]) -> Iterator[Metric]:
    samples: dict[Family, list[Sample]] = {
        family: []
        for family in (
            *(DEPTH, LEASED, DUE, WAITING, DEAD),
            *(SETTLED, OLDEST_AGE, POINTER, LEASES),
        )
    }
    for queue in queues:
        for group in queue.stats.groups:
            values = {
                DEPTH: group.depth,
                LEASED: group.leased,
                DUE: group.due,
                WAITING: group.waiting,
                DEAD: group.dead,
                SETTLED: settled(queue, group),
                OLDEST_AGE: (group.oldest_age or timedelta()).total_seconds(),
                POINTER: group.pointer,
                LEASES: queue.leases.get(group.group, 0),
            }
            for family, value in values.items():
                samples[family].append(((queue.name, group.group), value))
    for family, found in samples.items():
        yield family.of(found)


def _repair_families(repairs: LastRuns) -> Iterator[Metric]:
    done = repairs.done
    yield REPAIRED_AT.of(((step,), _ended_at(done[step]) if step in done else 0) for step in Step)
    yield REPAIRED_FOR.of(((step,), _seconds(run)) for step, run in done.items())
    yield REPAIRED.of(
        ((step, name), count)
        for step, run in done.items()
        for name, count in (run.counts or {}).items()
    )
    yield REPAIR_PROBLEMS.of(((step,), len(run.problems)) for step, run in repairs.judged.items())


def _ended_at(run: PastRun) -> float:
    return to_millis(run.started_at) / 1000 + _seconds(run)


def _seconds(run: PastRun) -> float:
    return (run.duration or timedelta()).total_seconds()


def _query_values(source: QuerySource) -> Mapping[Family, float | None]:
    last = source.last
    return {
        BATCHES: source.batches,
        MESSAGES: source.messages,
        BATCH_MESSAGES: last.messages,
        BATCH_DURATION: source.duration.total_seconds(),
        BACKLOG: last.backlog,
        QUERY_LEASED: last.leased,
        QUERY_WAITING: last.waiting,
        QUERY_AGE: None if last.oldest_age is None else last.oldest_age.total_seconds(),
        LOST: last.lost_leases,
        QUERY_DEAD: last.dead,
        SKIPPED: last.skipped,
    }
