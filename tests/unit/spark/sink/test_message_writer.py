from __future__ import annotations

import json
import pickle
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from cassieq_spark.client import Client
from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    ConnectError,
    NotFoundError,
    OptionError,
    QueueStateError,
    SchemaError,
)
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range
from cassieq_spark.queues import alter_queue, create_queue
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.sink import message_writer, query
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_queue
from tests.support.dying import publish_some
from tests.unit.partitions.scene import KEYS

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


def committing(**options: str) -> message_writer.MessageStreamWriter:
    """As Spark commits a batch: with the data source that it made when the query began."""
    copy = pickle.loads(pickle.dumps(CassieqDataSource({"queue": "q", **options})))
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


# -- a batch is known by its plan -------------------------------------------------------------

KEYED = StructType().add("key", StringType()).add("value", BinaryType())
_SOURCE = {"topic": {"0": 17}}


class Query:
    """A query with a checkpoint, into queue ``q``; each run is a new driver."""

    def __init__(self, folder: Path, store: CountingStore, told: dict[str, str]) -> None:
        self.store, self._told, self.folder = store, told, folder
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True)
        (folder / "metadata").write_text('{"id":"q1"}')
        self.options: dict[str, Any] = {"checkpointLocation": str(folder)}

    def plan(self, batch: int, offset: object = _SOURCE, at: int = 0) -> None:
        """As Spark logs a batch before it runs."""
        self._told["streaming.sql.batchId"] = str(batch)
        log = f'v1\n{{"batchTimestampMs":{at}}}\n{json.dumps(offset)}'
        (self.folder / "offsets" / str(batch)).write_text(log)

    def commit(self, batch: int) -> None:
        (self.folder / "commits" / str(batch)).write_text("v1\n{}")

    def writer(self, schema: StructType = VALUES) -> message_writer.MessageStreamWriter:
        options = {"queue": "q", **self.options}
        return CassieqDataSource(options).streamWriter(schema, overwrite=False)

    def run(self, *tasks: pa.RecordBatch, schema: StructType = VALUES) -> None:
        writer = pickle.loads(pickle.dumps(self.writer(schema)))
        batch = int(self._told["streaming.sql.batchId"])
        done = [writer.write(iter([rows])) for rows in tasks]
        committing(**self.options).commit(done, batch)

    def values(self) -> list[Any]:
        with Client.from_store(self.store) as client:
            return [each.value for each in client.peek("q", max=1000)]


@pytest.fixture
def told(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    told = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "0"}
    context = SimpleNamespace(getLocalProperty=told.get, partitionId=lambda: 0)
    monkeypatch.setattr(query, "TaskContext", SimpleNamespace(get=lambda: context))
    return told


@pytest.fixture
def planned_query(tmp_path: Path, store: CountingStore, told: dict[str, str]) -> Query:
    make_queue(store)
    return Query(tmp_path / "checkpoint", store, told)


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([each.encode() for each in values], pa.binary())})


def keyed(*keys: str) -> pa.RecordBatch:
    values = pa.array([each.encode() for each in keys], pa.binary())
    return pa.record_batch({"key": pa.array(keys, pa.string()), "value": values})


WITH_IDS = StructType().add("value", BinaryType()).add("unique_id", StringType())


def with_ids(ids: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"x"] * len(ids)), "unique_id": pa.array([*ids])})


def test_a_process_that_commits_batch_after_batch_reads_its_unique_ids_once(planned_query: Query):
    alter_queue(planned_query.store, "q", deduplicate=timedelta(minutes=5))
    cost = []
    for batch, ids in enumerate(["ab", "bc", "cd"]):
        planned_query.plan(batch, {"topic": {"0": batch}})
        done = planned_query.writer(WITH_IDS).write(iter([with_ids(ids)]))
        planned_query.store.reset()
        committing(**planned_query.options).commit([done], batch)
        cost.append((planned_query.store.cas_count, planned_query.store.read_count))

    assert cost == [(1, 1)] * 3
    assert len(planned_query.values()) == 4


def test_the_unique_ids_of_a_keyspace_that_is_gone_are_forgotten(
    planned_query: Query, monkeypatch: pytest.MonkeyPatch
):
    anew = MemoryStore()
    alter_queue(planned_query.store, "q", deduplicate=timedelta(minutes=5))
    queue = create_queue(anew, "q", deduplicate=timedelta(minutes=5))
    planned_query.plan(0)
    planned_query.run(with_ids("ab"), schema=WITH_IDS)
    monkeypatch.setattr(message_writer, "open_store", lambda _: anew)

    planned_query.run(with_ids("ba"), schema=WITH_IDS)

    assert Ledger(anew, queue.queue_id).read_head().next == 2


