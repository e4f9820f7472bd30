"""The table of defaults in docs/client.md is that of the code, with a reason for a difference."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest
import typer

from cassieq_spark import AsyncClient, Client
from cassieq_spark.cli import app
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue
from cassieq_spark.http.gateway import schemas
from cassieq_spark.model import Order
from cassieq_spark.settings.declaration import settings_by_option
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.settings.queue import MOST_PARTITIONS
from cassieq_spark.settings.reading import SourceOptions
from cassieq_spark.settings.writing import LARGEST_MESSAGE, SinkOptions
from tests.docs.pages import ROOT

COMMANDS: Any = typer.main.get_command(app)
NOTHING = "-"
#: Where several words say the same as none.
WORDS = {
    None: "none",
    False: "no",
    True: "yes",
    inspect.Parameter.empty: "required",
    "0s": "0 s",
    "1m": "60 s",
    timedelta(0): "0 s",
}


def word(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return WORDS.get(value) or str(value)


def python(sync: type, not_blocking: type, method: str, name: str) -> str:
    """The default of an argument, which is the same with asyncio."""
    one, other = (
        word(inspect.signature(getattr(each, method)).parameters[name].default)
        for each in (sync, not_blocking)
    )
    assert one == other
    return one


def client(method: str, name: str) -> str:
    return python(Client, AsyncClient, method, name)


def http(method: str, name: str) -> str:
    return python(HttpQueue, AsyncHttpQueue, method, name)


def gateway(model: str, name: str, unit: str = "") -> str:
    return of_field(getattr(schemas, model).model_fields[name], unit)


def settling(verb: str, unit: str = "") -> str:
    return of_field(schemas.SETTLING[verb].model_fields["value"], unit)


def of_field(field: Any, unit: str) -> str:
    told = "required" if field.is_required() else word(field.default)
    return f"{told} {unit}" if unit and told[0].isdigit() else told


def cassieq(command: str, name: str, unit: str = "") -> str:
    found = COMMANDS
    for each in command.split():
        found = found.commands[each]
    (parameter,) = (each for each in found.params if each.name == name)
    told = "required" if parameter.required else word(parameter.default)
    return f"{told} {unit}" if unit and told[0].isdigit() else told


def spark(options: type, name: str) -> str:
    return word(settings_by_option(options)[name.lower()].default)


def same_as(*columns: str) -> list[str]:
    """`HttpQueue` leaves it to the gateway, and a write with createQueue to `Client`."""
    client_, gateway_, cassieq_ = columns
    return [client_, gateway_, gateway_, cassieq_, client_]


def new_queue(option: str, of_gateway: str, unit: str = "") -> list[str]:
    assert http("create", option) == "none"
    assert option in inspect.signature(HttpQueue.create).parameters
    return same_as(
        client("create_queue", option),
        gateway("QueueOptions", of_gateway, unit),
        cassieq("queue create", option),
    )


def rows() -> dict[str, list[str]]:
    """The defaults of each setting, in this order: Client, HttpQueue, gateway, cassieq, Spark."""
    limits = Limits()
    return {
        "lease of a new queue": new_queue("lease", "lease", "s"),
        "deliveries before a message is dead": new_queue("max_deliveries", "max_deliveries"),
        "dead messages are dropped": new_queue("drop_dead", "drop_dead"),
        "order": new_queue("order", "order"),
        "partitions": new_queue("partitions", "partitions"),
        "at a dead message, an order": new_queue("on_dead", "on_dead"),
        "messages expire after": new_queue("expire_after", "expire_after"),
        "settled messages are kept for": new_queue("keep_settled", "keep_settled"),
        "columns": new_queue("schema", "columns"),
        "delay of a put": [
            client("put", "delay"),
            http("put", "delay"),
            {"0": "none"}[gateway("PutParameters", "initial_invisibility_seconds")],
            {"0 s": "none"}[cassieq("put", "delay")],
            "none",
        ],
        "lease of a receive; none: the queue's": [
            client("receive", "lease"),
            http("receive", "lease"),
            gateway("ReceiveParameters", "invisibility_time_seconds"),
            cassieq("receive", "lease"),
            spark(SourceOptions, "leaseSeconds"),
        ],
        "group": [
            client("receive", "group"),
            http("receive", "group"),
            gateway("ReceiveParameters", "group"),
            cassieq("receive", "group"),
            {"none": "required"}[spark(SourceOptions, "group")],
        ],
        "messages of a receive": [
            client("receive", "max"),
            http("receive", "max"),
            gateway("ReceiveManyParameters", "max"),
            # With --follow or --exec there is no limit.
            {"none": "1"}[cassieq("receive", "most")],
            spark(SourceOptions, "maxMessagesPerTrigger"),
        ],
        "wait for the first message": [
            client("receive", "wait"),
            http("receive", "wait"),
            gateway("ReceiveParameters", "wait", "s"),
            cassieq("receive", "wait"),
            NOTHING,
        ],
        "messages of a peek": [
            client("peek", "max"),
            http("peek", "max"),
            gateway("PeekParameters", "max"),
            cassieq("peek", "most"),
            spark(SourceOptions, "maxMessages"),
        ],
        "a peek begins at": [
            client("peek", "start"),
            http("peek", "start"),
            gateway("PeekParameters", "start"),
            cassieq("peek", "start"),
            spark(SourceOptions, "startingPosition"),
        ],
        "a new group begins at": [
            client("create_group", "start"),
            http("create_group", "start"),
            gateway("GroupOptions", "start"),
            cassieq("group create", "start"),
            spark(SourceOptions, "startingPosition"),
        ],
        "delay of a release": [
            client("release", "delay"),
            http("release", "delay"),
            settling("release", "s"),
            cassieq("release", "delay"),
            spark(SinkOptions, "delay"),
        ],
        "length of an extension": [
            client("extend", "by"),
            http("extend", "by"),
            settling("extend"),
            cassieq("extend", "by"),
            {"none": "the queue's lease"}[spark(SinkOptions, "seconds")],
        ],
        "reason of a reject": [
            client("reject", "reason"),
            http("reject", "reason"),
            settling("reject"),
            cassieq("reject", "reason"),
            spark(SinkOptions, "reason"),
        ],
        "force: delete a queue": [
            client("delete_queue", "force"),
            http("delete", "force"),
            gateway("DeleteParameters", "force"),
            cassieq("queue delete", "force"),
            NOTHING,
        ],
        "force: purge a queue": [
            client("purge_queue", "force"),
            http("purge", "force"),
            gateway("ForceParameters", "force"),
            cassieq("queue purge", "force"),
            NOTHING,
        ],
        "force: move a group": [
            client("seek_group", "force"),
            http("seek_group", "force"),
            gateway("GroupSeek", "force"),
            cassieq("group seek", "force"),
            NOTHING,
        ],
        "force: delete a group": [
            client("delete_group", "force"),
            http("delete_group", "force"),
            gateway("ForceParameters", "force"),
            cassieq("group delete", "force"),
            NOTHING,
        ],
        "force: redrive": [
            client("redrive", "force"),
            http("redrive", "force"),
            gateway("RedriveParameters", "force"),
            cassieq("dead redrive", "force"),
            NOTHING,
        ],
        "most dead letters": [
            client("dead_letters", "limit"),
            http("dead_letters", "limit"),
            gateway("DeadLetterParameters", "limit"),
            cassieq("dead list", "limit"),
            NOTHING,
        ],
        "a collected put waits for others": [
            client("producer", "linger"),
            NOTHING,
            word(limits.linger),
            NOTHING,
            NOTHING,
        ],
        "largest message, in MiB": [
            f"{LARGEST_MESSAGE >> 20}",
            f"{limits.body_bytes >> 20}",
            f"{limits.body_bytes >> 20}",
            f"{LARGEST_MESSAGE >> 20}",
            f"{settings_by_option(SinkOptions)['maxmessagebytes'].default >> 20}",
        ],
        "most partitions": same_as(
            word(MOST_PARTITIONS),
            word(max(each.le for each in _bounds("partitions"))),
            word(MOST_PARTITIONS),
        ),
    }


def _bounds(name: str) -> list[Any]:
    metadata = schemas.QueueOptions.model_fields[name].metadata
    return [each for each in metadata if hasattr(each, "le")]


PAGE = (ROOT / "docs" / "client.md").read_text().split("## Defaults")[1].split("\n## ")[0]


def told() -> dict[str, list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_every_default_is_told_as_it_is():
    found = {re.sub(r" \(\d\)$", "", name): cells for name, cells in told().items()}

    assert found == rows()


@pytest.mark.parametrize("name", told())
def test_defaults_that_differ_have_a_reason(name: str):
    values = {cell for cell in told()[name] if cell != NOTHING}
    note = re.search(r" \((\d)\)$", name)

    assert bool(note) == (len(values) > 1)
    assert note is None or f"\n{note[1]}. " in PAGE


def test_the_order_is_named_alike():
    assert client("create_queue", "order") == Order.NONE.value
