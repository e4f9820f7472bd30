"""Queues with a schema: created, altered, and with a dead-letter queue that follows."""

from __future__ import annotations

import pytest

from cassieq_spark.client import Client
from cassieq_spark.errors import InvariantError, OptionError, SchemaError
from cassieq_spark.queues import (
    alter_queue,
    create_queue,
    delete_queue,
    purge_queue,
    read_queue,
    record,
)
from cassieq_spark.queues.lifecycle import mark_retired
from cassieq_spark.queues.record import Status, change
from cassieq_spark.schemas.ddl import to_stored
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore

TRIPS = "vendor string not null, fare decimal(10,2)"


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


def create(store: FaultyStore, schema: str | None = TRIPS) -> None:
    create_queue(store, "q", max_deliveries=3, dead_letter_queue="q.dead", schema=schema)


def schemas(store: FaultyStore, name: str = "q") -> tuple[str, ...]:
    return read_queue(store, name).schemas


def test_a_schema_is_stored_in_one_way_of_writing(store: FaultyStore):
    create(store, "Vendor STRING NOT NULL COMMENT 'who', fare DEC(10, 2)")

    assert schemas(store) == ("Vendor string not null comment 'who', fare decimal(10,2)",)
    assert read_queue(store, "q").schema == schemas(store)[0]
    assert schemas(store, "q.dead") == ("Vendor string comment 'who', fare decimal(10,2)",)


def test_a_queue_without_a_schema_has_none(store: FaultyStore):
    create(store, None)

    assert read_queue(store, "q").schema is None
    assert schemas(store) == schemas(store, "q.dead") == ()


@pytest.mark.parametrize("schema", ["", "a", "a variant", "_key string", "a int, A int"])
def test_what_is_no_schema_is_refused_before_anything_is_written(schema: str):
    store = CountingStore(MemoryStore())

    with pytest.raises(OptionError):
        create_queue(store, "q", schema=schema)

    assert (store.cas_count, store.read_count) == (0, 0)


def test_each_change_is_a_version_and_the_dead_letter_queue_follows(store: FaultyStore):
    create(store, "a int not null, b string")

    alter_queue(store, "q", schema="a bigint not null, b string, c double")
    altered = alter_queue(store, "q", schema="a bigint, c double")

    assert altered.schemas == (
        "a int not null, b string",
        "a bigint not null, b string, c double",
        "a bigint, c double",
    )
    assert schemas(store, "q.dead")[-1] == "a bigint, b string, c double"


def test_the_same_schema_is_no_change(store: FaultyStore):
    create(store)
    counting = CountingStore(store)

    altered = alter_queue(counting, "q", schema="vendor STRING not null, fare dec(10,2)")

    assert altered.schemas == (TRIPS,)
    assert counting.cas_count == 0


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("vendor string not null, fare int", "'fare' is of type decimal"),
        ("vendor string not null, fare decimal(10,2), tip int not null", "'tip' is new and not"),
        ("fare decimal(10,2)", "'vendor' is not null, so running queries need it"),
    ],
)
def test_changes_that_are_not_safe_change_nothing(store: FaultyStore, schema: str, problem: str):
    create(store)

    with pytest.raises(SchemaError, match=problem):
        alter_queue(store, "q", schema=schema)

    assert schemas(store) == (TRIPS,)
    assert len(schemas(store, "q.dead")) == 1


def test_a_queue_without_a_schema_gets_none(store: FaultyStore):
    create(store, None)

    with pytest.raises(SchemaError, match="'q' has no schema, and its messages are bytes"):
        alter_queue(store, "q", schema="a int")


def test_a_purge_keeps_the_schema(store: FaultyStore):
    create(store)
    alter_queue(store, "q", schema=f"{TRIPS}, tip int")

    assert purge_queue(store, "q").schemas == (TRIPS, f"{TRIPS}, tip int")


