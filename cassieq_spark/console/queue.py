"""The pages of one queue, and of one of its groups: where messages stand, and who has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.responses import Response

from cassieq_spark.console import charts
from cassieq_spark.console.history import QueueHistory, edges_until
from cassieq_spark.console.overview import QueueRow, rows_of
from cassieq_spark.console.pages import PageCall, page
from cassieq_spark.console.settings_plans import fields_of, settings_to_alter
from cassieq_spark.console.watcher import Looked
from cassieq_spark.errors import NotFoundError
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.presence import read_presences
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Ranges, from_millis
from cassieq_spark.queues.attributes import attributes_of
from cassieq_spark.queues.stats import GroupStats, backlog_of
from cassieq_spark.schemas.ddl import schema_of, to_ddl
from cassieq_spark.settings.queue import QUEUE_SETTINGS, QueueSetting

#: The lengths of time that the charts show.
SPANS = {"15m": timedelta(minutes=15), "1h": timedelta(hours=1), "3h": timedelta(hours=3)}
_BINS = 90
_WIDTH, _HEIGHT = 640.0, 120.0
#: The largest number of lines that can be told apart in a chart.
_MOST_LINES = 6
#: How many leases and waiting rows the page of a queue shows, and that of a group.
_FIRST, _MOST = 5, 500
#: The SQS door keeps tags in attributes whose names begin with it.
_SQS_TAG = "sqs.tag."


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The messages that a lease holds, or held until it ran out.

    Attributes:
        partition: The queue partition; None if there is only one.
        token: The token of the lease.
        monotons: The messages.
        until: When the lease runs out, or ran out.
        runs: True if it has not run out.
        deliveries: How often the messages were handed out.
        first_at, last_at: When the messages were handed out first, and last.
        by: The name of the reader; None if unknown.
    """

    partition: int | None
    token: UUID
    monotons: Ranges
    until: datetime
    runs: bool
    deliveries: int
    first_at: datetime | None
    last_at: datetime | None
    by: str | None


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Messages that wait, or that are dead and must be dead-lettered.

    Attributes:
        partition: The queue partition; None if there is only one.
        monotons: The messages.
        due_at: When the messages are due.
        is_due: True if that time has passed.
        deliveries: How often the messages were handed out.
        reason: Why the messages are dead; None if they are not.
    """

    partition: int | None
    monotons: Ranges
    due_at: datetime
    is_due: bool
    deliveries: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class PartStrip:
    """The strip of a group in one partition.

    Attributes:
        partition: The queue partition; None if there is only one.
        stats: What the group is owed in the partition.
        strip: Where these messages stand.
        leases: Leases in the partition that have not run out.
    """

    partition: int | None
    stats: GroupStats
    strip: charts.Strip
    leases: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group on the page of its queue.

    Attributes:
        stats: What the group is owed, in all partitions.
        rate: Messages that the group settles per second; None if unknown.
        readers: Leases that have not run out.
        parts: The strips of the group.
        leases: Messages that were handed out and are not settled, by the end of their lease.
        waits: Messages that wait, or are dead, by time.
    """

    stats: GroupStats
    rate: float | None
    readers: int
    parts: tuple[PartStrip, ...]
    leases: tuple[LeaseRow, ...]
    waits: tuple[WaitRow, ...]


@page("/queues/{queue}")
def queue(call: PageCall) -> Response:
    """Show where the messages of a queue stand. Costs the reads of `Watcher.read`."""
    looked = call.console.watcher.read(call.name())
    history = call.console.watcher.history_with_blocks(looked)
    groups = groups_of(call, looked, history)
    span = call.asked("span") if call.asked("span") in SPANS else "15m"
    rates, depths = _plots(history, [each.stats.group for each in groups], SPANS[span], call.now)
    return call.render(
        "queue.html",
        **about_queue(call, looked),
        groups=groups,
        first=_FIRST,
        history=history,
        span=span,
        spans=SPANS,
        rates=rates,
        depths=depths,
        lines=_MOST_LINES,
    )


@page("/queues/{queue}/groups/{group}")
def group(call: PageCall) -> Response:
    """Show one group: its strips, leases, waiting messages, and the readers that are present."""
    looked = call.console.watcher.read(call.name())
    found = [
        each
        for each in groups_of(call, looked, call.console.watcher.history(call.name()))
        if each.stats.group == call.name("group")
    ]
    if not found:
        raise NotFoundError(
            f"queue {call.name()!r} has no group {call.name('group')!r}; its page lists those "
            "that it has"
        )
    definition = looked.record.definition
    present = read_presences(call.console.watcher.looking, definition, call.name("group"))
    return call.render(
        "group.html",
        **about_queue(call, looked),
        group=found[0],
        most=_MOST,
        present=sorted(present.items(), key=lambda each: str(each[0])),
    )


@page("/queues/{queue}/settings")
def settings(call: PageCall) -> Response:
    """Show the settings of a queue, its schema, and the forms that change it. Reads as `queue`."""
    looked = call.console.watcher.read(call.name())
    return call.render(
        "settings.html",
        **about_queue(call, looked),
        settings=_settings_shown(call, looked.record.definition),
        fields=fields_of(looked.record.definition),
        attributes=_attributes_shown(looked),
        versions=_versions_of(looked.record.definition),
    )


def _settings_shown(call: PageCall, queue: QueueDefinition) -> list[QueueSetting]:
    """The settings that the page shows: not those in its form, nor the schema."""
    alterable = {it.name for it in settings_to_alter(queue)}
    shown = [it for it in QUEUE_SETTINGS if it.fixed or it.name in alterable - {"schema"}]
    return [it for it in shown if it.fixed or not call.console.allow_changes]


