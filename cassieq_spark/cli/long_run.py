"""What commands that may take long have in common: a bar, and Ctrl-C between two steps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cassieq_spark.dead_letters.survey import Wait, Watch
from cassieq_spark.terminal import Console


@contextmanager
def progress_bar() -> Iterator[Watch]:
    """A bar on standard error if that is a terminal, else nothing."""
    console = Console(stderr=True)
    columns: Any = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=None)

        def watch(doing: str, done: int, total: int) -> None:
            progress.update(task, description=doing, completed=done, total=total)

        yield watch


@contextmanager
def stop_on_interrupt() -> Iterator[Wait]:
    """Let the first Ctrl-C stop the run before its next batch; the second one is as ever."""
    # Unlike an event, such a queue bears to be put into by a handler that interrupts a get.
    interrupts: SimpleQueue[int] = SimpleQueue()

    def interrupt(number: int, _: object) -> None:
        interrupts.put(number)
        signal.signal(signal.SIGINT, before)

    def wait(seconds: float) -> bool:
        try:
            interrupts.get(timeout=seconds)
        except Empty:
            return False
        return True

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield wait
    finally:
        signal.signal(signal.SIGINT, before)
