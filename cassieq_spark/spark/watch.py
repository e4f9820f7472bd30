"""A live view of a streaming query: backlog, rates and age of each queue that it reads."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from types import FrameType
from typing import Any, Protocol

from rich.live import Live
from rich.text import Text

from cassieq_spark.arguments import check_duration, shown
from cassieq_spark.display import (
    Displayed,
    ObjectView,
    html_table,
    shown_age,
    shown_rate,
    shown_value,
    text_table,
)
from cassieq_spark.errors import OptionError
from cassieq_spark.signals import Stop
from cassieq_spark.spark.progress import Progress, progress
from cassieq_spark.terminal import PlainConsole, echo

#: The length of time over which rates are computed.
_WINDOW = timedelta(seconds=30)
#: Where there is no terminal, the shortest time between two lines.
_LINE_PAUSE = timedelta(seconds=10)
_SHORTEST_PAUSE = timedelta(milliseconds=100)
_BAR = 20
_LONGEST_ERROR = 300


class Query(Protocol):
    """The used part of a streaming query, of Spark or of Spark Connect."""

    @property
    def isActive(self) -> bool:
        """True if the query runs."""

    @property
    def lastProgress(self) -> Any:
        """The progress of the last batch; None before the first."""

    def exception(self) -> Exception | None:
        """Why the query failed; None if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Gauge(Displayed):
    """The figures that are shown of one source of a query.

    Attributes:
        queue, group: The queue and the group of the source.
        backlog: Messages owed beyond the last batch; None if unknown.
        peak: The highest backlog so far.
        rate_in: Messages published per second; None if unknown.
        rate_out: Messages per second that the group is no longer owed; None if unknown.
        oldest_age: Age of the oldest message owed; None if unknown.
        messages: Messages of the last batch.
    """

    queue: str
    group: str
    backlog: int | None = None
    peak: int = 0
    rate_in: float | None = None
    rate_out: float | None = None
    oldest_age: timedelta | None = None
    messages: int = 0

    @property
    def bar(self) -> str:
        """The backlog, as a part of its peak."""
        part = 0 if not self.backlog else max(1, round(_BAR * self.backlog / self.peak))
        return "█" * part + "░" * (_BAR - part)

    @property
    def line(self) -> str:
        """The figures, as a part of a sentence."""
        backlog = "-" if self.backlog is None else f"{self.backlog:,}"
        return (
            f"{self.queue}, group {self.group}: backlog {backlog}, in {shown_rate(self.rate_in)}"
            f"/s, out {shown_rate(self.rate_out)}/s, oldest {shown_age(self.oldest_age)}"
        )

    def _view(self) -> ObjectView:
        facts = {
            "queue": self.queue,
            "group": self.group,
            "": None if self.backlog is None else self.bar,
            "backlog": self.backlog,
            "in/s": None if self.rate_in is None else shown_rate(self.rate_in),
            "out/s": None if self.rate_out is None else shown_rate(self.rate_out),
            "oldest": self.oldest_age,
            "last batch": self.messages,
        }
        return ObjectView("sources", "", facts, is_fixed=True)


