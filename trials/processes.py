"""Programs that a trial starts, kills with all that they have started, and starts again.

Each has a keeper, which is this file run as a program. The keeper starts a command in a new
session, and kills that session when its own standard input closes: the trial closes it, or has
ended. Its exit code is that of the command. It imports the standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_KILLED = 128 + signal.SIGKILL
_KEEPER_LOOKS_SECONDS = 0.05
_LOOK_SECONDS = 0.5


@dataclass
class Program:
    """A program with all that it starts; a ``with`` block starts it, and kills it at the end.

    Attributes:
        name: Its name in messages.
        command: The command with its arguments.
        log: The file to which its output is appended.
        starts: How often it was started.
    """

    name: str
    command: list[str]
    log: Path
    starts: int = 0
    _keeper: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id of its keeper; 0 before it was started."""
        return self._keeper.pid if self._keeper else 0

    @property
    def is_running(self) -> bool:
        """Whether it runs, paused or not."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs, and before it was started."""
        return self._keeper.poll() if self._keeper else None

    def start(self) -> None:
        """Kill it if it runs, and start it."""
        self.kill()
        self.starts += 1
        with self.log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", __file__, *self.command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C must end only the trial, which ends this
            )

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        assert self._keeper is not None  # noqa: S101 (it was started)
        return self._keeper.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to all that it has started, but not to its keeper."""
        sessions = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for process in (each for session in sessions for each in _members(int(session))):
            os.kill(process, number)

    def kill(self) -> None:
        """Kill it with all that it has started; harmless if it has ended."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None  # noqa: S101 (asked for above)
            self._keeper.stdin.close()
            self._keeper.wait()


def supervise(programs: Iterable[Program], *, for_ever: bool) -> bool:
    """Start programs that do not run; ``for_ever`` also those that have ended with exit code 0.

    Returns:
        Whether any of them runs now.
    """
    programs = list(programs)
    for each in programs:
        if not each.is_running and (for_ever or each.exit_code != 0):
            each.start()
    return any(each.is_running for each in programs)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition is true; False if that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(_LOOK_SECONDS)
    return True


def keep(command: list[str]) -> int:
    """Run a command until it ends, or standard input closes."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    # Nothing is ever sent, so standard input is readable only when it is closed.
    while child.poll() is None:
        if select.select([0], [], [], _KEEPER_LOOKS_SECONDS)[0]:
            break
    ended = child.poll()
    _kill_session(child.pid)
    child.wait()
    return _KILLED if ended is None else ended if ended >= 0 else 128 - ended


def _kill_session(session: int) -> None:
    """Kill all processes of a session, as Spark's Python workers have another process group."""
    for _ in range(2):  # again for processes that were started meanwhile
        for process in _members(session):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)


def _members(session: int) -> list[int]:
    # Without /proc, only the process group is killed; the workers notice that and end.
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(entry.name)) == session:
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
