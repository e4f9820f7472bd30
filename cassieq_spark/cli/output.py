"""What commands print and ask: sentences and tables for people, one JSON value for programs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cassieq_spark.cli.tables import Column, print_table
from cassieq_spark.dead_letters.survey import Wait, Watch
from cassieq_spark.display import shown_rate
from cassieq_spark.errors import OptionError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues.stats import BLOCKS_EXAMINED, GroupStats, plain_figures
from cassieq_spark.settings.queue import plain_settings
from cassieq_spark.terminal import PlainConsole, confirm, echo, json_line

#: Exit codes of a command that failed, was used wrongly, or was ended by Ctrl-C.
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def print_json(value: Any) -> None:
    """Print a value as JSON, on one line of standard output."""
    echo(json_line(value))


def tell(sentence: str, values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what was done: a sentence, or the values as an object."""
    if as_json:
        print_json(values)
    else:
        echo(sentence)


def tell_rate(count: int, seconds: float, more: str = "") -> None:
    """Print on standard error how many messages a command has handled, and how fast.

    Args:
        count: Number of messages.
        seconds: The time that it took.
        more: What became of the messages.
    """
    each_second = shown_rate(count / max(seconds, 0.001))
    echo(f"{count:,} message(s) in {seconds:.1f} s ({each_second}/s){more}", err=True)


def complain(program: str, error: BaseException) -> None:
    """Print an error, and the notes that were added to it, as one red line on standard error."""
    notes = "".join(f" [{note}]" for note in getattr(error, "__notes__", ()))
    # No wrapping: the line may be searched for.
    console = PlainConsole(stderr=True, soft_wrap=True)
    # Standard error may be a full disk, too.
    with suppress(OSError):
        console.print(f"{program}: {error}{notes}", style="red", highlight=False)


def finish_output(program: str, code: int) -> int:
    """Write what is left in the buffers of the standard streams, before Python does so at exit.

    If a full disk does not take it, Python would report an ignored exception, with exit
    code 120.

    Returns:
        The exit code: that of the command, or `FAILED` if it was 0 and not everything is written.
    """
    # One that is closed is None.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            # What is left in the buffer goes nowhere.
            with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
            if not code and not isinstance(error, BrokenPipeError):
                complain(program, error)
                code = FAILED
    return code


def ask(question: Callable[[], str], *, yes: bool, otherwise: str) -> None:
    """Ask on the terminal, and end the command unless the answer is yes.

    Args:
        question: Makes the question, if it must be asked.
        yes: True if the answer was given before.
        otherwise: What to do where there is no terminal: ``give --yes``.

    Raises:
        OptionError: There is no terminal.
    """
    if yes:
        return
    if not is_interactive():
        raise OptionError(f"there is no terminal to ask on: {otherwise}")
    confirm(question())


def is_interactive() -> bool:
    """True if a person can be asked."""
    return sys.stdin.isatty()


def print_groups(groups: Iterable[GroupStats], *, with_places: bool = False) -> None:
    """Print what groups are owed; with their pointers and floors if asked."""
    columns = ["depth", "leased", "due again", "waiting", "dead", "oldest"]
    columns += ["pointer", "floor"] if with_places else []
    rows = []
    for each in groups:
        figures = (each.depth, each.leased, each.due, each.waiting, each.dead, each.oldest_age)
        places = (each.pointer, each.floor) if with_places else ()
        rows.append((each.group, *figures, *places))
    print_table([Column("group", wraps=True), *columns], rows)


def tell_unexamined(groups: Iterable[GroupStats]) -> None:
    """Name the groups of which only the first blocks were examined."""
    for group in groups:
        if group.unexamined:
            echo(
                f"Group {group.group}: waiting and oldest leave out {group.unexamined:,} messages "
                f"after the first {BLOCKS_EXAMINED:,} blocks, some of them delayed."
            )


def tell_stopped(queue: str, groups: Iterable[GroupStats]) -> None:
    """Name the groups that have stopped at a dead message."""
    for group in groups:
        if group.stopped:
            echo(
                f"Group {group.group} has stopped at a dead message in {group.stopped} "
                f"partition(s): cassieq group resume {queue} {group.group}"
            )


def definition_json(queue: QueueDefinition) -> dict[str, Any]:
    """The definition of a queue as JSON; durations in seconds, null for unset settings."""
    return {
        "queue": queue.name,
        "version": queue.version,
        "queue_id": queue.queue_id,
        "created_at": instant_text(queue.created_at),
        **plain_settings(queue),
    }


def group_json(group: GroupStats) -> dict[str, Any]:
    """The figures of a group as JSON; the age in seconds."""
    return {"group": group.group, **plain_figures(group)}


def instant_text(instant: datetime | None, timespec: str = "seconds") -> str | None:
    """An instant in UTC."""
    return instant.astimezone(UTC).isoformat(timespec=timespec) if instant else None


@contextmanager
def progress_bar() -> Iterator[Watch]:
    """A bar on standard error; nothing if standard error is not a terminal."""
    console = PlainConsole(stderr=True)
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
    """Let the first Ctrl-C stop the run before its next batch; the second ends the process."""
    # Unlike an event, a handler may put into such a queue while it interrupts a get.
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
