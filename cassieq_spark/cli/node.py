"""``cassieq node``: a real Cassandra on this machine, in the foreground or the background."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from cassieq_spark.cli.options import AsJson, command, make_app
from cassieq_spark.cli.output import print_json, tell
from cassieq_spark.errors import ConnectError, SetupError
from cassieq_spark.node import Cluster
from cassieq_spark.node.background import Background, Running
from cassieq_spark.node.cluster import START_TIMEOUT
from cassieq_spark.node.download import resolve_jars
from cassieq_spark.node.jars import DEFAULT_RELEASE, Release
from cassieq_spark.node.java import find_java
from cassieq_spark.node.security import ADMINISTRATOR, Security
from cassieq_spark.settings.connection import HIGHEST_PORT, ConnectionOptions
from cassieq_spark.terminal import echo

app = make_app("Run Cassandra on this machine, for trials, tests and the demo.")

NOT_RUNNING = 3

CassandraVersion = Annotated[
    Release,
    typer.Option(
        "--cassandra-version", help="Release of Cassandra.", metavar="|".join(sorted(Release))
    ),
]

#: What the process in the background may take: its nodes, and what comes before and after them.
_START_TIMEOUT = START_TIMEOUT + timedelta(minutes=2)
_STOP_TIMEOUT = timedelta(minutes=1)
#: How long Cassandra may take to create its first role.
_ROLE_TIMEOUT = timedelta(seconds=30)
_LOOK_SECONDS = 0.5
#: The role with which Cassandra begins; its password equals its name.
_FIRST_ROLE = "cassandra"
_NONE = "No node runs in the background. To start one: cassieq node up --detach"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The cluster that `up` is asked for."""

    nodes: int
    release: Release
    port: int | None
    data_dir: Path | None
    heap_mb: int
    auth: bool
    tls: bool

    def words(self) -> list[str]:
        """The cluster as arguments of `up`."""
        words = ["--nodes", str(self.nodes), "--heap-mb", str(self.heap_mb)]
        words += ["--cassandra-version", self.release]
        words += ["--port", str(self.port)] if self.port else []
        words += ["--data-dir", str(self.data_dir.absolute())] if self.data_dir else []
        return words + ["--auth"] * self.auth + ["--tls"] * self.tls

    def cluster(self, security: Security | None) -> Cluster:
        """The cluster, not started yet; with TLS, its certificates are made first."""
        return Cluster(
            nodes=self.nodes,
            release=self.release,
            port=self.port,
            data_dir=self.data_dir,
            heap_mb=self.heap_mb,
            authentication=self.auth,
            tls=security.make_tls(find_java()) if security and self.tls else None,
        )


