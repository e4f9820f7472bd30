"""The calls of a client that are under way; closing the client waits for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from threading import get_ident

from cassieq_spark.errors import CassieqError


class _Process:
    """The calls under way in one process."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        #: The number of calls that each thread is in: a call may begin within another one.
        self.calls: dict[int, int] = {}
        #: The number of threads that wait in `Calls.close`.
        self.closing = 0
        self.closed = False
        self.ended = False

    def end(self) -> bool:
        """End the calls; return True the first time, False later."""
        is_first, self.ended = not self.ended, True
        return is_first


class Calls:
    """A context manager for calls. A forked process begins without calls under way.

    A signal handler may call `close` at any moment, even between two steps of these methods.

    Args:
        owner: The object to which the calls belong, for the error of a call after `close`.
        disconnect: Called once, after `close` and the last call.
    """

    def __init__(self, owner: str, disconnect: Callable[[], None]) -> None:
        self._owner = owner
        self._disconnect = disconnect
        # One per process: a lock that is held during a fork is never released in the child.
        self._processes: dict[int, _Process] = {}

    def __enter__(self) -> None:
        here, me = self._here, get_ident()
        with here.changed:
            here.calls[me] = here.calls.get(me, 0) + 1
            is_refused = here.closed
        if is_refused:
            self.__exit__()
            raise CassieqError(f"this {self._owner} is closed: create another one")

    def __exit__(self, *_: object) -> None:
        here, me = self._here, get_ident()
        with here.changed:
            # A call that began before a fork is not counted in the child.
            left = here.calls.get(me, 1) - 1
            if left:
                here.calls[me] = left
            else:
                here.calls.pop(me, None)
            here.changed.notify_all()
            is_end = here.closed and not here.calls and not here.closing and here.end()
        if is_end:
            self._disconnect()

    def pause(self, seconds: float) -> bool:
        """Wait within a call; return False at once if `close` is called."""
        here = self._here
        with here.changed:
            return not here.changed.wait_for(lambda: here.closed, seconds)

    def close(self) -> None:
        """Refuse new calls, wait until all calls have ended, and disconnect.

        Within a call, `close` does not wait, because it would wait for itself: the last call then
        disconnects.
        """
        here = self._here
        with here.changed:
            here.closed = True
            here.changed.notify_all()
            if get_ident() in here.calls:
                return
            here.closing += 1
            try:
                here.changed.wait_for(lambda: not here.calls)
            finally:
                here.closing -= 1
            is_end = here.end()
        if is_end:
            self._disconnect()

    @property
    def _here(self) -> _Process:
        return self._processes.setdefault(os.getpid(), _Process())
