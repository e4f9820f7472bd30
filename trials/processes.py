"""Programs that a trial starts: killed with all that they have started, and started again.

Each has a keeper, which is this file run as a program. It starts a command in a new session, and
kills that session with SIGKILL when its own standard input closes: because the trial closes it, or
is gone. Its exit code is that of the command. It imports nothing but the standard library.
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
    """A program and whatever it starts, as one thing that can be killed and started again.

    In a ``with`` block it is started at the beginning, and killed at the end.

    Attributes:
        name: What to call it where it fails.
        command: What is started, with its arguments.
        log: Where its output is appended.
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
        """The process id of its keeper, its parent; 0 before it was started."""
        return self._keeper.pid if self._keeper else 0

    @property
    def is_running(self) -> bool:
        """Whether its process is there, stopped or not."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs, and before it was started."""
        return self._keeper.poll() if self._keeper else None

    def start(self) -> None:
        """Start it; nothing of an earlier start is left then."""
        self.kill()
        self.starts += 1
        with self.log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", __file__, *self.command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us; we end it
            )

    def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        assert self._keeper is not None  # noqa: S101 (it was started)
        return self._keeper.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and all it has started, but not to its keeper."""
        sessions = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for process in (each for session in sessions for each in _members(int(session))):
            os.kill(process, number)

    def kill(self) -> None:
        """Kill it with all it has started, by SIGKILL; harmless when it has ended."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None  # noqa: S101 (asked for above)
            self._keeper.stdin.close()
            self._keeper.wait()


def supervise(programs: Iterable[Program], *, for_ever: bool) -> bool:
    """Start what does not run, also for the first time.

    Args:
        programs: Which.
        for_ever: Whether also those are started again that have ended in good order.

    Returns:
        Whether any of them runs now.
    """
    runs = False
    for each in programs:
        if not each.is_running and (for_ever or each.exit_code != 0):
            each.start()
        runs = runs or each.is_running
    return runs


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again; False if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(_LOOK_SECONDS)
    return True


def keep(command: list[str]) -> int:
    """Run a command until it ends, or standard input does."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    # Nothing is ever sent: what can be read is the end.
    while child.poll() is None:
        if select.select([0], [], [], _KEEPER_LOOKS_SECONDS)[0]:
            break
    ended = child.poll()
    _kill_session(child.pid)
    child.wait()
    return _KILLED if ended is None else ended if ended >= 0 else 128 - ended


def _kill_session(session: int) -> None:
    """Kill every process of a session: Spark's Python workers are a process group of their own."""
    for _ in range(2):  # once more for what was started meanwhile
        for process in _members(session):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)


def _members(session: int) -> list[int]:
    # Where there is no /proc, the group is what can be killed; the workers notice and end.
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(entry.name)) == session:
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