def _attributes_shown(looked: Looked) -> list[tuple[bool, bytes, bytes]]:
    """The attributes of a queue: whether it is a tag of SQS, the name, and the value."""
    return [
        (name.startswith(_SQS_TAG), name.removeprefix(_SQS_TAG).encode(), value.encode())
        for name, value in attributes_of(looked.record).items()
    ]


def about_queue(call: PageCall, looked: Looked) -> dict[str, Any]:
    """The content of the head of each page of a queue."""
    fleet = call.console.watcher.fleet()
    name = looked.record.name
    (row,) = rows_of(fleet, call.console.watcher.history, call.now, only={name}) or (
        QueueRow(name, looked.record.definition),
    )
    return {
        "row": row,
        "queue": looked.record.definition,
        "looked": looked,
        "stats": looked.snapshot.stats,
        "fence_ahead": looked.snapshot.fence is not None
        and looked.snapshot.fence > call.now + timedelta(minutes=2),
    }


def groups_of(call: PageCall, looked: Looked, history: QueueHistory | None) -> list[GroupView]:
    """The groups of a queue. No read, unless messages are delayed."""
    store, definition = call.console.watcher.looking, looked.record.definition
    parts = definition.by_partition
    views = []
    for stats in looked.snapshot.stats.groups:
        name = stats.group
        if name == ADMIN_GROUP:
            continue
        strips: list[PartStrip] = []
        leases: list[LeaseRow] = []
        waits: list[WaitRow] = []
        for part, look in zip(parts, looked.looks, strict=True):
            state = look.states.get(name)
            if state is None:
                continue
            strips.append(_part_strip(Ledger(store, part.queue_id), part, looked, state, name))
            leases += lease_rows(state, part.partition)
            waits += wait_rows(state, part.partition)
        found = history.groups.get(name) if history else None
        views.append(
            GroupView(
                stats,
                found.settled.rate() if found else None,
                looked.snapshot.leases.get(name, 0),
                tuple(strips),
                tuple(sorted(leases, key=lambda row: row.until)),
                tuple(sorted(waits, key=lambda row: row.due_at)),
            )
        )
    return views


def lease_rows(state: GroupState, partition: int | None) -> Iterable[LeaseRow]:
    """The leases of a group: messages that were handed out and are not settled."""
    for slot in state.slots:
        if slot.monotons and not slot.is_parked:
            yield LeaseRow(
                partition,
                slot.lease,
                slot.monotons,
                slot.due_at,
                slot.due_at >= state.now,
                slot.deliveries,
                slot.first_at,
                slot.last_at,
                slot.by,
            )


def wait_rows(state: GroupState, partition: int | None) -> Iterable[WaitRow]:
    """The messages of a group that wait for a later delivery, or are dead."""
    for row in state.waiting:
        due_at = from_millis(row.due)
        yield WaitRow(
            partition, row.monotons, due_at, row.due <= state.now_ms, row.deliveries, row.reason
        )


def _part_strip(
    ledger: Ledger, part: QueueDefinition, looked: Looked, state: GroupState, name: str
) -> PartStrip:
    number = part.partition or 0
    head = looked.looks[number].head
    stats = looked.snapshot.stats
    of_part = stats.partitions[number] if stats.partitions else stats
    mine = next(each for each in of_part.groups if each.group == name)
    drawn = charts.strip(
        backlog_of(ledger, state, head),
        stored_from=head.finalised,
        floor=state.floor,
        pointer=state.head.pointer,
    )
    running = {slot.lease for slot in state.slots if slot.monotons and slot.due_at >= state.now}
    return PartStrip(part.partition, mine, drawn, len(running))


def _plots(
    history: QueueHistory, groups: Sequence[str], span: timedelta, now: datetime
) -> tuple[charts.Plot, charts.Plot]:
    """Charts of messages per second, and of what each group is owed."""
    edges = edges_until(now, span, _BINS)
    shown = [name for name in groups if name in history.groups][: _MOST_LINES - 1]
    rates = {"published": history.published.rates(edges)} | {
        f"settled by {name}": history.groups[name].settled.rates(edges) for name in shown
    }
    depths = {name: history.groups[name].depth.levels(edges) for name in shown}
    size = {"width": _WIDTH, "height": _HEIGHT}
    return (
        charts.plot(rates, edges, read_from=history.began_at, **size),
        charts.plot(depths, edges, read_from=history.began_at, **size),
    )


def _versions_of(queue: QueueDefinition) -> list[tuple[int, list[tuple[str, str, bool, str]]]]:
    """The versions of a schema, newest first: columns, and what is new about them."""
    versions = []
    before: dict[str, str] = {}
    for number, ddl in enumerate(queue.schemas, 1):
        fields = {each.name: each for each in schema_of(ddl)}
        rows = []
        for name, each in fields.items():
            written = to_ddl(schema_of(ddl).empty_table().select([name]).schema)
            news = (
                ""
                if number == 1 or before.get(name) == written
                else ("new" if name not in before else "changed")
            )
            rows.append((name, written.partition(" ")[2], each.nullable, news))
        rows += [(name, "", True, "dropped") for name in before if name not in fields]
        before = {
            name: to_ddl(schema_of(ddl).empty_table().select([name]).schema) for name in fields
        }
        versions.append((number, rows))
    return versions[::-1]
