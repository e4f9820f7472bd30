"""Extends a lease while its batch runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from cassieq_spark.errors import StoreError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeasedSlot

logger = logging.getLogger(__name__)

#: The lease of the running batch is lost: others may process its messages, too.
LEASE_LOST = "lease.lost"
#: Another process has taken up the running batch; this process no longer holds it.
LEASE_TAKEN_UP = "lease.taken_up"
#: An extension failed, and is tried again.
EXTENSION_FAILED = "lease.extension_failed"

_STOP_SECONDS = 5


class Heartbeat:
    """Extends the lease of the running batch at a third of its length, from its own thread."""

    def __init__(self, group: ConsumerGroup, length: timedelta) -> None:
        self._group = group
        self._length = length
        self._changed = threading.Condition()
        self._held: tuple[UUID, tuple[LeasedSlot, ...]] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="cassieq-heartbeat", daemon=True)

    def hold(self, lease: UUID, leased: Sequence[LeasedSlot]) -> None:
        """Extend this fresh lease from now on."""
        if not self._thread.ident:
            self._thread.start()
        self._set((lease, tuple(leased)))

    def pause(self) -> None:
        """Extend no lease until the next `hold`."""
        self._set(None)

    def stop(self) -> None:
        """End the thread; wait a little for a running extension, which might undo a release."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.ident:
            self._thread.join(_STOP_SECONDS)

    def _set(self, held: tuple[UUID, tuple[LeasedSlot, ...]] | None) -> None:
        with self._changed:
            self._held = held
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                before = self._held
                pause = None if before is None else (self._length / 3).total_seconds()
                if self._changed.wait(pause) or self._stopped:
                    continue
            if before is not None:
                self._extend(*before)

    def _extend(self, lease: UUID, leased: tuple[LeasedSlot, ...]) -> None:
        about = self._group.log_fields
        try:
            kept = self._group.extend(lease, leased, by=self._length)
            taken_up = not kept and self._group.is_taken_up(lease, leased)
        except StoreError as error:
            text = "could not extend the lease of the running batch, trying again: %s"
            logger.warning(text, error, extra={"action": EXTENSION_FAILED, **about})
            return
        with self._changed:
            lost = not kept and self._held == (lease, leased)
            self._held = None if lost else self._held
        if lost and taken_up:
            logger.info(
                "%s: another process has taken up the running batch, as a restarted query does; "
                "this one holds it no longer",
                self._group,
                extra={"action": LEASE_TAKEN_UP, **about},
            )
        elif lost:
            logger.warning(
                "%s: the lease of the running batch is lost; others may process its messages too. "
                "Raise leaseSeconds if batches take longer than that without a heartbeat",
                self._group,
                extra={"action": LEASE_LOST, **about},
            )
