from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from cassandra.cluster import Session
from typer.testing import CliRunner

from cassieq_spark.cli.schema import app
from cassieq_spark.errors import MissingSchemaError, OptionError
from cassieq_spark.model import QueueId
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema, plan_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.connection import ConnectionOptions
from cassieq_spark.store.protocol import Insert, partition_of_delivery
from cassieq_spark.store.tables import SHAPES, Table

DELIVERY = partition_of_delivery(QueueId("q@1"), "group")


@pytest.fixture
def session(connection: ConnectionOptions) -> Iterator[Session]:
    cluster, session = connect(connection)
    yield session
    cluster.shutdown()


@pytest.fixture
def fresh(connection: ConnectionOptions) -> ConnectionOptions:
    return replace(connection, keyspace=f"cassieq_test_{uuid4().hex[:12]}")


@pytest.mark.parametrize("table", Table)
def test_a_table_in_cassandra_is_the_one_that_the_code_knows(
    connection: ConnectionOptions, session: Session, table: Table
):
    columns = session.execute(
        "SELECT column_name, kind, position, type FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (connection.keyspace, table.value),
    )

    found: dict[str, dict[str, str]] = {}
    keys: dict[str, list[tuple[int, str]]] = {"partition_key": [], "clustering": []}
    for name, kind, position, cql_type in columns:
        if kind in keys:
            keys[kind].append((position, name))
        else:
            found.setdefault(kind, {})[name] = cql_type

    assert found == {"regular": SHAPES[table].columns}
    assert tuple(name for _, name in sorted(keys["partition_key"])) == SHAPES[table].partition
    assert tuple(name for _, name in sorted(keys["clustering"])) == SHAPES[table].clustering


def test_chunks_are_not_compressed_again(connection: ConnectionOptions, session: Session):
    tables = session.execute(
        "SELECT table_name, compression, gc_grace_seconds FROM system_schema.tables "
        "WHERE keyspace_name = %s",
        (connection.keyspace,),
    )

    found = {name: (compression.get("enabled"), grace) for name, compression, grace in tables}

    assert found["chunk"] == ("false", 10800)
    assert {grace for _, grace in found.values()} == {10800}


def test_applying_it_again_changes_nothing(connection: ConnectionOptions):
    apply_schema(connection, "1")


def test_a_lost_table_is_made_again(fresh: ConnectionOptions, session: Session):
    apply_schema(fresh)
    store = open_store(fresh)
    head, slot = Insert(("head", 0, 0), {}, if_absent=True), Insert(("slot", 0, 0), {})
    assert store.cas(DELIVERY, [head, slot])
    session.execute(f"DROP TABLE {fresh.keyspace}.delivery", timeout=60)

    apply_schema(fresh)

    assert list(store.scan(Table.DELIVERY)) == []
    # What was prepared for the old table is prepared again.
    assert store.cas(DELIVERY, [head, slot])
    store.close()


def test_a_plan_changes_nothing(fresh: ConnectionOptions):
    statements = plan_schema(fresh)

    assert len(statements) == 1 + len(Table)
    with pytest.raises(MissingSchemaError):
        open_store(fresh)


def test_more_replicas_than_nodes_are_refused_before_anything_is_made(fresh: ConnectionOptions):
    with pytest.raises(OptionError, match="do not fit"):
        apply_schema(fresh, "99")

    with pytest.raises(MissingSchemaError):
        open_store(fresh)


def test_the_command_prints_or_applies(fresh: ConnectionOptions):
    (host, port), run = fresh.endpoints[0], CliRunner()
    where = ["apply", "--contact-points", f"{host}:{port}", "--port", str(port)]
    where += ["--keyspace", fresh.keyspace, "--replication", "SimpleStrategy=1"]

    printed = run.invoke(app, [*where, "--print"])
    applied = run.invoke(app, where)

    assert printed.exit_code == 0, printed.output
    assert f"CREATE TABLE IF NOT EXISTS {fresh.keyspace}.chunk" in printed.output
    assert applied.exit_code == 0, applied.output
    assert applied.output == f"Keyspace {fresh.keyspace} is ready.\n"
    open_store(fresh).close()
