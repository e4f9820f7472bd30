"""Runs of the repair: under a lock, once or periodically, each with a row in the history."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from cassieq_spark.errors import InvariantError, StoreError
from cassieq_spark.lock.bakery import DEFAULT_TTL, Bakery, HeldLock, holding, read_holder
from cassieq_spark.model import to_millis
from cassieq_spark.processes import process_name
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.report import Outcome, Report
from cassieq_spark.signals import Stop
from cassieq_spark.store.decoded import decoded, demand, demand_counts
from cassieq_spark.store.protocol import (
    Row,
    Slice,
    Store,
    TimedRows,
    Value,
    partition_of_history,
)

logger = logging.getLogger(__name__)

#: The lock that a repair run takes, and the name of its history.
REPAIR = "repair"
#: How long the history keeps a run.
DEFAULT_KEPT = timedelta(days=30)

#: A row of the history cannot be read.
NOT_READ = "repair.not_read"
#: A run could not be recorded in the history.
HISTORY_FAILED = "repair.history_failed"

#: Maximum number of problems in a row of the history; the report has all.
_MOST_PROBLEMS = 100
#: How long a run that died may still seem to have the lock.
_PATIENCE = DEFAULT_TTL + timedelta(seconds=5)
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class PastRun:
    """A repair run.

    Attributes:
        epoch: The epoch of the run's lock; higher than the epochs of all earlier runs.
        runner: Host and process of the run.
        started_at: When the run started, by the coordinator's clock.
        outcome: How the run ended, or that it still runs.
        steps: The steps that the run was given.
        duration: How long the run took; None while it runs, or if it broke off.
        queues: The number of queues.
        left_out: How many other queues exist, which the run was not asked to repair.
        counts: What the run did, by the names of `Counts`, without zeros.
        problems: The first hundred of `Report.problems`.
        alarms: How many problems of the run are losses or errors; see `Report.alarms`.
    """

    epoch: int
    runner: str
    started_at: datetime
    outcome: Outcome
    steps: tuple[str, ...]
    duration: timedelta | None = None
    queues: int = 0
    counts: Mapping[str, int] | None = None
    problems: tuple[str, ...] = ()
    left_out: int = 0
    alarms: int = 0


class Recorder:
    """Writes the row of one run: when the run starts, and when it has ended. One plain write each.

    The epoch of a run is the key of its row, so no other run writes that row, however late.

    Args:
        store: Where the history is kept.
        held: The lock of the run.
        runner: Host and process of the run.
        steps: The steps of the run.
        kept: How long the history keeps the row; in whole seconds.
    """

    def __init__(
        self,
        store: TimedRows,
        held: HeldLock,
        *,
        runner: str,
        steps: Sequence[str],
        kept: timedelta,
    ) -> None:
        self._store = store
        self._kept = kept
        self._run = PastRun(held.epoch, runner, held.entered_at, Outcome.RUNNING, tuple(steps))

    def begin(self) -> None:
        """Write that the run has begun."""
        self._write(self._run, 0)

    def end(self, report: Report) -> None:
        """Write what the run did."""
        ended = replace(
            self._run,
            outcome=report.outcome,
            duration=timedelta(seconds=report.seconds),
            queues=report.queue_count,
            counts={name: count for name, count in asdict(report.totals).items() if count},
            problems=tuple(report.problems()),
            left_out=report.left_out,
            alarms=len(list(report.alarms())),
        )
        self._write(ended, 1)

    def fail(self, error: Exception, duration: timedelta) -> None:
        """Write the error that ended the run."""
        problems = (f"{type(error).__name__}: {error}",)
        failed = replace(
            self._run, outcome=Outcome.FAILED, duration=duration, problems=problems, alarms=1
        )
        self._write(failed, 1)

    def _write(self, run: PastRun, number: int) -> None:
        self._store.write_row(
            partition_of_history(REPAIR),
            (run.epoch,),
            _values_of(run),
            timestamp=1000 * to_millis(run.started_at) + number,
            ttl=self._kept,
        )


def run_alone(  # noqa: PLR0913 (each is a choice of its own, by name)
    store: Store,
    repair: Callable[[Checkpoint], Report],
    *,
    steps: Sequence[str],
    stop: Stop,
    kept: timedelta = DEFAULT_KEPT,
    patience: timedelta = _PATIENCE,
) -> Report | None:
    """Take the lock, run the repair, and record the run in the history.

    Args:
        store: Where the queues are kept.
        repair: Runs the repair as long as the checkpoint allows it.
        steps: The steps, for the history.
        stop: Ends the wait for the lock, or the repair between two actions.
        kept: How long the history keeps the run; in whole seconds.
        patience: How long to wait for another repair run to end.

    Returns:
        The report; None if another run had the lock all the time, or ``stop`` was set first.
    """
    runner = process_name()
    bakery = Bakery(store, REPAIR, owner=runner)

    def may_continue() -> bool:
        return not stop.is_set()

    with holding(bakery, patience, may_continue=may_continue) as held:
        if held is None:
            return None
        recorder = Recorder(store, held, runner=runner, steps=steps, kept=kept)
        recorder.begin()
        begun = time.monotonic()
        try:
            report = repair(Checkpoint(held, may_continue))
        except Exception as error:
            took = timedelta(seconds=time.monotonic() - begun)
            _record(partial(recorder.fail, error, took))
            raise
        report.epoch = held.epoch
        _record(partial(recorder.end, report))
        return report


def rounds(
    every: timedelta, stop: Stop, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Yield each time a run must begin, until ``stop`` is set.

    A run begins ``every`` after the one before, plus or minus a tenth, so that several runners do
    not always collide. The first run begins within a tenth of ``every``. A run that takes longer
    than ``every`` delays the next.
    """
    pause = every * random.uniform(0, _JITTER)  # noqa: S311 jitter, not a secret
    while not stop.wait(pause):
        begun = clock()
        yield
        spread = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 the same
        took = timedelta(seconds=clock() - begun)
        pause = max(timedelta(0), every * spread - took)


