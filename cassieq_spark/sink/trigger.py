"""Refuses a continuous trigger, under which Spark hands a sink in Python no message at all.

Spark counts the messages as written all the same, and has the sink commit each epoch without a
message of any task. It never tells which trigger a query has; but it plans a micro-batch after it
has logged its end, and an epoch before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cassieq_spark.errors import OptionError


def check_trigger(checkpoint: str | None) -> None:
    """Refuse to write for a query that has planned nothing beyond what it has committed.

    Where the checkpoint is not a folder of this machine nothing can be told: then the first commit
    refuses, see `check_handed_over`.

    Args:
        checkpoint: The query's ``checkpointLocation``, if it was given with the sink.

    Raises:
        OptionError: It has; so its trigger is a continuous one.
    """
    if checkpoint is None:
        return
    folder = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    try:
        if not (folder / "metadata").is_file():
            return
        planned, committed = _latest(folder / "offsets"), _latest(folder / "commits")
    except OSError:
        return
    if planned <= committed:
        raise _refusal()


def check_handed_over(messages: Sequence[object]) -> None:
    """Refuse to commit what tasks of which Spark has called none would have written.

    Raises:
        OptionError: A message of a task is missing; so the trigger is a continuous one.
    """
    if None in messages:
        raise _refusal()


def _latest(log: Path) -> int:
    """The latest batch in a log of Spark's; -1 if there is none."""
    names = (file.name for file in log.iterdir()) if log.is_dir() else ()
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _refusal() -> OptionError:
    return OptionError(
        "a queue cannot be written to with a continuous trigger: Spark hands no message to a sink "
        "in Python then, and counts them as written; leave out trigger(continuous=...)"
    )
