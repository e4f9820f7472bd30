"""What Spark tells a task of the micro-batch that it is part of."""

from __future__ import annotations

from pyspark import TaskContext

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
