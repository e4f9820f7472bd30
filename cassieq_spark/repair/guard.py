"""Whether a repair run may go on: asked before each part of the work, and before each action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cassieq_spark.repair.report import Outcome


class Lock(Protocol):
    """What a repair run asks of the lock that it runs under; `Held` is one."""

    def is_held(self) -> bool:
        """Whether it is ours, by this machine's clock alone."""

    def confirm(self) -> bool:
        """Whether it is ours. One read."""


class Guard:
    """Ends a repair run between two actions.

    An action that was asked for before a pause and carried out after it does no harm: each is
    conditioned on what it was planned by, or deletes what nobody can ever need again. So the lock
    saves work, and the guard makes a repair run that was overtaken stop.

    Args:
        lock: Under which the repair runs; None: under none.
        is_wanted: Whether to go on; asked again and again.

    Attributes:
        error: What kept it from asking the lock. It is the repair's, whichever queue was its turn.
    """

    def __init__(
        self, lock: Lock | None = None, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._lock = lock
        self._is_wanted = is_wanted
        self.error: Exception | None = None

    def is_open(self) -> bool:
        """Whether to begin another part of the work. Reads nothing."""
        return self._is_wanted() and (self._lock is None or self._lock.is_held())

    def confirm(self) -> bool:
        """Whether to carry out an action. One read, under a lock."""
        try:
            return self._is_wanted() and (self._lock is None or self._lock.confirm())
        except Exception as error:
            self.error = error
            raise

    @property
    def outcome(self) -> Outcome:
        """What became of the repair that asked."""
        if self._lock is not None and not self._lock.is_held():
            return Outcome.LOCK_LOST
        return Outcome.DONE if self._is_wanted() else Outcome.STOPPED