def test_a_replay_by_the_same_plan_is_skipped_whatever_its_rows_are(planned_query: Query):
    planned_query.plan(0)
    planned_query.run(rows("a", "b"), rows("c"))

    for replay in ((rows("x"),), (rows("y", "z"), rows()), (rows(),)):
        planned_query.run(*replay)

    assert planned_query.values() == [b"a", b"b", b"c"]
    planned_query.commit(0)
    planned_query.plan(1)
    planned_query.run(rows("d"))
    assert planned_query.values() == [b"a", b"b", b"c", b"d"]


def test_another_plan_of_the_number_is_refused_before_its_tasks_run(planned_query: Query):
    """A checkpoint that was restored from a copy of before the batch was planned."""
    planned_query.plan(0)
    planned_query.run(rows("a"))

    planned_query.plan(0, at=1)

    with pytest.raises(BatchChangedError, match=r"another plan .* nothing was published"):
        planned_query.writer()
    planned_query.options["failOnChangedBatch"] = "false"
    planned_query.run(rows("a", "b"))
    assert planned_query.values() == [b"a"]


def test_a_checkpoint_of_two_batches_ago_is_refused_before_its_tasks_run(planned_query: Query):
    planned_query.plan(7)
    planned_query.run(rows("a"))
    (planned_query.folder / "offsets" / "7").unlink()

    planned_query.plan(6)

    with pytest.raises(BatchOrderError, match="up to batch 7"):
        planned_query.writer()


def test_a_batch_whose_plan_can_be_read_no_more_is_refused(planned_query: Query):
    planned_query.plan(0)
    planned_query.run(rows("a"))
    del planned_query.options["checkpointLocation"]

    with pytest.raises(BatchChangedError, match="plan of this one cannot be read"):
        planned_query.run(rows("a"))


def test_a_batch_that_was_published_without_its_plan_is_told_by_its_content(planned_query: Query):
    """By an earlier release, or as the checkpoint could not be read."""
    location = planned_query.options.pop("checkpointLocation")
    planned_query.plan(0)
    planned_query.run(rows("a", "b"), rows("c"))
    planned_query.options["checkpointLocation"] = location

    planned_query.run(rows("c", "b"), rows("a"))
    with pytest.raises(BatchChangedError, match="another content"):
        planned_query.run(rows("x"))

    assert planned_query.values() == [b"a", b"b", b"c"]


def test_a_plan_of_another_batch_than_that_of_the_task_counts_for_nothing(
    planned_query: Query, told: dict[str, str]
):
    planned_query.plan(0)
    writer = planned_query.writer()
    told["streaming.sql.batchId"] = "1"

    (written,) = writer.write(iter([rows("a")])).written

    assert (written.batch.batch_id, written.is_fresh) == (1, False)  # type: ignore[union-attr]
    assert written.fingerprint.rows == 1


def test_with_a_plan_no_row_is_hashed_and_no_task_reads_the_sink(planned_query: Query):
    planned_query.plan(0)
    planned_query.store.reset()

    writer = planned_query.writer()
    planning = planned_query.store.read_count
    written = [each for _ in range(8) for each in writer.write(iter([rows("a")])).written]

    assert planning == 2, "the queue, and the row of the sink"
    assert planned_query.store.read_count == planning
    assert {each.fingerprint.rows for each in written} == {0}


def test_a_write_inside_foreach_batch_is_known_by_the_plan_too(planned_query: Query):
    options = {"queue": "q", "exactlyOnce": "batch", **planned_query.options}

    def write(*values: str) -> None:
        writer = CassieqDataSource(options).writer(VALUES, overwrite=False)
        writer.commit([writer.write(iter([rows(*values)]))])  # type: ignore[list-item]

    planned_query.plan(0)
    write("a")
    write("b", "c")
    planned_query.plan(0, at=1)

    with pytest.raises(BatchChangedError, match="another plan"):
        write("a")
    assert planned_query.values() == [b"a"]


# -- several partitions: their publishes are not one --------------------------------------------


