"""What Spark tells a sink of the query that it is part of: its micro-batch, and its trigger.

Under a continuous trigger Spark hands a sink in Python no message at all. It counts the messages
as written all the same, and has the sink commit each epoch without a message of any task. It never
tells which trigger a query has; but it plans a micro-batch after it has logged its end, and an
epoch before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark import TaskContext

from cassieq_spark.errors import OptionError

#: Names of the local properties with the ids of query and batch.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def told() -> tuple[str | None, str | None]:
    """Query and batch, which Spark tells its tasks; both survive restarts and replays."""
    context = TaskContext.get()
    if context is None:
        return None, None
    return context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)


def is_in_batch() -> bool:
    """Whether this task is part of a micro-batch; also of a write inside ``foreachBatch``.

    Spark may not tell on a thread that the function of ``foreachBatch`` has started, and does not
    over Spark Connect.
    """
    _, batch = told()
    return batch is not None


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
