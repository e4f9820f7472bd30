"""Programs that the demo starts, each kept by one of its own that outlives nobody.

As a program, the keeper: starts a command in a new session, and kills all of that session, hard,
when its standard input closes: because whoever asked for it closes it, or is gone. Its exit code
is the command's.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_KILLED = 128 + signal.SIGKILL
_LOOK_SECONDS = 0.05


class Child:
    """A program and whatever it starts, as one thing that can be killed."""

    def __init__(self, name: str, command: list[str], *, log: Path) -> None:
        """Start it.

        Args:
            name: What to call it where it fails.
            command: The program and its arguments.
            log: Where its output is appended.
        """
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", __file__, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us; we end it
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Return the process id of its keeper, the program's parent."""
        return self._keeper.pid

    def exit_code(self) -> int | None:
        """Return how it ended, or None while it runs."""
        return self._keeper.poll()

    def wait(self) -> int:
        """Wait for its end, and return how it ended."""
        return self._keeper.wait()

    def kill(self) -> None:
        """Kill it with all it has started, by SIGKILL; harmless when it has ended."""
        assert self._keeper.stdin is not None  # noqa: S101 (asked for above)
        self._keeper.stdin.close()
        self._keeper.wait()


def keep(command: list[str]) -> int:
    """Run a command until it ends, or standard input does."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    # Nothing is ever sent: what can be read is the end.
    while child.poll() is None:
        if select.select([0], [], [], _LOOK_SECONDS)[0]:
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
