from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import parallel
from cassieq_spark.client import LeaseRequest
from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.model import Range, id_of
from cassieq_spark.spark.progress import progress
from cassieq_spark.spark.source.offsets import split_partitions
from cassieq_spark.spark.source.queue_reader import QueueReader, share_out, sum_of_reports
from tests.support.builders import LEASE
from tests.unit.partitions.scene import FIRST, KEYS, PARTITIONS, PartitionedQueue, Time, by_key

ALL = [key for keys in KEYS.values() for key in keys]
SECOND, MOMENT = timedelta(seconds=1), timedelta(milliseconds=1)


@pytest.fixture(params=["none", "key"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(idle_backoff, "LONGEST_PAUSE", timedelta(0))
    monkeypatch.setattr(idle_backoff, "SHORTEST_PAUSE", timedelta(0))
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(0))
    queue = PartitionedQueue(request.param)
    yield queue
    for reader in queue.readers:
        reader.stop()


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(idle_backoff, "LONGEST_PAUSE", timedelta(0))
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(0))
    queue = PartitionedQueue("key")
    yield queue
    for reader in queue.readers:
        reader.stop()


def drain(
    queue: PartitionedQueue, reader: QueueReader, done: Mapping[str, Any], limit: int | None
) -> list[list[str]]:
    """The values of each batch until there are no more."""
    batches = []
    while (end := reader.next_batch(done, limit=limit)) is not done:
        batches.append([value for task in queue.batch(reader, end) for value in task])
        done = end
    return batches


@pytest.mark.parametrize("limit", [None, 1, 5, 100])
def test_a_reader_gets_all_messages_of_all_partitions_in_order_by_key(
    queue: PartitionedQueue, limit: int | None
):
    queue.put(*ALL, *ALL)
    queue.put(*ALL, of="more")

    batches = drain(queue, queue.reader(), FIRST, limit)

    values = [value for batch in batches for value in batch]
    assert by_key(values) == {key: [f"{key}:0", f"{key}:1", f"{key}:more0"] for key in ALL}
    assert len(values) == 24
    assert queue.client.stats("orders").groups[0].depth == 0
    if limit is not None:
        assert max(map(len, batches)) <= max(limit, PARTITIONS)


def test_a_batch_costs_an_lwt_for_each_partition_that_it_touches(queue: PartitionedQueue):
    reader = queue.reader()
    queue.put(*KEYS[1], *KEYS[2])
    queue.store.reset()

    first = reader.next_batch(FIRST, limit=None)
    assert queue.store.cas_count == 2
    queue.put(*KEYS[3])
    queue.store.reset()
    # Two acks, and a lease of another partition.
    second = reader.next_batch(first, limit=None)
    assert queue.store.cas_count == 3
    assert set(split_partitions(second, queue.definition, "billing")[3]) >= {"lease"}
    queue.store.reset()
    assert reader.next_batch(second, limit=None) is second
    assert queue.store.cas_count == 1
    queue.store.reset()
    assert reader.next_batch(second, limit=None) is second
    assert queue.store.cas_count == 0


def test_the_end_of_a_batch_is_text_with_keys_in_order(queue: PartitionedQueue):
    queue.put(*ALL)
    end = queue.reader().next_batch(FIRST, limit=None)

    assert json.dumps(end) == json.dumps(end, sort_keys=True)
    assert [number for number, _ in end["partitions"]] == [0, 1, 2, 3]
    (told,) = progress({"sources": [{"startOffset": FIRST, "endOffset": end}]})
    assert (told.queue, told.group, told.messages) == ("orders", "billing", 8)
    assert told.batch == (Range(0, 2),) * 4


def test_what_a_crash_between_two_leases_leaves_comes_back_with_the_lease(
    queue: PartitionedQueue,
):
    queue.put(*ALL)
    # The process died after two of four leases, before Spark knew of the batch.
    for partition in (1, 2):
        consumer = Consumer(queue.store, queue.definition.of_partition(partition), "billing")
        queue.reader()
        consumer.poll(LeaseRequest(lease=LEASE))
    reader = queue.reader()

    values = [value for batch in drain(queue, reader, FIRST, None) for value in batch]
    assert sorted(by_key(values)) == sorted((*KEYS[0], *KEYS[3]))
    queue.clock.advance(LEASE + SECOND)
    values += [value for batch in drain(queue, reader, FIRST, None) for value in batch]

    assert sorted(by_key(values)) == sorted(ALL)
    assert len(values) == 8


def test_a_replayed_batch_has_the_same_messages_of_all_partitions(queue: PartitionedQueue):
    queue.put(*ALL, *ALL)
    first = queue.reader().next_batch(FIRST, limit=8)
    before = queue.batch(queue.readers[0], first)

    restarted = queue.reader()
    restarted.aim()
    after = queue.batch(restarted, first)

    assert after == before
    rest = drain(queue, restarted, first, None)
    values = [value for batch in [*before, *rest] for value in batch]
    assert by_key(values) == {key: [f"{key}:0", f"{key}:1"] for key in ALL}


