from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from cassandra.cluster import Session
from click.testing import Result
from typer.testing import CliRunner

from cassieq_spark.cli.schema import app
from cassieq_spark.client import Client
from cassieq_spark.errors import MissingSchemaError, OptionError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.queues import create_queue, pause_queue, purge_queue, read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema, check_schema, needed_statements
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Insert, partition_of_group
from cassieq_spark.store.tables import SHAPES, Shape, Table
from tests.support.builders import LEASE, make_group, make_pending, make_request, monotons_of
from tests.support.command_line import cassieq
from tests.support.earlier_release import (
    EARLIER,
    NEWER_COLUMNS,
    NEWER_TABLES,
    SHORT_GRACES,
    make_earlier,
    rows_of,
)

KEY_TYPES = {
    "queue_id": "text",
    "name": "text",
    "consumer_group": "text",
    "kind": "text",
    "position": "bigint",
    "ordinal": "bigint",
    "block": "timeuuid",
    "bucket": "int",
    "start": "bigint",
}
DELIVERY = partition_of_group(QueueId("q@1"), "group")


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
        "SELECT table_name, compression FROM system_schema.tables WHERE keyspace_name = %s",
        (connection.keyspace,),
    )

    enabled = {name: compression.get("enabled") for name, compression in tables}

    assert {name for name, value in enabled.items() if value == "false"} == {"chunk"}


def test_marks_of_deletions_are_kept_for_as_long_as_their_rows_must_not_come_back(
    connection: ConnectionOptions, session: Session
):
    hour = 3600

    assert _graces(session, connection) == {
        "queue": 3 * hour,
        "ledger": 24 * hour,
        "group_state": 24 * hour,
        "chunk": 3 * hour,
        "lock": 3 * hour,
        "repair": 3 * hour,
        "account": 3 * hour,
    }


def test_marks_that_are_kept_too_short_are_kept_longer_and_longer_is_left_as_it_is(
    fresh: ConnectionOptions, session: Session
):
    apply_schema(fresh, "1")
    for table, seconds in (("group_state", 10800), ("ledger", 864000), ("chunk", 60)):
        session.execute(f"ALTER TABLE {fresh.keyspace}.{table} WITH gc_grace_seconds = {seconds}")
    before = _graces(session, fresh)

    open_store(fresh).close()
    checked = _check(fresh)
    added = apply_schema(fresh, "1")

    assert checked.exit_code == 1
    assert "Missing: gc_grace_seconds group_state 86400" in checked.stdout
    assert added == ("gc_grace_seconds group_state 86400", "gc_grace_seconds chunk 10800")
    assert _graces(session, fresh) == before | {"group_state": 86400, "chunk": 10800}
    assert check_schema(fresh).missing == ()


def test_applying_it_again_changes_nothing(connection: ConnectionOptions):
    apply_schema(connection, "1")


def test_a_lost_table_is_made_again(fresh: ConnectionOptions, session: Session):
    apply_schema(fresh)
    store = open_store(fresh)
    head, slot = Insert(("head", 0, 0), {}, if_absent=True), Insert(("slot", 0, 0), {})
    assert store.cas(DELIVERY, [head, slot])
    session.execute(f"DROP TABLE {fresh.keyspace}.group_state", timeout=60)

    apply_schema(fresh)

    assert list(store.scan(Table.GROUP_STATE)) == []
    # What was prepared for the old table is prepared again.
    assert store.cas(DELIVERY, [head, slot])
    store.close()


def test_a_plan_changes_nothing(fresh: ConnectionOptions):
    statements = needed_statements(fresh)

    assert len(statements) == 1 + len(Table) + 1
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


def test_a_schema_of_this_release_lacks_nothing(connection: ConnectionOptions):
    assert check_schema(connection).missing == ()
    assert CliRunner().invoke(app, ["check", *_where(connection)]).exit_code == 0


def test_tables_of_a_later_release_are_told_as_such_and_used_all_the_same(
    fresh: ConnectionOptions, session: Session
):
    apply_schema(fresh, "1")
    session.execute(f"ALTER TABLE {fresh.keyspace}.ledger ADD tomorrow text")
    run = CliRunner()

    people, programs = (
        run.invoke(app, ["check", *_where(fresh), *how]) for how in ([], ["--json"])
    )

    assert (people.exit_code, programs.exit_code) == (0, 0)
    assert "Newer than this program: column ledger.tomorrow text; upgrade it" in people.stdout
    assert json.loads(programs.stdout)["unknown"] == ["column ledger.tomorrow text"]
    store = open_store(fresh)
    assert create_queue(store, "q").version == 1
    store.close()


