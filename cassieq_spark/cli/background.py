"""The one cluster that runs in the background: where its state is, and whose pid that is.

The process that keeps the cluster holds a lock on a file for as long as it lives, and writes its
pid beside it. So the pid is its own exactly while the file is locked, and never a stranger's.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO

from cassieq_spark.errors import SetupError

ALREADY = (
    "A cluster runs in the background already: see cassieq node status,"
    " or stop it with cassieq node down."
)

_LOOK_SECONDS = 0.05
_LOCK_ATTEMPTS = 20
_TOLD_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A cluster that serves: who keeps it, and where it is."""

    pid: int
    contact_points: list[str]
    port: int
    data_dir: str | None = None


class Background:
    """The state of this user's background cluster, as three files in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """Keep the files in ``folder``; ``cassieq-spark`` in the user's state folder if None."""
        home = os.environ.get("XDG_STATE_HOME")
        self.folder = folder or Path(home or Path.home() / ".local" / "state", "cassieq-spark")
        self.log = self.folder / "node.log"
        self._lock = self.folder / "node.lock"
        self._state = self.folder / "node.json"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the process that keeps the cluster, until the block ends.

        Raises:
            SetupError: Another process is.
        """
        self._make_folder()
        with self._lock.open("w") as lock:
            if not _locked(lock):
                raise SetupError(ALREADY)
            self._state.unlink(missing_ok=True)
            try:
                yield
            finally:
                self._state.unlink(missing_ok=True)

    def announce(self, running: Running) -> None:
        """Note that the cluster serves; for the process that holds it."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(running)) + "\n")
        fresh.replace(self._state)

    @property
    def held(self) -> bool:
        """Whether some process keeps a cluster now, serving yet or not."""
        if not self._lock.exists():
            return False
        with self._lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def running(self) -> Running | None:
        """Return the cluster that serves, or None."""
        return self._read() if self.held else None

    def launch(self, command: Sequence[str], *, timeout: timedelta) -> Running:
        """Start a program that holds and announces a cluster; return when it has.

        Raises:
            SetupError: It ended, or took too long and was ended; tells the end of its log.
        """
        self._make_folder()
        with self.log.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 (our own command)
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            return self._wait_for(process, timeout)
        except BaseException:
            process.terminate()
            process.wait()
            raise

    def stop(self, *, timeout: timedelta) -> bool:
        """End the process that keeps the cluster, and with it the cluster; false if none does.

        Raises:
            SetupError: It still runs after ``timeout``, or is only just starting.
        """
        running = self.running()
        if running is None:
            if self.held:
                raise SetupError("The cluster is starting or stopping: try again in a moment.")
            return False
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout.total_seconds()
        while self.held:
            if time.monotonic() > deadline:
                raise SetupError(f"Process {running.pid} did not end within {timeout}.")
            time.sleep(_LOOK_SECONDS)
        return True

    def _wait_for(self, process: subprocess.Popen[bytes], timeout: timedelta) -> Running:
        deadline = time.monotonic() + timeout.total_seconds()
        while process.poll() is None and time.monotonic() < deadline:
            # Not ``running()``: trying the lock could keep the process from taking it.
            running = self._read()
            if running and running.pid == process.pid:
                return running
            time.sleep(_LOOK_SECONDS)
        lines = self.log.read_text(errors="replace").splitlines()[-_TOLD_LINES:]
        raise SetupError("The cluster did not start:\n  " + "\n  ".join(lines))

    def _read(self) -> Running | None:
        # Not there, or written by another version: nobody we may signal, then.
        with suppress(OSError, ValueError, TypeError):
            return Running(**json.loads(self._state.read_text()))
        return None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise SetupError(f"Cannot write {self.folder} ({exc.strerror}).") from exc


def _locked(lock: IO[str]) -> bool:
    # A look at ``held`` elsewhere takes the lock for an instant: that is no cluster.
    for _ in range(_LOCK_ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_LOOK_SECONDS)
    return False
