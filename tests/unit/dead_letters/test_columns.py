"""What becomes of columns and fields that a queue has dropped, by way of its dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from cassieq_spark import Client
from cassieq_spark.cli import app, dead
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.errors import MessageError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import alter_queue
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Update, When, partition_of_queue
from tests.support.gateway import InProcess
from tests.unit.console.visitor import Visitor, forms_of, visiting, words_of


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> Iterator[Client]:
    with Client.from_store(store) as client:
        yield client


class Narrowing(NamedTuple):
    """A schema, a value, a schema that lacks a part of the value, what is left, and which part."""

    wide: str
    value: Any
    narrow: str
    left: Any
    path: str


def values_of(client: Client, queue: str) -> list[Any]:
    return [each.value for each in client.peek(queue, max=10)]


#: How a queue may lose a value: a column, a field, and one in the values of a map.
NARROWED = [
    Narrowing("a int, b int", {"a": 1, "b": 2}, "a int", {"a": 1}, "b"),
    Narrowing(
        "s struct<x:int,y:int>", {"s": {"x": 1, "y": 2}}, "s struct<x:int>", {"s": {"x": 1}}, "s.y"
    ),
    Narrowing(
        "l array<struct<x:int,y:int>>",
        {"l": [{"x": 1, "y": 2}, None]},
        "l array<struct<x:int>>",
        {"l": [{"x": 1}, None]},
        "l.element.y",
    ),
    Narrowing(
        "m map<string,struct<x:int,y:int>>",
        {"m": {"k": {"x": 1, "y": 2}}},
        "m map<string,struct<x:int>>",
        {"m": {"k": {"x": 1}}},
        "m.value.y",
    ),
]


def die(client: Client, queue: str) -> None:
    """Let all that a queue has become dead letters."""
    client.reject(*client.receive(queue, "g", max=10), reason="bad")
    client.receive(queue, "g")


@pytest.mark.parametrize("case", NARROWED, ids=lambda case: case.path)
def test_a_dead_letter_has_what_its_queue_has_dropped_since(
    client: Client, store: MemoryStore, case: Narrowing
):
    client.create_queue("wares", schema=case.wide, max_deliveries=2)
    client.put("wares", case.value)
    alter_queue(store, "wares", schema=case.narrow)

    die(client, "wares")

    assert values_of(client, "wares.dead") == [case.value]
    # Back in its queue the message has its values again, once the queue has their column again.
    alter_queue(store, "wares", schema=case.wide)
    client.redrive(client.dead_letters("wares"))
    assert [each.value for each in client.receive("wares", "g")] == [case.value]


@pytest.mark.parametrize("case", NARROWED, ids=lambda case: case.path)
def test_a_message_stays_while_its_dead_letter_would_lack_a_value(
    client: Client,
    store: MemoryStore,
    caplog: pytest.LogCaptureFixture,
    case: Narrowing,
):
    client.create_queue("wares", schema=case.wide, max_deliveries=2)
    client.put("wares", case.value)
    alter_queue(store, "wares", schema=case.narrow)
    alter_queue(store, "wares.dead", schema=case.narrow)

    die(client, "wares")

    assert values_of(client, "wares.dead") == []
    assert (
        f"messages have values of '{case.path}'; their dead-letter queue has no such"
        in caplog.text
    )
    alter_queue(store, "wares.dead", schema=case.wide)
    queue = client.queue("wares")
    group = ConsumerGroup(Ledger(store, queue.queue_id), "g")
    waiting = group.read(every_waiting=True).waiting
    assert dead_letter_messages(store, queue, group, waiting) == 1
    assert values_of(client, "wares.dead") == [case.value]


def test_a_dead_letter_needs_no_column_of_which_it_has_no_value(
    client: Client, store: MemoryStore
):
    client.create_queue("wares", schema="a int, b int", max_deliveries=2)
    alter_queue(store, "wares.dead", schema="a int")
    client.put("wares", {"a": 1, "b": None})

    die(client, "wares")

    assert values_of(client, "wares.dead") == [{"a": 1}]


def test_rows_stay_while_their_dead_letter_queue_has_no_columns(
    client: Client, store: MemoryStore, caplog: pytest.LogCaptureFixture
):
    client.create_queue("wares", schema="a int", max_deliveries=2)
    client.put("wares", {"a": 1})
    without = Update((), {"schema_versions": ""}, when=(When("version", "=", 1),))
    assert store.cas(partition_of_queue("wares.dead"), [without])

    die(client, "wares")

    assert values_of(client, "wares.dead") == []
    assert "'wares' has a schema and 'wares.dead' has none; name another queue" in caplog.text


@pytest.mark.parametrize("to", [None, "other"])
@pytest.mark.parametrize("case", NARROWED, ids=lambda case: case.path)
def test_a_redrive_leaves_out_a_value_only_if_it_is_told_to(
    client: Client,
    store: MemoryStore,
    to: str | None,
    case: Narrowing,
):
    client.create_queue("wares", schema=case.wide, max_deliveries=2)
    client.create_queue("other", schema=case.narrow)
    client.put("wares", case.value)
    die(client, "wares")
    alter_queue(store, "wares", schema=case.narrow)
    found = client.dead_letters("wares")
    target = to or "wares"

    with pytest.raises(
        MessageError,
        match=rf"values of '{case.path}'; queue '{target}' has no such.*--drop-columns",
    ):
        client.redrive(found, to=to)

    assert client.dead_letters("wares").monotons.count == 1
    assert client.redrive(found, to=to, drop_columns=True).redriven == {target: 1}
    assert [each.value for each in client.receive(target, "g")] == [case.left]


def test_a_redrive_has_what_the_dead_letter_queue_has_dropped_since(
    client: Client, store: MemoryStore
):
    client.create_queue("wares", schema="a int, b int", max_deliveries=2)
    client.put("wares", {"a": 1, "b": 2})
    die(client, "wares")
    alter_queue(store, "wares.dead", schema="a int")

    client.redrive(client.dead_letters("wares"))

    assert [each.value for each in client.receive("wares", "g")] == [{"a": 1, "b": 2}]


def test_a_redrive_to_a_queue_without_a_column_that_has_no_values_needs_no_flag(
    client: Client, store: MemoryStore
):
    client.create_queue("wares", schema="a int, s struct<x:int,y:int>, b int", max_deliveries=2)
    client.create_queue("other", schema="a int, s struct<x:int>")
    client.put_many("wares", [{"a": 1, "s": {"x": 2}}, {"a": 3}])
    die(client, "wares")

    client.redrive(client.dead_letters("wares"), to="other")

    assert [each.value for each in client.receive("other", "g", max=2)] == [
        {"a": 1, "s": {"x": 2}},
        {"a": 3, "s": None},
    ]


@pytest.mark.parametrize("case", NARROWED, ids=lambda case: case.path)
def test_a_dead_letter_queue_that_gets_a_column_keeps_those_that_its_queue_drops(
    client: Client, store: MemoryStore, case: Narrowing
):
    client.create_queue("wares", schema=case.wide, max_deliveries=2)
    client.put("wares", case.value)

    alter_queue(store, "wares", schema=f"{case.narrow}, fresh int")

    die(client, "wares")
    assert values_of(client, "wares.dead") == [case.value | {"fresh": None}]


@pytest.fixture
def shop(client: Client, store: MemoryStore) -> MemoryStore:
    """A letter with a column that its queue has no more."""
    client.create_queue("shop:q", schema="a int, b int", max_deliveries=2)
    client.put("shop:q", {"a": 1, "b": 2})
    die(client, "shop:q")
    alter_queue(store, "shop:q", schema="a int")
    return store


def test_the_command_leaves_out_values_only_with_its_flag(
    client: Client, shop: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dead, "open_store", lambda _: shop)
    words = ["dead", "redrive", "shop:q", "--yes"]

    refused = CliRunner().invoke(app, words)
    done = CliRunner().invoke(app, [*words, "--drop-columns"])

    assert isinstance(refused.exception, MessageError)
    assert "'b'" in str(refused.exception)
    assert done.exit_code == 0, done.output
    assert [each.value for each in client.receive("shop:q", "g", max=2)] == [{"a": 1}]


def test_a_gateway_leaves_out_values_only_with_its_parameter(shop: MemoryStore):
    with InProcess(shop, "shop") as gateway:
        refused = gateway.ask("POST", "/q/dead/redrive", json={})
        done = gateway.ask("POST", "/q/dead/redrive?dropColumns=true", json={})

    assert refused.status_code == 400
    assert "have values of 'b'; queue 'shop:q' has no such column" in refused.json()["message"]
    assert done.json() == {"redriven": 1, "queues": {"q": 1}, "missed": 0}


def test_the_console_leaves_out_values_only_if_its_box_is_ticked(
    client: Client, shop: MemoryStore
):
    with visiting(shop, allow_changes=True) as operator:
        refused = operator.confirm(_redriven(operator))
        done = operator.confirm(_redriven(operator, drop_columns="yes"))

    assert "have values of 'b'" in words_of(refused.text)
    assert "Redrove 1 message(s)" in words_of(done.text)
    assert [each.value for each in client.receive("shop:q", "g", max=2)] == [{"a": 1}]


def _redriven(operator: Visitor, **fields: str) -> Any:
    text = operator.page("/queues/shop:q/dead")
    form = [each for each in forms_of(text) if each.action.endswith("/redrive")][-1]
    return operator.post(form.action, form.fields | fields)