def test_tables_of_an_earlier_release_are_upgraded_and_their_rows_go_on(
    fresh: ConnectionOptions, session: Session
):
    _make_earlier_keyspace(session, fresh.keyspace)
    before = MemoryStore()
    held = _use(before)
    make_earlier(before)
    for table, values in rows_of(before):
        names = ", ".join(values)
        places = ", ".join("?" for _ in values)
        text = f"INSERT INTO {fresh.keyspace}.{table} ({names}) VALUES ({places})"
        session.execute(session.prepare(text), list(values.values()))
    run = CliRunner()

    checked = run.invoke(app, ["check", *_where(fresh), "--json"])
    applied = run.invoke(app, ["apply", *_where(fresh), "--replication", "1", "--json"])

    assert checked.exit_code == 1
    missing = json.loads(checked.stdout)["missing"]
    columns = [f"{table}.{name}" for table, names in NEWER_COLUMNS.items() for name in names]
    assert [line.split()[1] for line in missing] == [
        *NEWER_TABLES,
        *columns,
        *SHORT_GRACES,
        "version",
    ]
    assert applied.exit_code == 0, applied.output
    assert json.loads(applied.stdout) == {"keyspace": fresh.keyspace, "added": missing}
    assert check_schema(fresh).missing == ()
    store = open_store(fresh)
    queue = read_queue(store, "q")
    assert (queue.order, queue.expire_after) == ("none", None)
    group = ConsumerGroup(Ledger(store, queue.queue_id), "g")
    lease = group.lease(make_request(held=held, stop=12))
    assert (lease.acked, monotons_of(lease.leased)) == (4, [Ranges.parse("4-12")])
    publish(Ledger(store, queue.queue_id), make_pending([3]))
    (figures,) = queue_stats(Ledger(store, queue.queue_id)).groups
    assert (figures.depth, figures.leased) == (11, 8)
    assert pause_queue(store, "q")
    assert Ledger(store, queue.queue_id).read_head().paused
    assert purge_queue(store, "q", force=True).version == 2
    store.close()


def test_statements_for_an_earlier_keyspace_can_be_carried_out_whatever_exists(
    fresh: ConnectionOptions, session: Session
):
    _make_earlier_keyspace(session, fresh.keyspace)
    run = CliRunner()
    printed = run.invoke(app, ["apply", *_where(fresh), "--replication", "1", "--print"])

    for _ in range(2):
        for text in printed.stdout.split(";\n")[:-1]:
            session.execute(text, timeout=60)

    assert check_schema(fresh).missing == ()


def test_a_table_that_adding_does_not_mend_is_refused_before_anything_is_changed(
    fresh: ConnectionOptions, session: Session
):
    _make_earlier_keyspace(session, fresh.keyspace)
    session.execute(f"DROP TABLE {fresh.keyspace}.queue", timeout=60)
    session.execute(
        f"CREATE TABLE {fresh.keyspace}.queue (name text PRIMARY KEY, version text)", timeout=60
    )

    for refused in (lambda: apply_schema(fresh, "1"), lambda: open_store(fresh)):
        with pytest.raises(
            MissingSchemaError, match=r"queue\.version is text instead of int; .*another keyspace"
        ):
            refused()

    difference = check_schema(fresh)
    assert difference.tables == NEWER_TABLES
    checked = CliRunner().invoke(app, ["check", *_where(fresh)])
    assert checked.exit_code == 1
    assert "In the way: column queue.version is text instead of int" in checked.output
    listed = cassieq("queue", "list", *_where(fresh))
    assert listed.code == 1
    assert "use another keyspace" in listed.err
    assert "schema apply" not in listed.err, "which does not mend it"


def test_a_keyspace_records_its_version_and_what_its_operator_has_noted_stays(
    fresh: ConnectionOptions, session: Session
):
    apply_schema(fresh, "1")
    session.execute(f"ALTER TABLE {fresh.keyspace}.queue WITH comment = 'Ann''s'")
    unrecorded = json.loads(_check(fresh, "--json").stdout)
    open_store(fresh).close()

    added = apply_schema(fresh, "1")

    assert unrecorded["version"] == {"found": None, "known": 4}
    assert list(added) == unrecorded["missing"] == ["schema version 4"]
    assert _comment(session, fresh) == "Ann's; cassieq-spark schema 4"
    recorded = _check(fresh)
    assert recorded.exit_code == 0
    assert "Schema version: 4; this program knows 4." in recorded.stdout
    assert "Warning" not in recorded.stdout, "our own nodes are set as they should be"
    assert apply_schema(fresh, "1") == ()


