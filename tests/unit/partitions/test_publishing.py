from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from cassieq_spark import Client, NewMessage, parallel
from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    InvariantError,
    MessageError,
    NotAppliedError,
    OptionError,
    OutcomeUnknownError,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Mark, Once, mark, once_of_key
from cassieq_spark.model import Chunk, Positions, QueueId, Range, SinkBatch
from cassieq_spark.producer.partitioned import publish_all, write_messages
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.producer.publisher import Written
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.sink import message_writer, query
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import make_clocked_store
from tests.support.dying import publish_some
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue, by_key, text

ALL = [key for keys in KEYS.values() for key in keys]
ROWS = StructType().add("key", StringType()).add("value", BinaryType())


@pytest.fixture
def queue() -> PartitionedQueue:
    return PartitionedQueue()


def rows(*keys: str | None) -> pa.RecordBatch:
    values = [f"{key}:".encode() for key in keys]
    return pa.record_batch({"key": pa.array(keys, pa.string()), "value": values})


def partitions_of(written: list[Written]) -> list[str]:
    return [each.queue_id for each in written]


def test_messages_of_a_key_are_in_one_partition_in_order(queue: PartitionedQueue):
    queue.put(*ALL, *reversed(ALL), *ALL)

    found = queue.client.peek("orders", max=1000)

    assert len(found) == 24
    for message in found:
        assert message.partition == partition_of_key(message.key or b"", PARTITIONS)
    assert by_key(map(text, found)) == {key: [f"{key}:{n}" for n in range(3)] for key in ALL}
    for partition in range(PARTITIONS):
        monotons = [each.monoton for each in found if each.partition == partition]
        assert monotons == [*range(6)]


def test_a_put_tells_the_monoton_in_its_partition(queue: PartitionedQueue):
    one, other = KEYS[2]

    assert queue.client.put("orders", "a", key=one) == 0
    assert queue.client.put("orders", "b", key=other) == 1
    assert queue.client.put("orders", "c", key=KEYS[0][0]) == 0


def test_puts_of_many_tell_where_they_are(queue: PartitionedQueue):
    queue.put(*KEYS[1])
    messages = [NewMessage("x", key) for key in (*KEYS[1], *KEYS[3])]

    put = queue.client.put_many("orders", messages)

    assert isinstance(put, Positions)
    assert put.by_partition == {1: Range(2, 4), 3: Range(0, 2)}
    assert len(put) == 4
    assert str(put) == "[2, 4) of partition 1, [0, 2) of partition 3"
    nothing = queue.client.put_many("orders", [])
    assert nothing is not None
    assert len(nothing) == 0


def test_a_producer_tells_each_message_where_it_is(queue: PartitionedQueue):
    with queue.client.producer("orders") as producer:
        puts = [producer.put(NewMessage(f"{key}:{n}", key)) for n in range(3) for key in ALL]
    told = [put.result() for put in puts]

    found = {text(each): each.monoton for each in queue.client.peek("orders", max=1000)}
    assert told == [found[f"{key}:{n}"] for n in range(3) for key in ALL]


def test_messages_without_a_key_stay_together(queue: PartitionedQueue):
    queue.client.put_many("orders", [str(n) for n in range(100)])

    found = queue.client.peek("orders", max=1000)

    assert [text(each) for each in found] == [str(n) for n in range(100)]
    assert len({each.partition for each in found}) == 1


def test_a_write_costs_an_lwt_for_each_partition_that_it_touches(queue: PartitionedQueue):
    queue.store.reset()
    queue.put(*KEYS[0], *KEYS[2])
    assert queue.store.cas_count == 2

    queue.store.reset()
    queue.put(KEYS[3][0])
    assert queue.store.cas_count == 1


