"""A queue that says so stops at a dead message, in that partition, until somebody decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.client import Message
from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.consumer import STOPPED, Consumer
from cassieq_spark.dead_letters.stopped import Resume
from cassieq_spark.errors import ContentionError, OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.model import OnDead, Range, Ranges
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.queues import alter_queue, read_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.partition_reader import BEHIND_GROUP
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.protocol import Delete, Insert, Op
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store

DAY = timedelta(days=1)
FIRST = initial_offset("orders", "billing")
#: A key of partition 0 and one of partition 1, of two.
HERE, THERE = (
    next(key for key in map(str, range(100)) if partition_of_key(key, 2) == partition)
    for partition in (0, 1)
)


class StoppingQueue:
    """The queue ``orders`` with an order, of which messages may be delivered three times."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(self.memory)
        self.store = CountingStore(self.trouble)
        self.client = Client.from_store(self.store)
        chosen = {"on_dead": "stop", "max_deliveries": 3} | settings
        order = "strict" if partitions == 1 else "key"
        self.client.create_queue("orders", order=order, partitions=partitions, **chosen)
        self.client.create_group("orders", "billing")

    def put(self, *values: str, key: str | None = None) -> None:
        self.client.put_many("orders", [NewMessage(value, key) for value in values])

    def receive(self, most: int = 1) -> list[Message]:
        return self.client.receive("orders", "billing", max=most)

    def values(self) -> list[str]:
        """What can be received and acked, one after the other."""
        values = []
        while messages := self.receive():
            values.append(text(messages[0]))
            self.client.ack(*messages)
        return values

    def resume(self, how: str, **options: Any) -> int:
        count = self.client.resume_group("orders", "billing", how, **options)
        # A message that is retried at the very moment of its death is due a moment later.
        self.clock.advance(timedelta(milliseconds=1))
        return count

    def dead(self) -> list[str]:
        return [text(each) for each in self.client.peek("orders.dead", max=100)]


def text(message: Any) -> str:
    return bytes(message.value).decode()


@pytest.fixture
def stopped() -> StoppingQueue:
    """Of three messages the second is dead, and the first one is settled."""
    queue = StoppingQueue()
    queue.put("a", "b", "c")
    queue.client.ack(*queue.receive())
    queue.client.reject(*queue.receive(), reason="no such account")
    return queue


def test_nothing_behind_a_dead_message_is_delivered(stopped: StoppingQueue):
    stopped.put("d")

    assert stopped.receive(10) == []
    stopped.clock.advance(DAY)
    assert stopped.receive(10) == []
    assert stopped.dead() == []


def test_a_message_that_was_delivered_too_often_stops_the_group_too():
    queue = StoppingQueue()
    queue.put("a", "b")
    for _ in range(3):
        (message,) = queue.receive()
        assert text(message) == "a"
        queue.clock.advance(timedelta(seconds=61))

    assert queue.receive(10) == []
    (found,) = queue.client.stopped("orders", "billing")
    assert (found.monotons, found.deliveries) == (Ranges.of(Range(0, 1)), 3)
    assert "3 deliveries" in found.reason


def test_a_retried_message_is_delivered_again_and_counted_anew(stopped: StoppingQueue):
    assert stopped.resume("retry") == 1

    (message,) = stopped.receive()
    assert (text(message), message.delivery_count) == ("b", 1)
    stopped.client.ack(message)
    assert stopped.values() == ["c"]
    assert stopped.dead() == []


@pytest.mark.parametrize("how", ["retry", "drop"])
def test_a_group_is_resumed_although_another_one_takes_a_dead_message_away_meanwhile(
    how: str, monkeypatch: pytest.MonkeyPatch
):
    queue = StoppingQueue()
    queue.put("a", "b", "c")
    for message in queue.receive(2):
        queue.client.reject(message, reason=f"no {text(message)}")
    found = read_queue(queue.store, "orders")
    group = Consumer(queue.store, found, "billing").group
    carry_out = ConsumerGroup.cas

    def after_another(group: ConsumerGroup, ops: Sequence[Op]) -> bool:
        monkeypatch.setattr(ConsumerGroup, "cas", carry_out)
        assert group.remove_dead(other)
        return group.cas(ops)

    (other,) = [row for row in group.read().waiting if row.reason == "no b"]
    monkeypatch.setattr(ConsumerGroup, "cas", after_another)

    assert queue.resume(how) == 1

    assert queue.values() == (["a", "c"] if how == "retry" else ["c"])


