"""Ending a job by a signal: asked between two actions, and while it waits."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether the job is to end. Closed after use.

    A pipe, as a signal may come in the middle of anything: `threading.Event` is not made for that.

    Attributes:
        signal: The last signal that came; None if none did.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._reader, self._writer = os.pipe()

    def is_set(self) -> bool:
        """Whether it is to end."""
        return self.wait(timedelta(0))

    def wait(self, at_most: timedelta) -> bool:
        """Wait until it is to end; False: the time is over."""
        return bool(select.select([self._reader], [], [], at_most.total_seconds())[0])

    def set(self) -> None:
        """End it."""
        os.write(self._writer, b".")

    def listen(self) -> None:
        """Let the signals set it. Called again after Spark has put its own handler there."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self._writer)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal = signal.Signals(number)
        self.set()


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """What SIGINT and SIGTERM set; in the end they mean what they meant before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stop = Stop()
    stop.listen()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
