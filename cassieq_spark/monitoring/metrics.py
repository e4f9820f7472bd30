"""All metrics: name, meaning, labels and value.

A test compares the tables of docs/monitoring.md with `EXPORTED` and `OF_QUERIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from cassieq_spark.model import to_millis
from cassieq_spark.monitoring.board import settled
from cassieq_spark.monitoring.snapshot import QueueSnapshot, Snapshot
from cassieq_spark.queues.stats import GROUP_FIGURES, GroupFigure, GroupStats, QueueStats
from cassieq_spark.repair.report import Outcome
from cassieq_spark.repair.runs import PastRun
from cassieq_spark.repair.steps import Step
from cassieq_spark.schedules.progress import ScheduleProgress
from cassieq_spark.spark.progress import Progress

T = TypeVar("T")

#: Figures of groups that are also exported per queue partition.
_BY_PARTITION = {"depth", "oldest_age"}


@dataclass(frozen=True, slots=True)
class Family(Generic[T]):
    """A metric.

    Attributes:
        name: The full name; the name of a counter ends in ``_total``.
        text: One sentence, for people.
        labels: Names of the metric's labels.
        value: Returns the value; None if it is unknown.
    """

    name: str
    text: str
    labels: tuple[str, ...]
    value: Callable[[T], float | None]

    @property
    def kind(self) -> str:
        """The type of the metric in Prometheus."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def of(self, samples: Iterable[tuple[tuple[str, ...], T]]) -> Metric:
        """The metric with values, for Prometheus; each sample has its label values, in order."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        metric = make(self.name, self.text, labels=self.labels)
        for labels, each in samples:
            value = self.value(each)
            if value is not None:
                metric.add_metric(labels, value)
        return metric


@dataclass(frozen=True, slots=True)
class _Group:
    queue: QueueSnapshot
    stats: GroupStats


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySource:
    """A source of a query after its last trigger.

    Attributes:
        query: Name of the query, or its id.
        source: Number of the source in the query, from 0.
        batches: Triggers that have ended since the listener was added.
        messages: Messages in the batches of these triggers.
        duration: How long the last trigger took.
        last: The figures of the last trigger.
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


@dataclass(frozen=True, slots=True)
class LastRuns:
    """The last relevant runs of the repair, by step.

    Attributes:
        done: The last completed run of all queues.
        judged: The last run that was such a run, or has an alarm. A run that was stopped early, or
            left queues out, may have missed what an earlier run found.
    """

    done: Mapping[str, PastRun] = field(default_factory=dict)
    judged: Mapping[str, PastRun] = field(default_factory=dict)

    def after(self, runs: Sequence[PastRun]) -> LastRuns:
        """The known runs and ``runs`` together; the order of ``runs`` does not matter."""
        done: dict[str, PastRun] = {}
        judged: dict[str, PastRun] = {}
        known = (*self.done.values(), *self.judged.values(), *runs)
        for run in sorted(known, key=lambda run: run.epoch):
            is_complete = run.outcome is Outcome.DONE and not run.left_out
            if is_complete:
                done |= dict.fromkeys(run.steps, run)
            if is_complete or run.alarms:
                judged |= dict.fromkeys(run.steps, run)
        return LastRuns(done, judged)


def _queue(
    name: str, text: str, value: Callable[[QueueSnapshot], float | None]
) -> Family[QueueSnapshot]:
    return Family(f"cassieq_queue_{name}", text, ("queue",), value)


def _group(name: str, text: str, value: Callable[[_Group], float]) -> Family[_Group]:
    return Family(f"cassieq_group_{name}", text, ("queue", "group"), value)


def _partition(name: str, text: str, value: Callable[[QueueStats], float]) -> Family[QueueStats]:
    return Family(f"cassieq_partition_{name}", text, ("queue", "partition"), value)


def _of_group(name: str, text: str, value: Callable[[GroupStats], float]) -> Family[GroupStats]:
    return Family(f"cassieq_partition_{name}", text, ("queue", "partition", "group"), value)


def _schedule(
    name: str, text: str, value: Callable[[ScheduleProgress], float | None]
) -> Family[ScheduleProgress]:
    return Family(f"cassieq_schedule_{name}", text, ("queue", "schedule"), value)


def _query(
    name: str, text: str, value: Callable[[QuerySource], float | None]
) -> Family[QuerySource]:
    return Family(f"cassieq_query_{name}", text, ("query", "source", "queue", "group"), value)


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()


def _figure(it: GroupFigure) -> Callable[[GroupStats], float]:
    return lambda group: float(it.plain(group) or 0)


