"""Ask a supervisor to start, signal and watch processes: our end of its pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from cassieq_spark.errors import SetupError
from cassieq_spark.node import supervise

_END_SECONDS = 60


class Supervisor:
    """A supervisor of its own for each cluster: ends its processes when this one is gone.

    Usable from any thread. See ``supervise`` for what it does, and how it is asked.
    """

    def __init__(self, *, keep: Path | None = None, lock: IO[str] | None = None) -> None:
        """Start it.

        Args:
            keep: Folder the processes work in, kept at the end; unless given, a new temporary
                one that is removed.
            lock: A locked file: stays locked until the supervisor has ended.
        """
        command = [sys.executable, "-I", str(supervise.__file__), "--parent", str(os.getpid())]
        self._turn = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603 (our own file)
            command + (["--keep", str(keep)] if keep else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock.fileno(),) if lock else (),
            start_new_session=True,  # Ctrl-C is for us; the supervisor ends after us
        )
        self.folder = Path(self._read()["folder"])

    def launch(self, name: str, command: Sequence[str], *, log: Path) -> int:
        """Start a process under a name that no running one has, and return its pid.

        Args:
            name: What to call it in the other methods.
            command: The program and its arguments.
            log: Where its output is appended.
        """
        answer = self._ask(do="start", name=name, command=list(command), log=str(log))
        if "error" in answer:
            raise SetupError(f"Cannot start {command[0]}: {answer['error']}")
        return int(answer["pid"])

    def send(self, name: str, number: signal.Signals) -> bool:
        """Send it a signal; false if it has ended before."""
        return bool(self._ask(do="signal", name=name, signal=int(number))["sent"])

    def exit_code(self, name: str) -> int | None:
        """Return how it ended (minus the signal's number if by one), or None while it runs."""
        code: int | None = self._ask(do="poll", name=name)["exit"]
        return code

    def close(self) -> None:
        """End all processes, and the supervisor; harmless when repeated."""
        with self._turn:
            assert self._process.stdin is not None  # noqa: S101 (asked for above)
            assert self._process.stdout is not None  # noqa: S101 (asked for above)
            self._process.stdin.close()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._turn:
            assert self._process.stdin is not None  # noqa: S101 (asked for above)
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            except (BrokenPipeError, ValueError) as exc:
                raise SetupError("The supervisor of the cluster is gone: start it anew.") from exc
            return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 (asked for above)
        line = self._process.stdout.readline()
        if not line:
            raise SetupError("The supervisor of the cluster has ended: start it anew.")
        answer: dict[str, Any] = json.loads(line)
        return answer
