"""Clients of a queue with a schema: dicts, JSON and tables in, dicts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cassieq_spark import Client
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.dead_letters.survey import read_message
from cassieq_spark.errors import (
    BatchChangedError,
    MessageError,
    OptionError,
    SchemaChangedError,
    SchemaError,
)
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Chunk, QueueId, Range, Ranges
from cassieq_spark.queues import alter_queue, read_queue
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.faults import FakeClock

TRIPS = "vendor string not null, fare decimal(10,2), at timestamp, stops array<struct<zone:int>>"
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
UTC_MICROSECONDS = pa.timestamp("us", "UTC")
TRIP = {"vendor": "v", "fare": Decimal("1.50"), "at": NOON, "stops": [{"zone": 3}]}


@pytest.fixture
def trips(client: Client, store: CountingStore) -> Iterator[Client]:
    client.create_queue("trips", schema=TRIPS, max_deliveries=2)
    store.reset()
    return client


def values(client: Client, queue: str = "trips") -> list[Any]:
    return [message.value for message in client.peek(queue, max=1_000)]


def test_a_dict_comes_back_as_it_was_for_one_lwt(trips: Client, store: CountingStore):
    assert trips.put("trips", TRIP, key="k", headers={"a": "b"}) == 0
    assert (store.cas_count, store.read_count) == (1, 2)

    (message,) = trips.receive("trips", "g")

    assert message.value == TRIP
    assert (message.key, message.headers, message.monoton) == (b"k", {"a": "b"}, 0)
    assert trips.ack(message) == []


def test_a_schema_may_be_one_of_arrow(client: Client):
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.large_string())])

    created = client.create_queue("q2", schema=schema)

    assert created.schema == "a tinyint not null, b string"


def test_text_is_a_json_object(trips: Client):
    trips.put("trips", '{"vendor": "v", "fare": 1.50, "at": "2026-11-23T12:00:00Z"}')

    assert values(trips) == [TRIP | {"stops": None}]


@pytest.mark.parametrize(
    ("value", "error", "problem"),
    [
        ({"fare": Decimal(1)}, SchemaError, "'vendor' string is missing"),
        ({"vendor": None}, MessageError, "'vendor'.*it is null"),
        ({"vendor": "v", "fair": 1}, SchemaError, "no column 'fair': did you mean 'fare'"),
        ({"vendor": "v", "fare": "x"}, MessageError, "'fare'.*'x'.*decimal"),
        ({"vendor": "v" * 9_000_000}, MessageError, "the limit is 8388608"),
        ("no json", MessageError, "no JSON"),
        ("[1]", MessageError, "no dict of columns"),
        (b"\xff", MessageError, "no JSON"),
        (5, MessageError, "must be a dict of the queue's columns.*not 5"),
        (None, MessageError, "must be a dict of the queue's columns.*not None"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    trips: Client, store: CountingStore, value: Any, error: type[Exception], problem: str
):
    with pytest.raises(error, match=problem):
        trips.put("trips", value)
    with pytest.raises(error, match=problem):
        trips.put_many("trips", [TRIP, value])

    assert store.cas_count == 0
    assert values(trips) == []


def test_a_queue_without_a_schema_takes_no_dicts_and_no_tables(client: Client):
    with pytest.raises(MessageError, match="is of type dict, expected bytes or str"):
        client.put("q", {"a": 1})
    with pytest.raises(SchemaError, match="'q' has no schema, so it takes no tables"):
        client.put_many("q", pa.table({"value": ["a"]}))


class Stream:
    """What polars and DuckDB hand over: Arrow's C stream, and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def rich() -> pa.Table:
    """What Arrow, pandas, polars and DuckDB all have."""
    count = range(3_000)
    return pa.table(
        {
            "a": pa.array(count, pa.int32()),
            "b": pa.array([None if each % 3 else each / 2 for each in count]),
            "c": pa.array([f"text {each} ü" for each in count]),
            "d": pa.array([NOON + timedelta(seconds=each) for each in count], UTC_MICROSECONDS),
            "e": pa.array([NOON.date() + timedelta(days=each) for each in count]),
            "f": pa.array([each % 2 == 0 for each in count]),
            "g": pa.array([[each, each + 1] for each in count], pa.list_(pa.int64())),
            "h": pa.array([{"x": each, "y": f"{each}"} for each in count]),
            "i": pa.array([Decimal(each).scaleb(-2) for each in count], pa.decimal128(10, 2)),
        }
    )