def test_a_message_that_is_dead_lettered_steps_aside(stopped: StoppingQueue):
    assert stopped.resume("dead-letter") == 1

    assert stopped.values() == ["c"]
    assert stopped.dead() == ["b"]
    (letter,) = stopped.client.peek("orders.dead", max=1)
    assert dict(letter.headers or ())["cassieq.reason"] == "no such account"


def test_a_message_that_is_dropped_is_settled_without_a_copy(stopped: StoppingQueue):
    assert stopped.resume("drop") == 1

    assert stopped.values() == ["c"]
    assert stopped.dead() == []
    assert stopped.client.stats("orders").groups[0].depth == 0


@pytest.mark.parametrize(
    ("how", "values"), [("retry", ["a", "b"]), ("dead-letter", ["b"]), ("drop", ["b"])]
)
def test_a_message_that_is_released_at_its_last_delivery_stops_the_group_and_is_shown(
    how: str, values: list[str], caplog: pytest.LogCaptureFixture
):
    queue = StoppingQueue(partitions=2)
    queue.put("a", "b", key=HERE)
    for _ in range(3):
        queue.client.release(*queue.receive())
    for _ in range(3):
        assert queue.receive(10) == []

    (found,) = queue.client.stopped("orders", "billing")
    assert (found.partition, found.monotons, found.deliveries) == (0, Ranges.of(Range(0, 1)), 3)
    assert "3 deliveries" in found.reason
    (group,) = queue.client.groups("orders")
    assert (group.stopped, group.dead, group.due) == (1, 1, 0)
    records = [each for each in caplog.records if getattr(each, "action", "") == STOPPED]
    assert ["messages 0 (not settled in 3 deliveries" in each.message for each in records] == [
        True
    ]
    assert queue.resume(how) == 1
    queue.clock.advance(timedelta(seconds=1))
    assert queue.values() == values


def test_a_message_that_waits_when_the_limit_of_deliveries_falls_stops_the_group_and_is_shown():
    queue = StoppingQueue()
    queue.put("a", "b")
    for _ in range(2):
        queue.client.release(*queue.receive())
    alter_queue(queue.store, "orders", max_deliveries=2)

    assert queue.receive(10) == []

    assert [each.deliveries for each in queue.client.stopped("orders", "billing")] == [2]


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.REACHED_ONE])
def test_a_lost_answer_leaves_a_message_that_was_released_too_often_marked_and_logged(
    fault: Fault, caplog: pytest.LogCaptureFixture
):
    queue = StoppingQueue()
    queue.put("a", "b")
    for _ in range(3):
        queue.client.release(*queue.receive())

    queue.trouble.fault = fault
    for _ in range(2):
        assert queue.receive(10) == []

    assert len(queue.client.stopped("orders", "billing")) == 1
    records = [each for each in caplog.records if getattr(each, "action", "") == STOPPED]
    assert len(records) == 1


