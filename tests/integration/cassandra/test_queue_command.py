from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueId
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from tests.support.command_line import Command, cassieq, make_command


@pytest.fixture
def queue_command(connection: ConnectionOptions) -> Command:
    return make_command(connection, "queue")


@pytest.fixture
def name() -> str:
    return f"cli-{uuid4().hex[:10]}"


def test_a_queue_is_created_shown_and_listed(queue_command: Command, name: str):
    created = queue_command("create", name, "--lease", "5s", "--bucket-size", "1024")
    assert f"{name}@1" in created.stdout

    shown = json.loads(queue_command("show", name, "--json").stdout)
    assert (shown["queue"], shown["lease_seconds"], shown["bucket_size"]) == (name, 5, 1024)
    assert name in queue_command("show", name).stdout
    assert name in queue_command("list").stdout
    assert (shown["status"], shown.pop("paused")) == ("active", False)
    assert shown.pop("attributes") == {}
    assert shown in json.loads(queue_command("list", "--json").stdout)


def test_order_and_periods_are_shown_as_created(queue_command: Command, name: str):
    periods = ["--expire-after", "14d", "--keep-settled", "7d"]
    queue_command("create", name, "--order", "strict", *periods)

    shown = json.loads(queue_command("show", name, "--json").stdout)
    assert (shown["order"], shown["expire_after_seconds"]) == ("strict", 14 * 86_400)
    assert shown["keep_settled_seconds"] == 7 * 86_400


def test_a_queue_comes_with_a_dead_letter_queue_unless_told_otherwise(
    queue_command: Command, name: str
):
    def shown(queue: str) -> tuple[int, str | None]:
        definition = json.loads(queue_command("show", queue, "--json").stdout)
        return definition["max_deliveries"], definition["dead_letter_queue"]

    assert f"{name}.dead" in queue_command("create", name).stdout
    assert shown(name) == (5, f"{name}.dead")
    assert shown(f"{name}.dead") == (0, None)

    queue_command("create", f"{name}-b", "--dead-letter-queue", f"{name}.dead")
    assert shown(f"{name}-b") == (5, f"{name}.dead")
    queue_command("create", f"{name}-c", "--max-deliveries", "3", "--drop-dead")
    assert shown(f"{name}-c") == (3, None)
    queue_command("create", f"{name}-d", "--max-deliveries", "0")
    assert shown(f"{name}-d") == (0, None)
    with pytest.raises(OptionError, match="cannot be combined with"):
        queue_command("create", f"{name}-e", "--drop-dead", "--dead-letter-queue", "x")


def test_creating_a_queue_twice_changes_nothing_and_says_so(queue_command: Command, name: str):
    queue_command("create", name)

    with pytest.raises(QueueStateError, match="exists already"):
        queue_command("create", name, "--lease", "5s")
    assert json.loads(queue_command("show", name, "--json").stdout)["lease_seconds"] == 60


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no spaces"], "not valid"),
        (["sizes", "--bucket-size", "1000"], "multiple of chunk size"),
        (["short", "--lease", "0s"], "at least a second"),
        (["kept", "--expire-after", "soon"], "--expire-after must be a duration such as"),
        (
            ["kept", "--expire-after", "500ms"],
            "expire_after must be whole seconds",
        ),
    ],
)
def test_bad_definitions_are_refused_before_anything_is_made(
    queue_command: Command, arguments: list[str], complaint: str
):
    with pytest.raises(OptionError, match=complaint):
        queue_command("create", *arguments)
    listed = json.loads(queue_command("list", "--json").stdout)
    assert not [queue for queue in listed if queue["queue"].startswith(arguments[0])]


def test_a_queue_that_does_not_exist_is_named(queue_command: Command):
    for command in ("show", "stats"):
        with pytest.raises(QueueStateError, match="there is no queue 'nobody'"):
            queue_command(command, "nobody")


