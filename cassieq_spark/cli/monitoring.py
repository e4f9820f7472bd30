"""``cassieq exporter`` and ``top``: exact figures of queues, for Prometheus and on a terminal."""

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
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cassieq_spark.cli.options import (
    ADDRESS,
    DEFAULT_EXPORTER,
    EVERY,
    Address,
    OnlyQueues,
    Value,
    command,
    impatient,
)
from cassieq_spark.cli.output import INTERRUPTED
from cassieq_spark.display import shown_age, shown_rate
from cassieq_spark.errors import CassieqError, OptionError, SetupError
from cassieq_spark.monitoring.board import Line, lines
from cassieq_spark.monitoring.snapshot import Snapshot, read_snapshot
from cassieq_spark.repair.runs import PastRun, read_history
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.signals import stopped_by_signals
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import Console, echo, log_to_stderr

app = typer.Typer()

#: The table's head, the line above it, and what says that more is below.
_AROUND = 6
_QUIT = b"qQ"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    Attributes:
        title: Its title.
        least: Characters that the terminal must be wide for it to be shown.
        cell: What it shows of a line.
    """

    title: str
    least: int
    cell: Callable[[Line], str]


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown at one time.

    Attributes:
        now: The last reading.
        before: The one before, for the rates.
        repair: The last run of the repair.
        error: Why the newest reading failed; then ``now`` is older.
        by_partition: Whether each of several partitions has lines of its own.
    """

    now: Snapshot
    before: Snapshot | None = None
    repair: PastRun | None = None
    error: CassieqError | None = None
    by_partition: bool = False

    @property
    def lines(self) -> list[Line]:
        """What is shown, line by line."""
        return lines(self.before, self.now, by_partition=self.by_partition)


@command(app)
def exporter(
    *,
    connection: ConnectionOptions,
    listen: Annotated[
        Address,
        Value(ADDRESS, "Address to listen on: host:port or [ipv6]:port. There is no log-in."),
    ] = DEFAULT_EXPORTER,
    every: Annotated[
        timedelta, Value(EVERY, "Pause between two readings; a scrape shows the last one.")
    ] = timedelta(seconds=15),
    queue: OnlyQueues = [],  # noqa: B006 (typer copies it)
) -> None:
    """Publish exact figures of queues, groups and repair runs as Prometheus metrics, at /metrics.

    While Cassandra cannot be reached, it goes on, and cassieq_up is 0. SIGTERM ends it with exit
    code 0, Ctrl-C with 130.
    """
    try:
        from cassieq_spark.monitoring.exporter import (  # noqa: PLC0415 (an extra)
            Exporter,
            export,
            serve,
        )
    except ModuleNotFoundError as error:
        raise SetupError(
            "the exporter needs prometheus-client: pip install 'cassieq-spark[metrics]'"
        ) from error
    log_to_stderr()
    connect = partial(open_store, impatient(connection))
    with (
        stopped_by_signals() as stop,
        closing(Exporter(connect, queue)) as publisher,
        serve(publisher, listen.host, listen.port) as url,
    ):
        echo(f"Metrics at {url}; Ctrl-C ends it.")
        export(publisher, every, stop)
    if stop.signal is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


@command(app)
def top(
    *,
    connection: ConnectionOptions,
    every: Annotated[timedelta, Value(EVERY, "Pause between two readings.")] = timedelta(
        seconds=2
    ),
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame, without rates, and exit.")
    ] = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="A line for each partition of a queue.")
    ] = False,
    queue: OnlyQueues = [],  # noqa: B006 (typer copies it)
) -> None:
    """Watch queues and their groups: messages in and out per second, what is owed, readers.

    The key q ends it.
    """
    console = Console()
    if not (once or console.is_terminal):
        raise OptionError("there is no terminal to draw on: give --once for one frame")
    with closing(open_store(impatient(connection))) as store:
        frame = replace(_first_frame(store, queue), by_partition=partitions)
        if once:
            console.print(render(frame, console.width, None))
            return
        with _keys() as is_pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(render(frame, console.width, console.height), refresh=True)
                if is_pressed(every):
                    return
                frame = _next_frame(store, queue, frame)