def _record(write: Callable[[], None]) -> None:
    try:
        write()
    except StoreError as error:
        logger.warning(
            "could not record the repair run in the history: %s",
            error,
            extra={"action": HISTORY_FAILED},
        )


def read_history(store: Store, limit: int) -> list[PastRun]:
    """Read the last runs, latest first. Two reads."""
    holder = read_holder(store, REPAIR)
    which = Slice(limit=limit, reverse=True)
    runs = _readable(store.read_rows(partition_of_history(REPAIR), which).rows)
    return [
        replace(run, outcome=Outcome.BROKEN_OFF)
        if run.outcome is Outcome.RUNNING and (holder is None or holder.epoch != run.epoch)
        else run
        for run in runs
    ]


def _values_of(run: PastRun) -> dict[str, Value]:
    problems = list(run.problems[:_MOST_PROBLEMS])
    if len(run.problems) > _MOST_PROBLEMS:
        problems.append(f"and {len(run.problems) - _MOST_PROBLEMS} more")
    values: dict[str, Value] = {
        "runner": run.runner,
        "started_at": run.started_at,
        "outcome": str(run.outcome),
        "steps": ",".join(run.steps),
        "queues": run.queues,
        "left_out": run.left_out,
        "counts": json.dumps(run.counts or {}),
        "problems": json.dumps(problems),
        "alarms": run.alarms,
    }
    if run.duration is not None:
        values["duration_ms"] = run.duration // timedelta(milliseconds=1)
    return values


def _readable(rows: Iterable[Row]) -> Iterator[PastRun]:
    """The runs whose rows can be read; others are logged and left out."""
    for row in rows:
        try:
            yield _run_of(row)
        except InvariantError as error:
            logger.warning("a repair run is left out: %s", error, extra={"action": NOT_READ})


@decoded
def _run_of(row: Any) -> PastRun:
    demand(row, "runner", "started_at")
    took, left_out, alarms = row["duration_ms"], row["left_out"], row["alarms"]
    given = {"duration_ms": took, "left_out": left_out, "alarms": alarms}
    demand_counts(row, "queues", *(name for name, count in given.items() if count is not None))
    counts, problems = json.loads(row["counts"]), tuple(json.loads(row["problems"]))
    demand_counts(counts, *counts)
    return PastRun(
        epoch=row["epoch"],
        runner=row["runner"],
        started_at=row["started_at"],
        outcome=Outcome(row["outcome"]),
        steps=tuple(row["steps"].split(",")),
        duration=None if took is None else timedelta(milliseconds=took),
        queues=row["queues"],
        counts=counts,
        problems=problems,
        # An earlier release recorded neither: of its problems, any may be a loss.
        left_out=left_out or 0,
        alarms=len(problems) if alarms is None else alarms,
    )
