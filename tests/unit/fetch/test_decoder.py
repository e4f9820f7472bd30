"""Chunks of a queue with a schema, whichever version has written them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.arrow.rows import TypedRows
from cassieq_spark.arrow.typed_chunks import TypedForm
from cassieq_spark.errors import MessageError, UnreadableError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Chunk, QueueDefinition, Range, Ranges
from cassieq_spark.queues import alter_queue, create_queue, delete_queue, read_queue
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore

#: Each may follow the one before.
VERSIONS = [
    "a int not null, b string",
    "a bigint not null, b string, c struct<x:int>",
    "a bigint, c struct<x:bigint,y:date>, d double",
]
#: What each version writes.
ROWS: list[dict[str, Any]] = [
    {"a": 0, "b": "zero"},
    {"a": 1, "b": "one", "c": {"x": 7}},
    {"a": 2, "c": {"x": 7, "y": None}, "d": 0.5},
]
#: What the reader of each version gets.
READ: list[list[dict[str, Any]]] = [
    [{"a": 0, "b": "zero"}, {"a": 1, "b": "one"}, {"a": 2, "b": None}],
    [
        {"a": 0, "b": "zero", "c": None},
        {"a": 1, "b": "one", "c": {"x": 7}},
        {"a": 2, "b": None, "c": {"x": 7}},
    ],
    [
        {"a": 0, "c": None, "d": None},
        {"a": 1, "c": {"x": 7, "y": None}, "d": None},
        {"a": 2, "c": {"x": 7, "y": None}, "d": 0.5},
    ],
]


class Scene:
    """A queue that had all versions, with a message of each; and its definition at each."""

    def __init__(self) -> None:
        self.store = CountingStore(MemoryStore())
        client = Client.from_store(self.store)
        self.definitions = [create_queue(self.store, "q", schema=VERSIONS[0])]
        client.put("q", ROWS[0])
        for schema, row in zip(VERSIONS[1:], ROWS[1:], strict=True):
            self.definitions.append(alter_queue(self.store, "q", schema=schema))
            client.put("q", row)
        self.store.reset()

    def read(
        self, queue: QueueDefinition, wanted: Range, columns: str | None = None
    ) -> list[dict[str, Any]]:
        """Messages as a reader gets them that began with this definition."""
        rows = None if columns is None else TypedRows("q", schema_of(columns), False)
        pieces = find_pieces(
            Ledger(self.store, queue.queue_id), Ranges.of(wanted), deliveries=None
        )
        batches = list(fetch(self.store, queue, pieces, rows))
        table = pa.Table.from_batches(batches)
        return [
            {name: row[name] for name in row if name != "_metadata"} for row in table.to_pylist()
        ]


@pytest.mark.parametrize("reader", range(3))
@pytest.mark.parametrize("writer", range(3))
def test_each_version_reads_what_each_wrote(reader: int, writer: int):
    scene = Scene()

    found = scene.read(scene.definitions[reader], Range(writer, writer + 1))

    assert found == [READ[reader][writer]]


@pytest.mark.parametrize("reader", range(3))
def test_a_newer_version_is_looked_up_once(reader: int):
    scene = Scene()

    assert scene.read(scene.definitions[reader], Range(0, 3)) == READ[reader]

    assert scene.store.serial_read_count == min(1, 2 - reader)


def test_a_newer_version_is_found_in_each_partition():
    store = MemoryStore()
    client = Client.from_store(store)
    before = create_queue(store, "q", schema=VERSIONS[0], partitions=2)
    alter_queue(store, "q", schema=VERSIONS[1])
    client.put_many("q", [NewMessage(ROWS[1], key=str(number)) for number in range(9)])

    found = []
    for part in before.by_partition:
        ledger = Ledger(store, part.queue_id)
        every = Ranges.of(Range(0, ledger.read_head().next))
        pieces = find_pieces(ledger, every, deliveries=None)
        found.append(sum(batch.num_rows for batch in fetch(store, part, pieces)))

    assert sum(found) == 9
    assert min(found) > 0


@pytest.mark.parametrize("columns", ["b string", "a int", "b string, a bigint"])
def test_a_part_of_the_columns_is_read_from_all_versions(columns: str):
    scene = Scene()

    found = scene.read(scene.definitions[0], Range(0, 3), columns)

    names = schema_of(columns).names
    assert found == [{name: row[name] for name in names} for row in READ[0]]


def test_a_value_that_does_not_fit_the_older_type_says_to_restart():
    scene = Scene()
    Client.from_store(scene.store).put("q", {"a": 2**40})

    with pytest.raises(MessageError, match=r"does not fit type int; a newer version.*restart the"):
        scene.read(scene.definitions[0], Range(3, 4))


def test_a_version_that_a_new_queue_of_the_name_has_is_not_that_of_the_old_one():
    scene = Scene()
    delete_queue(scene.store, "q")
    create_queue(scene.store, "q", schema="other string")
    alter_queue(scene.store, "q", schema="other string, more int")
    assert read_queue(scene.store, "q").queue_id == "q@2"

    with pytest.raises(UnreadableError, match="version 2, which the queue never had"):
        scene.read(scene.definitions[0], Range(1, 2))


@pytest.mark.parametrize("whole", [True, False])
def test_a_version_that_no_queue_has_is_unreadable(whole: bool):
    store = MemoryStore()
    queue = create_queue(store, "q", schema=VERSIONS[0])
    client = Client.from_store(store)
    client.put("q", ROWS[0])
    (block,) = Ledger(store, queue.queue_id).read_blocks()
    form = TypedForm(schema_of(VERSIONS[0]), 9)
    (row,) = form.assigned([pa.RecordBatch.from_pylist([ROWS[0]])])
    store.write_chunks(queue.queue_id, block.block, [Chunk(0, 0, 1, form.encode(row, "none"))])
    pieces = find_pieces(Ledger(store, queue.queue_id), Ranges.of(Range(0, 1)), deliveries=None)

    with pytest.raises(UnreadableError):
        list(fetch(store, queue, pieces, whole=whole))