@pytest.mark.parametrize(
    "as_given", [pl.from_arrow, duckdb.from_arrow, Stream], ids=["polars", "duckdb", "C"]
)
def test_tables_of_others_come_back_as_they_were(client: Client, as_given: Any):
    table = rich()
    client.create_queue("rich", schema=table.schema)

    client.put_many("rich", as_given(table))

    assert [each.value for each in client.peek("rich", max=5_000)] == table.to_pylist()


@pytest.mark.parametrize("as_given", [pa.table, Stream, pa.Table.to_pandas])
def test_a_table_is_put_by_one_lwt(trips: Client, store: CountingStore, as_given: Any):
    table = pa.table({"fare": [1.5, None], "vendor": ["a", "b"], "_key": ["x", None]})

    assert trips.put_many("trips", as_given(table)) == Range(0, 2)

    assert store.cas_count == 1
    first, second = trips.receive("trips", "g", max=10)
    assert (first.value["fare"], first.key) == (Decimal("1.50"), b"x")
    assert (second.value["vendor"], second.value["fare"], second.key) == ("b", None, None)


def reader_of(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(pa.schema([("vendor", pa.string())]), batches)


class WatchedStore(WrappedStore):
    """Counts chunks as they are written."""

    chunks = 0

    def write_chunks(self, queue: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        super().write_chunks(queue, block, self._counted(chunks))

    def _counted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            yield chunk
            self.chunks += 1


def test_a_reader_is_read_while_its_rows_are_written(trips: Client, store: CountingStore):
    watched = WatchedStore(store)
    chunks = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(40):
            chunks.append(watched.chunks)
            yield pa.record_batch({"vendor": ["x" * 100_000] * 10})

    put = Client.from_store(watched).put_many("trips", reader_of(batches()))

    assert put == Range(0, 400)
    # Chunks have up to a megabyte of the forty.
    assert chunks[10] > 5
    assert chunks[39] > 30


@pytest.mark.parametrize(
    ("as_given", "error", "problem"),
    [
        (lambda reader: reader, KeyError, "no more"),
        (Stream, SchemaError, r"can't be read as an Arrow table: .*no more"),
    ],
)
def test_a_reader_that_breaks_off_leaves_nothing_visible(
    trips: Client, as_given: Any, error: type[Exception], problem: str
):
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"vendor": ["a"]})
        raise KeyError("no more")

    with pytest.raises(error, match=problem):
        trips.put_many("trips", as_given(reader_of(batches())))

    assert values(trips) == []


def test_names_of_columns_are_taken_whole(client: Client):
    table = pa.table({"a\0b": [1]})
    client.create_queue("zero", schema="a bigint")

    for given in (table, table.to_batches()[0], table.to_reader()):
        with pytest.raises(SchemaError, match=r"no column 'a\\x00b'"):
            client.put_many("zero", given)


@pytest.mark.parametrize("as_given", [pa.table, Stream, pa.Table.to_pandas])
def test_a_table_without_rows_has_its_columns_checked(trips: Client, as_given: Any):
    empty = pa.table({"vendor": pa.array([], pa.string())})

    assert len(trips.put_many("trips", as_given(empty))) == 0
    with pytest.raises(SchemaError, match="no column 'vendr'"):
        trips.put_many("trips", as_given(empty.rename_columns(["vendr"])))


