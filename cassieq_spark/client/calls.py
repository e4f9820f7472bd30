"""The calls of a client that are under way, so that closing it can wait for them."""

from __future__ import annotations

import os
import threading
from types import TracebackType

from cassieq_spark.errors import CassieqError


class _Process:
    """What is under way in one process."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0
        self.closed = False


class Calls:
    """A context manager for each call; a process that was forked begins with none.

    Args:
        owner: What is closed, for errors.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # A lock of the parent may be held for ever in a child: each process has its own.
        self._processes: dict[int, _Process] = {}

    def __enter__(self) -> None:
        here = self._here
        with here.changed:
            if here.closed:
                raise CassieqError(f"this {self._owner} is closed: make another one")
            here.count += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        here = self._here
        with here.changed:
            here.count -= 1
            here.changed.notify_all()

    def pause(self, seconds: float) -> bool:
        """Wait in the middle of a call; False, at once, if it is to end because of `close`."""
        here = self._here
        with here.changed:
            return not here.changed.wait_for(lambda: here.closed, seconds)

    def close(self) -> bool:
        """Refuse new calls, and wait until all have ended; False if it was closed before."""
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
