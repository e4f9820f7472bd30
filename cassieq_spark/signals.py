"""Lets signals end a job, between two actions or while it waits."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Knows if the job must end. Must be closed after use.

    The object uses a pipe, as signal handlers must not use the locks of a `threading.Event`.

    Attributes:
        signal: The last signal; None if there was none.
        count: How many signals there were.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.count = 0
        self._reader, self._writer = os.pipe()

    def is_set(self) -> bool:
        """True if the job must end."""
        return self.wait(timedelta(0))

    def wait(self, at_most: timedelta) -> bool:
        """Wait until the job must end; False if the time is over first."""
        return bool(select.select([self._reader], [], [], at_most.total_seconds())[0])

    def set(self) -> None:
        """Make the job end."""
        os.write(self._writer, b".")

    def listen(self) -> None:
        """Make SIGINT and SIGTERM end the job. Call again after Spark has set its handler."""
        for number in SIGNALS:
            signal.signal(number, self.handle)

    def fileno(self) -> int:
        """A descriptor, for `select`, that becomes readable once the job must end."""
        return self._reader

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self._writer)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """End the job by a signal."""
        del frame
        self.signal = signal.Signals(number)
        self.count += 1
        self.set()


@contextmanager
def signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM by ``handler``; restore the handlers before at the end."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """A `Stop` that SIGINT and SIGTERM set; the handlers before are restored at the end."""
    with closing(Stop()) as stop, signals_to(stop.handle):
        yield stop