def test_tables_of_a_newer_version_are_refused_by_everybody_before_anything_is_touched(
    fresh: ConnectionOptions, session: Session
):
    apply_schema(fresh, "1")
    _record(session, fresh, 5)
    refusal = r"have schema version 5, .* knows none above 4; nothing was changed: upgrade"

    for refused in (
        lambda: open_store(fresh),
        lambda: apply_schema(fresh, "1"),
        lambda: needed_statements(fresh, "1"),
        lambda: Client(
            contact_points=fresh.contact_points, port=fresh.port, keyspace=fresh.keyspace
        ),
    ):
        with pytest.raises(MissingSchemaError, match=refusal):
            refused()

    created = cassieq("queue", "create", "q", *_where(fresh))
    assert (created.code, created.out) == (1, "")
    assert re.search(refusal, created.err)
    checked = _check(fresh)
    assert checked.exit_code == 1
    assert "Schema version: 5; this program knows 4." in checked.stdout
    assert "upgrade cassieq-spark here" in checked.stdout
    assert json.loads(_check(fresh, "--json").stdout)["version"] == {"found": 5, "known": 4}
    assert _comment(session, fresh) == "cassieq-spark schema 5"
    assert not session.execute(f"SELECT name FROM {fresh.keyspace}.queue").all()


def test_tables_of_an_older_version_are_refused_by_everybody_before_anything_is_touched(
    fresh: ConnectionOptions, session: Session
):
    apply_schema(fresh, "1")
    _record(session, fresh, 2)

    for refused in (
        lambda: open_store(fresh),
        lambda: apply_schema(fresh, "1"),
        lambda: needed_statements(fresh, "1"),
    ):
        with pytest.raises(MissingSchemaError, match=r"version 2, .* needs 4; .*another keyspace"):
            refused()

    checked = _check(fresh)
    assert checked.exit_code == 1
    assert "Schema version: 2; this program knows 4." in checked.stdout
    assert "of an earlier release: use another keyspace" in checked.stdout
    assert _comment(session, fresh) == "cassieq-spark schema 2"


def _use(store: MemoryStore) -> UUID:
    """A queue with twelve messages; the lease of the first four."""
    queue = create_queue(store, "q", bucket_size=8, chunk_size=4, lease=LEASE)
    publish(Ledger(store, queue.queue_id), make_pending([12]))
    lease = make_group(store, queue.queue_id).lease(make_request(max_messages=4, stop=12)).token
    assert lease is not None
    return lease


def _make_earlier_keyspace(session: Session, keyspace: str) -> None:
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}", timeout=60)
    for table, shape in EARLIER.items():
        types = KEY_TYPES | shape.columns
        columns = [f"{name} {types[name]}" for name in _names(shape)]
        key = ", ".join((f"({', '.join(shape.partition)})", *shape.clustering))
        text = f"CREATE TABLE {keyspace}.{table} ({', '.join(columns)}, PRIMARY KEY ({key}))"
        text += f" WITH gc_grace_seconds = {shape.gc_grace_seconds}"
        session.execute(text, timeout=60)


def _record(session: Session, connection: ConnectionOptions, version: int) -> None:
    comment = f"cassieq-spark schema {version}"
    session.execute(f"ALTER TABLE {connection.keyspace}.queue WITH comment = '{comment}'")


def _comment(session: Session, connection: ConnectionOptions) -> str:
    text = "SELECT comment FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    comment: str = session.execute(text, (connection.keyspace, "queue")).one()[0]
    return comment


def _graces(session: Session, connection: ConnectionOptions) -> dict[str, int]:
    text = "SELECT table_name, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = %s"
    return dict(session.execute(text, (connection.keyspace,)))


def _check(connection: ConnectionOptions, *how: str) -> Result:
    return CliRunner().invoke(app, ["check", *_where(connection), *how])


def _names(shape: Shape) -> tuple[str, ...]:
    return (*shape.partition, *shape.clustering, *shape.columns)


def _where(connection: ConnectionOptions) -> list[str]:
    host, port = connection.endpoints[0]
    where = ["--contact-points", f"{host}:{port}", "--port", str(port)]
    return [*where, "--keyspace", connection.keyspace]
