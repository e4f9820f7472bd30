"""One node: its files, the supervisor that keeps its process, and whether it serves.

Whether it serves is told without a driver: by the protocol, and by its log.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from cassieq_spark.errors import SetupError
from cassieq_spark.node import supervise
from cassieq_spark.node.configure import NodeSettings, cassandra_yaml, logback_xml

_LOOK_SECONDS = 0.05
_TOLD_LINES = 15
_TOLD_WIDTH = 200


class Node:
    """A node that can be started and stopped again and again, with the same data."""

    def __init__(
        self, settings: NodeSettings, *, command: list[str], supervisor: Supervisor
    ) -> None:
        """Describe the node; ``command`` runs it, ``supervisor`` keeps it."""
        self.address = settings.address
        self.paused = False
        self._settings = settings
        self._command = command
        self._supervisor = supervisor
        self.pid = 0
        self._log = settings.folder / "node.log"

    @property
    def running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self.pid != 0 and self._supervisor.exit_code(self.address) is None

    @property
    def serving(self) -> bool:
        """Whether it answers on its CQL port now."""
        tls = self._settings.tls
        return answers_cql(
            self.address, self._settings.native_port, identity=tls.identity if tls else None
        )

    def launch(self) -> None:
        """Start the process; what it needs to serve comes later.

        Raises:
            SetupError: Its files cannot be written, or Java cannot be started.
        """
        configuration = self._settings.folder / "conf"
        try:
            # The data are beside it: those of a node are for its user alone.
            self._settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            configuration.mkdir(exist_ok=True)
            (configuration / "cassandra.yaml").write_text(cassandra_yaml(self._settings))
            (configuration / "logback.xml").write_text(logback_xml())
        except OSError as exc:
            raise SetupError(f"Cannot write {configuration} ({exc.strerror}).") from exc
        self.paused = False
        self.pid = self._supervisor.launch(self.address, self._command, log=self._log)

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal; nothing if it is not running."""
        if self.pid:
            self._supervisor.send(self.address, number)

    def wait_for_end(self, timeout: timedelta) -> bool:
        """Wait until the process has ended; false if it still runs after ``timeout``."""
        deadline = time.monotonic() + timeout.total_seconds()
        while self.running:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def log_size(self) -> int:
        """Return the size of the log in bytes, a position that ``log_since`` takes."""
        return self._log.stat().st_size if self._log.exists() else 0

    def log_since(self, position: int) -> str:
        """Return what the node has logged since its log was that long."""
        with self._log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def describe(self) -> str:
        """Tell how the node is, with the last lines of its log."""
        state = "is running" if self.running else "has ended"
        lines: deque[str] = deque(maxlen=_TOLD_LINES)
        if self._log.exists():
            with self._log.open(errors="replace") as log:
                lines.extend(line.rstrip()[:_TOLD_WIDTH] for line in log if line.strip())
        return f"node {self.address} {state}; its log ends with:\n  " + "\n  ".join(lines)


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


_OPTIONS, _SUPPORTED = 0x05, 0x06
_REQUEST, _RESPONSE = 0x04, 0x84
_HEADER = struct.Struct(">BBhBI")
_ANSWER_SECONDS = 2.0

_UP = re.compile(r"InetAddress /(?P<address>[\d.]+):\d+ is now UP")


def answers_cql(address: str, port: int, *, identity: Path | None = None) -> bool:
    """Ask a node which protocol options it supports, and tell whether it says so.

    Args:
        address: Where the node is.
        port: Its CQL port.
        identity: PEM file of a key and certificate to ask with, by TLS; in the clear unless given.
    """
    try:
        with socket.create_connection((address, port), timeout=_ANSWER_SECONDS) as connection:
            if identity:
                with _wrapped(connection, identity) as encrypted:
                    return _says_supported(encrypted)
            return _says_supported(connection)
    except OSError:
        return False


def peers_up(log: str) -> set[str]:
    """Name the nodes that a node has seen come up, by its log.

    >>> peers_up("INFO  [GossipStage:1] Gossiper - InetAddress /127.0.0.2:7000 is now UP")
    {'127.0.0.2'}
    """
    return {match["address"] for match in _UP.finditer(log)}


def has_superuser(log: str) -> bool:
    """Tell whether a node has made the role that the first login needs, by its log.

    >>> has_superuser("CassandraRoleManager - Created default superuser role 'cassandra'")
    True
    """
    return "Created default superuser role" in log


def _wrapped(connection: socket.socket, identity: Path) -> ssl.SSLSocket:
    # This asks whether it answers, not who it is, and sends no secret.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(identity)
    return context.wrap_socket(connection)


def _says_supported(connection: socket.socket) -> bool:
    connection.sendall(_HEADER.pack(_REQUEST, 0, 0, _OPTIONS, 0))
    return _is_supported(_receive(connection, _HEADER.size))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            break
        received += more
    return received


def _is_supported(header: bytes) -> bool:
    with suppress(struct.error):
        version, _, _, opcode, _ = _HEADER.unpack(header)
        return bool((version, opcode) == (_RESPONSE, _SUPPORTED))
    return False