def test_stopping_gives_back_the_messages_of_all_partitions(queue: PartitionedQueue):
    queue.put(*ALL)
    reader = queue.reader()
    reader.next_batch(FIRST, limit=None)

    reader.stop()
    queue.clock.advance(MOMENT)

    other = queue.reader()
    values = [value for batch in drain(queue, other, FIRST, None) for value in batch]
    assert sorted(by_key(values)) == sorted(ALL)


def test_aimed_at_what_is_there_nothing_later_is_delivered(queue: PartitionedQueue):
    queue.put(*KEYS[0], *KEYS[1])
    reader = queue.reader()
    reader.aim()
    queue.put(*ALL, of="later")

    batches = drain(queue, reader, FIRST, None)

    assert by_key(value for batch in batches for value in batch) == {
        key: [f"{key}:0"] for key in (*KEYS[0], *KEYS[1])
    }


def test_in_order_by_key_a_partition_is_one_task(ordered: PartitionedQueue):
    ordered.put(*ALL, *ALL, *ALL)
    reader = ordered.reader()

    end = reader.next_batch(FIRST, limit=None)
    tasks = ordered.batch(reader, end, messages_per_task=2)

    assert [len(task) for task in tasks] == [6, 6, 6, 6]
    assert len(ordered.batch(reader, end, messages_per_task=12)) == 2


def test_in_order_by_key_one_partition_waits_and_the_others_go_on(ordered: PartitionedQueue):
    ordered.put(*ALL)
    held = ordered.receive()
    ordered.put(*ALL, of="more")
    ordered.client.ack(*(each for each in held if each.partition != 2))
    reader = ordered.reader()
    reader.aim()

    values = [value for batch in drain(ordered, reader, FIRST, None) for value in batch]
    others = [key for key in ALL if key not in KEYS[2]]
    assert by_key(values) == {key: [f"{key}:more0"] for key in others}

    first, second = (each for each in held if each.partition == 2)
    ordered.client.ack(first)
    assert drain(ordered, reader, FIRST, None) == []
    ordered.client.ack(second)
    values = [value for batch in drain(ordered, reader, FIRST, None) for value in batch]
    assert by_key(values) == {key: [f"{key}:more0"] for key in KEYS[2]}


def test_a_limit_of_messages_in_flight_is_divided(queue: PartitionedQueue):
    queue.put(*ALL, *ALL, *ALL)

    reader = queue.reader(max_in_flight=8)
    end = reader.next_batch(FIRST, limit=None)

    assert sum(len(task) for task in queue.batch(reader, end)) == 8


def test_too_few_messages_of_all_partitions_together_are_waited_for(queue: PartitionedQueue):
    queue.put(*ALL)
    reader = queue.reader(min_messages=5)
    first = reader.next_batch(FIRST, limit=None)
    queue.put(*KEYS[0], *KEYS[1], of="few")

    assert reader.next_batch(first, limit=None) is first
    queue.put(KEYS[2][0], of="enough")
    second = reader.next_batch(first, limit=None)

    assert sum(len(task) for task in queue.batch(reader, second)) == 5


def test_the_messages_of_partitions_that_are_looked_at_at_different_times_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(parallel, "AT_ONCE", 1)
    queue = PartitionedQueue()
    time = Time(monkeypatch, queue)
    time.tick = 2 * MOMENT
    queue.put(*ALL)
    reader = queue.reader(min_messages=10)
    done = reader.next_batch(FIRST, limit=None)
    began = time.monotonic()
    while time.monotonic() < began + 0.3:
        assert reader.next_batch(done, limit=None) is done
    queue.put(*ALL, *ALL)
    began = time.monotonic()

    while (end := reader.next_batch(done, limit=None)) is done:
        assert time.monotonic() < began + 2

    assert sum(len(task) for task in queue.batch(reader, end)) == 16
    reader.stop()


def test_metrics_are_sums(queue: PartitionedQueue):
    queue.put(*ALL, *ALL)
    reader = queue.reader()
    assert reader.report() is None
    reader.next_batch(FIRST, limit=4)

    told = reader.report()

    assert told is not None
    assert (told["next"], told["leased"], told["backlog"]) == (16, 4, 12)


