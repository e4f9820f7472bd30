"""Writes to standard output, and finds out when the reader has taken what was written.

A line in the buffer of a pipe that nobody reads is lost. So messages are written one by one, and
a message counts as taken when the buffer is empty again. The first of `_GAUGES` that proves right
on a pipe of our own asks the system how full the buffer is; where none does, a message counts as
taken when it is written. A file and a terminal take all that is written.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from cassieq_spark.signals import Stop

#: Returns how many bytes that were written to a descriptor have not been read.
Gauge = Callable[[int], int]

#: A pipe that is ready takes this many bytes without waiting (POSIX has 512, but all take a page).
_PIECE = 4096
#: Pauses between two looks at a pipe: at first for a reader that works, then for one that does
#: not.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.000_05, 0.05


class NotTakenError(Exception):
    """The reader is gone, or the program must end, before the reader has taken a message.

    Attributes:
        is_seen: True if the reader has read a part of the message.
    """

    def __init__(self, *, is_seen: bool) -> None:
        super().__init__()
        self.is_seen = is_seen


class Outlet:
    """Standard output, or what replaces it.

    Args:
        stream: The stream, in binary.
        stop: Ends a wait.
        beat: Called with each piece that is written, and while the reader lets the program wait.
            It looks at the clock itself, and returns after how many seconds to call it again.
    """

    def __init__(self, stream: Any, stop: Stop, beat: Callable[[], float]) -> None:
        self._stream = stream
        self._stop = stop
        self._beat = beat
        self._descriptor = _descriptor_of(stream)
        self._unread = None if self._descriptor is None else _gauge_for(self._descriptor)

    @property
    def is_terminal(self) -> bool:
        """True if the output goes to a terminal."""
        return bool(self._stream.isatty())

    def put(self, data: bytes) -> None:
        """Write data, and return when the reader has taken it, as far as the system shows.

        Raises:
            NotTakenError: The reader has not taken all data, and is gone, or the program must end.
        """
        if self._descriptor is None:
            self._stream.write(data)
            self._stream.flush()
            return
        left = memoryview(data)
        try:
            while left:
                self._wait_for_room(self._descriptor)
                left = left[os.write(self._descriptor, left[:_PIECE]) :]
            if self._unread is not None:
                self._wait_for_reader(self._descriptor, self._unread)
        except (BrokenPipeError, _InterruptedError) as error:
            written = len(data) - len(left)
            unread = self._unread(self._descriptor) if self._unread else 0
            raise NotTakenError(is_seen=unread < written) from error

    def _wait_for_room(self, descriptor: int) -> None:
        while True:
            patience = self._beat()
            stopped, ready, _ = select.select([self._stop], [descriptor], [], patience)
            if stopped:
                raise _InterruptedError
            if ready:
                return

    def _wait_for_reader(self, descriptor: int, unread: Gauge) -> None:
        pause = _SHORTEST_PAUSE
        while unread(descriptor):
            if _is_closed(descriptor):
                # It may have read the last of it before it closed.
                if not unread(descriptor):
                    return
                raise BrokenPipeError
            if self._stop.wait(timedelta(seconds=min(pause, self._beat()))):
                raise _InterruptedError
            pause = min(2 * pause, _LONGEST_PAUSE)


class _InterruptedError(Exception):
    """The program must end."""


def _descriptor_of(stream: Any) -> int | None:
    """The descriptor of a stream; None if it is no file of the system."""
    with suppress(OSError, ValueError, AttributeError):
        stream.flush()
        return int(stream.fileno())
    return None


def _is_closed(descriptor: int) -> bool:
    """True if the reader of a pipe or socket is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _gauge_for(descriptor: int) -> Gauge | None:
    """The gauge that fits a descriptor; None if it needs none, or none works on this system."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode):
        return next((gauge for gauge in _PIPE_GAUGES if is_right(gauge, _pipe)), None)
    if stat.S_ISSOCK(mode):
        return next((gauge for gauge in _SOCKET_GAUGES if is_right(gauge, _sockets)), None)
    return None


def is_right(gauge: Gauge, make: Callable[[], Any]) -> bool:
    """True if a gauge is right for a pipe or sockets of this process."""
    with suppress(OSError, ValueError), make() as (reader, writer):
        at_first = gauge(writer)
        os.write(writer, b"..")
        once_written = gauge(writer)
        os.read(reader, 1)
        half_read = gauge(writer)
        os.read(reader, 1)
        return at_first == gauge(writer) == 0 and once_written > 0 and half_read > 0
    return False


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


@contextmanager
def _sockets() -> Iterator[tuple[int, int]]:
    one, other = socket.socketpair()
    with one, other:
        yield one.fileno(), other.fileno()


def _asked_by(request: int) -> Gauge:
    """A gauge that asks the system how many bytes are in a buffer."""

    def unread(descriptor: int) -> int:
        answer = fcntl.ioctl(descriptor, request, struct.pack("i", 0))
        count: int = struct.unpack("i", answer)[0]
        return count

    return unread


def _room_taken(descriptor: int) -> int:
    """A gauge for macOS and BSD: how much less room a pipe has than an empty one."""
    with _pipe() as (_, empty):
        return max(0, _room(empty) - _room(descriptor))


def _room(descriptor: int) -> int:
    """Bytes that a pipe takes now; see EVFILT_WRITE in kqueue(2)."""
    if sys.platform == "linux":
        raise OSError("Linux has no kqueue")
    queue = select.kqueue()
    try:
        change = select.kevent(descriptor, select.KQ_FILTER_WRITE, select.KQ_EV_ADD)
        found = queue.control([change], 1, 0)
        # Without room for a piece there is no event.
        return found[0].data if found else 0
    finally:
        queue.close()


_PIPE_GAUGES: tuple[Gauge, ...] = (_asked_by(termios.FIONREAD), _room_taken)
_SOCKET_GAUGES: tuple[Gauge, ...] = (_asked_by(termios.TIOCOUTQ),)
