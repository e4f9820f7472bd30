"""One or three real Cassandra nodes on this machine's loopback addresses."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Self

from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.node.configure import (
    NodeSettings,
    NodeTls,
    can_pass_page_cache,
    lock_data,
    read_storage_port,
    write_description,
)
from cassieq_spark.node.download import resolve_jars
from cassieq_spark.node.jars import DEFAULT_RELEASE, Release
from cassieq_spark.node.java import find_java, java_command
from cassieq_spark.node.node import Node, Supervisor, has_superuser, peers_up
from cassieq_spark.node.ports import NATIVE_PORTS, STORAGE_PORTS, PortClaims
from cassieq_spark.terminal import PlainConsole

MOST_NODES = 3

_NOT_OPEN = "The cluster is not open: use it in a with block."
_LOOK_SECONDS = 0.05
#: How long nodes may take to serve, without the download. A node that ends is an error at once.
START_TIMEOUT = timedelta(minutes=5)
_STOP_TIMEOUT = timedelta(seconds=30)
_KILL_TIMEOUT = timedelta(seconds=10)


class Cluster:
    """Real Cassandra nodes, numbered from 0, running while the ``with`` block does.

    Not thread-safe. Can be reopened after `close`.
    """

    def __init__(  # noqa: PLR0913 (each may be left out)
        self,
        *,
        nodes: int = 1,
        data_centres: int = 1,
        release: Release = DEFAULT_RELEASE,
        port: int | None = None,
        data_dir: Path | None = None,
        heap_mb: int = 512,
        authentication: bool = False,
        tls: NodeTls | None = None,
        write_through: bool = False,
        prefix: Callable[[str], Sequence[str]] = lambda _: (),
        cache: Path | None = None,
        console: PlainConsole | None = None,
    ) -> None:
        """Describe the cluster; nothing is started yet.

        Args:
            nodes: How many nodes, 1 to 3; the n-th has the address 127.0.0.n.
            data_centres: The number of data centres among which the nodes are divided. If several,
                they are called 0, 1 and so on, which is the second number of an address.
            release: The release of Cassandra.
            port: The CQL port of all nodes; None: 9042, or another port if 9042 is in use.
            data_dir: Folder for the data, which is kept; None: a temporary one. The commit log
                in this folder bypasses the page cache, if it can, unless ``write_through``.
            heap_mb: Java heap of each node, in MiB; a node takes about 300 MiB more than that.
            authentication: True to ask for a name and a password, at first both ``cassandra``,
                and to check rights.
            tls: Serve CQL by TLS; None: without encryption.
            write_through: True to log a write before it is acknowledged, so that a single node
                does not lose the write when it is killed. This halves the speed of small writes.
                Without it, a killed node may lose the last 100 ms, as with Cassandra's default
                (CASSANDRA-13987).
            prefix: Returns, for the address of a node, the beginning of its command, such as
                ``["env", "LD_PRELOAD=..."]``; that program must replace itself with the rest.
            cache: The folder where downloads are kept; see `default_cache`.
            console: Where a download shows its progress; None for standard error.

        Raises:
            OptionError: The number of nodes or data centres is out of range.
        """
        if not 1 <= nodes <= MOST_NODES:
            raise OptionError(f"nodes must be 1 to {MOST_NODES}, not {nodes}")
        if not 1 <= data_centres <= nodes:
            raise OptionError(f"data centres must be 1 to {nodes}, not {data_centres}")
        self.contact_points = [
            f"127.{index % data_centres}.0.{index + 1}" for index in range(nodes)
        ]
        self.port = port or NATIVE_PORTS[0]
        self._wanted_port = port
        self._data_dir = data_dir.absolute() if data_dir else None
        self._release = release
        self._settings = partial(
            NodeSettings,
            members=tuple(self.contact_points),
            heap_mb=heap_mb,
            authentication=authentication,
            tls=tls,
            write_through=write_through,
            synced=data_dir is not None,
        )
        self._resolve_jars = partial(resolve_jars, release=release, cache=cache, console=console)
        self._authentication = authentication
        self._prefix = prefix
        self._nodes: list[Node] = []
        self._folder = self._data_dir
        self._held = ExitStack()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of the nodes' files, with one folder per node, named by its address."""
        if self._folder is None:
            raise SetupError(_NOT_OPEN)
        return self._folder

    def open(self) -> None:
        """Start all nodes, and return when each node serves CQL and sees all others.

        This takes about 4 s, or 10 s for three nodes; longer if Cassandra is downloaded first.

        Raises:
            SetupError: Java 17, a download, a port or an address is missing, or a node failed;
                nothing is left running.
        """
        with ExitStack() as held:
            # First, so that an error in the folder is reported before anything is downloaded.
            data = self._take_data(held)
            java = find_java()
            jars = self._resolve_jars()
            supervisor, storage_port = self._claim(held, data)
            self._folder = supervisor.folder
            self._nodes = []
            kept, release = self._data_dir is not None, self._release
            direct = kept and release.logs_directly and can_pass_page_cache(supervisor.folder)
            for address in self.contact_points:
                settings = self._settings(
                    folder=supervisor.folder / address,
                    address=address,
                    native_port=self.port,
                    storage_port=storage_port,
                    direct_log=direct,
                )
                java_of_node = java_command(settings, java=java, jars=jars)
                command = [*self._prefix(address), *java_of_node]
                self._nodes.append(Node(settings, command=command, supervisor=supervisor))
            self._launch(self._nodes)
            self._held = held.pop_all()

    def prepare(self) -> None:
        """Check what `open` needs, and download Cassandra if it is missing; start nothing.

        Raises:
            SetupError: The data folder cannot be used, or Java 17 or a download is missing.
        """
        with ExitStack() as held:
            self._take_data(held)
        find_java()
        self._resolve_jars()

    def close(self) -> None:
        """Stop all nodes and remove temporary data; safe to repeat."""
        self._nodes = []
        self._held.close()

    def start(self, node: int) -> None:
        """Start a node, unless it is running; return when it serves and the other nodes see it.

        Raises:
            SetupError: The node failed, or took longer than the start timeout.
        """
        if not self._node(node).running:
            self._launch([self._node(node)])

    def stop(self, node: int) -> None:
        """Stop a node by SIGTERM, as an operator would; return when it has ended.

        Raises:
            SetupError: The node takes longer than half a minute.
        """
        stopped = self._node(node)
        stopped.send(signal.SIGTERM)
        self.resume(node)
        stopped.wait_for_end(_STOP_TIMEOUT)

    def kill(self, node: int) -> None:
        """Kill a node at once, as a crash would; return when it has ended."""
        self._node(node).send(signal.SIGKILL)
        self._node(node).wait_for_end(_KILL_TIMEOUT)

    def pause(self, node: int) -> None:
        """Make a node hang: its connections stay open, and it answers nothing until `resume`."""
        self._node(node).send(signal.SIGSTOP)
        self._node(node).paused = True

    def resume(self, node: int) -> None:
        """Let a paused node continue."""
        self._node(node).send(signal.SIGCONT)
        self._node(node).paused = False

    def pid(self, node: int) -> int:
        """The process id of a node; of its last process if the node is not running."""
        return self._node(node).pid

    def is_running(self, node: int) -> bool:
        """True if the process of a node is running, paused or not."""
        return self._node(node).running

    def describe(self, node: int) -> str:
        """The state of a node, and the last lines of its log."""
        return self._node(node).describe()

    def _node(self, number: int) -> Node:
        if not self._nodes:
            raise SetupError(_NOT_OPEN)
        return self._nodes[number]

    def _take_data(self, held: ExitStack) -> tuple[IO[str] | None, int | None]:
        """Lock the data folder, if any; return the lock, and the port that the data name."""
        if self._data_dir is None:
            return None, None
        lock = held.enter_context(lock_data(self._data_dir))
        known = read_storage_port(
            self._data_dir, nodes=len(self.contact_points), release=self._release
        )
        return lock, known

    def _claim(
        self, held: ExitStack, data: tuple[IO[str] | None, int | None]
    ) -> tuple[Supervisor, int]:
        lock, known = data
        claims = PortClaims()
        held.callback(claims.release)
        native = (self._wanted_port,) if self._wanted_port else NATIVE_PORTS
        # Nodes remember each other by address and port, so the storage port must not change.
        storage = (known,) if known and len(self.contact_points) > 1 else STORAGE_PORTS
        self.port = claims.claim(self.contact_points, native)
        storage_port = claims.claim(self.contact_points, storage)
        if self._data_dir:
            write_description(
                self._data_dir,
                nodes=len(self.contact_points),
                release=self._release,
                storage_port=storage_port,
            )
        supervisor = Supervisor(keep=self._data_dir, lock=lock)
        held.callback(supervisor.close)
        return supervisor, storage_port

    def _launch(self, nodes: list[Node]) -> None:
        marks = {node.address: node.log_size() for node in self._nodes}
        for node in nodes:
            node.launch()
        deadline = time.monotonic() + START_TIMEOUT.total_seconds()
        while not (all(node.serving for node in nodes) and self._ready(nodes, marks)):
            failed = next((node for node in nodes if not node.running), None)
            if failed:
                raise SetupError(f"Cassandra did not start: {failed.describe()}")
            if time.monotonic() > deadline:
                late = "\n".join(node.describe() for node in nodes)
                raise SetupError(f"Cassandra took longer than {START_TIMEOUT}: {late}")
            time.sleep(_LOOK_SECONDS)

    def _ready(self, started: list[Node], marks: dict[str, int]) -> bool:
        present = [node for node in self._nodes if node.running and not node.paused]
        logs = {node.address: node.log_since(marks[node.address]) for node in present}
        # With new data, one of the nodes creates the first role a moment after it serves.
        roleless = self._authentication and not any(marks.values())
        if roleless and not any(has_superuser(log) for log in logs.values()):
            return False
        return all(
            other.address in peers_up(logs[node.address])
            for node in present
            for other in present
            if node is not other and (node in started or other in started)
        )