def test_an_idle_reader_tells_its_metrics_without_a_read_or_a_thread(
    queue: PartitionedQueue, monkeypatch: pytest.MonkeyPatch
):
    queue.put(*ALL)
    reader = queue.reader()
    done = reader.next_batch(FIRST, limit=None)
    assert reader.next_batch(done, limit=None) is done
    queue.store.reset()

    with monkeypatch.context() as patched:
        patched.setattr(parallel, "Thread", None)
        told = reader.report()

    assert told is not None
    assert (told["next"], told["leased"], told["backlog"]) == (8, 0, 0)
    assert queue.store.read_count + queue.store.serial_read_count == 0


@pytest.mark.parametrize(
    "damage",
    [
        {"partitions": [[4, {}]]},
        {"partitions": [["x", {}]]},
        {"partitions": 7},
        {"partitions": [[0]]},
        {"partitions": [[0, {"lease": "no"}]]},
    ],
)
def test_a_damaged_offset_is_refused(queue: PartitionedQueue, damage: dict[str, object]):
    queue.put(*ALL)
    reader = queue.reader()
    end = reader.next_batch(FIRST, limit=None)

    with pytest.raises(QueueStateError, match="damaged offset"):
        reader.next_batch({**end, **damage}, limit=None)


def test_the_checkpoint_of_another_queue_is_refused(queue: PartitionedQueue):
    queue.put(*ALL)
    reader = queue.reader()
    end = reader.next_batch(FIRST, limit=None)

    for changed, problem in (
        ({"group": "other"}, "belongs to group 'other'"),
        ({"queue_id": "bills@1"}, "of queue 'bills'"),
        ({"queue_id": "orders@2"}, "purged or created again"),
        ({"v": 9}, "offsets of version 9"),
    ):
        with pytest.raises(QueueStateError, match=problem):
            reader.next_batch({**end, **changed}, limit=None)


def test_an_error_of_one_partition_leaves_nothing_that_is_held_for_ever(
    queue: PartitionedQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parallel, "AT_ONCE", 1)
    queue.put(*ALL)
    reader = queue.reader()
    poll = Consumer.poll

    def failing(consumer: Consumer, *args: Any, **named: Any) -> Any:
        if consumer.queue.partition == 2:
            raise QueueStateError("no")
        return poll(consumer, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "poll", failing)
        with pytest.raises(QueueStateError, match="no"):
            reader.next_batch(FIRST, limit=None)
    reader.stop()
    queue.clock.advance(MOMENT)

    values = [value for batch in drain(queue, queue.reader(), FIRST, None) for value in batch]
    assert sorted(by_key(values)) == sorted(ALL)


@pytest.mark.parametrize(
    ("limit", "wanted", "shares"),
    [
        (None, {0: 5, 1: None}, {0: None, 1: None}),
        (100, {0: 10, 1: 500, 2: 500}, {0: 10, 1: 45, 2: 45}),
        (100, {0: None, 1: 500}, {0: 50, 1: 50}),
        (100, {3: 7}, {3: 7}),
        (2, {0: 9, 1: 9, 2: 9, 3: 9}, {0: 1, 1: 1, 2: 1, 3: 1}),
        (10, {}, {}),
        (10, {0: 0, 1: 100}, {0: 5, 1: 5}),
    ],
)
def test_a_limit_is_shared_by_what_each_has(
    limit: int | None, wanted: dict[int, int | None], shares: dict[int, int | None]
):
    assert share_out(limit, wanted) == shares


def test_the_oldest_age_is_that_of_all_partitions():
    reports = [{"backlog": 3, "oldest_age_ms": 70, "v": 1}, {"backlog": 4, "v": 1}]

    assert sum_of_reports(reports) == {"backlog": 7, "oldest_age_ms": 70, "v": 1}


@pytest.mark.parametrize("least", [0, 10])
def test_an_idle_reader_of_16_partitions_makes_ten_reads_a_second_and_no_lwt(
    monkeypatch: pytest.MonkeyPatch, least: int
):
    queue = PartitionedQueue()
    queue.client.create_queue("wide", partitions=16)
    time = Time(monkeypatch, queue)
    definition = queue.client.queue("wide")
    reader = QueueReader(
        queue.store, definition, "g", starting="earliest", request=LeaseRequest(min_messages=least)
    )
    done = {"group": "g", "queue": "wide", "v": 1}
    while time.monotonic() < 60:
        assert reader.next_batch(done, limit=None) is done
    queue.store.reset()

    while time.monotonic() < 160:
        assert reader.next_batch(done, limit=None) is done

    assert queue.store.cas_count == 0
    assert queue.store.read_count <= 1000
    assert id_of("wide", 1, 3) == definition.of_partition(3).queue_id
    reader.stop()


def test_a_monoton_is_no_position_to_start_from_in_several_partitions(queue: PartitionedQueue):
    queue.put(*ALL)

    with pytest.raises(OptionError, match="monotons of its own"):
        QueueReader(queue.store, queue.definition, "billing", starting=1)

    assert queue.client.stats("orders").groups == ()
