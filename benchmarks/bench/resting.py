"""A batch after a rest: queries with a trigger every two minutes, ours and Kafka's in turns.

Spark ends a Python worker that was idle for a minute, so each batch of such a query begins without
workers. Both queries run in one Spark the whole time, and never at the same moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql.streaming import StreamingQuery

from benchmarks.bench.lab import Lab
from benchmarks.bench.measures import Took, load_stream, sender_to, used
from benchmarks.bench.progress import Batch, batches_of
from benchmarks.bench.systems import System

MESSAGES = 10
_INTERVAL_MS = 120_000
#: Between the triggers of two queries; a batch takes a few seconds.
_APART_MS = 25_000
#: From the publication of the messages to the trigger.
_EARLY_SECONDS = 5.0
#: From the first reading of the processor time to the trigger.
_READY_SECONDS = 0.3
_LOOK_SECONDS = 0.25
_LONGEST_SECONDS = 180.0
#: How much longer than wanted an interval may be.
_MORE_MS = 1_000
_VALUE = b"x" * 100


def next_trigger(now_ms: int, interval_ms: int) -> int:
    """The time at which Spark triggers a query next: the next multiple of its interval.

    >>> next_trigger(1_250, 1_000), next_trigger(2_000, 1_000)
    (2000, 3000)
    """
    return (now_ms // interval_ms + 1) * interval_ms


def intervals_apart(now_ms: int, *, interval_ms: int, apart_ms: int, queries: int) -> list[int]:
    """Intervals at which queries that start now are triggered one after the other.

    As Spark counts intervals since 1970, queries with the same interval always compete. Intervals
    that are some milliseconds longer have their multiples elsewhere. The last query is triggered
    after a whole interval, and the others before it.
    """
    goals = (now_ms + interval_ms - apart_ms * (queries - 1 - number) for number in range(queries))
    possible = range(interval_ms, interval_ms + _MORE_MS)
    return [
        min(possible, key=lambda each: abs(next_trigger(now_ms, each) - goal)) for goal in goals
    ]


@dataclass(frozen=True, slots=True)
class Resting:
    """A query that waits for its trigger."""

    lab: Lab
    system: System
    place: str
    query: StreamingQuery
    interval_ms: int

    def batch(self) -> Took:
        """Publish messages before the next trigger; returns the cost of their batch."""
        seen = len(self._batches())
        at = next_trigger(_now_ms() + int(_EARLY_SECONDS * 1000), self.interval_ms)
        _sleep_until(at, early=_EARLY_SECONDS)
        _publish(self.lab, self.system, self.place)
        # What the server does after the publication is not the batch's.
        _sleep_until(at, early=_READY_SECONDS)
        before, called = self.lab.processor.read(), time.time()
        _sleep_until(at, early=0)
        (batch,) = self.wait_for(seen + 1)[seen:]
        if batch.rows != MESSAGES:
            raise AssertionError(f"a batch should have {MESSAGES} messages, not {batch.rows}")
        return Took(MESSAGES, batch.ms / 1000, called, (batch,), used(self.lab, before))

    def wait_for(self, batches: int) -> Sequence[Batch]:
        """Wait until the query has had this number of batches with messages."""
        until = time.monotonic() + _LONGEST_SECONDS
        while len(found := self._batches()) < batches:
            if time.monotonic() > until or not self.query.isActive:
                raise TimeoutError(f"no batch of {self.system.name}: {self.query.exception()}")
            time.sleep(_LOOK_SECONDS)
        return found

    def _batches(self) -> Sequence[Batch]:
        return batches_of(self.query.recentProgress)


@contextmanager
def resting(lab: Lab, systems: Sequence[System]) -> Iterator[list[Resting]]:
    """Queries that have had one batch, in the order of their triggers."""
    intervals = intervals_apart(
        _now_ms(), interval_ms=_INTERVAL_MS, apart_ms=_APART_MS, queries=len(systems)
    )
    queries: list[Resting] = []
    try:
        for system, interval_ms in zip(systems, intervals, strict=True):
            place = system.new()
            frame = load_stream(lab, system, system.read_options(place, None))
            writer = frame.writeStream.format("noop")
            writer = writer.option("checkpointLocation", lab.new_folder())
            # Spark triggers a query as soon as it starts, too.
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
            _publish(lab, system, place)
            queries.append(Resting(lab, system, place, writer.start(), interval_ms))
        for each in queries:
            each.wait_for(1)
        yield queries
    finally:
        for each in queries:
            each.query.stop()
            each.system.drop(each.place)


def _publish(lab: Lab, system: System, place: str) -> None:
    with sender_to(lab, system, place) as send:
        for _ in range(MESSAGES):
            send(_VALUE)


def _sleep_until(at_ms: int, *, early: float) -> None:
    time.sleep(max(0.0, (at_ms - _now_ms()) / 1000 - early))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
