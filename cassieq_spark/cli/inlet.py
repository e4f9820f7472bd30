"""Reads standard input: line by line, or all lines that come within a second."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import typer

from cassieq_spark.signals import Stop

#: The argument that represents standard input.
STANDARD_INPUT = "-"
_EVERY_SECONDS = 1.0
_MOST_LINES = 10_000
_READ_BYTES = 1 << 20


def is_piped() -> bool:
    """True if standard input is not a terminal."""
    return not sys.stdin.isatty()


def standard_input() -> Any:
    """Standard input, in binary."""
    return typer.get_binary_stream("stdin")


def lines_of(stream: Any) -> Iterator[bytes]:
    """The lines of a stream, without newlines."""
    return (line.removesuffix(b"\n") for line in stream)


def batches(stream: Any, stop: Stop | None = None) -> Iterator[list[bytes]]:
    """The lines of a stream, in batches of those that come within a second; at most 10,000.

    Args:
        stream: The stream, in binary.
        stop: Ends the iteration after the lines that have come; an incomplete line is the last
            one.
    """
    descriptor = None
    with suppress(OSError, ValueError, AttributeError):
        descriptor = int(stream.fileno())
    if descriptor is None:
        found = lines_of(stream)
        while several := list(islice(found, _MOST_LINES)):
            yield several
        return
    waiting: list[Any] = [descriptor] if stop is None else [descriptor, stop]
    lines: list[bytes] = []
    rest, due = b"", 0.0
    while True:
        patience = max(0.0, due - time.monotonic()) if lines else None
        ready, _, _ = select.select(waiting, [], [], patience)
        is_last = stop in ready
        if descriptor in ready and not is_last:
            data = os.read(descriptor, _READ_BYTES)
            is_last = not data
            due = due if lines else time.monotonic() + _EVERY_SECONDS
            *more, rest = (rest + data).split(b"\n")
            lines += more
        if is_last:
            lines += [rest] if rest else []
        while len(lines) >= _MOST_LINES:
            yield lines[:_MOST_LINES]
            del lines[:_MOST_LINES]
        if lines and (is_last or time.monotonic() >= due):
            yield lines
            lines = []
        if is_last:
            return