@pytest.fixture
def dealt(tmp_path: Path, store: CountingStore, told: dict[str, str]) -> Query:
    create_queue(store, "q", partitions=4, bucket_size=8, chunk_size=4)
    return Query(tmp_path / "checkpoint", store, told)


def test_with_a_plan_a_batch_reads_the_sink_once_per_partition(dealt: Query):
    dealt.plan(0)
    dealt.store.reset()

    dealt.run(keyed(KEYS[0][0]), keyed(KEYS[0][0], KEYS[2][0]), schema=KEYED)

    assert dealt.store.cas_count == 2
    # The queue and each sink's row when it is planned; head and sink of each publish.
    assert dealt.store.read_count == 1 + 4 + 2


def test_a_replay_whose_rows_go_elsewhere_is_skipped_if_all_of_the_batch_is_there(dealt: Query):
    dealt.plan(0)
    dealt.run(keyed(KEYS[0][0], KEYS[2][0]), schema=KEYED)

    dealt.run(keyed(KEYS[1][0], KEYS[3][0]), schema=KEYED)
    dealt.run(keyed(KEYS[1][0], KEYS[0][0]), keyed(KEYS[2][1]), schema=KEYED)
    dealt.run(keyed(), schema=KEYED)

    assert sorted(dealt.values()) == sorted(key.encode() for key in (KEYS[0][0], KEYS[2][0]))


def publish_half(query: Query, rows_of_task: pa.RecordBatch, *, partition: int) -> None:
    """Publish a batch, but for the driver's death after its publish to one partition."""
    written = pickle.loads(pickle.dumps(query.writer(KEYED))).write(iter([rows_of_task])).written
    some = [each for each in written if each.queue_id.endswith(f".{partition}")]
    publish_some(query.store, written, some)


def test_a_batch_that_was_published_in_part_is_completed_with_rows_of_the_same_keys(dealt: Query):
    dealt.plan(0)
    both = (KEYS[0][0], KEYS[2][0])
    publish_half(dealt, keyed(*both), partition=0)
    assert dealt.values() == [both[0].encode()]

    values = pa.array([b"other", b"values"], pa.binary())
    dealt.run(pa.record_batch({"key": pa.array(both), "value": values}), schema=KEYED)

    assert sorted(dealt.values()) == sorted([both[0].encode(), b"values"])


@pytest.mark.parametrize("keys", [(KEYS[0][0], KEYS[1][0]), (KEYS[0][1], KEYS[0][0]), ()])
def test_a_batch_that_was_published_in_part_is_not_completed_with_other_rows(
    dealt: Query, keys: tuple[str, ...]
):
    """The row of the other partition would be lost, or be there twice."""
    dealt.plan(0)
    publish_half(dealt, keyed(KEYS[0][0], KEYS[2][0]), partition=0)

    with pytest.raises(BatchChangedError, match="keys that are the same in a replay"):
        dealt.run(keyed(*keys), schema=KEYED)

    assert dealt.values() == [KEYS[0][0].encode()]


# -- a queue as the source: a published batch is replayed whole ----------------------------------


def test_the_replay_of_a_published_batch_is_whole_however_often_it_comes(
    planned_query: Query, store: CountingStore
):
    source = create_queue(store, "source", max_deliveries=4)
    with Client.from_store(store) as client:
        client.put_many("source", [str(number) for number in range(20)])

    def reader() -> QueueReader:
        request = LeaseRequest(lease=LEASE)
        return QueueReader(store, source, "g", starting="earliest", request=request)

    first = initial_offset("source", "g")
    end = reader().next_batch(first, limit=10)
    planned_query.plan(0, end)
    planned_query.run(rows("a"))

    for _ in range(8):
        restarted = reader()
        ((task,),) = restarted.tasks(end, messages_per_task=100)
        pieces = [(piece.offsets, piece.deliveries) for piece in task.pieces]
        assert pieces == [(Range(0, 10), 1)]
        planned_query.run(rows("a"))

    following = restarted.next_batch(end, limit=10)
    ((task,),) = restarted.tasks(following, messages_per_task=100)
    assert [piece.offsets for piece in task.pieces] == [Range(10, 20)]
    assert planned_query.values() == [b"a"]


