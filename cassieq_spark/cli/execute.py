"""Runs a shell command per message, several in parallel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from cassieq_spark.cli.messages import body_of
from cassieq_spark.client import Message
from cassieq_spark.terminal import echo

_PREFIX = "CASSIEQ_MESSAGE_"
#: How long commands may take to end after SIGTERM, in seconds.
_GRACE_SECONDS = 5.0
#: The exit code of a shell for a command that it cannot run.
_NOT_STARTED = 126


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended.

    Attributes:
        message: The message for which the command was run.
        code: The exit code of the command, or minus the number of the signal that ended it.
    """

    message: Message
    code: int


class Commands:
    """Runs a command per message.

    Each command is in a process group of its own, so that Ctrl-C does not reach it.

    Args:
        command: The command, for ``sh``.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._running: dict[str, subprocess.Popen[bytes] | None] = {}
        self._ended: SimpleQueue[Ended] = SimpleQueue()

    @property
    def count(self) -> int:
        """How many commands run, or have ended and were not returned yet."""
        return len(self._running)

    def start(self, message: Message) -> None:
        """Run the command for a message; one that cannot be started ends as a failure."""
        with tempfile.TemporaryFile() as body:
            body.write(body_of(message))
            body.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 (the user's own command)
                    ["/bin/sh", "-c", self._command],
                    stdin=body,
                    env=os.environ | variables_of(message),
                    process_group=0,
                )
            except OSError as error:
                # Such as headers that are longer than an environment may be.
                echo(f"cassieq: the command cannot be started: {error}", err=True)
                self._running[message.receipt] = None
                self._ended.put(Ended(message, _NOT_STARTED))
                return
        self._running[message.receipt] = process
        threading.Thread(target=self._wait, args=(process, message), daemon=True).start()

    def wait(self, seconds: float) -> list[Ended]:
        """The commands that have ended by now; waits at most this long for the first one."""
        found: list[Ended] = []
        with suppress(Empty):
            found.append(self._ended.get(timeout=seconds))
            while True:
                found.append(self._ended.get_nowait())
        for each in found:
            del self._running[each.message.receipt]
        return found

    def end(self) -> None:
        """End all commands, by SIGTERM and after a while by SIGKILL; their messages stay open."""
        deadline = time.monotonic() + _GRACE_SECONDS
        running = [each for each in self._running.values() if each is not None]
        for process in running:
            _send(process, signal.SIGTERM)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
                continue
            _send(process, signal.SIGKILL)
            process.wait()
        self._running.clear()

    def _wait(self, process: subprocess.Popen[bytes], message: Message) -> None:
        self._ended.put(Ended(message, process.wait()))


def variables_of(message: Message) -> dict[str, str]:
    """The environment variables that describe a message to its command."""
    values = {
        "QUEUE": message.queue,
        "GROUP": message.group,
        "PARTITION": str(message.partition),
        "MONOTON": str(message.monoton),
        "DELIVERIES": str(message.delivery_count),
        "PUBLISHED_AT": message.published_at.isoformat(timespec="milliseconds"),
        "RECEIPT": message.receipt,
        "HEADERS": json.dumps(dict(message.headers)),
    }
    key = message.key
    if key is not None:
        text = os.fsdecode(key)
        # A variable takes any bytes but this one.
        if b"\0" not in key:
            values["KEY"] = text
        if b"\0" in key or any("\udc80" <= each <= "\udcff" for each in text):
            values["KEY_BASE64"] = b64encode(key).decode()
    return {f"{_PREFIX}{name}": value for name, value in values.items()}


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
