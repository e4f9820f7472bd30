"""The program that runs a cluster's Java processes, and ends them when its parent has ended.

Its standard input is a pipe from its parent, which sends requests as JSON, one per line. The
program answers each request by one line on standard output. When the pipe closes, the parent has
ended, or SIGTERM comes, it ends every Java and removes the folder, unless the folder must be kept.
On Linux, the kernel kills Java if this program is killed.

The program is run by its path and imports only the standard library, so that it starts quickly.

Requests: ``{"do": "start", "name", "command", "log"}`` -> ``{"pid"}`` or ``{"error"}``;
``{"do": "signal", "name", "signal"}`` -> ``{"sent"}``, for SIGSTOP once all its threads have
stopped; ``{"do": "poll", "name"}`` -> ``{"exit"}``, null while it runs. The first line of output,
before any request, is ``{"folder"}``.
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
    """Serve requests until the parent has ended, then end and remove everything."""
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
    # A fork of the parent may hold the other end of the pipe, so the parent's pid is checked too.
    while os.getppid() == parent:
        if not select.select([0], [], [], _LOOK_SECONDS)[0]:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        yield from map(json.loads, lines)


def _answer(answer: dict[str, Any]) -> None:
    # If nobody reads the answer, standard input is at its end, too.
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
    # The process is a child that was not waited for, so no other process can have its pid.
    ended = children[name].poll()
    if request["do"] == "poll":
        return {"exit": ended}
    if ended is None:
        children[name].send_signal(request["signal"])
        if request["signal"] == signal.SIGSTOP and sys.platform.startswith("linux"):
            # The threads stop one by one; the kernel reports it when all have stopped.
            os.waitid(os.P_PID, children[name].pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return {"sent": ended is None}


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