def test_a_reader_that_cannot_mark_messages_as_dead_tries_one_and_the_next_reader_marks_all():
    queue = StoppingQueue(max_deliveries=1)
    queue.put("a", "b", "c")
    for delay, message in enumerate(queue.receive(3)):
        queue.client.release(message, delay=timedelta(seconds=delay))
    queue.clock.advance(timedelta(seconds=5))

    lost = Mock(side_effect=ContentionError("lost"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsumerGroup, "mark_dead", lost)
        assert queue.receive(10) == []
    assert lost.call_count == 1
    assert queue.client.stopped("orders", "billing") == []

    assert queue.receive(10) == []
    assert len(queue.client.stopped("orders", "billing")) == 3


@pytest.mark.parametrize("how", list(Resume))
def test_a_group_is_resumed_once(stopped: StoppingQueue, how: Resume):
    assert stopped.resume(how) == 1
    assert stopped.resume(how) == 0


def test_the_other_partitions_go_on():
    queue = StoppingQueue(partitions=2)
    queue.put("bad", "behind", key=HERE)
    queue.client.reject(*queue.receive(), reason="bad")
    queue.put("other", key=THERE)

    assert queue.values() == ["other"]
    (found,) = queue.client.stopped("orders", "billing")
    assert found.partition == 0


def test_one_partition_is_resumed_alone():
    queue = StoppingQueue(partitions=2)
    for key in (HERE, THERE):
        queue.put("bad", "behind", key=key)
    for _ in range(2):
        queue.client.reject(*queue.receive(), reason="bad")

    assert queue.resume("drop", partition=1) == 1

    assert [each.partition for each in queue.client.stopped("orders", "billing")] == [0]
    assert queue.values() == ["behind"]


def test_what_was_given_back_before_the_dead_message_is_delivered():
    queue = StoppingQueue()
    queue.put("a", "b", "c")
    first, second, third = queue.receive(3)
    queue.client.reject(second, reason="bad")
    queue.client.ack(third)
    queue.client.release(first)

    assert queue.values() == ["a"]
    assert [each.monotons for each in queue.client.stopped("orders", "billing")] == [
        Ranges.of(Range(1, 2))
    ]


def test_the_repair_leaves_the_message_and_says_where_the_group_stands(stopped: StoppingQueue):
    stopped.clock.advance(DAY)

    report = run_once(stopped.store, scan=DriverScan(stopped.store))

    assert not report.failed
    (note,) = report.queues["orders"].notes
    assert "group 'billing' stops at the dead messages 1" in note
    assert "cassieq group resume orders billing --retry | --dead-letter" in note
    assert stopped.dead() == []
    assert stopped.resume("retry") == 1
    assert stopped.values() == ["b", "c"]


def test_a_message_at_which_a_group_stops_does_not_expire():
    queue = StoppingQueue(expire_after=timedelta(hours=1))
    queue.put("a", "b")
    queue.client.reject(*queue.receive(), reason="bad")
    # A block is as young as its id says, which has the time of this machine.
    queue.clock.advance(datetime.now(UTC) - queue.clock.now + DAY)

    assert not run_once(queue.store, scan=DriverScan(queue.store)).failed

    assert queue.resume("retry") == 1
    assert queue.values() == ["a"]


def test_a_message_that_cannot_be_dead_lettered_is_an_error_and_the_group_stays(
    stopped: StoppingQueue,
):
    stopped.client.delete_queue("orders.dead", force=True)

    with pytest.raises(QueueStateError, match="still stops there"):
        stopped.resume("dead-letter")

    assert stopped.receive(10) == []
    assert stopped.resume("retry") == 1


@pytest.mark.parametrize("how", ["retry", "drop"])
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.REACHED_ONE])
def test_a_lost_answer_leaves_the_group_stopped_or_resumed(
    stopped: StoppingQueue, how: str, fault: Fault
):
    stopped.trouble.fault = fault
    done = stopped.resume(how)
    done += stopped.resume(how)

    assert done == 1
    assert stopped.values() == (["b", "c"] if how == "retry" else ["c"])


def test_a_row_that_waits_again_is_not_deleted_with_the_dead_one_of_the_same_moment(
    stopped: StoppingQueue, monkeypatch: pytest.MonkeyPatch
):
    sent: list[Op] = []
    carry_out = ConsumerGroup.carry_out

    def spy(group: ConsumerGroup, ops: Sequence[Op], went_in: Any) -> bool:
        sent.extend(ops)
        return carry_out(group, ops, went_in)

    monkeypatch.setattr(ConsumerGroup, "carry_out", spy)
    stopped.resume("retry")

    (deleted,) = (op.row for op in sent if isinstance(op, Delete))
    (inserted,) = (op.row for op in sent if isinstance(op, Insert))
    assert deleted != inserted


def test_figures_say_in_how_many_partitions_a_group_has_stopped():
    queue = StoppingQueue(partitions=2)
    queue.put("bad", "behind", key=HERE)
    before = queue.client.stats("orders").groups[0].stopped
    queue.client.reject(*queue.receive(), reason="bad")
    stats = queue.client.stats("orders")

    assert before == 0
    assert (stats.groups[0].stopped, stats.groups[0].dead, stats.groups[0].depth) == (1, 1, 2)
    assert [each.groups[0].stopped for each in stats.partitions] == [1, 0]


def test_the_log_says_once_that_a_group_has_stopped(
    stopped: StoppingQueue, caplog: pytest.LogCaptureFixture
):
    caplog.clear()
    queue = StoppingQueue()
    queue.put("a", "b")
    queue.client.reject(*queue.receive(), reason="bad")
    for _ in range(3):
        queue.receive()

    records = [each for each in caplog.records if getattr(each, "action", "") == STOPPED]
    assert [each.levelno for each in records] == [logging.ERROR]
    assert "stops at the dead messages 0 (bad)" in records[0].message
    assert "cassieq group resume orders billing" in records[0].message


# -- streams --------------------------------------------------------------------------------------


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_backoff, "LONGEST_PAUSE", timedelta(0))
    monkeypatch.setattr(idle_backoff, "SHORTEST_PAUSE", timedelta(0))