def test_figures_are_exact(queue_command: Command, name: str, cassandra_store: Store):
    queue_command("create", name)
    assert "No group" in queue_command("stats", name).stdout
    queue_id = QueueId(f"{name}@1")
    ensure_group(ConsumerGroup(Ledger(cassandra_store, queue_id), "g"), starting="earliest")
    publish(Ledger(cassandra_store, queue_id), [PendingBlock(new_block_id(), 1_000)])
    request = LeaseRequest(
        held=None, token=uuid4(), lease=timedelta(minutes=5), max_messages=300, stop=1_000
    )
    ConsumerGroup(Ledger(cassandra_store, queue_id), "g").lease(request)

    figures = json.loads(queue_command("stats", name, "--json").stdout)

    (group,) = figures.pop("groups")
    assert figures == {"queue_id": queue_id, "finalised": 0, "next": 1_000, "settled": 0}
    assert group.pop("oldest_age_seconds") >= 0
    assert group == {
        "group": "g",
        "depth": 1_000,
        "leased": 300,
        "due": 0,
        "waiting": 0,
        "dead": 0,
        "pointer": 300,
        "floor": 0,
        "unexamined": 0,
        "stopped": 0,
    }
    assert "1,000 messages published" in queue_command("stats", name).stdout


def test_a_schema_is_created_altered_and_shown(queue_command: Command, name: str, tmp_path: Path):
    avro = tmp_path / "trip.avsc"
    fields = [{"name": "vendor", "type": "string"}, {"name": "fare", "type": ["null", "double"]}]
    avro.write_text(json.dumps({"type": "record", "name": "trip", "fields": fields}))

    queue_command("create", name, "--schema-file", str(avro))
    assert "vendor string not null, fare double" in queue_command("show", name).stdout
    queue_command("alter", name, "--schema", "vendor string, fare double, tip int")

    shown = json.loads(queue_command("show", name, "--json").stdout)
    assert shown["schema"] == "vendor string, fare double, tip int"
    dead = json.loads(queue_command("show", f"{name}.dead", "--json").stdout)
    assert dead["schema"] == shown["schema"]


@pytest.mark.parametrize(
    ("words", "error", "problem"),
    [
        (["--schema", "fare"], OptionError, "type"),
        (["--schema", "fare variant"], OptionError, "variant"),
        (["--schema", "a int", "--schema-file", "x"], OptionError, "exclude each other"),
        (["--schema-file", "/nowhere/trip.avsc"], OptionError, "/nowhere/trip.avsc"),
    ],
)
def test_what_is_no_schema_is_refused(
    queue_command: Command, name: str, words: list[str], error: type[Exception], problem: str
):
    with pytest.raises(error, match=problem):
        queue_command("create", name, *words)
    with pytest.raises(QueueStateError, match="there is no queue"):
        queue_command("show", name)


def test_messages_of_a_queue_with_a_schema_are_json_objects(
    queue_command: Command, connection: ConnectionOptions, name: str
):
    queue_command("create", name, "--schema", "vendor string not null, fare decimal(10,2)")
    host, port = connection.endpoints[0]
    reach = [
        *("--contact-points", f"{host}:{port}", "--port", str(port)),
        *("--keyspace", connection.keyspace),
    ]

    put = cassieq("put", name, '{"vendor": "v", "fare": 1.5}', *reach)
    peeked = cassieq("peek", name, *reach)
    as_json = cassieq("peek", name, "--json", *reach)
    refused = cassieq("put", name, '{"vendr": "v"}', *reach)

    assert (put.code, refused.code) == (0, 1)
    assert json.loads(peeked.out) == {"vendor": "v", "fare": "1.50"}
    assert json.loads(as_json.out)["value"] == {"vendor": "v", "fare": "1.50"}
    assert "no column 'vendr': did you mean 'vendor'" in refused.err


def test_a_queue_with_partitions_is_told_by_partition(
    queue_command: Command, name: str, connection: ConnectionOptions
):
    created = queue_command("create", name, "--partitions", "4", "--order", "key", "--json")
    put = make_command(connection, "put")

    told = json.loads(put(name, "a", "b", "--key", "hello", "--json").stdout)
    make_command(connection, "group")("create", name, "billing")
    stats = json.loads(queue_command("stats", name, "--json").stdout)

    assert (json.loads(created.stdout)["partitions"], json.loads(created.stdout)["order"]) == (
        4,
        "key",
    )
    assert told == {"queue": name, "partitions": {"3": {"start": 0, "stop": 2}}}
    assert [each["next"] for each in stats["partitions"]] == [0, 0, 0, 2]
    assert (stats["next"], stats["groups"][0]["depth"]) == (2, 2)
    shown = queue_command("stats", name).stdout
    assert "depth of billing" in shown
    with pytest.raises(OptionError, match="the partitions can't be altered"):
        queue_command("alter", name, "--partitions", "5")