@pytest.mark.parametrize("value", ["x" * 3, 5])
def test_a_table_that_does_not_fit_is_refused_whole(trips: Client, value: Any):
    table = pa.table({"vendor": ["a"] * 2_000 + [None], "fare": [Decimal(1)] * 2_001})
    wrong = pa.table({"vendor": ["a"], "tip": [value]})

    with pytest.raises(MessageError, match=r"column 'vendor', row 2000.*null"):
        trips.put_many("trips", table)
    with pytest.raises(SchemaError, match="no column 'tip'"):
        trips.put_many("trips", pd.DataFrame(wrong.to_pandas()))

    assert values(trips) == []


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"_key": [1]}, "'_key' is int64, expected string or binary"),
        ({"_headers": ["x"]}, "'_headers' is string, expected map"),
        ({"_headers": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))}, "_headers"),
        ({"_delay": ["1s"]}, "'_delay' is string, expected a duration"),
        ({"_visible_at": [NOON.replace(tzinfo=None)]}, "expected a timestamp with a time zone"),
        ({"_key": ["a"], "_KEY": ["b"]}, "a column appears twice: _key, _KEY"),
        ({"_delay": [-1.0]}, "has a negative delay"),
        ({"_metadata": ["x"]}, "no column '_metadata'"),
    ],
)
def test_columns_that_say_how_a_row_is_put_have_their_types(
    trips: Client, columns: dict[str, Any], problem: str
):
    with pytest.raises((SchemaError, MessageError), match=problem):
        trips.put_many("trips", pa.table({"vendor": ["v"], **columns}))

    assert values(trips) == []


@pytest.mark.parametrize("name", ["_key", "_headers", "_delay", "_visible_at"])
def test_such_a_column_may_have_nothing_in_it(trips: Client, name: str):
    assert trips.put_many("trips", pa.table({"vendor": ["v"], name: pa.nulls(1)})) == Range(0, 1)


LATE: dict[str, pa.Array] = {
    "_delay": pa.array([3600]),
    "_visible_at": pa.array([NOON.replace(year=2100)], UTC_MICROSECONDS),
}


class WriteRefusingStore(WrappedStore):
    """Takes no chunks."""

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        raise AssertionError((queue_id, block, list(chunks)))


@pytest.mark.parametrize(
    "column",
    [*LATE.items(), ("_DELAY", pa.nulls(1))],
    ids=lambda column: column[0],
)
@pytest.mark.parametrize(("order", "partitions"), [("strict", 1), ("key", 1), ("key", 2)], ids=str)
def test_a_queue_with_an_order_takes_no_table_that_delays_its_rows(
    trips: Client, store: CountingStore, column: tuple[str, pa.Array], order: str, partitions: int
):
    trips.create_queue("k", schema="a int", order=order, partitions=partitions)
    client = Client.from_store(WriteRefusingStore(store))
    name, times = column

    with pytest.raises(OptionError, match="so a delayed message would hold up all") as caught:
        client.put_many("k", pa.table({"a": [1], "_key": ["x"], name: times}))

    assert caught.value.__notes__ == [f"the rows have the column {name.lower()!r}: leave it out"]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_table_says_only_once_when_its_rows_are_delivered(
    trips: Client, store: CountingStore, partitions: int
):
    trips.create_queue("p", schema="a int", partitions=partitions)
    client = Client.from_store(WriteRefusingStore(store))
    rows = {"a": pa.array([1])}
    delay, visible_at = (rows | {name: column} for name, column in LATE.items())

    with pytest.raises(SchemaError, match=r"'_delay' and '_visible_at', .* keep one of them"):
        client.put_many("p", pa.table(rows | LATE))
    with pytest.raises(OptionError, match=r"column '_visible_at', .* 'delay' .* leave out one"):
        client.put_many("p", pa.table(visible_at), delay=timedelta(hours=1))
    with pytest.raises(OptionError, match=r"column '_delay', .* 'visible_at' .* leave out one"):
        client.put_many("p", pa.table(delay), visible_at=NOON)


def test_a_timedelta_of_pandas_may_have_nanoseconds(trips: Client, clock: FakeClock):
    delays = pd.to_timedelta([1_000_000_001], unit="ns")
    trips.put_many("trips", pd.DataFrame({"vendor": ["v"], "_delay": delays}))

    assert trips.receive("trips", "g") == []
    clock.advance(timedelta(seconds=3))
    assert len(trips.receive("trips", "g")) == 1


