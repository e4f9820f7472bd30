"""Commands whose output goes to a disk that is full."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import PIPE, run
from textwrap import dedent
from unittest.mock import patch

import pytest

from cassieq_spark import cli
from cassieq_spark.cli import copy, dead, group, messages, queue, receive, top
from cassieq_spark.cli.repair import main as repair
from cassieq_spark.client import Client
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import commands

FULL = Path("/dev/full")
NO_ROOM = "[Errno 28] No space left on device\n"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="Linux has it, and BSD")


def ended(*words: str, full: str = "stdout") -> tuple[object, str]:
    """Exit code of a command whose standard output, or error, is full, and what it says."""
    err, code = io.StringIO(), None
    with FULL.open("w") as out, patch.object(sys, "argv", ["cassieq", *words]):
        streams = (out, err) if full == "stdout" else (io.StringIO(), out)
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            try:
                cli.main()
            except SystemExit as exited:
                code = exited.code
        # As Python does at its end.
        out.flush()
    return code, err.getvalue()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("orders")
    client.put_many("orders", ["x" * 10_000] * 3)
    client.create_group("orders", "billing")
    for module in (copy, dead, group, messages, queue, receive, top):
        monkeypatch.setattr(module, "open_store", lambda _: store)
    return store


@pytest.mark.parametrize("name", commands())
def test_help_that_finds_no_room_is_one_line_and_exit_code_1(name: str):
    assert ended(*name.split(), "--help") == (1, f"cassieq: {NO_ROOM}")


@pytest.mark.parametrize(
    "words",
    [
        "peek orders",
        "peek orders --json",
        "receive orders --group billing",
        "receive orders --group billing --json",
        "queue list",
        "queue show orders",
        "queue stats orders --json",
        "group list orders",
        "dead list orders.dead",
        "put orders hello",
        "top --once",
        "plan --rate 1k/s --size 1kB",
        "--version",
        "help connection",
    ],
)
def test_a_command_that_finds_no_room_is_one_line_and_exit_code_1(store: MemoryStore, words: str):
    assert ended(*words.split()) == (1, f"cassieq: {NO_ROOM}")


def test_messages_that_were_printed_nowhere_are_not_acked(store: MemoryStore):
    ended("receive", "orders", "--group", "billing")

    (stats,) = Client.from_store(store).groups("orders")
    assert stats.depth == 3


def test_an_error_that_finds_no_room_is_an_exit_code(store: MemoryStore):
    assert ended("queue", "show", "nothing", full="stderr")[0] == 1
    assert ended("queue", "show", "orders", full="stderr")[0] == 0


def test_the_repair_has_a_status_of_its_own_for_it(capfd: pytest.CaptureFixture[str]):
    with FULL.open("w") as out, redirect_stdout(out):
        assert repair(["--help"]) == 3
        out.flush()


#: Runs ``cassieq`` with a queue in memory.
PROGRAM = """
    from cassieq_spark.cli import main, messages
    from cassieq_spark.client import Client
    from cassieq_spark.store.memory import MemoryStore

    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("orders")
    client.put("orders", "hello")
    messages.open_store = lambda _: store
    main()
"""


@pytest.mark.parametrize("words", ["--version", "peek orders", "peek orders --json"])
def test_a_process_ends_so(words: str):
    # With it Python writes nothing at its end.
    buffered = {name: it for name, it in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with FULL.open("w") as out:
        done = run(
            [sys.executable, "-c", dedent(PROGRAM), *words.split()],
            stdout=out,
            stderr=PIPE,
            env=buffered,
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (1, f"cassieq: {NO_ROOM}")
