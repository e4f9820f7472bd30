"""One node: its files, its process, and what it says of itself."""

from __future__ import annotations

import signal
import time
from collections import deque
from datetime import timedelta

from cassieq_spark.errors import SetupError
from cassieq_spark.node.configure import NodeSettings, cassandra_yaml, logback_xml
from cassieq_spark.node.process import Supervisor
from cassieq_spark.node.readiness import answers_cql

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