def test_a_wrong_delay_is_refused_by_its_row_of_the_table_whatever_its_partition(trips: Client):
    trips.create_queue("p", schema="a int", partitions=4)
    keys = [f"k{number}" for number in range(20)]
    table = pa.table({"a": range(20), "_key": keys, "_delay": [0] * 19 + [2**62]})

    with pytest.raises(MessageError, match=r"^row 19 .* more than 365 days"):
        trips.put_many("p", table)


def test_a_table_is_received_with_receipts_by_one_lwt(trips: Client, store: CountingStore):
    trips.put_many("trips", [TRIP | {"vendor": f"{number}"} for number in range(300)])
    trips.create_group("trips", "g")
    store.reset()

    table = trips.receive_table("trips", "g", max=200)

    assert store.cas_count == 1
    assert table.schema.names == ["vendor", "fare", "at", "stops", "_metadata"]
    assert table["vendor"].to_pylist() == [str(number) for number in range(200)]
    told = table["_metadata"].to_pylist()
    assert trips.ack(*(each["receipt"] for each in told)) == []
    assert {each["delivery_count"] for each in told} == {1}
    assert trips.receive_table("trips", "g").num_rows == 100


def test_an_empty_table_has_the_same_columns(trips: Client):
    empty = trips.receive_table("trips", "g")
    trips.put("trips", TRIP)

    assert empty.num_rows == 0
    assert empty.schema == trips.receive_table("trips", "g").schema


def test_a_queue_without_a_schema_is_received_as_a_table_as_well(client: Client):
    client.put("q", "hello", key="k")

    (row,) = client.receive_table("q", "g").to_pylist()

    assert (row["value"], row["key"], row["delivery_count"]) == (b"hello", b"k", 1)
    assert client.ack(row["receipt"]) == []


def test_a_table_delays_its_rows_by_its_own_columns(trips: Client, clock: FakeClock):
    later = pa.array([None, 60.0])
    trips.put_many("trips", pa.table({"vendor": ["now", "later"], "_delay": later}))

    assert [each.value["vendor"] for each in trips.receive("trips", "g", max=5)] == ["now"]
    clock.advance(timedelta(seconds=62))
    # What is due again and what was never handed out come in turns.
    both = [each.value["vendor"] for _ in range(2) for each in trips.receive("trips", "g", max=5)]
    assert sorted(both) == ["later", "now"]


def test_a_named_batch_of_other_rows_is_an_error_and_the_same_rows_are_a_replay(trips: Client):
    table = pa.table({"vendor": ["a", "b"]})
    names: Any = {"txn_app_id": "app", "txn_version": 1}

    assert trips.put_many("trips", table, **names) == Range(0, 2)
    assert trips.put_many("trips", [{"vendor": "b"}, {"vendor": "a"}], **names) is None
    with pytest.raises(BatchChangedError):
        trips.put_many("trips", pa.table({"vendor": ["a", "c"]}), **names)


def test_a_producer_collects_dicts(trips: Client, store: CountingStore):
    with trips.producer("trips") as producer:
        with pytest.raises(MessageError, match="must be a dict"):
            producer.put(3)  # type: ignore[arg-type]
        puts = [producer.put({"vendor": f"{number}"}) for number in range(50)]

    assert [put.result() for put in puts] == list(range(50))
    assert [value["vendor"] for value in values(trips)] == [str(number) for number in range(50)]


def test_messages_of_all_versions_are_read_by_the_last_one(trips: Client, store: CountingStore):
    receiver_of_old = read_queue(store, "trips")
    trips.put("trips", TRIP)
    alter_queue(store, "trips", schema=f"{TRIPS}, tip double")
    trips.put("trips", TRIP | {"tip": 0.5})

    assert values(trips) == [TRIP | {"tip": None}, TRIP | {"tip": 0.5}]
    assert receiver_of_old.schema == TRIPS


