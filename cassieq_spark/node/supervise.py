"""The program that keeps a cluster's Java processes, and outlives the process that asked for it.

Its standard input is a pipe from that process. Requests come in on it as JSON, one per line, and
each is answered by one line on standard output. When the pipe closes, the other process is gone,
or SIGTERM comes, it ends every Java and removes the folder, unless that is to be kept. Java
itself dies with this program, where the kernel can arrange it (Linux).

Run by its path, with nothing but the standard library, so that it starts in no time.

Requests: ``{"do": "start", "name", "command", "log"}`` -> ``{"pid"}`` or ``{"error"}``;
``{"do": "signal", "name", "signal"}`` -> ``{"sent"}``, for SIGSTOP once all its threads have
stopped; ``{"do": "poll", "name"}`` -> ``{"exit"}``, null while it runs. The first line of output
is ``{"folder"}``, unasked.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 20.0

Children = dict[str, subprocess.Popen[bytes]]


def main() -> None:
    """Serve requests until the other process is gone, then leave nothing behind."""
    parser = argparse.ArgumentParser(description="Keeps the nodes of one cluster.")
    parser.add_argument("--parent", type=int, required=True, help="process to serve")
    parser.add_argument("--keep", type=Path, help="folder to use, and to keep")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = options.keep or Path(tempfile.mkdtemp(prefix="cassieq-node-"))
    children: Children = {}
    try:
        _answer({"folder": str(folder)})
        die_with_us = _death_signal()
        for request in _requests(options.parent):
            _answer(_serve(request, children, die_with_us))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(children, gently=options.keep is not None)
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _requests(parent: int) -> Iterator[dict[str, Any]]:
    pending = b""
    # A pipe's other end may live on in a fork of the parent: so look who our parent is, too.
    while os.getppid() == parent:
        if not select.select([0], [], [], _LOOK_SECONDS)[0]:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        yield from map(json.loads, lines)


def _answer(answer: dict[str, Any]) -> None:
    # Nobody listens any more: the next look at standard input says so.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b"\n")


def _serve(
    request: dict[str, Any], children: Children, die_with_us: Callable[[], None]
) -> dict[str, Any]:
    name = request["name"]
    if request["do"] == "start":
        try:
            with Path(request["log"]).open("ab") as log:
                children[name] = subprocess.Popen(  # noqa: S603 (the command is ours)
                    request["command"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_us,  # noqa: PLW1509 (there is only one thread)
                )
        except OSError as exc:
            return {"error": str(exc)}
        return {"pid": children[name].pid}
    # The process is ours and not yet waited for: its pid cannot be another's meanwhile.
    ended = children[name].poll()
    if request["do"] == "poll":
        return {"exit": ended}
    if ended is None:
        children[name].send_signal(request["signal"])
        if request["signal"] == signal.SIGSTOP:
            _wait_until_stopped(children[name].pid)
    return {"sent": ended is None}


def _wait_until_stopped(pid: int) -> None:
    # The threads of a process stop one after the other: the kernel reports it when all have.
    if sys.platform.startswith("linux"):
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _death_signal() -> Callable[[], None]:
    if not sys.platform.startswith("linux"):
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    supervisor = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def _end(children: Children, *, gently: bool) -> None:
    running = [child for child in children.values() if child.poll() is None]
    if gently:
        for child in running:
            child.send_signal(signal.SIGCONT)
            child.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for child in running:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
    for child in running:
        child.kill()
    for child in running:
        child.wait()


if __name__ == "__main__":
    main()
