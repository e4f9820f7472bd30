"""``cassieq top``: exact figures of queues on a terminal, updated repeatedly."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cassieq_spark.cli.connection import impatient
from cassieq_spark.cli.options import EVERY, WATCH_PANEL, OnlyQueues, Value, command
from cassieq_spark.cli.tables import print_table
from cassieq_spark.display import shown_age, shown_rate
from cassieq_spark.errors import CassieqError, OptionError
from cassieq_spark.monitoring.board import BoardLine, lines
from cassieq_spark.monitoring.readings import Readings
from cassieq_spark.monitoring.snapshot import Snapshot
from cassieq_spark.repair.runs import PastRun, read_history
from cassieq_spark.schedules.due import LATE
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import PlainConsole

app = typer.Typer()

#: The number of lines around the table: the headline, the titles, and the line with the keys.
_AROUND = 3
#: Characters of the name of a reader that a terminal shows.
_LONGEST_HOLDER = 40
_ESCAPE = b"\x1b"
#: The bytes that terminals send for keys that have no character.
_NAMED = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"k": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"j": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b" ": "page down",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"g": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"G": "end",
}
_KEYS = "↑↓ scroll  s sort  r reverse  p partitions  q quit"


@dataclass(frozen=True, slots=True)
class TopColumn:
    """A column of figures.

    Attributes:
        title: The title of the column.
        least: The minimum width of the terminal, in characters, for the column to be shown.
        figure: Returns the column's figure of a line; None if there is none.
        show: Formats a figure.
    """

    title: str
    least: int
    figure: Callable[[BoardLine], Any]
    show: Callable[[Any], str] = field(default="{:,}".format)


@dataclass(frozen=True, slots=True)
class TopView:
    """How the lines are viewed.

    Attributes:
        sort: Title of the column by which the lines are sorted; ``queue`` for their name.
        is_reversed: True if the order is reversed.
        first: How many lines are above the first visible one.
        by_partition: True if each of several queue partitions has lines of its own.
    """

    sort: str = "queue"
    is_reversed: bool = False
    first: int = 0
    by_partition: bool = False


@dataclass(frozen=True, slots=True)
class TopFrame:
    """The content of the screen at one time.

    Attributes:
        now: The last reading.
        before: The reading before, for the rates.
        repair: The last run of the repair.
        error: Why the newest reading failed; then ``now`` is older.
    """

    now: Snapshot
    before: Snapshot | None = None
    repair: PastRun | None = None
    error: CassieqError | None = None


@command(app, panel=WATCH_PANEL)
def top(
    *,
    connection: ConnectionOptions,
    every: Annotated[timedelta, Value(EVERY, "Pause between two readings.")] = timedelta(
        seconds=2
    ),
    once: Annotated[
        bool, typer.Option("--once", help="Print the figures once, without rates.")
    ] = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Show each partition of a queue on a line.")
    ] = False,
    queue: OnlyQueues = [],  # noqa: B006 (typer copies it)
) -> None:
    """Watch queues and their groups: messages in and out per second, what is owed, readers.

    Keys: arrows, Page Up and Page Down scroll; s sorts by the next column, r reverses; p shows
    partitions; q ends it. A group is yellow if messages wait and nobody reads them.

    Examples:
        cassieq top
        cassieq top --queue orders --queue payments --every 5s
        cassieq top --once
    """
    console = PlainConsole()
    if not (once or console.is_terminal):
        raise OptionError("there is no terminal to draw on: give --once")
    view = TopView(by_partition=partitions)
    with closing(open_store(impatient(connection))) as store:
        readings = Readings(store, queue)
        frame = _first_frame(store, readings, queue)
        if once and not console.is_terminal:
            _print(frame, view)
        elif once:
            console.print(render(frame, view, console.width, None))
        else:
            _watch(partial(_next_frame, store, readings), frame, view, every, console)


def _watch(
    read: Callable[[TopFrame], TopFrame],
    frame: TopFrame,
    view: TopView,
    every: timedelta,
    console: PlainConsole,
) -> None:
    with _keys() as next_key, Live(console=console, screen=True, auto_refresh=False) as live:
        due = time.monotonic() + every.total_seconds()
        while True:
            width, height = console.size
            room = _room(frame, height)
            view = settled_view(view, len(_lines(frame, view, width)), room)
            live.update(render(frame, view, width, height), refresh=True)
            key = next_key(due - time.monotonic())
            if key is None:
                frame = read(frame)
                due = time.monotonic() + every.total_seconds()
            elif key in {"q", "Q", ""}:
                return
            else:
                view = press(view, key, width, room)


def press(view: TopView, key: str, width: int, room: int) -> TopView:
    """The view after a key was pressed; `settled_view` keeps it within the lines.

    Args:
        view: The view before.
        key: The key: a character, or a name such as ``page down``.
        width: Characters per line; the visible columns follow from it.
        room: How many lines are visible.
    """
    scrolled = {
        "up": view.first - 1,
        "down": view.first + 1,
        "page up": view.first - room,
        "page down": view.first + room,
        "home": 0,
        "end": sys.maxsize,
    }
    if key in scrolled:
        return replace(view, first=scrolled[key])
    match key:
        case "s":
            titles = ["queue", *(column.title for column in columns_for(width))]
            at = titles.index(view.sort) if view.sort in titles else 0
            sort = titles[(at + 1) % len(titles)]
            return replace(view, sort=sort, is_reversed=False, first=0)
        case "r":
            return replace(view, is_reversed=not view.is_reversed, first=0)
        case "p":
            return replace(view, by_partition=not view.by_partition, first=0)
    return view


def settled_view(view: TopView, count: int, room: int) -> TopView:
    """The view, scrolled no further than there are lines."""
    return replace(view, first=max(0, min(view.first, count - room)))


def render(frame: TopFrame, view: TopView, width: int, height: int | None) -> RenderableType:
    """Draw a frame for a terminal of this size; without a height, all of it, without keys."""
    shown = _lines(frame, view, width)
    room = len(shown) if height is None else _room(frame, height)
    part = shown[view.first : view.first + room]
    parts: list[RenderableType] = [_headline(frame), _table(part, view, width)]
    if frame.error is not None:
        parts.insert(1, _cut(str(frame.error), "red"))
    if height is not None:
        last = view.first + len(part)
        place = f"{view.first + bool(part)}-{last} of {len(shown)}"
        parts.append(_cut(f"{place}  {_KEYS}", "dim"))
    return Group(*parts)


def columns_for(width: int) -> list[TopColumn]:
    """The columns of figures that fit into a terminal of this width."""
    return [column for column in COLUMNS if column.least <= width]


def _room(frame: TopFrame, height: int) -> int:
    return max(1, height - _AROUND - (frame.error is not None))


def _lines(frame: TopFrame, view: TopView, width: int) -> list[BoardLine]:
    """All lines, in order: largest figures first, and lines without a figure last."""
    found = lines(frame.before, frame.now, by_partition=view.by_partition)
    column = next((each for each in columns_for(width) if each.title == view.sort), None)
    if column is None:
        return found[::-1] if view.is_reversed else found
    known = [(column.figure(line), line) for line in found]
    with_figure = [pair for pair in known if pair[0] is not None]
    with_figure.sort(key=lambda pair: pair[0], reverse=not view.is_reversed)
    return [line for _, line in with_figure] + [line for value, line in known if value is None]


def _count(name: str) -> Callable[[BoardLine], Any]:
    return lambda line: getattr(line.group, name) if line.group else None


def _holders(line: BoardLine) -> str | None:
    """The name of one of the readers that hold messages, and how many others do."""
    if not line.holders:
        return None
    first, *others = line.holders
    return first[:_LONGEST_HOLDER] + (f" and {len(others)} more" if others else "")


COLUMNS = (
    TopColumn("in/s", 0, lambda line: line.published, shown_rate),
    TopColumn("out/s", 0, lambda line: line.settled, shown_rate),
    TopColumn("depth", 0, _count("depth")),
    TopColumn("leased", 72, _count("leased")),
    TopColumn("due", 88, _count("due")),
    TopColumn("waiting", 88, _count("waiting")),
    TopColumn("dead", 88, _count("dead")),
    TopColumn("oldest", 56, _count("oldest_age"), shown_age),
    TopColumn("readers", 72, lambda line: line.readers if line.group else None),
    TopColumn("holder", 120, _holders, str),
)


def _table(shown: Sequence[BoardLine], view: TopView, width: int) -> Table:
    columns = columns_for(width)
    mark = "↑" if view.is_reversed else "↓"
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("queue")
    table.add_column("group")
    for column in columns:
        # Only columns that might be wrapped give way where it is narrow.
        title = column.title + mark if column.title == view.sort else column.title
        table.add_column(title, justify="right", no_wrap=True)
    for line in shown:
        name, group = _names(line)
        if line.error is not None:
            table.add_row(_cut(name, "red"), _cut(line.error, "red"))
            continue
        style = "yellow" if line.is_stuck else "dim" if line.has_dead_letters else ""
        cells = [_cell(column, line) for column in columns]
        table.add_row(_cut(name), _cut(group or "-"), *cells, style=style)
    return table


def _names(line: BoardLine) -> tuple[str, str | None]:
    """The names of queue and group, with what holds their messages back."""
    queue = f"{line.queue} (paused)" if line.paused else line.queue
    if line.group is None:
        return queue, None
    return queue, f"{line.group.group} (stopped)" if line.group.stopped else line.group.group


def _cell(column: TopColumn, line: BoardLine) -> str:
    figure = column.figure(line)
    return "-" if figure is None else column.show(figure)


def _print(frame: TopFrame, view: TopView) -> None:
    """Print all figures that need no earlier reading, for a file or a pipe."""
    columns = [column for column in COLUMNS if not column.title.endswith("/s")]
    rows = [
        (*_names(line), *(it.figure(line) for it in columns))
        if line.error is None
        else (line.queue, line.error, *[None] * len(columns))
        for line in _lines(frame, view, sys.maxsize)
    ]
    print_table(["queue", "group", *(column.title for column in columns)], rows)


def _cut(text: str, style: str = "") -> Text:
    """A text on one line, cut where there is no room."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _headline(frame: TopFrame) -> Text:
    count = len({each.name for each in frame.now.queues} | frame.now.errors.keys())
    late = sum(each.lag is not None and each.lag > LATE for each in frame.now.schedules)
    schedules = f"{late:,} schedule(s) late  " if late else ""
    text = f"{frame.now.begun_at:%H:%M:%S} UTC  {count:,} queue(s)  {schedules}repair: "
    return _cut(text + _show_repair(frame.repair, frame.now.begun_at))


