"""Every metric that there is: its name, its meaning, its labels. Pure.

The tables of docs/monitoring.md are checked against `EXPORTED` and `OF_QUERIES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

#: Values of the labels, in their order, and the value.
Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, what it tells, and by what it is told apart.

    Attributes:
        name: In full, with ``_total`` if it is a counter.
        kind: A counter only grows, as long as nothing starts anew.
        text: One sentence, for people.
        labels: Names of its labels.
    """

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    labels: tuple[str, ...] = ()

    def of(self, samples: Iterable[Sample]) -> Metric:
        """This metric with values, for Prometheus."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        metric = make(self.name, self.text, labels=self.labels)
        for labels, value in samples:
            metric.add_metric(labels, value)
        return metric


def _queue(name: str, text: str, kind: Literal["counter", "gauge"] = "gauge") -> Family:
    return Family(name, kind, text, ("queue",))


def _group(name: str, text: str) -> Family:
    return Family(f"cassieq_group_{name}", "gauge", text, ("queue", "group"))


def _query(name: str, text: str, kind: Literal["counter", "gauge"] = "gauge") -> Family:
    labels = ("query", "source", "queue", "group")
    return Family(f"cassieq_query_{name}", kind, text, labels)


UP = Family("cassieq_up", "gauge", "Whether the last reading reached Cassandra.")
READ_AT = Family(
    "cassieq_read_timestamp_seconds", "gauge", "When the figures were read, since 1970."
)
READ_FOR = Family("cassieq_read_duration_seconds", "gauge", "How long reading them took.")
ERRORS = _queue(
    "cassieq_scrape_errors_total",
    "Readings that failed; of a queue, or, with no queue, of the list of queues or the "
    "repair's runs.",
    "counter",
)
PUBLISHED = _queue(
    "cassieq_queue_messages_published_total",
    "Messages published to the queue: the monoton that the next one gets.",
    "counter",
)
FINALISED = _queue(
    "cassieq_queue_messages_finalised_total",
    "Messages settled for every group, and let go of by the repair.",
    "counter",
)
STORED = _queue("cassieq_queue_stored_messages", "Messages that are not finalised.")
PAUSED = _queue("cassieq_queue_paused", "Whether the readers of the queue pause.")
FENCE = _queue(
    "cassieq_queue_fence_timestamp_seconds",
    "What was begun before is not published any more, since 1970; ahead of now, a clock was "
    "wrong, and puts are refused.",
)
DEAD_LETTERS = _queue(
    "cassieq_queue_dead_letters",
    "Dead letters in this dead-letter queue that are neither redriven nor purged.",
)
DEPTH = _group("depth_messages", "Messages owed: not offered yet, leased, due, waiting or dead.")
LEASED = _group("leased_messages", "Messages under a lease that runs.")
DUE = _group("due_messages", "Messages to be offered again now.")
WAITING = _group(
    "waiting_messages",
    "Messages to be offered later; of those not offered yet, in the first 10,000 blocks.",
)
DEAD = _group("dead_messages", "Messages about to be dead-lettered, or dropped.")
SETTLED = _group(
    "settled_messages", "Messages published and not owed; falls if the group is moved back."
)
OLDEST_AGE = _group(
    "oldest_age_seconds", "How long the oldest message owed has been visible; 0 if none is."
)
POINTER = _group("pointer", "First monoton never offered.")
LEASES = _group("leases", "Leases that run: one for each reader at work.")
REPAIRED_AT = Family(
    "cassieq_repair_last_success_timestamp_seconds",
    "gauge",
    "When the last repair run ended that took this step and came to its end, since 1970; 0 if "
    "none.",
    ("step",),
)
REPAIRED_FOR = Family(
    "cassieq_repair_last_duration_seconds", "gauge", "How long that repair run took.", ("step",)
)
REPAIRED = Family(
    "cassieq_repair_last_count",
    "gauge",
    "What that repair run did, with all of its steps.",
    ("step", "count"),
)
REPAIR_PROBLEMS = Family(
    "cassieq_repair_problems",
    "gauge",
    "What the last repair run with this step found, if it came to its end or found anything: "
    "messages lost or stored wrongly, blocks of no queue, or the error that ended it.",
    ("step",),
)
EXPORTED = (
    UP,
    READ_AT,
    READ_FOR,
    ERRORS,
    PUBLISHED,
    FINALISED,
    STORED,
    PAUSED,
    FENCE,
    DEAD_LETTERS,
    DEPTH,
    LEASED,
    DUE,
    WAITING,
    DEAD,
    SETTLED,
    OLDEST_AGE,
    POINTER,
    LEASES,
    REPAIRED_AT,
    REPAIRED_FOR,
    REPAIRED,
    REPAIR_PROBLEMS,
)

BATCHES = _query("batches_total", "Triggers that have ended, idle ones among them.", "counter")
MESSAGES = _query("messages_total", "Messages in their batches.", "counter")
BATCH_MESSAGES = _query("batch_messages", "Messages in the last batch; 0 while idle.")
BATCH_DURATION = _query("batch_duration_seconds", "How long the last trigger took.")
BACKLOG = _query("backlog_messages", "Messages owed to the group beyond the last batch.")
QUERY_LEASED = _query(
    "leased_messages", "Messages of the group under leases that run, the batch included."
)
QUERY_WAITING = _query("waiting_messages", "Messages of the group to be offered again later.")
QUERY_AGE = _query("oldest_age_seconds", "Age of the oldest message owed, the batch included.")
LOST = _query(
    "lost_lease_messages_total",
    "Messages whose lease ran out in this run of the query, and that went to others.",
    "counter",
)
QUERY_DEAD = _query(
    "dead_messages_total",
    "Messages that this run of the query dead-lettered, or dropped.",
    "counter",
)
SKIPPED = _query(
    "skipped_messages_total",
    "Messages that were too old when their turn came in this run of the query.",
    "counter",
)
OF_QUERIES = (
    BATCHES,
    MESSAGES,
    BATCH_MESSAGES,
    BATCH_DURATION,
    BACKLOG,
    QUERY_LEASED,
    QUERY_WAITING,
    QUERY_AGE,
    LOST,
    QUERY_DEAD,
    SKIPPED,
)