def _figure_of_all(it: GroupFigure) -> Family[_Group]:
    value = _figure(it)
    return _group(it.metric, it.meaning, lambda group: value(group.stats))


def _figure_of_one(it: GroupFigure) -> Family[GroupStats]:
    meaning = f"Of one partition: {it.meaning[0].lower()}{it.meaning[1:]}"
    return _of_group(it.metric, meaning, _figure(it))


def _took(run: PastRun) -> float:
    return (run.duration or timedelta()).total_seconds()


UP: Family[Snapshot | None] = Family(
    "cassieq_up",
    "1 if the last reading reached Cassandra, 0 if not.",
    (),
    lambda snapshot: snapshot is not None,
)
READ_AT: Family[Snapshot] = Family(
    "cassieq_read_timestamp_seconds",
    "When the figures were read, since 1970.",
    (),
    lambda snapshot: snapshot.begun_at.timestamp(),
)
READ_FOR: Family[Snapshot] = Family(
    "cassieq_read_duration_seconds",
    "How long reading them took.",
    (),
    lambda snapshot: snapshot.took.total_seconds(),
)
ERRORS: Family[int] = Family(
    "cassieq_scrape_errors_total",
    "Readings that failed, for each queue; with an empty queue: of the list of "
    "queues, or of the repair's runs.",
    ("queue",),
    float,
)
OF_QUEUES = (
    _queue(
        "messages_published_total",
        "Messages published to the queue: the monoton that the next one gets.",
        lambda queue: queue.stats.next,
    ),
    _queue(
        "messages_finalised_total",
        "Messages that every group has settled and the repair has finalised.",
        lambda queue: queue.stats.finalised,
    ),
    _queue(
        "stored_messages",
        "Messages that are not finalised.",
        lambda queue: queue.stats.next - queue.stats.finalised,
    ),
    _queue(
        "settled_messages",
        "Messages that every group has settled and that are still stored.",
        lambda queue: queue.stats.settled,
    ),
    _queue("paused", "1 if the queue is paused, 0 if not.", lambda queue: queue.paused),
    _queue(
        "fence_timestamp_seconds",
        "The queue's fence, since 1970: writes that began before it are refused; of several"
        " partitions, the latest. If it is in the future, a clock was wrong, and all puts to that"
        " partition are refused.",
        lambda queue: None if queue.fence is None else queue.fence.timestamp(),
    ),
    _queue(
        "dead_letters",
        "Dead letters in this dead-letter queue that are neither redriven nor purged.",
        lambda queue: queue.dead_letters,
    ),
)
OF_GROUPS = (
    *(_figure_of_all(it) for it in GROUP_FIGURES if it.is_exported),
    _group(
        "settled_messages",
        "Published messages that the group has settled; falls if the group is moved back.",
        lambda group: settled(group.queue, group.stats),
    ),
    _group(
        "leases",
        "Leases that have not run out: one for each reader at work, in each partition of which it "
        "has messages.",
        lambda group: group.queue.leases.get(group.stats.group, 0),
    ),
)
OF_PARTITIONS = (
    _partition(
        "messages_published_total",
        "Messages published to the partition, of a queue with several.",
        lambda partition: partition.next,
    ),
    _partition(
        "stored_messages",
        "Messages of the partition that are not finalised.",
        lambda partition: partition.next - partition.finalised,
    ),
)
OF_GROUPS_BY_PARTITION = tuple(
    _figure_of_one(it) for it in GROUP_FIGURES if it.name in _BY_PARTITION
)
OF_SCHEDULES = (
    _schedule(
        "lag_seconds",
        "How long the oldest tick of the schedule is overdue that came after the last one "
        "published; 0 if none is, or the schedule is paused.",
        lambda it: _seconds(it.lag or timedelta()),
    ),
    _schedule(
        "last_tick_timestamp_seconds",
        "The last tick that was published, since 1970; missing before the first one.",
        lambda it: None if it.last is None else it.last.timestamp(),
    ),
    _schedule("paused", "1 if the schedule is paused, 0 if not.", lambda it: it.schedule.paused),
)
REPAIRED_AT: Family[PastRun | None] = Family(
    "cassieq_repair_last_success_timestamp_seconds",
    "When the last completed repair run of all queues with this step ended, since 1970; 0 if "
    "there is none.",
    ("step",),
    lambda run: 0 if run is None else to_millis(run.started_at) / 1000 + _took(run),
)
REPAIRED_FOR: Family[PastRun] = Family(
    "cassieq_repair_last_duration_seconds", "How long that repair run took.", ("step",), _took
)
REPAIRED: Family[int] = Family(
    "cassieq_repair_last_count",
    "What that repair run did, in all of its steps.",
    ("step", "count"),
    float,
)
REPAIR_PROBLEMS: Family[PastRun] = Family(
    "cassieq_repair_problems",
    "Problems that the last repair run with this step found, if it was completed for all queues "
    "or found any: messages lost or stored wrongly, blocks of no queue, errors of queues, or the "
    "error that ended the run.",
    ("step",),
    lambda run: run.alarms,
)
EXPORTED = (
    *(UP, READ_AT, READ_FOR, ERRORS),
    *OF_QUEUES,
    *OF_GROUPS,
    *OF_PARTITIONS,
    *OF_GROUPS_BY_PARTITION,
    *OF_SCHEDULES,
    *(REPAIRED_AT, REPAIRED_FOR, REPAIRED, REPAIR_PROBLEMS),
)