@dataclass(frozen=True, slots=True)
class WatchFrame:
    """The content of the view at one time.

    Attributes:
        caption: The query, its last batch, and its state.
        gauges: One per source that reads a queue.
    """

    caption: str
    gauges: tuple[Gauge, ...] = ()

    @property
    def line(self) -> str:
        """The whole content on one line."""
        return "; ".join([self.caption, *(gauge.line for gauge in self.gauges)])

    def __repr__(self) -> str:
        return text_table(self.caption, self.gauges)

    def _repr_html_(self) -> str:
        return html_table(self.caption, self.gauges)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The figures of all sources at one time, in seconds."""

    at: float
    sources: Sequence[Progress]


@dataclass(slots=True)
class BatchHistory:
    """The figures of a query's batches, over the length of time for which rates are computed.

    Figures of other partitions do not compare: when the query's share changes, its sources get
    new peaks and rates.
    """

    readings: list[_Reading] = field(default_factory=list)
    peaks: dict[tuple[int, tuple[int, ...] | None], int] = field(default_factory=dict)
    batch: int | None = None

    def add(self, last: object) -> None:
        """Record the progress of a batch; a progress that was seen before changes nothing.

        Raises:
            OptionError: The query reads no queue.
        """
        if last is None:
            return
        sources = progress(last)
        if not sources:
            raise OptionError(
                f"the query reads {_sources_of(last)}, and no queue: watch shows queries with "
                'spark.readStream.format("cassieq"); for other queries, see Spark\'s own progress'
            )
        at = datetime.fromisoformat(_get(last, "timestamp")).timestamp()
        if self.readings and self.readings[-1].at == at:
            return
        self.batch = _get(last, "batchId")
        for number, each in enumerate(sources):
            of = (number, each.partitions)
            self.peaks[of] = max(self.peaks.get(of, 0), each.backlog or 0)
        self.readings.append(_Reading(at, sources))
        # One that is older than the window stays: the rates begin there.
        while len(self.readings) > 1 and at - self.readings[1].at >= _WINDOW.total_seconds():
            del self.readings[0]

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        """The present figures of each source."""
        now = self.readings[-1] if self.readings else _Reading(0, ())
        return tuple(self._gauge(number, each) for number, each in enumerate(now.sources))

    @property
    def lacks_figures(self) -> bool:
        """True if Spark reports the last batch, but no figures of its sources."""
        return any(each.backlog is None for each in self.gauges)

    def _gauge(self, number: int, now: Progress) -> Gauge:
        rate_in, rate_out = self._rates(number, now)
        return Gauge(
            queue=now.queue,
            group=now.group,
            backlog=now.backlog,
            peak=self.peaks[number, now.partitions],
            rate_in=rate_in,
            rate_out=rate_out,
            oldest_age=now.oldest_age,
            messages=now.messages,
        )

    def _rates(self, number: int, latest: Progress) -> tuple[float | None, float | None]:
        known = [
            (each.at, *figures)
            for each in self.readings
            if each.sources[number].partitions == latest.partitions
            and (figures := _counts(each.sources[number])) is not None
        ]
        if len(known) < 2:  # noqa: PLR2004 (two readings make a rate)
            return None, None
        (then, *counts_then), (now, *counts_now) = known[0], known[-1]
        # Below zero the queue was purged, the group was moved back, or a clock was set.
        rate_in, rate_out = (
            (after - before) / (now - then) if now > then and after >= before else None
            for before, after in zip(counts_then, counts_now, strict=True)
        )
        return rate_in, rate_out


def watch(query: Query, *, every: timedelta = timedelta(seconds=1)) -> None:
    """Show backlog, rates and age of a streaming query until it stops.

    In a terminal it draws a table; in a notebook (Jupyter, VS Code, Databricks) it updates one
    output; elsewhere it prints at most one line every ten seconds. Ctrl-C, or the notebook's stop
    button, ends the view; the query goes on.

    All figures come from the progress that Spark keeps of a query's last batch, so they change
    with each batch, or every ten seconds while the query is idle. The view asks only Spark, and
    reads nothing from Cassandra. A figure that Spark does not report is ``-``.

    ``watch(query)`` shows, for instance::

        query visits: batch 17, running
          queue   group                        backlog  in/s   out/s  oldest  last batch
          visits  daily  ████████░░░░░░░░░░░░   12,345   100   3,200   1m 2s       1,000

    Args:
        query: A query that reads queues, of Spark or of Spark Connect.
        every: How often Spark is asked.

    Raises:
        OptionError: ``query`` is no streaming query, or reads no queue.
    """
    if not hasattr(type(query), "lastProgress"):
        raise OptionError(
            f"a streaming query is needed, as writeStream.start() returns it, not {shown(query)}"
        )
    check_duration("every", every, least=_SHORTEST_PAUSE)
    history = BatchHistory()
    with _interrupted() as stop, _screen() as show:
        while True:
            # Asked first: what the query reports when it ends must not be missed.
            is_active = query.isActive
            history.add(query.lastProgress)
            if not is_active:
                show(_frame(query, history, _ending(query)), True)
                return
            show(_frame(query, history, "running"), False)
            if stop.wait(every):
                show(_frame(query, history, "not watched any more; it goes on"), True)
                return


def _frame(query: Query, history: BatchHistory, state: str) -> WatchFrame:
    name = getattr(query, "name", None) or getattr(query, "id", None) or "-"
    batch = "before its first batch" if history.batch is None else f"batch {history.batch}"
    parts = [f"query {shown_value(name, 60)}: {batch}", state]
    if history.lacks_figures:
        parts.append("without figures, as Spark has replayed it; the next batch has them")
    return WatchFrame(", ".join(parts), history.gauges)


def _ending(query: Query) -> str:
    error = query.exception()
    if error is None:
        return "stopped"
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return f"failed: {shown_value(first, _LONGEST_ERROR)}"


def _counts(source: Progress) -> tuple[int, int] | None:
    """How many messages were published, and are no longer owed; None if unknown."""
    if source.next is None or source.backlog is None:
        return None
    own = source.messages - (source.borrowed or 0)
    return source.next, source.next - source.backlog - own


def _get(what: Any, name: str) -> Any:
    return what[name] if isinstance(what, dict) else getattr(what, name)


def _sources_of(last: object) -> str:
    names = [str(_get(each, "description")) for each in _get(last, "sources")]
    return shown_value(", ".join(names) or "nothing", _LONGEST_ERROR)


@contextmanager
def _interrupted() -> Iterator[Stop]:
    """The event that Ctrl-C sets. Spark's own handler would also cancel the query's jobs."""
    with closing(Stop()) as stop:
        if threading.current_thread() is not threading.main_thread():
            yield stop
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            del number, frame
            if stop.is_set():  # Again: Spark does not answer.
                raise KeyboardInterrupt
            stop.set()

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield stop
        finally:
            signal.signal(signal.SIGINT, before)


#: Shows a frame; the second argument is True for the last one.
_Show = Callable[[WatchFrame, bool], None]


@contextmanager
def _screen() -> Iterator[_Show]:
    """A function that shows frames: in a notebook, in a terminal, or as lines."""
    console = PlainConsole()
    if _is_notebook():
        yield _in_notebook()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda frame, _: live.update(
                Text(repr(frame), no_wrap=True, overflow="ellipsis"), refresh=True
            )
    else:
        yield _as_lines()


def _is_notebook() -> bool:
    """True if a kernel of IPython runs this process; looks without importing it."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(get_shell() if get_shell else None, "kernel")


def _in_notebook() -> _Show:
    """Show each frame in the place of the one before, in one output."""
    display: Any = import_module("IPython.display").display
    handle: Any = None

    def show(frame: WatchFrame, is_last: bool) -> None:
        del is_last
        nonlocal handle
        if handle is None:
            handle = display(frame, display_id=True)
        else:
            handle.update(frame)

    return show


def _as_lines() -> _Show:
    said, said_at = "", -math.inf

    def show(frame: WatchFrame, is_last: bool) -> None:
        nonlocal said, said_at
        now = time.monotonic()
        if frame.line != said and (is_last or now - said_at >= _LINE_PAUSE.total_seconds()):
            said, said_at = frame.line, now
            echo(frame.line)

    return show