def test_two_queues_share_a_dead_letter_queue_that_has_the_columns_of_both(store: FaultyStore):
    create_queue(store, "q", max_deliveries=3, dead_letter_queue="d", schema="a int, b string")
    create_queue(store, "r", max_deliveries=3, dead_letter_queue="d", schema="a int, c double")

    assert schemas(store, "d") == ("a int, b string", "a int, c double, b string")


def test_a_dead_letter_queue_that_can_not_take_the_messages_is_refused(store: FaultyStore):
    create_queue(store, "d", schema="a string")
    create_queue(store, "bytes")

    wrong = "'d' can't be the dead-letter queue of 'q'.*name another queue.*'a' is of type string"
    for name, problem in (("d", wrong), ("bytes", "'q' has a schema and 'by")):
        with pytest.raises(SchemaError, match=problem):
            create_queue(store, "q", max_deliveries=3, dead_letter_queue=name, schema="a int")
    with pytest.raises(SchemaError, match="'d' has a schema and 'q' has none"):
        create_queue(store, "q", max_deliveries=3, dead_letter_queue="d")


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
@pytest.mark.parametrize("after", range(3))
def test_an_alteration_that_breaks_off_is_finished_by_repeating_it(
    store: FaultyStore, fault: Fault, after: int
):
    create(store)
    wanted = f"{TRIPS}, tip int"
    cas, left = store.cas, after

    def troubled(*call: object) -> bool:
        nonlocal left
        if left == 0:
            store.fault = fault
        left -= 1
        return cas(*call)  # type: ignore[arg-type]

    store.cas = troubled  # type: ignore[method-assign]
    alter_queue(store, "q", schema=wanted)

    assert schemas(store) == (TRIPS, wanted)
    assert len(schemas(store, "q.dead")) == 2


@pytest.mark.parametrize("stored", ["x", "[]", '["a integer"]', "[1]"])
def test_a_schema_that_nobody_stores_makes_the_row_unreadable(store: FaultyStore, stored: str):
    create(store)
    with pytest.raises(InvariantError):
        change(store, "q", lambda _: {"schema_versions": stored})

    with pytest.raises(InvariantError, match="the stored schema can't be read"):
        read_queue(store, "q")


def test_a_list_decodes_no_schema_of_others(
    monkeypatch: pytest.MonkeyPatch,
):
    store = MemoryStore()
    for name in ("acme:orders", "other:orders"):
        create_queue(store, name, schema=f"a_{name.replace(':', '_')} int")
    decoded: list[str] = []
    parse = record.parse_stored
    monkeypatch.setattr(record, "parse_stored", lambda text: decoded.append(text) or parse(text))
    record._record_of.cache_clear()

    with Client.from_store(store) as client:
        assert [each.name for each in client.queues("acme:")] == ["acme:orders"]

    assert decoded == [to_stored(("a_acme_orders int",))]


def test_a_row_is_decoded_once_until_it_changes(monkeypatch: pytest.MonkeyPatch):
    store = MemoryStore()
    create_queue(store, "q", schema="a int")
    decoded: list[str] = []
    parse = record.parse_stored
    monkeypatch.setattr(record, "parse_stored", lambda text: decoded.append(text) or parse(text))
    record._record_of.cache_clear()

    found = [read_queue(store, "q") for _ in range(3)]
    alter_queue(store, "q", max_deliveries=7)

    assert found[0] is found[2]
    assert read_queue(store, "q").max_deliveries == 7
    assert len(decoded) == 2


def test_a_queue_that_is_gone_keeps_no_schema_in_its_row():
    store = MemoryStore()
    create_queue(store, "orders", schema="id int")
    delete_queue(store, "orders")
    mark_retired(store, "orders", 1)

    (row,) = store.scan(Table.QUEUE)

    assert (row["status"], row["schema_versions"]) == (Status.DELETED, "")
    again = create_queue(store, "orders", schema="id string")
    assert again.schemas == ("id string",)
