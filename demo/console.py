"""The output of the demo: its steps while they run, and tables at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from cassieq_spark.terminal import PlainConsole

_LOG_LINES = 25
_CARRIERS = 5


class Step:
    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.outcome = ""
        self._progress: Progress | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def tell(self, text: str) -> None:
        """Show the progress on a terminal; the last text is the outcome of the step."""
        self.outcome = text
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], description=self._text)

    def show(self, console: PlainConsole) -> Progress:
        """Show the running step with its time on a terminal."""
        self._progress = Progress(
            SpinnerColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            redirect_stdout=False,  # both go to the log
            redirect_stderr=False,
        )
        self._progress.add_task(self._text)
        return self._progress

    def line(self, mark: str) -> str:
        return f"{mark} {self.seconds:6.1f} s  {self._text}"

    @property
    def _text(self) -> str:
        return f"{self.title}: {self.outcome}" if self.outcome else self.title


class Screen:
    """The demo's standard output, while all other output of the process goes to a log file."""

    def __init__(self, log: Path) -> None:
        self._saved = [os.dup(1), os.dup(2)]
        self._output = os.fdopen(os.dup(1), "w", encoding="utf-8")
        # Without a terminal nothing is wrapped, as a program may read it.
        width = None if self._output.isatty() else 100
        self.console = PlainConsole(file=self._output, width=width, highlight=False)
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number in (1, 2):
            os.dup2(target, number)
        os.close(target)

    def close(self) -> None:
        """Restore standard output and error."""
        self._output.flush()
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in enumerate(self._saved, start=1):
            os.dup2(saved, number)
            os.close(saved)
        self._output.close()

    @contextmanager
    def step(self, title: str, *, live: bool = True) -> Iterator[Step]:
        """Show a step while it runs, and its outcome when it has ended."""
        step = Step(title)
        try:
            if live and self.console.is_terminal:
                with step.show(self.console):
                    yield step
            else:
                yield step
        except BaseException:
            self.say(step.line("✗"))
            raise
        self.say(step.line("✓"))

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def say_end_of(self, log: Path) -> None:
        """Print the last lines of a log file."""
        if log.exists():
            lines = log.read_text(errors="replace").splitlines()
            self.say(f"The last lines of {log}:")
            for line in lines[-_LOG_LINES:]:
                self.say(f"  {line}")


def facts_table(queue: str, facts: Sequence[tuple[str, str, str]]) -> Table:
    """A table of facts: a word, a figure, and its meaning."""
    table = Table(title=f"Queue {queue}", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for fact in facts:
        table.add_row(*fact)
    return table


def delays_table(delays: Sequence[dict[str, Any]]) -> Table:
    """The consumer's statistics: the carriers with most flights."""
    table = Table(title=f"Delays at arrival, {_CARRIERS} of {len(delays)} carriers")
    table.add_column("Carrier")
    for heading in ("Flights", "Mean", "Over 15 min", "Longest"):
        table.add_column(heading, justify="right")
    for row in delays[:_CARRIERS]:
        arrived = row["arrived_sum"] or 1
        table.add_row(
            f"{row['carrier']} {row['name']}",
            f"{row['flights_sum']:,}",
            f"{(row['minutes_sum'] or 0) / arrived:.1f} min",
            f"{row['late_sum'] / arrived:.1%}",
            f"{row['longest_max'] or 0:,.0f} min",
        )
    return table