def test_a_source_in_another_keyspace_is_told_of(
    planned_query: Query, caplog: pytest.LogCaptureFixture
):
    lease = {"group": "g", "lease": str(UUID(int=1)), "queue_id": "elsewhere@1", "v": 1}
    planned_query.plan(0, lease)
    planned_query.run(rows("a"))

    planned_query.run(rows("b"))

    assert planned_query.values() == [b"a"]
    told = [each for each in caplog.records if each.action == query.NOT_KEPT_WHOLE]  # type: ignore[attr-defined]
    assert len(told) == 1


@pytest.mark.parametrize(
    "refusal", [BatchChangedError, BatchOrderError, SchemaError], ids=lambda each: each.__name__
)
def test_what_a_refused_batch_has_leased_is_given_back_uncounted(
    planned_query: Query, store: CountingStore, refusal: type[Exception]
):
    """However often a supervisor starts the query again with a wrong checkpoint."""
    planned_query.plan(1)
    planned_query.run(rows("a"))
    source = create_queue(store, "source", max_deliveries=2)
    with Client.from_store(store) as client:
        client.put_many("source", [str(number) for number in range(20)])
    batch = {BatchChangedError: 1, BatchOrderError: 0, SchemaError: 2}[refusal]
    schema = StructType().add("values", BinaryType()) if refusal is SchemaError else VALUES
    (planned_query.folder / "offsets" / "1").unlink()

    for _ in range(4):
        reader = QueueReader(
            store, source, "g", starting="earliest", request=LeaseRequest(lease=LEASE)
        )
        end = reader.next_batch(initial_offset("source", "g"), limit=10)
        planned_query.plan(batch, end)
        with pytest.raises(refusal):
            planned_query.writer(schema)

    with Client.from_store(store) as client:
        taken = client.receive("source", "g", max=20)
    assert [(each.value, each.delivery_count) for each in taken] == [
        (str(number).encode(), 1) for number in range(20)
    ]


def test_what_is_published_in_part_is_not_given_back(dealt: Query, store: CountingStore):
    """The replay must have the same messages, once the cause of the refusal is gone."""
    source = create_queue(store, "source")
    with Client.from_store(store) as client:
        client.put_many("source", [str(number) for number in range(20)])
    reader = QueueReader(
        store, source, "g", starting="earliest", request=LeaseRequest(lease=LEASE)
    )
    dealt.plan(0, reader.next_batch(initial_offset("source", "g"), limit=10))
    publish_half(dealt, keyed(KEYS[0][0], KEYS[2][0]), partition=0)

    with pytest.raises(SchemaError):
        dealt.writer(StructType().add("values", BinaryType()))

    with Client.from_store(store) as client:
        assert [each.value for each in client.receive("source", "g", max=20)] == [
            str(number).encode() for number in range(10, 20)
        ]


def test_a_source_in_another_keyspace_gives_back_itself(
    planned_query: Query, caplog: pytest.LogCaptureFixture
):
    planned_query.plan(0)
    planned_query.run(rows("a"))
    lease = {"group": "g", "lease": str(UUID(int=1)), "queue_id": "elsewhere@1", "v": 1}
    planned_query.plan(0, lease)

    with pytest.raises(BatchChangedError):
        planned_query.writer()

    told = [each for each in caplog.records if each.action == query.NOT_GIVEN_BACK]  # type: ignore[attr-defined]
    assert len(told) == 1


def test_what_is_wrong_with_a_write_is_said_first(planned_query: Query):
    """Whatever the checkpoint says, and although nothing of the write is known yet."""
    planned_query.plan(0)
    source = CassieqDataSource({"queue": "q", **planned_query.options})

    with pytest.raises(OptionError, match="can only be appended to"):
        source.streamWriter(VALUES, overwrite=True)


def test_while_cassandra_is_away_nothing_is_given_back(
    planned_query: Query, store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    """The same query, restarted, has the same batch then."""
    source = create_queue(store, "source")
    with Client.from_store(store) as client:
        client.put_many("source", ["a"])
    reader = QueueReader(
        store, source, "g", starting="earliest", request=LeaseRequest(lease=LEASE)
    )
    planned_query.plan(0, reader.next_batch(initial_offset("source", "g"), limit=10))

    def is_away(*_: object, **__: object) -> None:
        raise ConnectError("away")

    monkeypatch.setattr(message_writer, "read_lasts", is_away)
    with pytest.raises(ConnectError):
        planned_query.writer()

    with Client.from_store(store) as client:
        assert client.receive("source", "g", max=20) == []
