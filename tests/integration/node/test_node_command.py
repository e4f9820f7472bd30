"""``cassieq node up --detach``: the commands find the node, log in, and trust its certificates."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run ``cassieq`` with a background of its own, in which nothing runs in the end."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CASSIEQ_")}
    # Where the test run keeps its downloads.
    ours |= {"XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "cassieq_spark.cli", *words],
            env=ours | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    yield run
    run("node", "down")


def test_a_node_with_a_log_in_and_tls_is_used_by_the_commands_and_keeps_its_data(
    run: Run, tmp_path: Path
):
    data = tmp_path / "data"
    up = ["node", "up", "--detach", "--auth", "--tls", "--data-dir", str(data), "--json"]

    node = json.loads(run(*up).stdout)
    run("schema", "apply")
    run("queue", "create", "orders")
    run("put", "orders", "hello")
    told = run("queue", "list", "-v").stderr
    as_first_role = ["--username", "cassandra", "--password", "env:PW"]
    refused = run("queue", "list", *as_first_role, code=1, PW="cassandra").stderr
    in_the_clear = ["--contact-points", f"127.0.0.1:{node['port']}"]
    unheard = run("queue", "list", *in_the_clear, code=1).stderr
    run("node", "down")
    again = json.loads(run(*up).stdout)
    received = run("receive", "orders", "--group", "g").stdout

    address = f"127.0.0.1:{node['port']}"
    assert told == f"Cassandra at {address} (started by 'cassieq node up'), keyspace cassieq\n"
    assert "not permitted to log in" in refused
    assert "the address comes from --contact-points" in unheard
    assert received == "hello\n"
    assert (again["username"], again["ca_file"]) == ("admin", node["ca_file"])
    assert stat.S_IMODE((data / "security" / "node.p12").stat().st_mode) == 0o600
    for name in ("password_file", "ca_file"):
        mode = Path(node[name]).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600, name
    assert stat.S_IMODE((data / "security").stat().st_mode) == 0o700


def test_a_node_on_another_port_is_found(run: Run):
    node = json.loads(run("node", "up", "--detach", "--port", "19321", "--json").stdout)

    run("schema", "apply")
    listed = run("queue", "list", "--json").stdout

    assert (node["port"], json.loads(listed)) == (19321, [])
    assert json.loads(run("node", "status", "--json").stdout) == node
    assert "runs in the background already" in run("node", "up", "--detach", code=1).stderr
