"""The Cassandra that tests talk to: one embedded node per test run, or one that is given."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import keep_cassandra_node

_DEFAULT_PORT = 9042
_START_SECONDS = 280
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class CassandraNode:
    """Where to connect."""

    contact_points: list[str]
    port: int


@pytest.fixture(scope="session")
def cassandra_node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CassandraNode]:
    """A Cassandra shared by the whole run, so a test uses names of its own.

    ``CASSIEQ_CONTACT_POINTS`` (``host[:port],...``) names one that runs already.
    """
    given = os.environ.get("CASSIEQ_CONTACT_POINTS")
    if given:
        yield parse_contact_points(given)
        return
    base = tmp_path_factory.getbasetemp()
    parallel = hasattr(request.config, "workerinput")
    folder = (base.parent if parallel else base) / "cassandra_node"
    folder.mkdir(exist_ok=True)
    with _locked(folder / "users", fcntl.LOCK_SH):
        with _locked(folder / "start", fcntl.LOCK_EX):
            state = _read(folder) or _start(folder)
        if "error" in state:
            pytest.fail(f"no node: {state['error']}")
        yield CassandraNode(**state)


def parse_contact_points(text: str) -> CassandraNode:
    """Read ``host[:port],...``; one port for all."""
    pairs = [point.strip().partition(":") for point in text.split(",") if point.strip()]
    ports = {int(port or _DEFAULT_PORT) for _, _, port in pairs}
    if len(ports) != 1:
        raise ValueError(f"CASSIEQ_CONTACT_POINTS must name one port, not {sorted(ports)}")
    return CassandraNode([host for host, _, _ in pairs], ports.pop())


def _start(folder: Path) -> dict[str, object]:
    with (folder / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-P", str(keep_cassandra_node.__file__), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        ended = keeper.poll() is not None
        if state := _read(folder):
            # It outlives us on purpose, and ends after the last user.
            keeper.returncode = 0
            return state
        if ended:
            return {"error": (folder / "keeper.log").read_text(errors="replace")}
        time.sleep(_LOOK_SECONDS)
    keeper.terminate()
    keeper.wait()
    return {"error": f"not ready after {_START_SECONDS} s"}


def _read(folder: Path) -> dict[str, object] | None:
    try:
        state: dict[str, object] = json.loads((folder / "node.json").read_text())
    except FileNotFoundError:
        return None
    return state


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, kind)
        yield
