"""``cassieq`` on a terminal of a given size, as a person sees it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_CODES = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>]|\][^\x07]*\x07)")


@dataclass(frozen=True)
class Seen:
    """How a command ended, and what it wrote.

    Attributes:
        code: Its exit code.
        raw: All that it wrote, standard error included, with the codes of the terminal.
    """

    code: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """What it wrote, line by line, without codes."""
        text = _CODES.sub("", self.raw).replace("\r\n", "\n")
        return [line.rstrip() for line in text.split("\n")]


def on_terminal(
    *words: str,
    columns: int = 80,
    rows: int = 24,
    environment: Mapping[str, str] | None = None,
    answer: Callable[[str], bytes] = lambda _: b"",
) -> Seen:
    """Run ``cassieq`` in a process of its own, on a terminal of its own.

    Args:
        words: Its arguments.
        columns: Width of the terminal.
        rows: Height of the terminal.
        environment: Variables besides those of this process.
        answer: Is called with all that was written so far, each time more was; returns what is
            typed next.
    """
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (rows, columns))
    given = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "cassieq_spark.cli", *words],
        env=given | {"TERM": "xterm-256color"} | dict(environment or {}),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    written = b""
    try:
        while more := _read(master):
            written += more
            if keys := answer(written.decode(errors="replace")):
                os.write(master, keys)
        return Seen(process.wait(60), written.decode(errors="replace"))
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:
        # On Linux that is how a terminal ends whose last user has gone.
        return b""