def reader_of(queue: StoppingQueue) -> QueueReader:
    definition = read_queue(queue.store, "orders")
    return QueueReader(
        queue.store,
        definition,
        "billing",
        starting="earliest",
        request=LeaseRequest(lease=LEASE),
    )


@pytest.mark.usefixtures("no_pauses")
def test_a_stream_says_when_it_starts_that_its_group_has_stopped(
    stopped: StoppingQueue, caplog: pytest.LogCaptureFixture
):
    caplog.clear()
    reader = reader_of(stopped)

    for _ in range(3):
        assert reader.next_batch(FIRST, limit=None) is FIRST

    actions = [getattr(each, "action", "") for each in caplog.records]
    # The checkpoint of this query is new.
    assert actions == [BEHIND_GROUP, STOPPED]


@pytest.mark.usefixtures("no_pauses")
def test_a_stream_whose_group_has_stopped_reads_the_head_of_the_ledger_only(
    stopped: StoppingQueue, monkeypatch: pytest.MonkeyPatch
):
    seconds = 1000.0
    clock = type("Clock", (), {"monotonic": lambda: seconds, "sleep": lambda _: None})
    monkeypatch.setattr(idle_backoff, "time", clock)
    reader = reader_of(stopped)
    assert reader.next_batch(FIRST, limit=None) is FIRST
    stopped.store.reset()

    for _ in range(10):
        assert reader.next_batch(FIRST, limit=None) is FIRST

    assert stopped.store.read_count + stopped.store.serial_read_count == 10
    assert stopped.store.cas_count == 0


@pytest.mark.usefixtures("no_pauses")
def test_a_stream_goes_on_once_its_group_is_resumed(
    stopped: StoppingQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(0))
    reader = reader_of(stopped)
    assert reader.next_batch(FIRST, limit=None) is FIRST

    stopped.resume("retry")

    assert reader.next_batch(FIRST, limit=None) is not FIRST


# -- what is refused ------------------------------------------------------------------------------


def test_a_queue_without_an_order_cannot_stop():
    memory, _ = make_clocked_store()
    client = Client.from_store(memory)

    with pytest.raises(OptionError, match="give order 'key' or 'strict'"):
        client.create_queue("orders", on_dead="stop")


def test_a_choice_that_there_is_not_is_named_with_the_nearest():
    memory, _ = make_clocked_store()

    with pytest.raises(OptionError, match=r"one of continue, stop, not 'sotp'.*'stop'"):
        Client.from_store(memory).create_queue("orders", order="key", on_dead="sotp")


def test_a_queue_that_does_not_stop_has_nothing_to_resume():
    queue = StoppingQueue(on_dead="continue")

    with pytest.raises(OptionError, match="does not stop at dead messages"):
        queue.resume("retry")
    assert queue.client.stopped("orders", "billing") == []


def test_a_queue_without_a_dead_letter_queue_moves_nothing_there():
    queue = StoppingQueue(drop_dead=True)
    queue.put("a")
    queue.client.reject(*queue.receive(), reason="bad")

    with pytest.raises(OptionError, match="has no dead-letter queue"):
        queue.resume("dead-letter")
    assert queue.resume("drop") == 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda queue: queue.resume("try it"), "retry, dead-letter, drop, not 'try it'"),
        (lambda queue: queue.resume("retry", partition=1), "partition"),
        (lambda queue: queue.client.resume_group("orders", "nobody", "retry"), "does not exist"),
        (lambda queue: queue.client.stopped("orders", "nobody"), "does not exist"),
    ],
    ids=["choice", "partition", "resumed group", "group"],
)
def test_bad_arguments_change_nothing(
    stopped: StoppingQueue, call: Callable[[StoppingQueue], object], told: str
):
    with pytest.raises((OptionError, QueueStateError), match=told):
        call(stopped)

    assert len(stopped.client.stopped("orders", "billing")) == 1


def test_the_choice_is_kept_and_can_be_altered(stopped: StoppingQueue):
    assert stopped.client.queue("orders").on_dead is OnDead.STOP


def test_after_a_purge_a_group_has_not_stopped_although_nobody_has_read_for_it_yet(
    stopped: StoppingQueue,
):
    client = stopped.client
    client.purge_queue("orders", force=True)

    assert [each.group for each in client.groups("orders")] == ["billing"]
    assert client.stopped("orders", "billing") == []
    assert client.resume_group("orders", "billing", "retry") == 0
    with pytest.raises(QueueStateError, match="does not exist"):
        client.stopped("orders", "another")
