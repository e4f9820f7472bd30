from __future__ import annotations

import io
import json
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from cassieq_spark import watch
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.spark import watch as module
from cassieq_spark.spark.source.offsets import Offset, encode, join_partitions
from cassieq_spark.terminal import PlainConsole

SOON = timedelta(milliseconds=100)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CODES = "\x1b[2J<script>"


def source(queue: str = "visits", *, replayed: bool = False, **figures: Any) -> dict[str, Any]:
    end = json.dumps({"v": 1, "queue": queue, "group": "daily"})
    known = {"backlog": 0, "next": 0} | figures
    return {
        "startOffset": end,
        "endOffset": end,
        "latestOffset": "null" if replayed else json.dumps(known),
        "description": "CassieqDataSource",
    }


def batch(number: int, *sources: dict[str, Any], after: float = 0) -> dict[str, Any]:
    at = NOON + timedelta(seconds=after)
    return {"batchId": number, "timestamp": at.isoformat(), "sources": list(sources)}


class FakeQuery:
    """A query that has another progress each time that it is asked, and stops after the last.

    Args:
        reports: What it reports; a function is called, and nothing is reported.
        error: Why it stops.
    """

    name = "visits to Parquet"

    def __init__(self, *reports: Any, error: Exception | None = None) -> None:
        self._reports = list(reports)
        self._error = error
        self.stopped = False

    @property
    def isActive(self) -> bool:
        return len(self._reports) > 1

    @property
    def lastProgress(self) -> Any:
        last = self._reports.pop(0)
        return last() if callable(last) else last

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.stopped = True


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    monkeypatch.setattr(module, "time", it)
    return it


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(module, "PlainConsole", lambda: console)
    return out


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Stands in for IPython in a kernel; lists what was displayed, and how."""
    shown: list[tuple[str, str]] = []

    class Handle:
        def update(self, frame: Any) -> None:
            shown.append(("update", frame._repr_html_()))

    def display(frame: Any, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(("display", frame._repr_html_()))
        return Handle()

    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_backlog_rates_and_age_of_a_query_that_ends_are_told(
    capsys: pytest.CaptureFixture[str],
):
    query = FakeQuery(
        None,
        batch(0, source(backlog=1000, next=1000, oldest_age_ms=5_000)),
        batch(1, source(backlog=600, next=1100, oldest_age_ms=62_000), after=10),
    )

    watch(query, every=SOON)

    first, last = lines_of(capsys)
    assert first == "query visits to Parquet: before its first batch, running"
    assert last == (
        "query visits to Parquet: batch 1, stopped; visits, group daily: backlog 600, in 10/s, "
        "out 50/s, oldest 1m 2s"
    )


def test_without_a_terminal_lines_are_ten_seconds_apart_and_only_when_something_is_new(
    capsys: pytest.CaptureFixture[str], clock: Clock
):
    def later(seconds: float, number: int) -> Callable[[], Any]:
        def report() -> Any:
            clock.now += seconds
            return batch(number, source(backlog=number), after=number)

        return report

    query = FakeQuery(later(0, 1), later(5, 2), later(5, 3), later(20, 3), later(0, 4))

    watch(query, every=SOON)

    assert [line.split(",")[0].rsplit(" ", 1)[-1] for line in lines_of(capsys)] == ["1", "3", "4"]


def test_each_source_has_a_line_of_its_own_in_a_terminal(terminal: io.StringIO):
    query = FakeQuery(batch(7, source("visits", backlog=10), source("orders", backlog=5)))

    watch(query, every=SOON)

    lines = terminal.getvalue().splitlines()
    assert lines[0].endswith("query visits to Parquet: batch 7, stopped")
    assert any(line.startswith("  visits  daily  ████████████████████") for line in lines)
    assert any(line.startswith("  orders  daily  ████████████████████") for line in lines)


def test_the_bar_is_the_backlog_as_a_part_of_its_peak(terminal: io.StringIO):
    query = FakeQuery(
        batch(0, source(backlog=1000)),
        batch(1, source(backlog=250), after=1),
        batch(2, source(backlog=1), after=2),
        batch(3, source(backlog=0), after=3),
    )

    watch(query, every=SOON)

    bars = [line.count("█") for line in terminal.getvalue().splitlines() if "  daily  " in line]
    # It draws the last one again as it ends.
    assert bars == [20, 5, 1, 0, 0]


def test_in_a_notebook_one_output_is_updated(notebook: list[tuple[str, str]]):
    query = FakeQuery(batch(0, source(backlog=1000)), batch(1, source(backlog=250), after=1))

    watch(query, every=SOON)

    assert [how for how, _ in notebook] == ["display", "update"]
    assert "batch 0, running" in notebook[0][1]
    assert "batch 1, stopped" in notebook[1][1]
    assert "<code>1,000</code>" in notebook[0][1]


def test_a_shell_of_ipython_that_is_no_notebook_counts_as_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO
):
    ipython = SimpleNamespace(get_ipython=object)
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]

    watch(FakeQuery(batch(0, source())), every=SOON)

    assert "batch 0" in terminal.getvalue()


def test_ctrl_c_ends_the_view_and_not_the_query(capsys: pytest.CaptureFixture[str]):
    others = []
    before = signal.signal(signal.SIGINT, lambda *_: others.append("cancels all jobs"))

    def interrupt() -> Any:
        signal.raise_signal(signal.SIGINT)
        return batch(0, source())

    query = FakeQuery(interrupt, None)
    try:
        watch(query, every=timedelta(days=1))
        after = signal.getsignal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    assert lines_of(capsys)[-1].startswith(
        "query visits to Parquet: batch 0, not watched any more; it goes on"
    )
    assert not query.stopped
    assert others == ["cancels all jobs"]
    assert after is not signal.default_int_handler


def test_ctrl_c_twice_ends_it_although_spark_does_not_answer():
    def hang() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        watch(FakeQuery(hang, None), every=SOON)


def test_it_works_on_a_thread_which_gets_no_signals(capsys: pytest.CaptureFixture[str]):
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=watch, args=(FakeQuery(batch(3, source())),))

    thread.start()
    thread.join()

    assert "batch 3, stopped" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is before


def test_a_query_that_fails_tells_why_in_one_line(capsys: pytest.CaptureFixture[str]):
    error = RuntimeError(f"[STREAM_FAILED] {CODES}\nTraceback\n  of many lines")

    watch(FakeQuery(batch(0, source()), error=error), every=SOON)

    (line,) = lines_of(capsys)
    assert "batch 0, failed: [STREAM_FAILED] \\x1b[2J<script>; visits, group" in line


def test_an_error_has_no_meaning_in_a_notebook(notebook: list[tuple[str, str]]):
    watch(FakeQuery(batch(0, source()), error=RuntimeError(CODES)), every=SOON)

    assert "failed: \\x1b[2J&lt;script&gt;" in notebook[-1][1]


def test_a_batch_that_was_replayed_says_that_it_has_no_figures(
    capsys: pytest.CaptureFixture[str],
):
    watch(FakeQuery(batch(4, source(replayed=True))), every=SOON)

    (line,) = lines_of(capsys)
    assert "batch 4, stopped, without figures, as Spark has replayed it" in line
    assert "backlog -, in -/s, out -/s, oldest -" in line


def test_rates_look_back_thirty_seconds(capsys: pytest.CaptureFixture[str]):
    published = {0: 0, 100: 100, 110: 200, 130: 3200, 141: 3310}
    query = FakeQuery(
        *(batch(at, source(next=count), after=at) for at, count in published.items())
    )

    watch(query, every=SOON)

    # From the reading at 110 on.
    assert "in 100/s, out 100/s" in lines_of(capsys)[-1]


@pytest.mark.parametrize(
    "moved", [{"next": 10, "backlog": 5}, {"next": 5000, "backlog": 5000}], ids=["purged", "back"]
)
def test_a_count_that_goes_back_has_no_rate(
    capsys: pytest.CaptureFixture[str], moved: dict[str, int]
):
    query = FakeQuery(batch(0, source(next=5000, backlog=10)), batch(1, source(**moved), after=10))

    watch(query, every=SOON)

    assert "out -/s" in lines_of(capsys)[-1]


def test_rates_and_peak_are_of_the_partitions_that_the_query_has_now():
    history = module.BatchHistory()
    history.add(batch(0, source(next=1000, backlog=900, partitions=[0, 1])))
    history.add(batch(1, source(next=1100, backlog=800, partitions=[0, 1]), after=10))
    history.add(batch(2, source(next=500, backlog=100, partitions=[0]), after=12))

    (alone,) = history.gauges
    assert (alone.rate_in, alone.rate_out, alone.peak) == (None, None, 100)

    history.add(batch(3, source(next=520, backlog=20, partitions=[0]), after=14))

    (later,) = history.gauges
    assert (later.rate_in, later.rate_out, later.peak) == (10, 50, 100)


def test_messages_that_a_query_borrows_are_no_part_of_its_rates():
    start = {"v": 1, "queue": "visits", "group": "daily"}
    slots = (LeasedSlot(0, Ranges.parse("0-50"), 1),)
    part = encode(Offset(QueueId("visits@1"), "daily", uuid4(), 50, slots))
    end = join_partitions({1: part}, queue_id=QueueId("visits@1"), group="daily")
    history = module.BatchHistory()
    history.add(batch(0, source(next=100, partitions=[0])))
    borrowing = source(next=100, partitions=[0]) | {"startOffset": start, "endOffset": end}

    history.add(batch(1, borrowing, after=10))

    (gauge,) = history.gauges
    assert gauge.messages == 50
    assert (gauge.rate_in, gauge.rate_out) == (0, 0)


def test_a_query_that_reads_no_queue_is_refused():
    other = {"description": "RateStreamV2", "endOffset": "7", "startOffset": "6"}

    with pytest.raises(OptionError, match="the query reads RateStreamV2, and no queue"):
        watch(FakeQuery(batch(0, other)), every=SOON)


@pytest.mark.parametrize("given", [None, "query", 5])
def test_what_is_no_query_is_refused(given: Any):
    with pytest.raises(OptionError, match="a streaming query is needed"):
        watch(given)


@pytest.mark.parametrize("every", [0, timedelta(0), timedelta(days=400)])
def test_a_pause_out_of_range_is_refused(every: Any):
    with pytest.raises(OptionError, match="every must be"):
        watch(FakeQuery(batch(0, source())), every=every)
