"""One node: its files, the supervisor of its process, and whether it serves.

The CQL protocol and the log show whether the node serves, without a driver.
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
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, cast

from cassieq_spark.errors import SetupError
from cassieq_spark.node import supervise
from cassieq_spark.node.configure import LOGBACK_XML, NodeSettings, NodeTls, cassandra_yaml

_LOOK_SECONDS = 0.05
_TOLD_LINES = 15
_TOLD_WIDTH = 200


class Node:
    """A node that can be started and stopped repeatedly, with the same data."""

    def __init__(
        self, settings: NodeSettings, *, command: list[str], supervisor: Supervisor
    ) -> None:
        self.address = settings.address
        self.paused = False
        self._settings = settings
        self._command = command
        self._supervisor = supervisor
        self.pid = 0
        self._log = settings.folder / "node.log"

    @property
    def running(self) -> bool:
        """True if the node's process is running, paused or not."""
        return self.pid != 0 and self._supervisor.exit_code(self.address) is None

    @property
    def serving(self) -> bool:
        """True if the node answers on its CQL port now."""
        return answers_cql(self.address, self._settings.native_port, tls=self._settings.tls)

    def launch(self) -> None:
        """Start the process; the node serves later.

        Raises:
            SetupError: The node's files cannot be written, or Java cannot be started.
        """
        configuration = self._settings.folder / "conf"
        try:
            # The data will be in this folder; only this user may read them.
            self._settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            configuration.mkdir(exist_ok=True)
            (configuration / "cassandra.yaml").write_text(cassandra_yaml(self._settings))
            (configuration / "logback.xml").write_text(LOGBACK_XML)
        except OSError as exc:
            raise SetupError(f"Cannot write {configuration} ({exc.strerror}).") from exc
        self.paused = False
        self.pid = self._supervisor.launch(self.address, self._command, log=self._log)

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if it is running."""
        if self.pid:
            self._supervisor.send(self.address, number)

    def wait_for_end(self, timeout: timedelta) -> None:
        """Wait until the process has ended.

        Raises:
            SetupError: The process still runs after ``timeout``.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while self.running:
            if time.monotonic() > deadline:
                raise SetupError(f"A node did not end within {timeout}: {self.describe()}")
            time.sleep(_LOOK_SECONDS)

    def log_size(self) -> int:
        """The size of the log in bytes, as a position for `log_since`."""
        return self._log.stat().st_size if self._log.exists() else 0

    def log_since(self, position: int) -> str:
        """The text that the node has logged since its log had that size."""
        with self._log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def describe(self) -> str:
        """The state of the node, and the last lines of its log."""
        state = "is running" if self.running else "has ended"
        lines: deque[str] = deque(maxlen=_TOLD_LINES)
        if self._log.exists():
            with self._log.open(errors="replace") as log:
                lines.extend(line.rstrip()[:_TOLD_WIDTH] for line in log if line.strip())
        return f"node {self.address} {state}; its log ends with:\n  " + "\n  ".join(lines)


_END_SECONDS = 60
_ENDED = "The supervisor of the cluster has ended: start the cluster again."


class Supervisor:
    """The supervisor of a cluster, a process that ends all nodes when this process ends.

    Usable from any thread. See ``supervise`` for the program and its requests.
    """

    def __init__(self, *, keep: Path | None = None, lock: IO[str] | None = None) -> None:
        """Start the supervisor.

        Args:
            keep: The folder of the nodes, which is kept; None: a temporary one.
            lock: A locked file, which stays locked until the supervisor has ended.
        """
        command = [sys.executable, "-I", str(supervise.__file__), "--parent", str(os.getpid())]
        self._turn = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603 (our own file)
            command + (["--keep", str(keep)] if keep else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock.fileno(),) if lock else (),
            start_new_session=True,  # Ctrl-C must not end the supervisor before us
        )
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self.folder = Path(self._read()["folder"])

    def launch(self, name: str, command: Sequence[str], *, log: Path) -> int:
        """Start a process, append its output to a file, and return its pid.

        The other methods know the process by ``name``.
        """
        answer = self._ask(do="start", name=name, command=list(command), log=str(log))
        if "error" in answer:
            raise SetupError(f"Cannot start {command[0]}: {answer['error']}")
        return int(answer["pid"])

    def send(self, name: str, number: signal.Signals) -> bool:
        """Send a process a signal; False if the process has already ended."""
        return bool(self._ask(do="signal", name=name, signal=int(number))["sent"])

    def exit_code(self, name: str) -> int | None:
        """The exit code of a process, or minus the number of the signal; None if it runs."""
        code: int | None = self._ask(do="poll", name=name)["exit"]
        return code

    def close(self) -> None:
        """End all processes, and the supervisor; safe to repeat."""
        with self._turn:
            self._requests.close()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._answers.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._turn:
            try:
                self._requests.write(json.dumps(request).encode() + b"\n")
                self._requests.flush()
            except (BrokenPipeError, ValueError) as exc:
                raise SetupError(_ENDED) from exc
            return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise SetupError(_ENDED)
        answer: dict[str, Any] = json.loads(line)
        return answer


_OPTIONS, _SUPPORTED = 0x05, 0x06
_REQUEST, _RESPONSE = 0x04, 0x84
_HEADER = struct.Struct(">BBhBI")
_ANSWER_SECONDS = 2.0

_UP = re.compile(r"InetAddress /(?P<address>[\d.]+):\d+ is now UP")


def answers_cql(address: str, port: int, *, tls: NodeTls | None = None) -> bool:
    """True if a node answers with its protocol options; asked by TLS if the node uses TLS."""
    try:
        with ExitStack() as held:
            plain = socket.create_connection((address, port), timeout=_ANSWER_SECONDS)
            connection = held.enter_context(plain)
            if tls:
                connection = held.enter_context(_wrapped(connection, tls))
            connection.sendall(_HEADER.pack(_REQUEST, 0, 0, _OPTIONS, 0))
            header = held.enter_context(connection.makefile("rb")).read(_HEADER.size)
    except OSError:
        return False
    if len(header) < _HEADER.size:
        return False
    version, _, _, opcode, _ = _HEADER.unpack(header)
    return bool((version, opcode) == (_RESPONSE, _SUPPORTED))


def peers_up(log: str) -> set[str]:
    """The addresses of the nodes that a node has seen come up, according to its log.

    >>> peers_up("INFO  [GossipStage:1] Gossiper - InetAddress /127.0.0.2:7000 is now UP")
    {'127.0.0.2'}
    """
    return {match["address"] for match in _UP.finditer(log)}


def has_superuser(log: str) -> bool:
    """True if a node has created the role for the first login, according to its log.

    >>> has_superuser("CassandraRoleManager - Created default superuser role 'cassandra'")
    True
    """
    return "Created default superuser role" in log


def _wrapped(connection: socket.socket, tls: NodeTls) -> ssl.SSLSocket:
    # The question is whether the node answers, not who it is, and sends no secret.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if tls.client_certificates:
        context.load_cert_chain(tls.identity)
    return context.wrap_socket(connection)
