"""The page of all queues: what each holds, how fast messages come and go, what needs attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from starlette.responses import Response

from cassieq_spark.console import charts
from cassieq_spark.console.history import QueueHistory, edges_until
from cassieq_spark.console.pages import PageCall, page
from cassieq_spark.console.watcher import Fleet, Known
from cassieq_spark.errors import CassieqError
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import QueueRecord, Status
from cassieq_spark.queues.stats import GroupStats

#: Choices of queues per page.
PER_PAGE = (25, 50, 100, 200)
DEFAULT_PER_PAGE = 50
#: The time that the small lines show, unless there is less.
_SPARK_SPAN = timedelta(minutes=30)
_SHORTEST_SPAN = timedelta(minutes=5)
_SPARK_BINS = 30
SPARK_WIDTH, SPARK_HEIGHT = 72, 18
#: How long a first page waits for the figures of its queues.
_PATIENCE = timedelta(seconds=1.5)
#: A clock that is this far ahead is wrong.
_AHEAD = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the table.

    Attributes:
        stats: The figures of what the group is owed.
        oldest: How long the oldest message that the group is owed has been visible by now.
        rate: Messages that the group settles per second; None if unknown.
        readers: Leases that have not run out.
        spark: The recent rate; None if not drawn.
    """

    stats: GroupStats
    oldest: timedelta | None
    rate: float | None
    readers: int
    spark: charts.Spark | None = None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue in the table.

    Attributes:
        name: The name of the queue.
        definition: The definition of the queue; None if its row can't be read.
        states: The states that a person should know of, named as in `STATES`.
        error: Why the queue has no figures, or old ones.
        read_at: When the figures were read; None if not yet.
        rate: Messages published per second; None if unknown.
        groups: The groups of the queue, by name; without the group that redrives dead letters.
        dead: Dead letters that come from the queue, or are in it; None if it has no dead-letter
            queue.
        dead_in: The queue that holds these dead letters.
        spark: The recent rate of publishing; None if not drawn.
    """

    name: str
    definition: QueueDefinition | None = None
    states: tuple[str, ...] = ()
    error: CassieqError | None = None
    read_at: datetime | None = None
    rate: float | None = None
    groups: tuple[GroupRow, ...] = ()
    dead: int | None = None
    dead_in: str | None = None
    spark: charts.Spark | None = None

    @property
    def depth(self) -> int | None:
        """The messages owed to the group that is owed most."""
        return max((each.stats.depth for each in self.groups), default=None)

    @property
    def oldest(self) -> timedelta | None:
        """The age of the oldest message that a group is owed."""
        ages = [each.oldest for each in self.groups if each.oldest is not None]
        return max(ages, default=None)

    @property
    def settled(self) -> float | None:
        """Messages settled per second, of all groups."""
        rates = [each.rate for each in self.groups if each.rate is not None]
        return sum(rates) if rates else None

    @property
    def readers(self) -> int:
        """Leases that have not run out, of all groups."""
        return sum(each.readers for each in self.groups)


#: The states by which the table can be filtered, with their words for a queue.
STATES: Mapping[str, tuple[str, str]] = {
    "paused": ("Paused", "Its readers lease nothing; writers go on."),
    "dead": ("Dead letters", "It has dead letters that are neither redriven nor purged."),
    "stopped": ("Stopped", "A group has stopped at a dead message, and waits for a decision."),
    "due": ("Due", "Messages are due again that no reader has taken yet."),
    "unread": ("Nobody reads", "Messages are owed, no lease runs, and none was settled of late."),
    "trouble": ("Trouble", "It can't be read, is being purged, or a clock was ahead."),
}

_SORTS: Mapping[str, Callable[[QueueRow], float]] = {
    "depth": lambda row: -1 if row.depth is None else row.depth,
    "in": lambda row: -1 if row.rate is None else row.rate,
    "out": lambda row: -1 if row.settled is None else row.settled,
    "oldest": lambda row: -1 if row.oldest is None else row.oldest.total_seconds(),
    "readers": lambda row: row.readers,
    "dead": lambda row: -1 if row.dead is None else row.dead,
}
#: The columns that the table can be sorted by; the first one alphabetically.
SORTS = ("name", *_SORTS)


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of all queues together.

    Attributes:
        queues: How many queues there are.
        read: How many queues have been read, so that their figures are known.
        depth: Messages owed, of all groups.
        rate, settled: Messages published and settled per second.
        dead: Dead letters.
        by_state: How many queues are in each of `STATES`.
    """

    queues: int
    read: int
    depth: int
    rate: float
    settled: float
    dead: int
    by_state: Mapping[str, int] = field(default_factory=dict)


