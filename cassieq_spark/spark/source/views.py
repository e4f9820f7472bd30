"""The views of a batch read: their columns, and the rows that a queue's state makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.history import SPAN, stream_span
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import Did, GroupState, Slot, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import from_millis
from cassieq_spark.queues import list_records, open_ledgers, read_queue
from cassieq_spark.queues.stats import (
    GROUP_FIGURES,
    plain_figures,
    queue_stats,
    read_stats,
)
from cassieq_spark.settings import MESSAGES, SourceOptions
from cassieq_spark.settings.queue import QUEUE_SETTINGS, plain_settings
from cassieq_spark.store.protocol import Store

#: One value per column of the view, in order; instants are aware.
ViewRow = tuple[object, ...]
_Rows = Callable[[Store, SourceOptions], Iterator[ViewRow]]


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view; ``type`` in Spark's DDL. Any column may be null."""

    name: str
    type: str
    meaning: str


class View:
    """The result of ``option("view", name)``: one row per thing that ``rows_are`` names.

    The object decorates the function that makes the rows.
    """

    def __init__(self, name: str, rows_are: str, *columns: ViewColumn) -> None:
        self.name = name
        self.rows_are = rows_are
        self.columns = columns
        self.rows: _Rows | None = None
        _VIEWS[name] = self

    def __call__(self, rows: _Rows) -> _Rows:
        """Take the function that makes the rows."""
        self.rows = rows
        return rows

    @property
    def ddl(self) -> str:
        """The schema for Spark: ``queue STRING, ...``."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)


_VIEWS: dict[str, View] = {}
#: The views, by name.
VIEWS: Mapping[str, View] = MappingProxyType(_VIEWS)

_QUEUE = ViewColumn("queue", "STRING", "Name of the queue.")
_PARTITION = ViewColumn("partition", "INT", "Partition of the queue, from 0.")
_GROUP = ViewColumn("consumer_group", "STRING", "Name of the consumer group.")
_BY_GROUP = (_QUEUE, _PARTITION, _GROUP)
_OF_RANGE = (
    ViewColumn("start_monoton", "BIGINT", "First monoton."),
    ViewColumn("stop_monoton", "BIGINT", "Monoton after the last message."),
    ViewColumn("messages", "BIGINT", "Number of messages."),
)
_OF_FIGURES = {it.name: ViewColumn(it.plain_name, it.type, it.meaning) for it in GROUP_FIGURES}


def read_view(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    """Read the rows of the view that the options request, except messages; see docs/views.md.

    A few reads, most of them serial, per group; for `queues`, a read of that whole table.

    Raises:
        QueueStateError: There is no such queue, or no such group.
    """
    rows = VIEWS[options.view].rows
    assert rows is not None  # noqa: S101 (only messages have none, and `MessageReader` reads them)
    return rows(store, options)


_WHEN_MESSAGES_ARE_FOUND = (
    "The view `messages`, which a batch read has by default: Spark finds the messages in the "
    "first action of the DataFrame that `load()` returned, and keeps them. Later actions, all "
    "DataFrames made from it, and a temporary view of it show the same messages, also after "
    "`refreshTable`, and over Spark Connect. Messages that are published later are not shown, and "
    "once the repair has deleted one of them, an action fails. `load()` again, or create the view "
    "again, to see what there is now."
)
_WHEN_STATES_ARE_READ = (
    "All other views are read anew by each action. They read a group's state serially, so do not "
    "poll."
)


def documentation() -> str:
    """The text of docs/views.md: one table per view."""
    lines = [
        "# Views",
        "",
        "Printed by `python -m cassieq_spark.spark.source`; change it there.",
        "",
        'What `spark.read.format("cassieq").option("view", ...)` shows; it leases nothing.',
        "",
        _WHEN_MESSAGES_ARE_FOUND,
        "",
        _WHEN_STATES_ARE_READ,
    ]
    for view in VIEWS.values():
        lines += ["", f"## {view.name}", "", f"One row for each {view.rows_are}."]
        lines += ["", "| Column | Type | Meaning |", "|---|---|---|"]
        lines += [f"| `{it.name}` | {it.type} | {it.meaning} |" for it in view.columns]
    return "\n".join(lines) + "\n"


View(
    MESSAGES,
    "message that is published and not finalised, by partition and in order",
    _QUEUE,
    _PARTITION,
    ViewColumn("monoton", "BIGINT", "Position in the partition, from 0, without gaps."),
    ViewColumn("key", "BINARY", "As published."),
    ViewColumn("value", "BINARY", "As published; never null."),
    ViewColumn("headers", "MAP<STRING, STRING>", "Only with `includeHeaders`."),
    ViewColumn("published_at", "TIMESTAMP", "When it became visible."),
    ViewColumn("delivery_count", "INT", "In a stream, from 1; else null."),
    ViewColumn("receipt", "STRING", "In a stream, only with `includeReceipts`."),
)


@View(
    "blocks",
    "block of a ledger that is not finalised, or only in part, by partition and in order",
    _QUEUE,
    _PARTITION,
    ViewColumn("first_monoton", "BIGINT", "Monoton of the block's first message."),
    ViewColumn("stop_monoton", "BIGINT", "Monoton after its last message."),
    ViewColumn("messages", "BIGINT", "Number of its messages."),
    ViewColumn("block", "STRING", "Its id, a time-based uuid."),
    ViewColumn("published_at", "TIMESTAMP", "When it became visible."),
)
def _blocks(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    for partition, ledger in enumerate(open_ledgers(store, options.queue)):
        head = ledger.read_head()
        for it in ledger.stream_blocks(start=head.trimmed):
            if it.monotons.stop > head.finalised:
                ends = (it.monotons.start, it.monotons.stop, len(it.monotons))
                yield options.queue, partition, *ends, str(it.block), it.published_at


@View(
    "leases",
    "range that was offered to a group and is not settled (with option `group`, only of that "
    "group), by partition and group",
    *_BY_GROUP,
    ViewColumn(
        "state",
        "STRING",
        "`leased`: under a lease; `due`: the lease ran out, or the wait is over; `waiting`: to be "
        "delivered later; `dead`: to be dead-lettered; `parked`: never delivered, as an earlier "
        "message of its key is not settled.",
    ),
    ViewColumn("slot", "INT", "The slot that holds it; null if it waits or waited."),
    *_OF_RANGE,
    ViewColumn("lease", "STRING", "Token that holds it, or held it last; null if there is none."),
    ViewColumn("due_at", "TIMESTAMP", "When the lease runs out or the wait is over."),
    ViewColumn("deliveries", "INT", "How often it was delivered."),
    ViewColumn(
        "held_by",
        "STRING",
        "The name of the reader that holds it, or held it last; null if unknown, or if there is "
        "none.",
    ),
)
def _leases(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    found = [read_group_states(ledger) for ledger in open_ledgers(store, options.queue)]
    _check_group(options, (name for states in found for name in states))
    for partition, states in enumerate(found):
        for group, state in states.items():
            if options.group in (None, group):
                for row in _held(state):
                    yield options.queue, partition, group, *row


def _check_group(options: SourceOptions, groups: Iterable[str]) -> None:
    """Refuse the option ``group`` if it names none of these."""
    names = dict.fromkeys(groups)
    if options.group is not None and options.group not in names:
        known = ", ".join(names) or "none"
        raise QueueStateError(
            f"queue {options.queue!r} has no group {options.group!r}; it has: {known}"
        )


def _held(state: GroupState) -> Iterator[ViewRow]:
    held: list[Slot | Waiting] = [slot for slot in state.slots if slot.monotons]
    for it in sorted([*held, *state.waiting], key=attrgetter("monotons.start")):
        slot: int | None = None
        lease: str | None = None
        held_by: str | None = None
        due_at: datetime | None = None
        if isinstance(it, Slot) and it.is_parked:
            standing, slot = "parked", it.number
        elif isinstance(it, Slot):
            standing = "leased" if it.due_at >= state.now else "due"
            slot, lease, due_at, held_by = it.number, str(it.lease), it.due_at, it.by
        else:
            standing = "due" if it.due <= state.now_ms else "waiting"
            standing = standing if it.reason is None else "dead"
            due_at = from_millis(it.due)
        for part in it.monotons:
            ends = (part.start, part.stop, len(part))
            yield standing, slot, *ends, lease, due_at, it.deliveries, held_by


@View(
    "groups",
    "consumer group, by partition and name",
    *_BY_GROUP,
    ViewColumn("starts_at", "BIGINT", "The monoton at which the group began."),
    _OF_FIGURES["pointer"],
    _OF_FIGURES["floor"],
    _OF_FIGURES["depth"],
)
def _groups(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    for partition, ledger in enumerate(open_ledgers(store, options.queue)):
        groups = queue_stats(ledger).groups
        starts = {group.name: group.starts_at for group in ledger.read_groups()}
        for it in groups:
            figures = (starts.get(it.group), it.pointer, it.floor, it.depth)
            yield options.queue, partition, it.group, *figures


@View(
    "queues",
    "queue of the keyspace that exists or existed (with option `queue`, only that one), by name",
    _QUEUE,
    ViewColumn(
        "version", "INT", "Grows each time the queue is purged, or deleted and created again."
    ),
    ViewColumn(
        "status",
        "STRING",
        "`active`; `purging`: about to get this version; `deleting`: gone, but the repair has not "
        "deleted all of it; `deleted`.",
    ),
    *(ViewColumn(it.plain_name, it.type, it.sentence()) for it in QUEUE_SETTINGS),
    ViewColumn("created_at", "TIMESTAMP", "When it was created."),
)
def _queues(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    for record in list_records(store):
        it = record.definition
        if options.queue in {"", it.name}:
            settings = plain_settings(it).values()
            yield it.name, it.version, record.status.value, *settings, it.created_at


@View(
    "stats",
    "consumer group, by partition and name; for a partition without groups, one row without "
    "figures of a group",
    *_BY_GROUP,
    ViewColumn("finalised", "BIGINT", "Every group has settled all messages below this monoton."),
    ViewColumn("next", "BIGINT", "Monoton that the next published message gets."),
    *_OF_FIGURES.values(),
)
def _stats(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    whole = read_stats(store, read_queue(store, options.queue))
    for partition, stats in enumerate(whole.partitions or (whole,)):
        ends = (stats.finalised, stats.next)
        for it in stats.groups:
            yield options.queue, partition, it.group, *ends, *plain_figures(it).values()
        if not stats.groups:
            yield options.queue, partition, None, *ends, *[None] * len(GROUP_FIGURES)


@View(
    "history",
    "event and range of messages, as far as the queue keeps its history (with option `group`, "
    "only of that group), by partition and group, and the newest first within 65,536 messages. A "
    "read for each group and 65,536 messages ever published, and for each 2,000 events",
    *_BY_GROUP,
    ViewColumn("at", "TIMESTAMP", "When, by the clock of the reader."),
    ViewColumn(
        "event",
        "STRING",
        f"{', '.join(f'`{each}`' for each in Did)}; see [client.md](client.md#who-had-a-message).",
    ),
    *_OF_RANGE,
    ViewColumn("lease", "STRING", "Token of the lease."),
    ViewColumn("deliveries", "INT", "How often it had been delivered; null if unknown."),
    ViewColumn("done_by", "STRING", "The name of the reader; null if it has none."),
    ViewColumn("reason", "STRING", "Why it is dead or was rejected; null otherwise."),
)
def _history(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    queue = read_queue(store, options.queue)
    found = []
    for part in queue.by_partition:
        ledger = Ledger(store, part.queue_id)
        found.append((part, ledger.read_head().next, [it.name for it in ledger.read_groups()]))
    _check_group(options, (name for _, _, names in found for name in names))
    for number, (part, end, names) in enumerate(found):
        for group in (name for name in names if options.group in (None, name)):
            for span in reversed(range(-(-end // SPAN))):
                for it in stream_span(store, part, group, span):
                    for each in it.monotons:
                        ends = (each.start, each.stop, len(each))
                        what = (it.at, str(it.did), *ends, str(it.lease), it.deliveries)
                        yield options.queue, number, group, *what, it.by, it.detail
