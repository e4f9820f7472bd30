"""What a sink can find out about its query: the micro-batch, and the kind of trigger.

Under a continuous trigger, Spark passes no messages to a sink in Python, but counts them as
written: it lets the sink commit each epoch without a commit message of any task. Spark does not
say which trigger a query has. But it makes the sink of a micro-batch after it has logged the end
of the batch, and the sink of an epoch before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark import TaskContext

from cassieq_spark.errors import OptionError

#: Names of the local properties with the ids of query and batch.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def query_and_batch() -> tuple[str | None, str | None]:
    """The ids of query and batch, the same after a restart and in a replay; None if not known."""
    context = TaskContext.get()
    if context is None:
        return None, None
    return context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)


def is_in_batch() -> bool:
    """Whether this task is part of a micro-batch, or of a write inside ``foreachBatch``.

    False over Spark Connect, and possibly in a thread that the function of ``foreachBatch`` has
    started, as Spark does not tell it there.
    """
    return query_and_batch()[1] is not None


def check_trigger(checkpoint: str | None) -> None:
    """Refuse a continuous trigger, if the checkpoint shows it.

    With such a trigger, Spark has planned no batch beyond those that it has committed. If the
    checkpoint is not a folder of this machine, `check_task_messages` refuses the first commit.

    Args:
        checkpoint: The query's ``checkpointLocation``, if it was given with the sink.

    Raises:
        OptionError: The trigger is a continuous one.
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


def check_task_messages(messages: Sequence[object]) -> None:
    """Refuse a commit without the messages of all tasks: Spark did not call the tasks.

    Raises:
        OptionError: A message is missing, so the trigger is a continuous one.
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