@pytest.mark.parametrize("as_table", [True, False])
def test_who_waits_while_the_schema_is_changed_has_the_columns_of_what_is_put_then(
    trips: Client, store: CountingStore, *, as_table: bool
):
    receiver = trips.receiver("trips", "g")
    request = LeaseRequest(max_messages=9)
    assert receiver.look(request) == []
    alter_queue(store, "trips", schema=f"{TRIPS}, tip double")
    trips.put("trips", TRIP | {"tip": 0.5})

    found = receiver.look_table(request).to_pylist() if as_table else receiver.look(request)

    ((tip, count),) = (
        (each["tip"], each["_metadata"]["delivery_count"])
        if isinstance(each, dict)
        else (each.value["tip"], each.delivery_count)
        for each in found
    )
    assert (tip, count) == (0.5, 1)


def test_dead_letters_keep_their_columns_and_go_back(trips: Client, store: CountingStore):
    trips.put("trips", TRIP, key="k", headers={"own": "h"})
    (message,) = trips.receive("trips", "g")
    trips.reject(message, reason="bad")
    trips.receive("trips", "g")

    dead = read_message(store, "trips", 0)
    assert (dead.value, dead.key) == (TRIP, b"k")
    assert dict(dead.headers or ())["cassieq.reason"] == "bad"
    found = trips.dead_letters("trips")
    assert found.monotons.count == 1
    trips.redrive(found)

    (again,) = trips.receive("trips", "g")
    assert (again.value, again.key) == (TRIP, b"k")
    assert again.headers == {"own": "h", "cassieq.redrives": "1"}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_large_message_is_dead_lettered_and_goes_back_after_its_column_was_widened(
    client: Client, store: CountingStore, is_late: bool
):
    client.create_queue("big", schema="id int, a array<tinyint>", drop_dead=is_late)
    bits = pa.array([1, 0] * 1_100_000, pa.int8())
    ends = pa.array([0, 1, len(bits) - 1, len(bits)], pa.int32())
    rows = pa.table({"id": [0, 1, 2], "a": pa.ListArray.from_arrays(ends, bits)})
    client.put_many("big", rows)
    alter_queue(store, "big", schema="id int, a array<bigint>")
    if is_late:
        # It has no version of the time when the message was written.
        alter_queue(store, "big", dead_letter_queue="big.dead")

    found = client.receive_table("big", "g", max=3)
    client.reject(*(told["receipt"] for told in found["_metadata"].to_pylist()), reason="bad")
    client.receive("big", "g")

    (group,) = client.stats("big").groups
    assert (group.depth, group.dead, group.floor) == (0, 0, 3)
    letters = client.receive_table("big.dead", "looks", max=3)
    assert letters.select(["id", "a"]).equals(found.select(["id", "a"]))
    client.redrive(client.dead_letters("big"))
    again = client.receive_table("big", "g", max=3)
    assert again.select(["id", "a"]).equals(found.select(["id", "a"]))


def reject(client: Client, group: ConsumerGroup) -> None:
    """Reject what there is, and leave it to others to dead-letter it."""
    messages = client.receive("trips", "g", max=10)
    rejected = Ranges.of(*(Range(each.monoton, each.monoton + 1) for each in messages))
    lease = Receipt.parse(messages[0].receipt).lease
    group.settle(lease, Settlement(rejected={"bad": rejected}))


def test_a_reader_of_the_old_schema_loses_no_column_of_a_dead_letter(
    trips: Client, store: CountingStore
):
    old = trips.queue("trips")
    trips.put("trips", TRIP)
    group = ConsumerGroup(Ledger(store, old.queue_id), "g")
    trips.create_group("trips", "g")
    alter_queue(store, "trips", schema=f"{TRIPS}, tip double")
    trips.put("trips", TRIP | {"tip": 0.5})
    reject(trips, group)

    assert dead_letter_messages(store, old, group, group.read().waiting) == 2

    assert values(trips, "trips.dead") == [TRIP | {"tip": None}, TRIP | {"tip": 0.5}]


def test_a_reader_of_before_another_dead_letter_queue_was_named_uses_the_new_one(
    trips: Client, store: CountingStore
):
    old = trips.queue("trips")
    group = ConsumerGroup(Ledger(store, old.queue_id), "g")
    trips.create_group("trips", "g")
    alter_queue(store, "trips", dead_letter_queue="other")
    # The dead-letter queue of before gets no tips.
    alter_queue(store, "trips", schema=f"{TRIPS}, tip double")
    trips.put("trips", TRIP | {"tip": 0.5})
    reject(trips, group)

    assert dead_letter_messages(store, old, group, group.read().waiting) == 1

    assert values(trips, "other") == [TRIP | {"tip": 0.5}]
    assert values(trips, "trips.dead") == []


