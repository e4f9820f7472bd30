"""One repair run at a time in a keyspace, now or again and again, with a history."""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial

from cassieq_spark.errors import StoreError
from cassieq_spark.lock.bakery import DEFAULT_TTL, Bakery, holding
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.history import DEFAULT_KEPT, REPAIR, Recorder
from cassieq_spark.repair.report import Report
from cassieq_spark.signals import Stop
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: What a run did could not be written down.
HISTORY_FAILED = "repair.history_failed"

#: As long as a repair run that died may be taken for one that works.
_PATIENCE = DEFAULT_TTL + timedelta(seconds=5)
_JITTER = 0.1


def run_alone(  # noqa: PLR0913 (each is a choice of its own, by name)
    store: Store,
    repair: Callable[[Checkpoint], Report],
    *,
    steps: Sequence[str],
    stop: Stop,
    kept: timedelta = DEFAULT_KEPT,
    patience: timedelta = _PATIENCE,
) -> Report | None:
    """Take the lock, run the repair, and write down what was done.

    Args:
        store: Where the queues are kept.
        repair: Runs the repair until the checkpoint says no.
        steps: What it is to do, for the history.
        stop: Ends the wait, and the repair between two actions.
        kept: How long the history remembers it; in whole seconds.
        patience: How long to wait for another repair run to end.

    Returns:
        None: another one was at work all the time, or ``stop`` was set first.
    """
    runner = f"{socket.gethostname()}:{os.getpid()}"
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
    """Pause until the next run is to begin, again and again, until ``stop`` is set.

    Runs begin ``every`` after one another, give or take a tenth, so that several runners do not
    keep meeting; the first one, within a tenth of it. A run that takes longer delays the next.
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
        # What was done is done; the report tells of it all the same.
        logger.warning(
            "could not record the repair run in the history: %s",
            error,
            extra={"action": HISTORY_FAILED},
        )
