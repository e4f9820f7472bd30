"""``cassieq node``: a real Cassandra on this machine, in the foreground or the background.

The process that keeps the background cluster holds a lock on a file for as long as it lives, and
writes its pid beside it. So the pid is its own exactly while the file is locked, and never a
stranger's.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Annotated

import typer

from cassieq_spark.cli.options import AsJson
from cassieq_spark.cli.output import print_json, tell
from cassieq_spark.errors import SetupError
from cassieq_spark.node import Cluster
from cassieq_spark.node.download import resolve_jars
from cassieq_spark.node.jars import DEFAULT_RELEASE, Release
from cassieq_spark.settings.connection import DEFAULT_PORT
from cassieq_spark.terminal import echo

app = typer.Typer(
    help="Run Cassandra on this machine: for trials, tests and the demo.", no_args_is_help=True
)

NOT_RUNNING = 3

CassandraVersion = Annotated[Release, typer.Option(help="Which Cassandra.")]

ALREADY = (
    "A cluster runs in the background already: see cassieq node status,"
    " or stop it with cassieq node down."
)

_POLL_SECONDS = 0.05
_LOCK_ATTEMPTS = 20
_TOLD_LINES = 20
_START_TIMEOUT = timedelta(minutes=4)
_STOP_TIMEOUT = timedelta(minutes=1)
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A cluster that serves: the process that keeps it, and its address."""

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
        """Hold the lock of the background cluster until the block ends.

        Raises:
            SetupError: Another process holds it.
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
        raise SetupError("The cluster did not start:\n  " + "\n  ".join(lines))

    def _read(self) -> Running | None:
        # Without the file, or with one of another version, there is no process to signal.
        with suppress(OSError, ValueError, TypeError):
            return Running(**json.loads(self._state.read_text()))
        return None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise SetupError(f"Cannot write {self.folder} ({exc.strerror}).") from exc


@app.command()
def up(  # noqa: PLR0913 (one per option)
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=3)] = 1,
    cassandra_version: CassandraVersion = DEFAULT_RELEASE,
    port: Annotated[
        int | None,
        typer.Option(
            help="CQL port; 9042, or another if that is in use.",
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep the data here.", file_okay=False, show_default="nowhere"),
    ] = None,
    heap_mb: Annotated[int, typer.Option(help="Java heap of each node, in MiB.", min=256)] = 512,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background, until `cassieq node down`.")
    ] = False,
    kept: Annotated[bool, typer.Option("--kept", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Start Cassandra, and run it until Ctrl-C."""
    background = Background()
    if detach:
        running = _detach(
            background,
            nodes=nodes,
            release=cassandra_version,
            port=port,
            data_dir=data_dir,
            heap_mb=heap_mb,
        )
        _show(running, "cassieq node down stops it.", as_json=as_json)
        return
    # SIGTERM ends it like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = Cluster(
        nodes=nodes, release=cassandra_version, port=port, data_dir=data_dir, heap_mb=heap_mb
    )
    with ExitStack() as held:
        if kept:
            held.enter_context(background.hold())
        held.enter_context(cluster)
        running = _running(cluster, data_dir)
        if kept:
            background.announce(running)
        _watch(cluster, running, as_json=as_json)
    if not as_json:
        echo("Stopped.")


@app.command()
def down(*, as_json: AsJson = False) -> None:
    """Stop the Cassandra that runs in the background."""
    stopped = Background().stop(timeout=_STOP_TIMEOUT)
    tell(
        "Stopped." if stopped else "No node is running in the background.",
        {"stopped": stopped},
        as_json=as_json,
    )


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Show whether Cassandra runs in the background, and where; exit code 3 if not."""
    running = Background().running()
    if running:
        _show(running, as_json=as_json)
        return
    tell("No node is running in the background.", {"running": False}, as_json=as_json)
    raise typer.Exit(NOT_RUNNING)


@app.command()
def download(
    *, cassandra_version: CassandraVersion = DEFAULT_RELEASE, as_json: AsJson = False
) -> None:
    """Download Cassandra, as `up` does the first time; does nothing if it is there."""
    jars = resolve_jars(release=cassandra_version)
    version = cassandra_version.version
    tell(
        f"Cassandra {version} is here: {len(jars)} jars.",
        {"version": version, "jars": len(jars)},
        as_json=as_json,
    )


def _detach(  # noqa: PLR0913 (one per option)
    background: Background,
    *,
    nodes: int,
    release: Release,
    port: int | None,
    data_dir: Path | None,
    heap_mb: int,
) -> Running:
    if background.held:
        raise SetupError(ALREADY)
    # In this process, so that the user sees the progress.
    Cluster(nodes=nodes, release=release, data_dir=data_dir).prepare()
    command = ["-m", "cassieq_spark.cli", "node", "up", "--kept"]
    command += ["--nodes", str(nodes), "--heap-mb", str(heap_mb)]
    command += ["--cassandra-version", release]
    if port:
        command += ["--port", str(port)]
    if data_dir:
        command += ["--data-dir", str(data_dir.absolute())]
    return background.launch(command, timeout=_START_TIMEOUT)


def _watch(cluster: Cluster, running: Running, *, as_json: bool) -> None:
    try:
        _show(running, "Ctrl-C stops it.", as_json=as_json)
        while True:
            for number in range(len(cluster.contact_points)):
                if not cluster.is_running(number):
                    raise SetupError(f"Cassandra has stopped: {cluster.describe(number)}")
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        if not as_json:
            echo("Stopping.")


def _running(cluster: Cluster, data_dir: Path | None) -> Running:
    return Running(
        pid=os.getpid(),
        contact_points=cluster.contact_points,
        port=cluster.port,
        data_dir=str(data_dir) if data_dir else None,
    )


def _show(running: Running, *hints: str, as_json: bool) -> None:
    if as_json:
        print_json({"running": True} | asdict(running))
        return
    points = ",".join(f"{point}:{running.port}" for point in running.contact_points)
    kept = f"data in {running.data_dir}" if running.data_dir else "data are temporary"
    echo(f"Cassandra serves at {points} (process {running.pid}, {kept}).")
    if running.port != DEFAULT_PORT:
        echo(
            f"That is not the default port {DEFAULT_PORT}: give other commands "
            f"--contact-points {points}"
        )
    for hint in hints:
        echo(hint)


def _locked(lock: IO[str]) -> bool:
    # ``held`` in another process takes the lock for an instant, too.
    for _ in range(_LOCK_ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_POLL_SECONDS)
    return False