def test_where_a_column_would_get_lost_messages_stay(trips: Client, store: CountingStore):
    old = trips.queue("trips")
    group = ConsumerGroup(Ledger(store, old.queue_id), "g")
    trips.create_group("trips", "g")
    before = trips.queue("trips.dead").schema
    alter_queue(store, "trips", schema=f"{TRIPS}, tip double")
    alter_queue(store, "trips.dead", schema=before)
    trips.put("trips", TRIP | {"tip": 0.5})
    reject(trips, group)

    assert dead_letter_messages(store, old, group, group.read().waiting) == 0

    assert values(trips, "trips.dead") == []
    (waiting,) = group.read().waiting
    assert waiting.reason == "bad"


def test_a_copy_by_an_old_definition_is_refused_and_not_made_without_columns(
    trips: Client, store: CountingStore
):
    old = trips.queue("trips")
    alter_queue(store, "trips", schema=f"{TRIPS}, tip double")
    trips.put("trips", TRIP | {"tip": 0.5})
    pieces = find_pieces(Ledger(store, old.queue_id), Ranges.of(Range(0, 1)), deliveries=None)

    with pytest.raises(SchemaChangedError, match=r"has changed meanwhile.*try again"):
        list(fetch(store, old, pieces, whole=True))


def test_dead_letters_go_to_no_queue_of_the_other_kind(trips: Client):
    trips.put("trips", TRIP)
    (message,) = trips.receive("trips", "g")
    trips.reject(message, reason="bad")
    trips.receive("trips", "g")
    found = trips.dead_letters("trips")

    with pytest.raises(SchemaError, match=r"'trips.dead' has a schema and 'q' has none"):
        trips.redrive(found, to="q")


def test_what_can_not_be_read_becomes_a_dead_letter_with_its_bytes(
    trips: Client, store: CountingStore
):
    trips.put("trips", TRIP)
    trips.put("trips", TRIP | {"vendor": "w"})
    queue_id = trips.queue("trips").queue_id
    block = Ledger(store, queue_id).read_blocks()[0].block
    store.write_chunks(queue_id, block, [Chunk(0, 0, 1, b"broken")])

    readable = trips.receive("trips", "g", max=5)
    trips.receive("trips", "g", max=5)

    assert [each.value["vendor"] for each in readable] == ["w"]
    dead = read_message(store, "trips", 0)
    assert dead.key == b"broken"
    assert dead.value == dict.fromkeys(TRIP)
    assert "unreadable" in str(dict(dead.headers or ())["cassieq.reason"])


def test_a_message_is_replaced_by_another_row(trips: Client):
    trips.put("trips", TRIP)
    (message,) = trips.receive("trips", "g")
    dearer = TRIP | {"fare": Decimal("2.50")}

    assert trips.replace(message, dearer, key="k", headers={"n": "1"}) == []

    (new,) = trips.receive("trips", "g")
    assert (new.value, new.key, dict(new.headers)) == (dearer, b"k", {"n": "1"})
    assert trips.ack(message) == [message.receipt]
    assert trips.ack(new) == []


@pytest.mark.parametrize(
    ("row", "error", "problem"),
    [
        ({"fare": 1}, SchemaError, "'vendor' string is missing"),
        (TRIP | {"fair": 1}, SchemaError, "did you mean 'fare'"),
        (TRIP | {"fare": "x"}, MessageError, "'fare'"),
        (TRIP | {"fare": Decimal("0.001")}, MessageError, "'fare'"),
    ],
)
def test_a_message_is_not_replaced_by_a_row_that_does_not_fit(
    trips: Client, row: dict[str, Any], error: type[Exception], problem: str
):
    trips.put("trips", TRIP)
    (message,) = trips.receive("trips", "g")

    with pytest.raises(error, match=problem):
        trips.replace(message, row)

    assert values(trips) == [TRIP]
    assert trips.ack(message) == []


