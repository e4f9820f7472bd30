"""Programs that create a queue at the same moment, and lose the race."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from cassieq_spark.client import Client
from cassieq_spark.errors import ExistsError, NotFoundError
from cassieq_spark.queues import create_queue, delete_queue, read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.spark.sink import message_writer
from cassieq_spark.spark.sink.message_writer import MessageWriter
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, Partition, Rows, Slice
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import CountingStore, WrappedStore


class BehindStore(WrappedStore):
    """Only serial reads show what others have done to queues since it was made."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._then = {row["name"]: row for row in store.scan(Table.QUEUE)}

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        found = super().read_rows(partition, which, serial=serial)
        if serial or partition.table is not Table.QUEUE:
            return found
        row = self._then.get(partition.key[0])
        return Rows([] if row is None else [row], found.now, found.sure_now)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def behind(store: MemoryStore) -> BehindStore:
    """A store that another program overtakes: it creates ``trips``."""
    behind = BehindStore(store)
    Client.from_store(store).create_queue("trips", schema="vendor string")
    return behind


def test_a_program_that_is_told_that_a_queue_exists_finds_it(
    store: MemoryStore, behind: BehindStore
):
    with pytest.raises(ExistsError):
        Client.from_store(behind).create_queue("trips", schema="vendor string")

    assert read_queue(behind, "trips") == read_queue(store, "trips")
    assert Client.from_store(behind).put("trips", {"vendor": "a"}) == 0


def test_a_queue_that_was_created_again_is_found(store: MemoryStore):
    create_queue(store, "orders")
    delete_queue(store, "orders")
    behind = BehindStore(store)

    create_queue(store, "orders")

    assert read_queue(behind, "orders").version == 2


def test_a_write_with_create_queue_that_loses_the_race_uses_the_queue(
    store: MemoryStore, behind: BehindStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(message_writer, "open_store", lambda _: behind)
    options = SinkOptions.parse({"queue": "trips", "createQueue": "true"})

    writer: Any = MessageWriter(
        options, StructType([StructField("vendor", StringType())]), overwrite=False
    )

    assert writer._queue == read_queue(store, "trips")


def test_a_queue_is_created_whose_dead_letter_queue_another_program_has_made(
    store: MemoryStore, behind: BehindStore
):
    made = Client.from_store(behind).create_queue(
        "rides", schema="vendor string", dead_letter_queue="trips.dead"
    )

    assert read_queue(store, "rides") == made


def test_a_queue_that_is_there_costs_a_plain_read_and_one_that_is_not_a_serial_one_more(
    store: MemoryStore, behind: BehindStore
):
    counting = CountingStore(store)

    read_queue(counting, "trips")
    assert (counting.read_count, counting.serial_read_count) == (1, 0)

    with pytest.raises(NotFoundError):
        read_queue(counting, "nothing")
    assert (counting.read_count, counting.serial_read_count) == (2, 1)