@command(app)
def up(  # noqa: PLR0913 (one per option)
    *,
    nodes: Annotated[
        int, typer.Option("--nodes", help="Number of nodes.", min=1, max=3, metavar="NUMBER")
    ] = 1,
    cassandra_version: CassandraVersion = DEFAULT_RELEASE,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            help="Port for clients (CQL).",
            min=1,
            max=HIGHEST_PORT,
            show_default="9042, or another one if that is in use",
            metavar="PORT",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Folder for the data, which are kept there when the node stops.",
            file_okay=False,
            show_default="a temporary folder",
            metavar="FOLDER",
        ),
    ] = None,
    heap_mb: Annotated[
        int,
        typer.Option("--heap-mb", help="Java heap of each node, in MiB.", min=256, metavar="MIB"),
    ] = 512,
    auth: Annotated[
        bool,
        typer.Option(
            "--auth", help="Ask clients for a user name and a password; create an administrator."
        ),
    ] = False,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="Accept encrypted connections only; create the certificates."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run it in the background, until 'cassieq node down'.")
    ] = False,
    kept: Annotated[bool, typer.Option("--kept", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Start Cassandra, and run it until Ctrl-C, or in the background.

    The first start downloads Cassandra (64 MB); later starts need no network. The commands of
    cassieq find a node that runs in the background, whatever its port, and log in by themselves.
    JVM_EXTRA_OPTS adds options of Java, as for Cassandra's own scripts.

    Examples:
        cassieq node up --detach
        cassieq node up --detach --auth --tls --data-dir ~/cassandra
        cassieq node up --nodes 3
    """
    asked = Asked(
        nodes=nodes,
        release=cassandra_version,
        port=port,
        data_dir=data_dir,
        heap_mb=heap_mb,
        auth=auth,
        tls=tls,
    )
    background = Background()
    if kept:
        _run(asked, background, as_json=as_json)
        return
    if detach:
        background.refuse_second()
    # In this process, so that the user sees the progress of the download.
    Cluster(nodes=nodes, release=cassandra_version, data_dir=data_dir).prepare()
    _tell_begin(asked)
    if not detach:
        _run(asked, None, as_json=as_json)
        return
    words = ["-m", "cassieq_spark.cli", "node", "up", "--kept", *asked.words()]
    running = background.launch(words, timeout=_START_TIMEOUT)
    _show(running, "To stop it: cassieq node down", as_json=as_json)


@command(app)
def down(*, as_json: AsJson = False) -> None:
    """Stop the Cassandra that runs in the background.

    Examples:
        cassieq node down
    """
    stopped = Background().stop(timeout=_STOP_TIMEOUT)
    tell(
        "Stopped." if stopped else "No node runs in the background.",
        {"stopped": stopped},
        as_json=as_json,
    )


@command(app)
def status(*, as_json: AsJson = False) -> None:
    """Show whether Cassandra runs in the background, and how to reach it.

    The exit code is 3 if it does not run.

    Examples:
        cassieq node status
        cassieq node status --json | jq -r .port
    """
    running = Background().running()
    if running:
        _show(running, as_json=as_json)
        return
    tell(_NONE, {"running": False}, as_json=as_json)
    raise typer.Exit(NOT_RUNNING)


@command(app)
def download(
    *, cassandra_version: CassandraVersion = DEFAULT_RELEASE, as_json: AsJson = False
) -> None:
    """Download Cassandra, as the first 'node up' does, and check every file.

    Examples:
        cassieq node download
    """
    jars = resolve_jars(release=cassandra_version)
    version = cassandra_version.version
    folder = jars[0].parent
    tell(
        f"Cassandra {version} is in {folder}: {len(jars)} files, all of them checked.",
        {"version": version, "jars": len(jars), "folder": str(folder)},
        as_json=as_json,
    )


def _tell_begin(asked: Asked) -> None:
    """Tell people that the command is at work, as the start takes a while."""
    nodes = f", {asked.nodes} nodes" if asked.nodes > 1 else ""
    echo(f"Starting Cassandra {asked.release.version}{nodes} ...", err=True)


def _run(asked: Asked, background: Background | None, *, as_json: bool) -> None:
    """Run the cluster until SIGTERM or Ctrl-C; if ``background`` is given, as its cluster."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as held:
        if background:
            held.enter_context(background.hold())
        security = _security(asked, held)
        cluster = held.enter_context(asked.cluster(security))
        running = Running(
            pid=os.getpid(),
            contact_points=cluster.contact_points,
            port=cluster.port,
            data_dir=str(asked.data_dir) if asked.data_dir else None,
            username=ADMINISTRATOR if asked.auth else None,
            password_file=str(security.password_file) if security and asked.auth else None,
            ca_file=str(security.ca) if security and asked.tls else None,
        )
        if security and asked.auth:
            _make_administrator(running, security.make_password())
        if background:
            background.announce(running)
        _watch(cluster, running, as_json=as_json)
    if not as_json:
        echo("Stopped.")


def _security(asked: Asked, held: ExitStack) -> Security | None:
    if not (asked.auth or asked.tls):
        return None
    if asked.data_dir:
        return Security.beside(asked.data_dir.absolute())
    return Security(
        Path(held.enter_context(tempfile.TemporaryDirectory(prefix="cassieq-security-")))
    )


def _make_administrator(running: Running, password: str) -> None:
    """Create the administrator, unless it exists, and lock the role that everybody knows."""
    # The driver takes a while to import.
    from cassieq_spark.store.cassandra.session import connect  # noqa: PLC0415

    def execute(role: str, password: str, *statements: str) -> None:
        options = ConnectionOptions(
            contact_points=tuple(running.contact_points),
            port=running.port,
            username=role,
            password=password,
            ssl_ca_file=running.ca_file,
        )
        cluster, session = connect(options)
        try:
            for statement in statements:
                session.execute(statement)
        finally:
            cluster.shutdown()

    rights = f"SUPERUSER = true AND LOGIN = true AND PASSWORD = '{password}'"
    deadline = time.monotonic() + _ROLE_TIMEOUT.total_seconds()
    while True:
        try:
            lock = f"ALTER ROLE {_FIRST_ROLE} WITH SUPERUSER = false AND LOGIN = false"
            execute(ADMINISTRATOR, password, lock)
        except ConnectError as error:
            if time.monotonic() > deadline:
                raise SetupError(
                    f"the administrator of the data in {running.data_dir} has another password "
                    f"than the one in {running.password_file}: put that one there ({error})"
                ) from error
        else:
            return
        try:
            execute(_FIRST_ROLE, _FIRST_ROLE, f"CREATE ROLE {ADMINISTRATOR} WITH {rights}")
        except ConnectError:
            time.sleep(_LOOK_SECONDS)


def _watch(cluster: Cluster, running: Running, *, as_json: bool) -> None:
    try:
        _show(running, "Ctrl-C stops it.", as_json=as_json, is_found=False)
        while True:
            for number in range(len(cluster.contact_points)):
                if not cluster.is_running(number):
                    raise SetupError(f"Cassandra has stopped: {cluster.describe(number)}")
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        if not as_json:
            echo("Stopping.")


def _show(running: Running, *hints: str, as_json: bool, is_found: bool = True) -> None:
    """Print how to reach the cluster.

    Args:
        running: The cluster.
        hints: Lines for people, at the end.
        as_json: True to print it for programs.
        is_found: True if other commands find it by themselves.
    """
    if as_json:
        print_json({"running": True, **asdict(running)})
        return
    data = f"the data are in {running.data_dir}" if running.data_dir else "the data are temporary"
    echo(f"Cassandra serves at {running.address} (process {running.pid}; {data}).")
    if running.username:
        echo(f"Administrator: {running.username}; password: in {running.password_file}")
    if running.ca_file:
        echo(f"CA of its certificates: {running.ca_file}")
    if is_found:
        echo("The commands of cassieq use it, unless you name another one.")
        if running.port != ConnectionOptions().port:
            echo(f'In Spark: .option("spark.cassandra.connection.port", "{running.port}")')
            echo(f"In Python: Client(port={running.port})")
    elif running.username or running.ca_file or running.port != ConnectionOptions().port:
        echo(f"In another terminal: export {_exports(running)}")
    for hint in hints:
        echo(hint)


def _exports(running: Running) -> str:
    """Shell variables that lead cassieq to a cluster that is not in the background."""
    variables = {"CASSIEQ_CONTACT_POINTS": running.address}
    if running.username:
        variables["CASSIEQ_USERNAME"] = running.username
        variables["CASSIEQ_PASSWORD"] = f"file:{running.password_file}"
    if running.ca_file:
        variables["CASSIEQ_SSL_CA_FILE"] = running.ca_file
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