@page("/")
def overview(call: PageCall) -> Response:
    """Show all queues. No read; but the queues on the page are read more often for a while."""
    watcher = call.console.watcher
    fleet = watcher.fleet()
    if fleet.surveyed_at is None and fleet.away is None:
        watcher.show([], wait=_PATIENCE)
        fleet = watcher.fleet()
    search, state = call.asked("q").strip(), call.asked("state")
    sort, is_down = parse_sort(call.asked("sort"))
    size = call.number("size", DEFAULT_PER_PAGE, least=1, most=PER_PAGE[-1])
    rows = rows_of(fleet, watcher.history, call.now)
    totals = totals_of(rows)
    chosen = sort_rows(choose(rows, search=search, state=state), sort, is_down=is_down)
    pages = max(1, -(-len(chosen) // size))
    number = min(call.number("page", 1, least=1), pages)
    shown = chosen[(number - 1) * size : number * size]
    if readable := [row.name for row in shown if row.definition]:
        watcher.show(readable, wait=_PATIENCE)
    if any(row.read_at is None and row.error is None for row in shown):
        names = {row.name for row in shown}
        fresh = rows_of(watcher.fleet(), watcher.history, call.now, only=names)
        by_name = {row.name: row for row in fresh}
        shown = [by_name.get(row.name, row) for row in shown]
    drawn, minutes = draw(shown, watcher.history, fleet, call.now)
    return call.render(
        "overview.html",
        fleet=fleet,
        totals=totals,
        rows=drawn,
        found=len(chosen),
        first=(number - 1) * size + 1 if chosen else 0,
        number=number,
        pages=pages,
        size=size,
        sizes=PER_PAGE,
        search=search,
        state=state if state in STATES else "",
        states=STATES,
        sort=sort,
        is_down=is_down,
        spark_minutes=minutes,
        spark_width=SPARK_WIDTH,
        spark_height=SPARK_HEIGHT,
    )


def rows_of(
    fleet: Fleet,
    history: Callable[[str], QueueHistory | None],
    now: datetime,
    *,
    only: set[str] | None = None,
) -> list[QueueRow]:
    """The rows of the table, without the small lines. Pure, except for the histories.

    Args:
        fleet: What is known of all queues.
        history: Returns the readings of a queue over the last hours.
        now: The time.
        only: Only these queues; None for all.
    """
    names = [name for name in fleet.records if only is None or name in only]
    rows = [_row(fleet, fleet.records[name], history(name), now) for name in names]
    rows += [
        QueueRow(name, states=("trouble",), error=error)
        for name, error in fleet.unreadable.items()
        if only is None or name in only
    ]
    return rows


def choose(rows: Sequence[QueueRow], *, search: str = "", state: str = "") -> list[QueueRow]:
    """The rows in this state whose queue, or one of its groups, has this text in its name."""
    text = search.casefold()
    return [
        row
        for row in rows
        if (not state or state not in STATES or state in row.states)
        and (
            text in row.name.casefold()
            or any(text in group.stats.group.casefold() for group in row.groups)
        )
    ]


def parse_sort(text: str) -> tuple[str, bool]:
    """The column that sorts the table, and True if the largest come first.

    >>> parse_sort("depth"), parse_sort("-name"), parse_sort("x")
    (('depth', True), ('name', True), ('name', False))
    """
    name = text.removeprefix("-")
    if name not in SORTS:
        return "name", False
    # A first click on a figure shows the largest ones.
    return name, text.startswith("-") if name == "name" else not text.startswith("-")


def sort_rows(rows: Sequence[QueueRow], sort: str, *, is_down: bool) -> list[QueueRow]:
    """Sort by a column; equal rows by name."""
    by_name = sorted(rows, key=lambda row: row.name)
    if sort == "name":
        return by_name[::-1] if is_down else by_name
    return sorted(by_name, key=_SORTS[sort], reverse=is_down)


def totals_of(rows: Sequence[QueueRow]) -> Totals:
    """The sum of all queues; dead letters in one queue count once."""
    return Totals(
        queues=len(rows),
        read=sum(row.read_at is not None for row in rows),
        depth=sum(group.stats.depth for row in rows for group in row.groups),
        rate=sum(row.rate or 0.0 for row in rows),
        settled=sum(row.settled or 0.0 for row in rows),
        dead=sum(row.dead or 0 for row in rows if row.dead_in == row.name),
        by_state={state: sum(state in row.states for row in rows) for state in STATES},
    )


def draw(
    rows: Sequence[QueueRow],
    history: Callable[[str], QueueHistory | None],
    fleet: Fleet,
    now: datetime,
) -> tuple[list[QueueRow], int]:
    """Add the small lines, and return how many minutes they show."""
    since = now - fleet.began_at if fleet.began_at else timedelta(0)
    span = min(_SPARK_SPAN, max(_SHORTEST_SPAN, since))
    edges = edges_until(now, span, _SPARK_BINS)
    drawn = []
    for row in rows:
        found = history(row.name)
        if found is None:
            drawn.append(row)
            continue
        published = found.published.rates(edges)
        settled = {name: group.settled.rates(edges) for name, group in found.groups.items()}
        # One scale for a queue, so that in and out can be compared.
        every = [*published, *(each for rates in settled.values() for each in rates)]
        most = max((each for each in every if each is not None), default=0.0) or 1.0
        groups = tuple(
            replace(group, spark=_spark(settled.get(group.stats.group, []), most))
            for group in row.groups
        )
        drawn.append(replace(row, groups=groups, spark=_spark(published, most)))
    return drawn, round(span.total_seconds() / 60)


def _row(
    fleet: Fleet, record: QueueRecord, history: QueueHistory | None, now: datetime
) -> QueueRow:
    queue = record.definition
    name, known, error = record.name, fleet.known.get(record.name), fleet.errors.get(record.name)
    dead_in = name if _is_target(known) else queue.dead_letter_queue
    holder = fleet.known.get(dead_in) if dead_in else None
    dead = holder.snapshot.dead_letters if holder else None
    if known is None:
        is_bad = error is not None or record.status is not Status.ACTIVE
        return QueueRow(name, queue, ("trouble",) * is_bad, error, dead=dead, dead_in=dead_in)
    groups = tuple(
        _group_row(group, known, history, now)
        for group in known.snapshot.stats.groups
        if group.group != ADMIN_GROUP
    )
    snapshot = known.snapshot
    is_ahead = snapshot.fence is not None and snapshot.fence > now + _AHEAD
    states = {
        "paused": snapshot.paused,
        "dead": bool(dead),
        "stopped": any(group.stats.stopped for group in groups),
        "due": any(group.stats.due for group in groups),
        "unread": any(_is_unread(group) for group in groups),
        "trouble": bool(error) or is_ahead or record.status is not Status.ACTIVE,
    }
    return QueueRow(
        name,
        queue,
        tuple(state for state, holds in states.items() if holds),
        error,
        known.confirmed_at,
        history.published.rate() if history else None,
        groups,
        dead,
        dead_in,
    )


def _group_row(
    stats: GroupStats, known: Known, history: QueueHistory | None, now: datetime
) -> GroupRow:
    found = history.groups.get(stats.group) if history else None
    # What was the oldest message then is older now.
    since = max(timedelta(0), now - known.at)
    return GroupRow(
        stats,
        None if stats.oldest_age is None else stats.oldest_age + since,
        found.settled.rate() if found else None,
        known.snapshot.leases.get(stats.group, 0),
    )


def _is_unread(group: GroupRow) -> bool:
    return bool(group.stats.depth) and not group.readers and group.rate == 0.0


def _is_target(known: Known | None) -> bool:
    return known is not None and known.snapshot.dead_letters is not None


def _spark(values: Sequence[float | None], most: float) -> charts.Spark:
    return charts.spark(values, width=SPARK_WIDTH, height=SPARK_HEIGHT - 1, most=most)
