"""What the shell completes: names that Cassandra knows, quick, and nothing if that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from cassieq_spark.cli import app, complete
from cassieq_spark.client import Client
from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import group_key, group_values
from cassieq_spark.model import QueueId
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Insert, partition_of_ledger

PROGRAM = get_command(app)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[ConnectionOptions]:
    """Queues ``orders``, ``orders.dead``, ``mail`` and ``mail.dead``, with groups of orders."""
    client = Client.from_store(MemoryStore())
    for name in ("orders", "mail"):
        client.create_queue(name)
    for group in ("billing", "books", "shipping"):
        client.create_group("orders", group)
    options: list[ConnectionOptions] = []

    def open_store(given: ConnectionOptions) -> object:
        options.append(given)
        return client._store

    monkeypatch.setattr(complete, "open_store", open_store)
    return options


def completed(line: str) -> list[str]:
    """What the last word of a line may become."""
    *words, incomplete = line.split(" ")
    context, command = PROGRAM.make_context("cassieq", [*words], resilient_parsing=True), PROGRAM
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context, resilient_parsing=True)
    param = next(
        each
        for each in command.params
        if (words[-1] in each.opts)
        or (words[-1][:2] != "--" and each.param_type_name == "argument"
            and context.params.get(each.name) in (None, []))
    )  # fmt: skip
    return [each.value for each in param.shell_complete(context, incomplete)]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("put o", ["orders", "orders.dead"]),
        ("queue show ", ["mail", "mail.dead", "orders", "orders.dead"]),
        ("queue purge x", []),
        ("dead list m", ["mail", "mail.dead"]),
        ("dead redrive orders --to m", ["mail", "mail.dead"]),
        ("group seek orders b", ["billing", "books"]),
        ("receive orders --group s", ["shipping"]),
        ("receive nobody --group s", []),
        ("top --queue mail --queue o", ["orders", "orders.dead"]),
    ],
)
def test_names_are_completed(
    seen: list[ConnectionOptions], monkeypatch: pytest.MonkeyPatch, line: str, names: list[str]
):
    # As the shell tells it.
    monkeypatch.setenv("COMP_WORDS", f"cassieq {line}")

    assert completed(line) == names


def test_it_asks_where_the_line_says_and_does_not_wait_long(seen: list[ConnectionOptions]):
    completed("put --contact-points 10.0.0.1 --keyspace own o")

    (options,) = seen
    assert (options.contact_points, options.keyspace) == (("10.0.0.1",), "own")
    assert options.request_timeout.total_seconds() <= 1


def test_a_line_that_would_ask_for_a_password_completes_nothing(seen: list[ConnectionOptions]):
    assert completed("put --username ann o") == []
    assert seen == []


def test_without_a_cluster_it_is_silent(tmp_path: Path):
    asks = {"_CASSIEQ_COMPLETE": "complete_bash", "COMP_WORDS": "cassieq put o", "COMP_CWORD": "2"}
    nowhere = {"CASSIEQ_CONTACT_POINTS": "127.0.0.1:1", "XDG_STATE_HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "cassieq_spark.cli"],
        capture_output=True,
        text=True,
        env=os.environ | asks | nowhere,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("name", ["$(touch pwned)", "b;ls", "b\x1b[2J", "b\nbilling"])
def test_a_name_that_no_group_can_have_is_not_completed(
    seen: list[ConnectionOptions], monkeypatch: pytest.MonkeyPatch, name: str
):
    """A role that may write to the table can store the name, and a shell would run it."""
    del seen
    store = complete.open_store(ConnectionOptions())
    ledger = partition_of_ledger(QueueId("orders@1"))
    assert store.cas(ledger, [Insert(group_key(name), group_values(0, 1), if_absent=True)])
    monkeypatch.setenv("COMP_WORDS", "cassieq group seek orders ")

    assert completed("group seek orders ") == []
    with pytest.raises(InvariantError, match="we write no such row"):
        Ledger(store, QueueId("orders@1")).read_groups()
