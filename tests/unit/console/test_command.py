from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cassieq_spark.console import Console
from cassieq_spark.console.server import ConsoleServing, serve
from cassieq_spark.errors import SetupError
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import cassieq

NOWHERE = ["--contact-points", "127.0.0.1:1"]
_SERVE = """
import sys
from cassieq_spark.console import Console
from cassieq_spark.console.server import ConsoleServing, serve
from cassieq_spark.store.memory import MemoryStore
serve(
    lambda port: Console(MemoryStore()),
    ConsoleServing(port=0),
    lambda url: print(url, flush=True),
)
print("ended", flush=True)
"""


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "console.example"])
def test_where_others_could_reach_it_it_does_not_start_without_a_key(host: str):
    ended = cassieq("console", "--listen", f"{host}:8081", *NOWHERE)

    assert ended.code == 2
    assert "it needs a log-in: give --secret" in ended.err
    assert ended.out == ""


def test_a_secret_is_given_by_reference_only():
    ended = cassieq("console", "--listen", "0.0.0.0:0", "--secret", "s" * 40, *NOWHERE)

    assert ended.code == 2
    assert "env:NAME" in ended.err


def test_without_a_cluster_it_says_so_in_one_line():
    ended = cassieq("console", "--listen", "127.0.0.1:0", *NOWHERE)

    assert ended.code == 1
    assert "no node answers at 127.0.0.1:1" in ended.err
    assert ended.err.count("\n") == 1


def test_a_key_in_the_clear_is_warned_of():
    ended = cassieq("console", "--listen", "0.0.0.0:0", "--secret", "env:GATEWAY_SECRET", *NOWHERE)

    assert "without --tls-cert-file the key is sent in the clear" in ended.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_tells_its_address_serves_and_ends_by_a_signal(number: signal.Signals, tmp_path: Path):
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert httpx.get(url, timeout=30).status_code == 200
        os.kill(process.pid, number)
        assert process.stdout.readline() == "ended\n"
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert (tmp_path / "log").read_text() == ""


def test_an_address_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=f"cannot listen on 127.0.0.1:{port}") as told:
            serve(lambda _: Console(MemoryStore()), ConsoleServing(port=port), print)

    assert "give another address with --listen" in str(told.value)
