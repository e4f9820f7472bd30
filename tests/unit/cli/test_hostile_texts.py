"""What others have stored does nothing to the terminal on which it is looked at."""

from __future__ import annotations

import os
import pty
import tty
from collections.abc import Callable

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from cassieq_spark.cli import app, dead, messages, queue, receive
from cassieq_spark.client import Client
from cassieq_spark.errors import InvariantError
from cassieq_spark.queues import create_queue
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store, Update, When, partition_of_queue
from tests.unit.dead_letters.dead_queue import DeadQueue

CODES = "\x1b[2J\x1b]0;t\x07\u202e\x9b31m[red]x[/]"
SPELLED = r"\x1b[2J\x1b]0;t\x07\u202e\x9b31m[red]x[/]"

Command = Callable[..., Result]


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    create_queue(store, "orders")
    return store


@pytest.fixture
def command(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Command:
    return command_on(store, monkeypatch)


def command_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> Command:
    for module in (dead, messages, queue, receive):
        monkeypatch.setattr(module, "open_store", lambda _: store)
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    return run


def is_harmless(text: str) -> bool:
    return all(each.isprintable() or each in "\n\t" for each in text)


def test_settings_that_somebody_wrote_past_us_are_spelled_out(
    store: MemoryStore, command: Command
):
    row = Update((), {"dead_letter_queue": CODES}, (When("version", "=", 1),))
    assert store.cas(partition_of_queue("orders"), [row])

    printed = command("queue", "list").output
    with pytest.raises(InvariantError) as refused:
        command("queue", "show", "orders")

    assert is_harmless(printed)
    assert SPELLED in printed
    assert is_harmless(str(refused.value))


@pytest.mark.parametrize("arguments", [["list"], ["show", "dead", "0"], ["list", "--json"]])
def test_headers_of_dead_letters_are_spelled_out(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    letters = DeadQueue()
    letters.add([CODES], reason=CODES)
    queue_name = ["dead"] if "show" not in arguments else []

    printed = command_on(letters.store, monkeypatch)(
        "dead", arguments[0], *queue_name, *arguments[1:]
    ).output

    assert is_harmless(printed)
    assert "x1b[2J" in printed or "u001b[2J" in printed


@pytest.mark.parametrize("arguments", [["peek", "orders"], ["receive", "orders", "--group", "g"]])
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_a_terminal_gets_no_code_of_a_message(
    store: MemoryStore,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    as_json: list[str],
):
    body = CODES.encode() + b"\xff"
    Client.from_store(store).put("orders", body, headers={CODES: CODES})
    keyboard, screen = pty.openpty()
    tty.setraw(screen)
    with os.fdopen(screen, "wb", buffering=0) as out, os.fdopen(keyboard, "rb", 0) as seen:
        monkeypatch.setattr(typer, "get_binary_stream", lambda _: out)
        command(*arguments, *as_json)
        os.set_blocking(keyboard, False)
        shown = seen.read(65_536).decode()

    assert is_harmless(shown)
    assert shown.startswith('{"queue"' if as_json else SPELLED + r"\xff" + "\n")


@pytest.mark.parametrize("arguments", [["peek", "orders"], ["receive", "orders", "--group", "g"]])
def test_a_program_gets_the_bytes_of_a_message_as_they_are(
    store: MemoryStore, command: Command, arguments: list[str]
):
    body = CODES.encode() + b"\xff"
    Client.from_store(store).put("orders", body)

    assert command(*arguments).stdout_bytes == body + b"\n"