def _show_repair(run: PastRun | None, now: datetime) -> str:
    if run is None:
        return "none yet"
    ago = shown_age(now - run.started_at.astimezone(UTC))
    problems = f", {len(run.problems)} problem(s)" if run.problems else ""
    return f"{run.outcome}{problems}, begun {ago} ago"


def _first_frame(store: Store, readings: Readings, queues: Sequence[str]) -> TopFrame:
    """Read the first frame; raises the error of a queue that was named."""
    frame = _read_frame(store, readings, None)
    for error in frame.now.errors.values() if queues else ():
        raise error
    return frame


def _next_frame(store: Store, readings: Readings, frame: TopFrame) -> TopFrame:
    try:
        return _read_frame(store, readings, frame.now)
    except CassieqError as error:
        return replace(frame, error=error)


def _read_frame(store: Store, readings: Readings, before: Snapshot | None) -> TopFrame:
    now = readings.read()
    return TopFrame(now, before, next(iter(read_history(store, 1)), None))


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """Yield a function that reads keys; restore the terminal at the end.

    Yields:
        A function that waits a number of seconds for a key, and returns its name; empty if the
        terminal is gone; None if no key came.
    """
    keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
    watched: list[int] = [] if keyboard is None else [keyboard]
    pressed: list[str] = []

    def next_key(seconds: float) -> str | None:
        if not pressed:
            ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
            if not ready:
                return None
            pressed.extend(keys_of(os.read(ready[0], 64)) or [""])
        return pressed.pop(0)

    before = signal.signal(signal.SIGTERM, _end)
    settings = None if keyboard is None else termios.tcgetattr(keyboard)
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        yield next_key
    finally:
        if keyboard is not None and settings is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGTERM, before)


def keys_of(data: bytes) -> list[str]:
    r"""The keys that a terminal has sent: characters, and names for keys without one.

    >>> keys_of(b"s\x1b[Bq")
    ['s', 'down', 'q']
    """
    found = []
    while data:
        known = next((each for each in _NAMED if data.startswith(each)), None)
        if known is not None:
            found.append(_NAMED[known])
            data = data.removeprefix(known)
        elif data.startswith(_ESCAPE):
            # A key that we do not know: nothing of it is a character.
            found.append("unknown")
            data = b""
        else:
            found.append(chr(data[0]))
            data = data[1:]
    return found


def _end(number: int, frame: FrameType | None) -> None:
    """End as the signal would, but leave the terminal as it was."""
    del frame
    sys.exit(128 + number)
