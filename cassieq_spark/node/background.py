"""The cluster that `cassieq node up --detach` runs in the background, and its address.

The process that keeps the cluster holds a lock on a file for as long as it lives, and writes its
pid and address beside that file. So the address is valid exactly while the file is locked, and no
signal reaches an unrelated process.
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

_ALREADY = (
    "a cluster runs in the background already: see cassieq node status, or stop it with "
    "cassieq node down"
)
_POLL_SECONDS = 0.05
_LOCK_ATTEMPTS = 20
_TOLD_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A cluster that serves, and how programs reach it.

    Attributes:
        pid: The process that keeps the cluster.
        contact_points: Addresses of the nodes.
        port: The CQL port of the nodes.
        data_dir: Folder of the data; None if the data are deleted when the cluster stops.
        username: Name of the administrator; None if the cluster asks for no name.
        password_file: File with the administrator's password.
        ca_file: PEM file of the CA of the certificates; None if the cluster does not use TLS.
    """

    pid: int
    contact_points: list[str]
    port: int
    data_dir: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None

    @property
    def address(self) -> str:
        """The contact points as ``--contact-points`` takes them."""
        return ",".join(f"{point}:{self.port}" for point in self.contact_points)


class Background:
    """The background cluster of this user: a lock, an address and a log, in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use the files in ``folder``; None for ``cassieq-spark`` in the user's state folder."""
        home = os.environ.get("XDG_STATE_HOME")
        self.folder = folder or Path(home or Path.home() / ".local" / "state", "cassieq-spark")
        self.log = self.folder / "node.log"
        self._lock = self.folder / "node.lock"
        self._state = self.folder / "node.json"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock of the background cluster until the block ends.

        Raises:
            SetupError: Another process holds the lock.
        """
        self._make_folder()
        with self._lock.open("w") as lock:
            if not _locked(lock):
                raise SetupError(_ALREADY)
            self._state.unlink(missing_ok=True)
            try:
                yield
            finally:
                self._state.unlink(missing_ok=True)

    def announce(self, running: Running) -> None:
        """Write down the cluster's address; for the process that holds the lock."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(running)) + "\n")
        fresh.replace(self._state)

    @property
    def held(self) -> bool:
        """True if a process keeps a cluster now, even if the cluster does not serve yet."""
        if not self._lock.exists():
            return False
        with self._lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def refuse_second(self) -> None:
        """Raise `SetupError` if a process keeps a cluster now."""
        if self.held:
            raise SetupError(_ALREADY)

    def running(self) -> Running | None:
        """The cluster that serves now, or None."""
        return self._read() if self.held else None

    def launch(self, command: Sequence[str], *, timeout: timedelta) -> Running:
        """Start a program that holds and announces a cluster, and wait until it has announced it.

        Args:
            command: Arguments of this Python.
            timeout: How long to wait; a program that takes longer is ended.

        Raises:
            SetupError: The program ended, or took too long; the error has the end of its log.
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
        """End the process that keeps the cluster, and so the cluster.

        Returns:
            True if there was one.

        Raises:
            SetupError: The cluster still runs after ``timeout``, or is starting or stopping.
        """
        running = self.running()
        if running is None:
            if self.held:
                raise SetupError("the cluster is starting or stopping: try again in a moment")
            return False
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout.total_seconds()
        while self.held:
            if time.monotonic() > deadline:
                raise SetupError(f"process {running.pid} did not end within {timeout}")
            time.sleep(_POLL_SECONDS)
        return True

    def _wait_for(self, process: subprocess.Popen[bytes], timeout: timedelta) -> Running:
        deadline = time.monotonic() + timeout.total_seconds()
        while process.poll() is None and time.monotonic() < deadline:
            # Not ``running()``: trying the lock could keep the process from taking it.
            running = self._read()
            if running and running.pid == process.pid:
                return running
            time.sleep(_POLL_SECONDS)
        lines = self.log.read_text(errors="replace").splitlines()[-_TOLD_LINES:]
        raise SetupError("the cluster did not start:\n  " + "\n  ".join(lines))

    def _read(self) -> Running | None:
        # No file, or one of another version, names no process.
        with suppress(OSError, ValueError, TypeError):
            return Running(**json.loads(self._state.read_text()))
        return None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise SetupError(
                f"the folder {self.folder} cannot be written ({exc.strerror}): make it writable, "
                "or name another one in XDG_STATE_HOME"
            ) from exc


def _locked(lock: IO[str]) -> bool:
    # ``held`` in another process takes the lock for an instant, too.
    for _ in range(_LOCK_ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_POLL_SECONDS)
    return False
