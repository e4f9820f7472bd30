from __future__ import annotations

import pickle
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

from cassieq_spark.client import Client
from cassieq_spark.errors import NotFoundError, QueueStateError, SchemaError
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.sink import message_writer, query
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_queue

VALUES = StructType().add("value", BinaryType())
ROWS = pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    counting = CountingStore(MemoryStore())
    told = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "0"}
    context = SimpleNamespace(getLocalProperty=told.get, partitionId=lambda: 0)
    monkeypatch.setattr(message_writer, "open_store", lambda _: counting)
    monkeypatch.setattr(query, "TaskContext", SimpleNamespace(get=lambda: context))
    return counting


def planned(schema: StructType = VALUES) -> message_writer.MessageStreamWriter:
    """As Spark plans a batch: with a data source that it makes for that."""
    return CassieqDataSource({"queue": "q"}).streamWriter(schema, overwrite=False)


def committing() -> message_writer.MessageStreamWriter:
    """As Spark commits a batch: with the data source that it made when the query began."""
    copy = pickle.loads(pickle.dumps(CassieqDataSource({"queue": "q"})))
    return copy.streamWriter(VALUES, overwrite=False)


def test_a_commit_costs_an_lwt_and_a_read(store: CountingStore):
    make_queue(store)
    done = planned().write(iter([ROWS]))
    store.reset()

    committing().commit([done], 0)

    assert (store.cas_count, store.read_count, store.serial_read_count) == (1, 1, 0)
    with Client.from_store(store) as client:
        assert [each.value for each in client.peek("q")] == [b"a", b"b"]


@pytest.mark.parametrize("is_purged", [True, False], ids=["purged", "created again"])
def test_what_was_written_before_the_queue_was_made_anew_is_not_published(
    is_purged: bool, store: CountingStore
):
    make_queue(store)
    done = planned().write(iter([ROWS]))
    with Client.from_store(store) as client:
        if is_purged:
            client.purge_queue("q", force=True)
        else:
            client.delete_queue("q", force=True)
            client.create_queue("q")

        with pytest.raises(QueueStateError):
            committing().commit([done], 0)

        assert client.peek("q") == []
        # As the restarted query does.
        committing().commit([planned().write(iter([ROWS]))], 0)
        assert [each.value for each in client.peek("q")] == [b"a", b"b"]


def test_what_is_wrong_is_found_when_the_batch_is_planned(store: CountingStore):
    with pytest.raises(NotFoundError):
        planned()
    make_queue(store)

    with pytest.raises(SchemaError, match="values"):
        planned(StructType().add("values", BinaryType()))
