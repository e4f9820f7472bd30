"""What each run of the repair did: one row per run, under the epoch of the lock that it had."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.errors import InvariantError
from cassieq_spark.lock.bakery import Held, read_holder
from cassieq_spark.model import to_millis
from cassieq_spark.repair.report import Outcome, Report
from cassieq_spark.store.decoded import decoded, demand
from cassieq_spark.store.protocol import Row, Slice, Store, Value, partition_of_history

#: The lock that a repair run takes, and the name of its history.
REPAIR = "repair"
#: How long a run is remembered.
DEFAULT_KEPT = timedelta(days=30)

logger = logging.getLogger(__name__)

#: A run in the history can't be read.
NOT_READ = "repair.not_read"

#: Of a run that found more, the report has the rest.
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class PastRun:
    """A repair run.

    Attributes:
        epoch: Of the lock that it had; each is higher than those before.
        runner: Who ran it: host and process.
        started_at: By the coordinator's clock.
        outcome: How it ended, or whether it runs still.
        steps: The steps it was to take.
        duration: How long it took; None if nobody knows.
        queues: How many it looked at.
        counts: What it did, by the names of `Counts`; those that are not zero.
        problems: What somebody should know of; not more than a hundred.
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


class Recorder:
    """Writes the row of one run: when it starts, and when it has ended. One plain write each.

    A row belongs to the epoch of its run, so that no other run writes it, however late.

    Args:
        store: Where the history is kept.
        held: The lock that the run has.
        runner: Who runs it.
        steps: What it is to do.
        kept: For how long; in whole seconds.
    """

    def __init__(
        self, store: Store, held: Held, *, runner: str, steps: Sequence[str], kept: timedelta
    ) -> None:
        self._store = store
        self._kept = kept
        self._run = PastRun(held.epoch, runner, held.entered_at, Outcome.RUNNING, tuple(steps))

    def begin(self) -> None:
        """Say that it runs."""
        self._write(self._run, 0)

    def end(self, report: Report) -> None:
        """Say what it did."""
        counts = {name: count for name, count in asdict(report.totals).items() if count}
        ended = replace(
            self._run,
            outcome=report.outcome,
            duration=timedelta(seconds=report.seconds),
            queues=len(report.queues),
            counts=counts,
            problems=tuple(report.problems()),
        )
        self._write(ended, 1)

    def fail(self, error: Exception, duration: timedelta) -> None:
        """Say what ended it."""
        problems = (f"{type(error).__name__}: {error}",)
        failed = replace(self._run, outcome=Outcome.FAILED, duration=duration, problems=problems)
        self._write(failed, 1)

    def _write(self, run: PastRun, number: int) -> None:
        self._store.write_row(
            partition_of_history(REPAIR),
            (run.epoch,),
            _values_of(run),
            timestamp=1000 * to_millis(run.started_at) + number,
            ttl=self._kept,
        )


def read_history(store: Store, limit: int) -> list[PastRun]:
    """Read the last runs, the latest first. Two reads."""
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
        "counts": json.dumps(run.counts or {}),
        "problems": json.dumps(problems),
    }
    if run.duration is not None:
        values["duration_ms"] = run.duration // timedelta(milliseconds=1)
    return values


def _readable(rows: Iterable[Row]) -> Iterator[PastRun]:
    """What can't be read is as good as forgotten."""
    for row in rows:
        try:
            yield _run_of(row)
        except InvariantError as error:
            logger.warning("a repair run is left out: %s", error, extra={"action": NOT_READ})


@decoded
def _run_of(row: Any) -> PastRun:
    demand(row, "runner", "started_at", "queues")
    took = row["duration_ms"]
    return PastRun(
        epoch=row["epoch"],
        runner=row["runner"],
        started_at=row["started_at"],
        outcome=Outcome(row["outcome"]),
        steps=tuple(row["steps"].split(",")),
        duration=None if took is None else timedelta(milliseconds=took),
        queues=row["queues"],
        counts=json.loads(row["counts"]),
        problems=tuple(json.loads(row["problems"])),
    )