class _AllAtOnce(WrappedStore):
    """Takes chunks only while as many others write some."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._meeting = threading.Barrier(PARTITIONS)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        self._meeting.wait(timeout=30)
        super().write_chunks(queue_id, block, chunks)


def test_a_task_writes_to_its_partitions_at_the_same_time(queue: PartitionedQueue):
    written = write_messages(_AllAtOnce(queue.store), queue.definition, [rows(*ALL, *ALL)])

    publish_all(queue.store, written)
    assert len(queue.receive()) == 2 * len(ALL)


def test_what_can_t_be_stored_is_told_by_its_row_before_anything_is_written(
    queue: PartitionedQueue,
):
    keys = pa.array([*ALL, "bad"])
    values = pa.array([*(b"v" for _ in ALL), None], pa.binary())
    batches = [rows(*ALL), pa.record_batch({"key": keys, "value": values})]

    with pytest.raises(MessageError, match="row 16 "):
        write_messages(queue.store, queue.definition, batches)


def test_delays_are_kept_in_each_partition(queue: PartitionedQueue):
    delays = pa.array([0, 60] * 4, pa.int64())
    batch = rows(*ALL).append_column("delay", delays)

    written = write_messages(queue.store, queue.definition, [batch])
    publish_all(queue.store, written)

    assert [len(each.blocks) for each in written] == [2, 2, 2, 2]
    assert {text(each).partition(":")[0] for each in queue.receive()} == set(ALL[::2])


def test_nothing_is_delayed_where_order_is_by_key():
    queue = PartitionedQueue("key")

    with pytest.raises(OptionError, match="is ordered by key, so a delayed message"):
        queue.client.put_many("orders", ["a"], delay=queue.client.queue("orders").lease)


# -- once -----------------------------------------------------------------------------------------

BATCH = SinkBatch("query:q", 7)


def write(queue: PartitionedQueue, *keys: str | None, batch: SinkBatch = BATCH) -> list[Written]:
    return write_messages(queue.store, queue.definition, [rows(*keys)], batch)


def test_a_batch_is_published_once(queue: PartitionedQueue):
    publish_all(queue.store, write(queue, *ALL))

    replayed = publish_all(queue.store, write(queue, *ALL))

    assert {each.monotons for each in replayed.values()} == {None}
    assert len(queue.peek()) == 8


def test_a_replay_after_a_crash_half_way_publishes_what_is_missing_and_nothing_twice(
    queue: PartitionedQueue,
):
    written = write(queue, *ALL)
    # The process dies after two of the four publishes.
    publish_some(queue.store, written, written[1:3])

    replay = write(queue, *reversed(ALL[:4])) + write(queue, *ALL[4:])
    done = publish_all(queue.store, replay)

    assert sorted(key for key in by_key(queue.peek())) == sorted(ALL)
    assert len(queue.peek()) == 8
    assert [done[each.queue_id].monotons is None for each in written] == [
        False, True, True, False,
    ]  # fmt: skip


def test_the_rows_of_a_batch_without_keys_are_found_again_in_whichever_tasks_they_come(
    queue: PartitionedQueue,
):
    """A source may cut its tasks otherwise when a query is restarted."""
    values = [f"{n}".encode() for n in range(10)]
    key = pa.nulls(10, pa.string())
    whole = pa.record_batch({"key": key, "value": values})
    store, definition = queue.store, queue.definition
    publish_all(store, write_messages(store, definition, [whole], BATCH))

    tasks = [write_messages(store, definition, [whole.slice(at, 5)], BATCH) for at in (0, 5)]
    publish_all(store, [each for task in tasks for each in task])

    assert len(queue.peek()) == 10


def test_another_batch_of_the_same_number_is_refused_before_anything_is_published(
    queue: PartitionedQueue,
):
    publish_all(queue.store, write(queue, *KEYS[2]))

    with pytest.raises(BatchChangedError):
        publish_all(queue.store, write(queue, *ALL, KEYS[2][0]))

    assert len(queue.peek()) == 2


def test_a_part_of_a_batch_under_its_number_is_refused_although_it_is_there(
    queue: PartitionedQueue,
):
    """As of an older checkpoint, whose batches are cut smaller: the rest would come again."""
    publish_all(queue.store, write(queue, *ALL))

    with pytest.raises(BatchChangedError):
        publish_all(queue.store, write(queue, *KEYS[2]))

    assert len(queue.peek()) == 8


def test_a_batch_of_an_older_checkpoint_is_refused(queue: PartitionedQueue):
    publish_all(queue.store, write(queue, *ALL))

    with pytest.raises(BatchOrderError):
        write(queue, *ALL, batch=SinkBatch("query:q", 6))


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("keys", [[None], [None, *ALL[:2]]], ids=["without", "some without"])
def test_rows_without_keys_of_an_older_checkpoint_are_refused_in_whichever_partition_they_are_due(
    queue: PartitionedQueue, number: int, keys: list[str | None]
):
    publish_all(queue.store, write(queue, None))

    with pytest.raises(BatchOrderError, match="published up to batch 7"):
        publish_all(queue.store, write(queue, *keys, batch=SinkBatch("query:q", number)))

    assert len(queue.peek()) == 1


@pytest.mark.parametrize("number", range(8))
def test_a_batch_whose_rows_have_other_keys_now_is_refused(queue: PartitionedQueue, number: int):
    publish_all(queue.store, write(queue, KEYS[0][0]))
    error = BatchChangedError if number == BATCH.batch_id else BatchOrderError

    with pytest.raises(error):
        publish_all(queue.store, write(queue, KEYS[1][0], batch=SinkBatch("query:q", number)))

    assert len(queue.peek()) == 1


def test_a_batch_whose_rows_have_other_keys_now_is_completed_if_that_is_allowed(
    queue: PartitionedQueue,
):
    publish_all(queue.store, write(queue, KEYS[0][0]))

    publish_all(queue.store, write(queue, KEYS[1][0]), fail_on_changed=False)

    assert len(queue.peek()) == 2


def test_a_lower_version_without_keys_is_refused():
    client = Client.from_store(make_clocked_store()[0])
    client.create_queue("p", partitions=2)
    client.put_many("p", ["a"], txn_app_id="x", txn_version=2)

    with pytest.raises(BatchOrderError):
        client.put_many("p", ["a"], txn_app_id="x", txn_version=1)

    assert len(client.peek("p", max=10)) == 1


@pytest.mark.parametrize(
    ("keys", "batch", "reads"),
    [
        ([None], BATCH, 1 + 3),
        ([None, *ALL], BATCH, 4),
        ([KEYS[0][0]], BATCH, 1 + 3),
        ([*ALL], BATCH, 4),
        ([None], once_of_key("k"), 1 + 3),
        ([*ALL], once_of_key("k"), 4),
    ],
)
def test_a_batch_with_a_name_is_looked_for_in_the_partitions_that_it_leaves_out(
    queue: PartitionedQueue, keys: list[str | None], batch: SinkBatch | Once | None, reads: int
):
    tasks = [write_messages(queue.store, queue.definition, [rows(*keys)], batch) for _ in range(3)]
    queue.store.reset()

    publish_all(queue.store, [each for task in tasks for each in task])

    assert queue.store.read_count == reads


def test_a_put_under_a_key_is_completed_by_repeating_it(queue: PartitionedQueue):
    once = once_of_key("k")
    messages = rows(*ALL, None)
    written = write_messages(queue.store, queue.definition, [messages], once)
    publish_some(queue.store, written, written[:2])

    for _ in range(2):
        again = write_messages(queue.store, queue.definition, [messages], once)
        publish_all(queue.store, again)

    assert len(queue.peek()) == 9


def put_under_key(queue: PartitionedQueue, *messages: NewMessage) -> object:
    return queue.client.put_many("orders", messages, idempotency_key="k")


def test_a_put_that_is_repeated_with_other_keys_is_refused_in_whichever_partition_it_is_due(
    queue: PartitionedQueue,
):
    """As of a program that makes its keys in each attempt anew."""
    put_under_key(queue, *(NewMessage("pay", key) for key in KEYS[0]))

    for key in ALL:
        with pytest.raises(
            BatchChangedError, match=r"used for a put with another content; nothing"
        ):
            put_under_key(queue, NewMessage("pay", key))

    assert queue.peek() == ["pay", "pay"]
    assert put_under_key(queue, *(NewMessage("pay", key) for key in KEYS[0])) is None


@pytest.mark.parametrize("part", range(1, PARTITIONS))
def test_another_put_under_a_key_of_which_a_part_is_published_is_refused_and_the_first_completed(
    queue: PartitionedQueue, part: int
):
    once = once_of_key("k")
    written = write_messages(queue.store, queue.definition, [rows(*ALL)], once)
    publish_some(queue.store, written, written[:part])

    for other in (ALL[:-1], [*ALL, None], KEYS[3]):
        again = write_messages(queue.store, queue.definition, [rows(*other)], once)
        with pytest.raises(BatchChangedError):
            publish_all(queue.store, again)
    assert len(queue.peek()) == 2 * part

    again = write_messages(queue.store, queue.definition, [rows(*ALL)], once)
    publish_all(queue.store, again)
    assert sorted(by_key(queue.peek())) == sorted(ALL)
    assert len(queue.peek()) == 8


def test_what_an_earlier_release_put_under_a_key_is_known_by_its_partitions(
    queue: PartitionedQueue,
):
    """It left a mark without a fingerprint."""
    ledger = Ledger(queue.memory, queue.definition.of_partition(0).queue_id)
    assert ledger.cas([mark(once_of_key("k"), Mark.PUBLISHED)])

    assert put_under_key(queue, NewMessage("pay", KEYS[0][0])) is None
    with pytest.raises(BatchChangedError):
        put_under_key(queue, NewMessage("pay", KEYS[1][0]))
    assert queue.peek() == []


def test_tasks_of_two_versions_publish_nothing(queue: PartitionedQueue):
    before = write(queue, *KEYS[0])
    queue.client.purge_queue("orders")

    with pytest.raises(InvariantError, match="several versions"):
        publish_all(queue.store, before + write(queue, *KEYS[1]))

    assert queue.peek() == []


def fence(queue: PartitionedQueue, partition: int) -> None:
    """Let the partition refuse publishes."""
    ledger = Ledger(queue.memory, queue.definition.of_partition(partition).queue_id)
    ledger.raise_fence(ledger.read_head(), datetime(2100, 1, 1, tzinfo=UTC))


def test_an_error_of_one_partition_says_that_a_batch_with_a_name_is_completed(
    queue: PartitionedQueue,
):
    written = write_messages(queue.store, queue.definition, [rows(*ALL)], BATCH)
    fence(queue, 2)

    with pytest.raises(NotAppliedError) as refused:
        publish_all(queue.store, written)

    assert "goes to 4 partitions, each of which becomes visible by itself" in "".join(
        refused.value.__notes__
    )
    assert len(queue.peek()) == 6


def test_a_write_without_a_name_that_some_partitions_published_is_not_to_be_repeated(
    queue: PartitionedQueue,
):
    written = write_messages(queue.store, queue.definition, [rows(*ALL)])
    fence(queue, 2)

    with pytest.raises(OutcomeUnknownError, match="3 of the 4 partitions") as partly:
        publish_all(queue.store, written)

    assert not partly.value.retryable
    assert len(queue.peek()) == 6


def test_a_write_that_no_partition_published_may_be_repeated(queue: PartitionedQueue):
    written = write_messages(queue.store, queue.definition, [rows(*ALL)])
    for partition in range(PARTITIONS):
        fence(queue, partition)

    with pytest.raises(NotAppliedError):
        publish_all(queue.store, written)

    assert queue.peek() == []


def test_a_partition_that_cannot_publish_fails_no_puts_to_others(queue: PartitionedQueue):
    fence(queue, 2)
    with queue.client.producer("orders") as producer:
        puts = {key: producer.put(NewMessage(f"{key}:", key)) for key in ALL}
        errors = {key: put.exception(60) for key, put in puts.items()}

    refused = {key for key, error in errors.items() if error is not None}
    assert refused == set(KEYS[2])
    assert all(isinstance(errors[key], NotAppliedError) for key in refused)
    assert sorted(by_key(queue.peek())) == sorted(set(ALL) - refused)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST, Fault.REACHED_ONE])
def test_a_lost_answer_is_resolved_in_its_partition(
    queue: PartitionedQueue, fault: Fault, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parallel, "AT_ONCE", 1)
    written = write_messages(queue.store, queue.definition, [rows(*ALL)], BATCH)
    queue.trouble.fault = fault

    publish_all(queue.store, written)

    assert queue.trouble.troubles == 1
    assert sorted(by_key(queue.peek())) == sorted(ALL)
    assert len(queue.peek()) == 8


def test_a_stream_publishes_to_the_partitions_of_its_keys(
    queue: PartitionedQueue, monkeypatch: pytest.MonkeyPatch
):
    told = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "0"}
    context = SimpleNamespace(getLocalProperty=told.get, partitionId=lambda: 0)
    monkeypatch.setattr(message_writer, "open_store", lambda _: queue.store)
    monkeypatch.setattr(query, "TaskContext", SimpleNamespace(get=lambda: context))

    def writer() -> message_writer.MessageStreamWriter:
        return CassieqDataSource({"queue": "orders"}).streamWriter(ROWS, overwrite=False)

    done = [writer().write(iter([rows(*part)])) for part in (ALL[:5], ALL[5:], ())]
    commit = writer().commit
    queue.store.reset()
    commit(done, 0)

    assert (queue.store.cas_count, queue.store.read_count) == (4, 4)
    assert sorted(by_key(queue.peek())) == sorted(ALL)
    # As a driver that died before Spark's commit log.
    writer().commit([writer().write(iter([rows(*ALL)]))], 0)
    assert len(queue.peek()) == 8