def render(frame: Frame, width: int, height: int | None) -> RenderableType:
    """Draw a frame for a terminal of this size; without a height, all of it."""
    shown = frame.lines
    room = len(shown) if height is None else max(1, height - _AROUND)
    parts: list[RenderableType] = [_headline(frame), _table(shown[:room], width)]
    if frame.error is not None:
        parts.insert(1, _cut(str(frame.error), "red"))
    if len(shown) > room:
        parts.append(Text(f"and {len(shown) - room:,} more: choose with --queue NAME"))
    return Group(*parts)


def _count(name: str) -> Callable[[Line], str]:
    return lambda line: f"{getattr(line.group, name):,}" if line.group else "-"


COLUMNS = (
    Column("in/s", 0, lambda line: shown_rate(line.published)),
    Column("out/s", 0, lambda line: shown_rate(line.settled)),
    Column("depth", 0, _count("depth")),
    Column("leased", 72, _count("leased")),
    Column("due", 88, _count("due")),
    Column("waiting", 88, _count("waiting")),
    Column("dead", 88, _count("dead")),
    Column("oldest", 56, lambda line: shown_age(line.group.oldest_age if line.group else None)),
    Column("readers", 72, lambda line: str(line.readers) if line.group else "-"),
)


def _table(shown: Sequence[Line], width: int) -> Table:
    columns = [column for column in COLUMNS if column.least <= width]
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("queue")
    table.add_column("group")
    for column in columns:
        # Only columns that might be wrapped give way where it is narrow.
        table.add_column(column.title, justify="right", no_wrap=True)
    for line in shown:
        name = f"{line.queue} (paused)" if line.paused else line.queue
        if line.error is not None:
            table.add_row(_cut(name, "red"), _cut(line.error, "red"))
            continue
        group = line.group.group if line.group else "-"
        table.add_row(_cut(name), _cut(group), *(column.cell(line) for column in columns))
    return table


def _cut(text: str, style: str = "") -> Text:
    """On one line, cut where there is no room."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _headline(frame: Frame) -> Text:
    count = len(frame.now.queues) + len(frame.now.errors)
    text = f"{frame.now.begun_at:%H:%M:%S} UTC  {count:,} queue(s)  repair: "
    return _cut(text + _show_repair(frame.repair, frame.now.begun_at))


def _show_repair(run: PastRun | None, now: datetime) -> str:
    if run is None:
        return "none yet"
    ago = shown_age(max(timedelta(0), now - run.started_at.astimezone(UTC)))
    problems = f", {len(run.problems)} problem(s)" if run.problems else ""
    return f"{run.outcome}{problems}, begun {ago} ago"


def _first_frame(store: Store, queues: Sequence[str]) -> Frame:
    """Raises what is wrong with a queue that was named."""
    frame = _read_frame(store, queues, None)
    for error in frame.now.errors.values() if queues else ():
        raise error
    return frame


def _next_frame(store: Store, queues: Sequence[str], frame: Frame) -> Frame:
    try:
        return replace(_read_frame(store, queues, frame.now), by_partition=frame.by_partition)
    except CassieqError as error:
        return replace(frame, error=error)


def _read_frame(store: Store, queues: Sequence[str], before: Snapshot | None) -> Frame:
    now = read_snapshot(store, queues)
    return Frame(now, before, next(iter(read_history(store, 1)), None))


@contextmanager
def _keys() -> Iterator[Callable[[timedelta], bool]]:
    """Keys as they are pressed, and a terminal that is as before in the end.

    Yields:
        Waits so long for a key that ends it; False: none came.
    """
    keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None

    def is_pressed(pause: timedelta) -> bool:
        until = time.monotonic() + pause.total_seconds()
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([] if keyboard is None else [keyboard], [], [], left)
            if ready and keyboard is not None:
                pressed = os.read(keyboard, 64)
                # Nothing: the terminal is gone.
                if not pressed or any(key in _QUIT for key in pressed):
                    return True
        return False

    before = signal.signal(signal.SIGTERM, _end)
    settings = None if keyboard is None else termios.tcgetattr(keyboard)
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        yield is_pressed
    finally:
        if keyboard is not None and settings is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> None:
    """End as by the signal, but leave the terminal as it was."""
    del frame
    sys.exit(128 + number)