def test_a_single_dict_is_not_several(trips: Client):
    with pytest.raises(MessageError, match="for a single value, use put"):
        trips.put_many("trips", TRIP)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ddl", "entries", "kind"),
    [
        ("a string", ["x", "y"], pa.string_view()),
        ("a binary", [b"x", b"y"], pa.binary_view()),
        ("a timestamp", [NOON, NOON + timedelta(days=1)], pa.timestamp("ns", "UTC")),
        ("a decimal(5,2)", [Decimal("1.50"), Decimal("2.50")], pa.decimal128(5, 2)),
        ("a array<string>", [["x"], ["y", None]], pa.list_(pa.string_view())),
        ("a struct<b:string>", [{"b": "x"}, {"b": "y"}], pa.struct([("b", pa.string_view())])),
        ("a map<string,int>", [[("x", 1)], [("y", 2)]], pa.map_(pa.string(), pa.int32())),
    ],
)
def test_dictionaries_count_as_their_values(
    client: Client, ddl: str, entries: list[Any], kind: pa.DataType
):
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1]), pa.array(entries, kind))
    client.create_queue("d", schema=ddl)

    client.put_many(
        "d", pa.table({"a": column, "_key": pa.array(list("xyxy")).dictionary_encode()})
    )

    expected = [dict(each) if ddl.startswith("a map") else each for each in entries]
    first, second = expected
    assert values(client, "d") == [{"a": each} for each in (second, None, first, second)]
    assert [each.key for each in client.peek("d")] == [b"x", b"y", b"x", b"y"]


def test_an_entry_of_a_dictionary_must_fit_if_a_row_has_it(client: Client):
    entries = pa.array([300, 1])
    client.create_queue("d", schema="a tinyint")

    with pytest.raises(MessageError, match=r"'a', row 1 .*: 300 of type bigint does not fit"):
        client.put_many(
            "d", pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([1, 0]), entries)})
        )
    client.put_many("d", pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([1]), entries)}))

    assert values(client, "d") == [{"a": 1}]


def test_nulls_among_the_entries_of_a_dictionary_are_nulls(client: Client):
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None]))
    client.create_queue("d", schema="a string")
    client.create_queue("full", schema="a string not null")

    client.put_many("d", pa.table({"a": column}))

    assert values(client, "d") == [{"a": "x"}, {"a": None}]
    with pytest.raises(MessageError, match=r"'a', row 1 .*: it is null"):
        client.put_many("full", pa.table({"a": column}))


def test_headers_of_a_table_have_each_name_once(client: Client):
    client.create_queue("d", schema="a int")
    headers = pa.array([[("h", "1")], [("h", "1"), ("h", "2")]], pa.map_(pa.string(), pa.string()))

    with pytest.raises(MessageError, match=r"row 1 .* has a header twice: 'h'"):
        client.put_many("d", pa.table({"a": [1, 2], "_headers": headers}))

    assert client.peek("d") == []


def test_a_row_of_dicts_with_a_key_twice_is_refused(client: Client):
    client.create_queue("d", schema="a map<string,int>")
    table = pa.table({"a": pa.array([[("x", 1), ("x", 2)]], pa.map_(pa.string(), pa.int32()))})

    with pytest.raises(MessageError, match=r"'a', row 0 .*: the key 'x' appears twice"):
        client.put_many("d", table)
    with pytest.raises(MessageError, match="appears twice"):
        client.put("d", {"a": [("x", 1), ("x", 2)]})

    assert client.peek("d") == []


@pytest.mark.parametrize("column", ["`a\0b` int", "`\0` int", "c array<struct<`b\0`:int>>"])
def test_a_name_with_a_nul_character_is_refused(client: Client, store: CountingStore, column: str):
    with pytest.raises(OptionError, match="has a NUL character in its name"):
        client.create_queue("d", schema=column)
    client.create_queue("e", schema="z int")
    with pytest.raises(OptionError, match="has a NUL character in its name"):
        alter_queue(store, "e", schema=f"z int, {column}")
