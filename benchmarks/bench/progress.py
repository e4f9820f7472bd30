"""The parts of a streaming query, from Spark's progress: start, time of a batch, steady state.

Start, batch and steady state concern different users: who starts a query for a few messages, who
waits for each batch, and who has more messages than a query keeps up with.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Measures of the parts of a query; that of the rate depends on what is counted.
TO_TASKS, BATCH_MS = "s to the first tasks", "ms a batch"
#: The most batches at the beginning of a query that do not count as its steady state.
FIRST = 3
#: The parts of a batch that run its tasks and commit it.
_WORK = ("addBatch", "commitBatch", "commitOffsets")


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch with rows.

    Attributes:
        began: The time of its trigger, in seconds since 1970.
        rows: The number of its rows.
        ms: From its trigger to its entry in Spark's commit log.
        before_ms: The part of ``ms`` before its tasks begin: finding messages, and planning.
    """

    began: float
    rows: int
    ms: int
    before_ms: int

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> Self:
        took = progress.durationMs
        ms = took["triggerExecution"]
        return cls(
            began=datetime.fromisoformat(progress.timestamp).timestamp(),
            rows=progress.numInputRows,
            ms=ms,
            before_ms=ms - sum(took.get(part, 0) for part in _WORK),
        )


@dataclass(frozen=True, slots=True)
class Phases:
    """The parts of a query.

    Attributes:
        start: Seconds from the call that starts the query to the tasks of its first batch.
        batch_ms: The median time of a batch in the steady state.
        rate: Rows a second inside the batches of the steady state.
    """

    start: float
    batch_ms: float
    rate: float


def batches_of(progress: Iterable[StreamingQueryProgress]) -> tuple[Batch, ...]:
    """The batches that had rows."""
    return tuple(Batch.of(each) for each in progress if each.numInputRows)


def steady(batches: Sequence[Batch]) -> Sequence[Batch]:
    """The batches after the first ones: without three of them, or half of them if they are few.

    A last batch of less than half as many rows as the largest one is a rest, and does not count.

    >>> batches = [Batch(0, rows, 100, 10) for rows in (1, 2, 3, 4, 5)]
    >>> [each.rows for each in steady(batches)], [each.rows for each in steady(batches[:1])]
    ([3, 4, 5], [1])
    >>> [each.rows for each in steady([Batch(0, rows, 100, 10) for rows in (900, 7)])]
    [900]
    """
    largest = max((each.rows for each in batches), default=0)
    whole = batches[:-1] if batches and 2 * batches[-1].rows < largest else batches
    return whole[min(FIRST, len(whole) // 2) :]


def split(batches: Sequence[Batch], called: float) -> Phases:
    """Split a query into its parts.

    A query of one batch has no other for its steady state. Then the time before that batch's tasks
    counts as the start only.

    Args:
        batches: All batches of the query that had rows; at least one.
        called: The time of the call that started the query, in seconds since 1970.

    >>> split([Batch(10.5, 400, 600, 200), Batch(11.1, 400, 400, 90)], called=10.0)
    Phases(start=0.7, batch_ms=400, rate=1000.0)
    >>> split([Batch(10.5, 400, 600, 200)], called=10.0)
    Phases(start=0.7, batch_ms=400, rate=1000.0)
    """
    first, counted = batches[0], steady(batches)
    times = [each.ms - (each.before_ms if each is first else 0) for each in counted]
    return Phases(
        start=first.began - called + first.before_ms / 1000,
        batch_ms=statistics.median(times),
        rate=sum(each.rows for each in counted) * 1000 / sum(times),
    )


def as_measures(phases: Phases, rate: str) -> dict[str, float]:
    """The parts of a query by the names of their measures."""
    return {TO_TASKS: phases.start, BATCH_MS: phases.batch_ms, rate: phases.rate}
