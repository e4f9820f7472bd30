"""Holding a lock while something is done that may take long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from cassieq_spark.errors import StoreError
from cassieq_spark.lock.bakery import Bakery, Held

logger = logging.getLogger(__name__)

#: A renewal failed; it is tried again.
RENEWAL_FAILED = "lock.renewal_failed"
#: The lock is lost: others may have it now.
LOCK_LOST = "lock.lost"

#: Four renewals per TTL, of which two may fail.
_RENEWALS = 4
_STOP_SECONDS = 5


@contextmanager
def holding(
    bakery: Bakery, patience: timedelta, *, wanted: Callable[[], bool] = lambda: True
) -> Iterator[Held | None]:
    """Take a lock, renew it from another thread, and leave it in the end.

    Whoever holds it asks `Held.confirm` before each action: the thread can't keep a process from
    being paused.

    Args:
        bakery: Which lock.
        patience: See `Bakery.enter`, also for the errors.
        wanted: The same.

    Yields:
        None: others have it.
    """
    held = bakery.enter(patience, wanted=wanted)
    if held is None:
        yield None
        return
    done = threading.Event()
    pause = (bakery.ttl / _RENEWALS).total_seconds()
    renewing = threading.Thread(
        target=_renew, args=(held, done, pause), name="cassieq-lock", daemon=True
    )
    renewing.start()
    try:
        yield held
    finally:
        done.set()
        # A renewal under way is no younger than the deletion, so it may arrive after it.
        held.leave()
        renewing.join(_STOP_SECONDS)


def _renew(held: Held, done: threading.Event, pause: float) -> None:
    while not done.wait(pause):
        try:
            kept = held.renew()
        except StoreError as error:
            logger.warning(
                "could not renew the lock, trying again: %s",
                error,
                extra={"action": RENEWAL_FAILED, "epoch": held.epoch},
            )
            continue
        if not kept:
            if not done.is_set():
                logger.warning(
                    "the lock is lost: this process was paused, or reached no Cassandra, for too "
                    "long",
                    extra={"action": LOCK_LOST, "epoch": held.epoch},
                )
            return
