from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import Client
from cassieq_spark.client import Action
from cassieq_spark.errors import (
    MessageError,
    NotAppliedError,
    OptionError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import delete_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import delete_queue
from cassieq_spark.store.protocol import Op, Partition
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.faults import FakeClock

LEASE = timedelta(seconds=60)
MOMENT = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def test_messages_of_one_lease_are_acked_by_one_lwt(client: Client, store: CountingStore):
    client.put_many("q", map(str, range(10)))
    messages = client.receive("q", "g", max=10)
    store.reset()

    assert client.ack(*messages[:3], *(each.receipt for each in messages[6:])) == []

    assert (store.cas_count, store.read_count, store.serial_read_count) == (1, 3, 0)
    assert client.stats("q").groups[0].depth == 3


def test_leases_of_many_queues_and_groups_are_one_lwt_each(client: Client, store: CountingStore):
    client.create_queue("other")
    client.put_many("q", ["a", "b"])
    client.put("other", "c")
    held = [*client.receive("q", "g"), *client.receive("q", "g")]
    held += [*client.receive("q", "h"), *client.receive("other", "g")]
    store.reset()

    assert client.ack(*held) == []

    assert store.cas_count == 4
    assert client.stats("other").groups[0].depth == 0


def test_settling_twice_is_stale_and_harms_nobody(client: Client):
    client.put_many("q", ["a", "b"])
    first, second = client.receive("q", "g", max=2)
    client.ack(first)

    assert client.ack(first, second, first) == [first.receipt]
    assert client.release(second) == [second.receipt]
    assert client.receive("q", "g") == []


def test_what_went_to_others_meanwhile_is_stale(client: Client, clock: FakeClock):
    client.put("q", "a")
    (old,) = client.receive("q", "g")
    clock.advance(LEASE + MOMENT)
    (new,) = client.receive("q", "g")

    for settle in (client.ack, client.release):
        assert settle(old) == [old.receipt]
    assert client.extend(old, by=LEASE) == [old.receipt]
    assert client.reject(old, reason="late") == [old.receipt]
    assert client.replace(old, "b") == [old.receipt]
    assert client.ack(new) == []
    assert [each.value for each in client.peek("q")] == [b"a"]


def test_released_messages_come_again_after_their_delay(client: Client, clock: FakeClock):
    client.put_many("q", ["a", "b"])
    first, second = client.receive("q", "g", max=2)

    client.release(first)
    client.release(second, delay=5 * SECOND)

    (again,) = client.receive("q", "g", max=2)
    assert (again.monoton, again.delivery_count) == (0, 2)
    assert client.receive("q", "g") == []
    clock.advance(5 * SECOND)
    assert [each.monoton for each in client.receive("q", "g")] == [1]


def test_extended_messages_are_held_longer_and_the_others_are_not(
    client: Client, clock: FakeClock
):
    client.put_many("q", ["a", "b"])
    first, second = client.receive("q", "g", max=2)

    assert client.extend(first, by=2 * LEASE) == []
    clock.advance(LEASE + MOMENT)

    assert [each.monoton for each in client.receive("q", "g", max=2)] == [1]
    assert client.ack(first, second) == [second.receipt]
    clock.advance(2 * LEASE)
    assert [each.monoton for each in client.receive("q", "g", max=2)] == [1]


def test_rejected_messages_are_dead_at_once_and_say_why(client: Client):
    client.put_many("q", ["good", "bad"])
    good, bad = client.receive("q", "g", max=2)

    assert client.reject(bad, reason="no " + "x" * 2000) == []
    assert client.ack(good, bad) == [bad.receipt]

    (dead,) = client.peek("q.dead")
    assert (dead.value, dead.headers["cassieq.origin-monoton"]) == (b"bad", "1")
    assert "no xxx" in dead.headers["cassieq.reason"]
    assert len(dead.headers["cassieq.reason"]) < 1100
    assert client.stats("q").groups[0].depth == 0


class Unsettled(WrappedStore):
    """Refuses the requests that follow a publish."""

    published = False

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        if self.published:
            raise NotAppliedError("no quorum")
        self.published = partition.table is Table.LEDGER
        return super().cas(partition, ops)


def test_a_replacement_is_not_to_be_repeated_once_the_new_message_is_published(
    client: Client, store: CountingStore
):
    client.put("q", "old")
    (old,) = client.receive("q", "g")

    with (
        Client.from_store(Unsettled(store)) as other,
        pytest.raises(OutcomeUnknownError, match="the new messages are published") as unknown,
    ):
        other.replace(old, "new")

    assert not unknown.value.retryable
    assert [each.value for each in client.peek("q")] == [b"old", b"new"]
    assert client.ack(old) == []


def test_a_replaced_message_is_done_and_the_new_one_comes(client: Client, clock: FakeClock):
    client.put("q", "old", key="k")
    (old,) = client.receive("q", "g")

    assert client.replace(old, "new", key="n", headers={"a": "b"}, delay=SECOND) == []

    assert client.receive("q", "g") == []
    clock.advance(SECOND)
    (new,) = client.receive("q", "g")
    assert (new.monoton, new.value, new.key, new.headers) == (1, b"new", b"n", {"a": "b"})
    assert client.ack(old) == [old.receipt]
    with pytest.raises(MessageError, match="the value of the message is of type int"):
        client.replace(new, 7)
    assert client.ack(new) == []


@pytest.mark.parametrize("bad", ["no receipt", 7, None, ["q@1/g"]])
def test_what_is_no_receipt_is_refused_before_anything_is_settled(client: Client, bad: object):
    client.put("q", "a")
    (message,) = client.receive("q", "g")

    with pytest.raises(MessageError, match="receipt"):
        client.ack(message, bad)

    assert client.ack(message) == []


@pytest.mark.parametrize("bad", [-SECOND, timedelta(days=400)])
def test_durations_out_of_range_are_refused(client: Client, bad: timedelta):
    client.put("q", "a")
    (message,) = client.receive("q", "g")

    for call in (
        lambda: client.release(message, delay=bad),
        lambda: client.extend(message, by=bad),
        lambda: client.replace(message, "b", delay=bad),
    ):
        with pytest.raises(OptionError, match="must be from"):
            call()
    with pytest.raises(OptionError, match="reason is empty"):
        client.reject(message, reason=" ")
    assert client.ack(message) == []


@pytest.mark.parametrize("kind", ["nack", "", None])
def test_there_are_four_actions(kind: Any):
    with pytest.raises(OptionError, match="ack, release, extend"):
        Action(kind)


def test_nothing_to_settle_costs_nothing(client: Client, store: CountingStore):
    assert client.ack() == client.release() == []
    assert (store.cas_count, store.read_count) == (0, 0)


def test_receipts_of_a_queue_that_was_made_anew_are_stale(client: Client, store: CountingStore):
    client.put("q", "a")
    (message,) = client.receive("q", "g")

    delete_queue(store, "q", force=True)
    with pytest.raises(QueueStateError, match="there is no queue 'q'"):
        client.ack(message)
    client.create_queue("q", dead_letter_queue="q.dead")

    assert client.ack(message) == [message.receipt]


def test_a_group_that_is_gone_does_not_keep_others_from_being_settled(
    client: Client, store: CountingStore
):
    client.put("q", "a")
    (gone,) = client.receive("q", "gone")
    (gone_too,) = client.receive("q", "gone-too")
    (kept,) = client.receive("q", "kept")
    for group in ("gone", "gone-too"):
        delete_group(ConsumerGroup(Ledger(store, client.queue("q").queue_id), group), force=True)

    with pytest.raises(QueueStateError, match="group 'gone'") as raised:
        client.ack(gone, gone_too, kept)
    assert "group 'gone-too'" in raised.value.__notes__[0]

    (figures,) = client.stats("q").groups
    assert (figures.group, figures.depth) == ("kept", 0)


class SecondRefused(WrappedStore):
    """Refuses the second compare-and-set."""

    count = 0

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self.count += 1
        if self.count == 2:
            raise NotAppliedError("no quorum")
        return super().cas(partition, ops)


def test_what_is_settled_in_part_is_not_to_be_repeated_as_if_nothing_were(
    client: Client, store: CountingStore
):
    # A program that repeated the call was told that the messages it had settled were stale.
    client.put_many("q", ["a", "b"])
    messages = [*client.receive("q", "g"), *client.receive("q", "g")]

    with (
        Client.from_store(SecondRefused(store)) as other,
        pytest.raises(OutcomeUnknownError, match="a part of it is done: no quorum") as unknown,
    ):
        other.ack(*messages)

    assert not unknown.value.retryable
    assert client.ack(*messages) == [messages[0].receipt]


def test_what_is_settled_not_at_all_may_be_repeated(client: Client, store: CountingStore):
    client.put("q", "a")
    (stale,) = client.receive("q", "g")
    client.release(stale)
    (message,) = client.receive("q", "g")
    other = SecondRefused(store)
    other.count = 1

    with Client.from_store(other) as refused, pytest.raises(NotAppliedError):
        refused.ack(stale, message)
    assert client.ack(message) == []


def test_of_each_receipt_a_settlement_tells_what_became_of_it(
    client: Client, store: CountingStore
):
    client.put_many("q", ["a", "b"])
    done, late = client.receive("q", "kept", max=2)
    (failed,) = client.receive("q", "gone")
    client.ack(late)
    delete_group(ConsumerGroup(Ledger(store, client.queue("q").queue_id), "gone"), force=True)

    outcome = client.settle(failed, done, late, action=Action("release", SECOND))

    assert outcome.stale == [late.receipt]
    assert list(outcome.failed) == [failed.receipt]
    assert "group 'gone'" in str(outcome.failed[failed.receipt])


@pytest.mark.parametrize("fault", Fault)
def test_an_ack_whose_answer_is_lost_is_done_and_not_stale(
    client: Client, trouble: FaultyStore, fault: Fault
):
    client.put("q", "a")
    (message,) = client.receive("q", "g")
    trouble.fault = fault

    assert client.ack(message) == []
    trouble.arrive()
    assert client.stats("q").groups[0].depth == 0
