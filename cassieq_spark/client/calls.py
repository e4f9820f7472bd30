"""The calls of a client that are under way; closing the client waits for them."""

from __future__ import annotations

import os
import threading

from cassieq_spark.errors import CassieqError


class _Process:
    """The calls under way in one process."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0
        self.closed = False


class Calls:
    """A context manager for calls. A forked process begins without calls under way.

    Args:
        owner: What the calls belong to, for the error after it is closed.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # One for each process: a lock that is held during a fork is never released in the child.
        self._processes: dict[int, _Process] = {}

    def __enter__(self) -> None:
        here = self._here
        with here.changed:
            if here.closed:
                raise CassieqError(f"this {self._owner} is closed: create another one")
            here.count += 1

    def __exit__(self, *_: object) -> None:
        here = self._here
        with here.changed:
            here.count -= 1
            here.changed.notify_all()

    def pause(self, seconds: float) -> bool:
        """Wait within a call; returns False, and at once, if `close` is called."""
        here = self._here
        with here.changed:
            return not here.changed.wait_for(lambda: here.closed, seconds)

    def close(self) -> bool:
        """Refuse new calls and wait until all have ended; False if it was closed before."""
        here = self._here
        with here.changed:
            first = not here.closed
            here.closed = True
            here.changed.notify_all()
            here.changed.wait_for(lambda: not here.count)
            return first

    @property
    def _here(self) -> _Process:
        return self._processes.setdefault(os.getpid(), _Process())
