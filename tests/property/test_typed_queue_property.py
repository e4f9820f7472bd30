"""Whatever the columns, rows come out of a queue as they went in: by every way in, and out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cassieq_spark import Client
from cassieq_spark.errors import MessageError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.queues import alter_queue, create_queue, read_queue
from cassieq_spark.schemas.canonical import checked
from cassieq_spark.schemas.ddl import to_ddl
from cassieq_spark.schemas.evolution import present, without_place
from cassieq_spark.schemas.to_rows import to_dicts, to_json
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from tests.support.schemas import batches, histories, schemas

#: Each of them makes queues and their groups.
few = settings(
    max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow]
)

Put = Callable[[Client, pa.RecordBatch], None]


def as_a_table(client: Client, batch: pa.RecordBatch) -> None:
    client.put_many("q", pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]))


def as_dicts(client: Client, batch: pa.RecordBatch) -> None:
    client.put_many("q", to_dicts(batch))


def as_json(client: Client, batch: pa.RecordBatch) -> None:
    client.put_many("q", [json.dumps(row) for row in to_json(batch)])


def one_by_one(client: Client, batch: pa.RecordBatch) -> None:
    with client.producer("q") as producer:
        for row in to_dicts(batch):
            producer.put(row)


@st.composite
def filled(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows of any schema."""
    schema = checked(draw(schemas(depth=2)))
    return draw(batches(schema, min_size=1, max_size=6))


def client_of(schema: pa.Schema, chunk_size: int, partitions: int = 1) -> Client:
    store = MemoryStore()
    create_queue(
        store,
        "q",
        bucket_size=2 * chunk_size,
        chunk_size=chunk_size,
        max_deliveries=1,
        dead_letter_queue="d",
        schema=to_ddl(schema),
        partitions=partitions,
    )
    return Client.from_store(store)


def shown(values: Sequence[Any]) -> list[str]:
    """Not a number is not equal to itself."""
    return [repr(value) for value in values]


def read_by(store: Store, queue: QueueDefinition) -> list[dict[str, Any]]:
    """All messages, as a reader gets them that began with this definition."""
    found = []
    for part in queue.by_partition:
        ledger = Ledger(store, part.queue_id)
        every = Ranges.of(Range(0, ledger.read_head().next))
        for batch in fetch(store, part, find_pieces(ledger, every, deliveries=None)):
            found += to_dicts(batch.drop_columns(["_metadata"]))
    return found


def presented(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[dict[str, Any]]:
    """Rows of several versions as those of one."""
    return [row for each in batches for row in to_dicts(present(each, each.schema, schema))]


@few
@given(filled(), st.sampled_from([as_a_table, as_dicts, as_json, one_by_one]), st.integers(1, 4))
def test_rows_come_back_as_they_were_put_also_from_the_dead(
    batch: pa.RecordBatch, put: Put, chunk_size: int
):
    client = client_of(batch.schema, chunk_size)
    expected = shown(to_dicts(batch))

    put(client, batch)

    assert shown([each.value for each in client.peek("q", max=100)]) == expected
    received = client.receive("q", "g", max=100)
    assert shown([each.value for each in received]) == expected
    client.reject(*received, reason="no")
    client.receive("q", "g")
    assert shown([each.value for each in client.peek("d", max=100)]) == expected
    client.redrive(client.dead_letters("q"))
    again = client.receive("q", "g", max=100)
    assert shown([each.value for each in again]) == expected
    assert client.ack(*again) == []


@few
@given(st.data(), histories(), st.integers(1, 3))
def test_each_version_reads_what_all_versions_have_put(
    data: st.DataObject, versions: list[pa.Schema], partitions: int
):
    client = client_of(versions[0], 2, partitions)
    store, written, definitions = client._store, list[pa.RecordBatch](), []
    for schema in versions:
        alter_queue(store, "q", schema=to_ddl(schema))
        definitions.append(read_queue(store, "q"))
        batch = data.draw(batches(schema, min_size=1, max_size=2))
        as_a_table(client, batch)
        written.append(batch)

    found = [each.value for each in client.peek("q", max=100)]

    assert sorted(shown(found)) == sorted(shown(presented(written, versions[-1])))
    for schema, definition in zip(versions, definitions, strict=True):
        try:
            expected = presented(written, schema)
        except MessageError:
            with pytest.raises(MessageError):
                read_by(store, definition)
        else:
            assert sorted(shown(read_by(store, definition))) == sorted(shown(expected))


@few
@given(st.data(), histories())
def test_no_value_of_a_dead_letter_is_lost_whatever_columns_are_dropped_and_come_back(
    data: st.DataObject, versions: list[pa.Schema]
):
    """Each queue may have another version of the columns at each step."""
    client = client_of(versions[0], 2)
    store, history = client._store, iter(versions)
    current = next(history)
    last = versions[-1]

    def alter() -> pa.Schema:
        """Perhaps to the next version."""
        nonlocal current
        following = next(history, None) if data.draw(st.booleans()) else None
        if following is not None:
            alter_queue(store, "q", schema=to_ddl(following))
            current = following
        return current

    put_by = alter()
    batch = data.draw(batches(put_by, min_size=1, max_size=3))
    as_a_table(client, batch)
    alter()
    client.reject(*client.receive("q", "g", max=100), reason="no")
    client.receive("q", "g")
    # Back come the columns that it was written with, which no reader needs to know.
    assert len(client.peek("d", max=100)) == batch.num_rows, "its dead-letter queue has them"
    alter()
    for version in history:
        alter_queue(store, "q", schema=to_ddl(version))
    lost = without_place(batch, batch.schema, last)

    found = client.dead_letters("q")
    if lost:
        with pytest.raises(MessageError, match="has no such column"):
            client.redrive(found)
        assert client.dead_letters("q") == found
    client.redrive(found, drop_columns=bool(lost))

    again = client.receive("q", "g", max=100)
    expected = shown(presented([batch], last))
    assert shown([each.value for each in again]) == expected
    # What was not given another type is what was written, whatever happened to it in between.
    same = [name for name in batch.schema.names if batch.schema.field(name) in list(last)]
    for message, row in zip(again, to_dicts(batch), strict=True):
        assert shown([message.value[name] for name in same]) == shown([row[name] for name in same])


@few
@given(filled(), st.data())
def test_rows_of_which_one_does_not_fit_are_refused_together(
    batch: pa.RecordBatch, data: st.DataObject
):
    client = client_of(batch.schema, 2)
    rows = to_dicts(batch)
    place = data.draw(st.integers(0, len(rows)))
    rows.insert(place, data.draw(st.sampled_from([{"no such column": 1}, 5, "[", None])))

    try:
        client.put_many("q", rows)
    except (MessageError, TypeError):
        assert client.peek("q", max=10) == []
    else:
        raise AssertionError(rows)
    assert client.receive("q", "g", wait=timedelta(0)) == []