OF_QUERIES = (
    _query(
        "batches_total",
        "Triggers that have ended, including idle ones.",
        lambda query: query.batches,
    ),
    _query("messages_total", "Messages in their batches.", lambda query: query.messages),
    _query(
        "batch_messages",
        "Messages in the last batch; 0 while idle.",
        lambda query: query.last.messages,
    ),
    _query(
        "batch_duration_seconds",
        "How long the last trigger took.",
        lambda query: query.duration.total_seconds(),
    ),
    _query(
        "backlog_messages",
        "Messages that the group has not settled, without the last batch.",
        lambda query: query.last.backlog,
    ),
    _query(
        "leased_messages",
        "Messages of the group under leases that have not run out, including the batch.",
        lambda query: query.last.leased,
    ),
    _query(
        "waiting_messages",
        "Messages of the group to be delivered again later.",
        lambda query: query.last.waiting,
    ),
    _query(
        "oldest_age_seconds",
        "Age of the oldest message that the group has not settled, including the batch.",
        lambda query: _seconds(query.last.oldest_age),
    ),
    _query(
        "lost_lease_messages_total",
        "Messages whose lease ran out in this run of the query and that other readers took.",
        lambda query: query.last.lost_leases,
    ),
    _query(
        "dead_messages_total",
        "Messages that this run of the query dead-lettered or dropped.",
        lambda query: query.last.dead,
    ),
    _query(
        "skipped_messages_total",
        "Messages that this run of the query skipped as too old.",
        lambda query: query.last.skipped,
    ),
)


def families(
    snapshot: Snapshot | None, repairs: LastRuns, errors: Mapping[str, int]
) -> Iterator[Metric]:
    """The metrics of an exporter.

    Args:
        snapshot: The last reading; None if Cassandra cannot be reached: then there are no figures.
        repairs: The relevant runs of the repair.
        errors: Readings that failed, by queue; ``""`` for those that concern no queue.
    """
    yield UP.of([((), snapshot)])
    names = set(errors) | {""}
    if snapshot is not None:
        yield READ_AT.of([((), snapshot)])
        yield READ_FOR.of([((), snapshot)])
        names |= {queue.name for queue in snapshot.queues}
    yield ERRORS.of(((name,), errors.get(name, 0)) for name in sorted(names))
    if snapshot is None:
        return
    for of_queues in OF_QUEUES:
        yield of_queues.of(((queue.name,), queue) for queue in snapshot.queues)
    for of_groups in OF_GROUPS:
        yield of_groups.of(
            ((queue.name, group.group), _Group(queue, group))
            for queue in snapshot.queues
            for group in queue.stats.groups
        )
    partitions = [
        ((queue.name, str(number)), stats)
        for queue in snapshot.queues
        for number, stats in enumerate(queue.stats.partitions)
    ]
    for of_partitions in OF_PARTITIONS:
        yield of_partitions.of(partitions)
    for by_partition in OF_GROUPS_BY_PARTITION:
        yield by_partition.of(
            ((*labels, group.group), group)
            for labels, stats in partitions
            for group in stats.groups
        )
    for of_schedules in OF_SCHEDULES:
        yield of_schedules.of(
            ((each.schedule.queue, each.schedule.name), each) for each in snapshot.schedules
        )
    done = repairs.done
    yield REPAIRED_AT.of(((step,), done.get(step)) for step in Step)
    yield REPAIRED_FOR.of(((step,), run) for step, run in done.items())
    yield REPAIRED.of(
        ((step, name), count)
        for step, run in done.items()
        for name, count in (run.counts or {}).items()
    )
    yield REPAIR_PROBLEMS.of(((step,), run) for step, run in repairs.judged.items())


def query_families(sources: Iterable[QuerySource]) -> Iterator[Metric]:
    """The metrics of a listener, without figures that the last trigger did not report."""
    told = [(each.labels, each) for each in sources]
    for family in OF_QUERIES:
        yield family.of(told)
