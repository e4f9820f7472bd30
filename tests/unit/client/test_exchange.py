"""Acking and receiving by one LWT, again and again; `test_client_machine` has the rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from cassieq_spark import Client, Message, NewMessage
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.client.exchange import Exchange, RoundResult
from cassieq_spark.client.receiver import READ_AGAIN_AFTER
from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.consumer import prefetch as prefetch_module
from cassieq_spark.consumer.prefetch import PrefetchBudget
from cassieq_spark.errors import NotAppliedError, NotFoundError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.queues import (
    CACHED_FOR,
    alter_queue,
    delete_queue,
    pause_queue,
    purge_queue,
)
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_request
from tests.support.faults import Age, FakeClock

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=60)
MOMENT = timedelta(milliseconds=1)
NOTHING = LeaseRequest(max_messages=0)


@pytest.fixture
def age(monkeypatch: pytest.MonkeyPatch) -> Age:
    age = Age()
    monkeypatch.setattr(exchange_module, "monotonic", age)
    monkeypatch.setattr(consumer_module, "monotonic", age)
    return age


@pytest.fixture
def exchange(client: Client, age: Age, store: CountingStore) -> Iterator[Exchange]:
    """Of a group that has two of twenty messages; nothing is known any more."""
    client.put_many("q", map(str, range(20)))
    exchange = client.exchange("q", "g")
    run_round(exchange, [], limit=2)
    age.seconds += 1
    store.reset()
    return exchange


def run_round(exchange: Exchange, acks: list[Message], limit: int = 0) -> RoundResult:
    receipts = [Receipt.parse(each.receipt) for each in acks]
    return exchange.round(receipts, LeaseRequest(max_messages=limit))


def monotons(messages: list[Message]) -> list[int]:
    return [each.monoton for each in messages]


def depth(client: Client) -> int:
    return depth_of(client, "q")


def depth_of(client: Client, queue: str) -> int:
    return client.stats(queue).groups[0].depth


def test_acks_and_a_lease_are_one_lwt_and_reads_once_in_a_while(
    exchange: Exchange, store: CountingStore, client: Client
):
    first = run_round(exchange, [], limit=2)
    # The definition, the ledger's head, the group twice; what comes next was read before.
    assert (store.cas_count, store.read_count) == (1, 4)

    second = run_round(exchange, first.messages, limit=3)
    third = run_round(exchange, second.messages)

    assert (store.cas_count, store.read_count) == (3, 4)
    assert monotons(first.messages + second.messages) == [2, 3, 4, 5, 6]
    assert [each.value for each in second.messages] == [b"4", b"5", b"6"]
    assert second.stale == third.stale == frozenset()
    assert depth(client) == 15


@pytest.mark.parametrize("max_bytes", [None, 1 << 20])
def test_messages_that_were_put_since_are_leased_without_a_read_of_the_group(
    exchange: Exchange, store: CountingStore, client: Client, max_bytes: int | None
):
    run_round(exchange, [], limit=18)
    client.put("q", "new")
    store.reset()

    told = exchange.round([], LeaseRequest(max_messages=10, max_bytes=max_bytes))

    assert [each.value for each in told.messages] == [b"new"]
    # The ledger's head, and the block of the message.
    assert (store.cas_count, store.read_count) == (1, 2)


def test_while_nothing_is_put_the_group_is_read_for_what_others_give_back(
    exchange: Exchange, client: Client
):
    messages = run_round(exchange, [], limit=18).messages
    client.release(messages[3])

    told = run_round(exchange, [], limit=10)

    assert monotons(told.messages) == monotons(messages[3:4])


def test_neither_acks_nor_messages_are_no_lwt(exchange: Exchange, store: CountingStore):
    run_round(exchange, [])

    assert store.cas_count == 0


def test_messages_are_read_ahead_and_once(client: Client, store: CountingStore, age: Age):
    for _ in range(3):
        client.put_many("q", map(str, range(100)))
    exchange = client.exchange("q", "g")
    received = run_round(exchange, [], limit=1).messages
    store.reset()

    while messages := run_round(exchange, received[-1:], limit=1).messages:
        received += messages

    assert monotons(received) == [*range(300)]
    assert [each.value for each in received] == [b"%d" % (number % 100) for number in range(300)]
    # A look for more blocks, and the two that found nothing more.
    assert (store.cas_count, store.serial_read_count) == (300, 0)
    assert store.read_count <= 8


def test_large_messages_are_leased_as_far_as_they_fit_and_not_read_ahead(client: Client, age: Age):
    client.put_many("q", [os.urandom(100_000) for _ in range(30)])
    exchange = client.exchange("q", "g")
    run_round(exchange, [], limit=1)

    told = exchange.round([], LeaseRequest(max_messages=20, max_bytes=450_000))

    assert monotons(told.messages) == [1, 2, 3, 4]
    (part,) = exchange._parts.values()
    assert len(part._prefetch._messages) <= 2


def kept_ahead(exchange: Exchange) -> int:
    """Bytes of the messages that an exchange has read ahead."""
    parts = exchange._parts.values()
    return sum(each.size for part in parts for each in part._prefetch._messages.values())


def test_what_is_read_ahead_keeps_within_a_budget_and_messages_come_all_the_same(
    client: Client, age: Age
):
    """Random bytes would not be read ahead at all: these are small as stored."""
    client.create_queue("parts", partitions=4)
    client.put_many("parts", ["x" * 10_000] * 200)
    whole = PrefetchBudget(300_000)
    exchanges = {
        name: client.exchange("parts", name, ahead=PrefetchBudget(200_000, within=whole))
        for name in ("a", "b", "c")
    }
    got: Counter[str] = Counter()

    while sum(got.values()) < 600:
        for name, exchange in exchanges.items():
            got[name] += len(run_round(exchange, [], limit=3).messages)
            assert kept_ahead(exchange) <= 200_000
        assert sum(map(kept_ahead, exchanges.values())) <= 300_000

    assert set(got.values()) == {200}
    assert whole.take(999_999) == 300_000, "all came back"


def test_without_a_budget_a_lease_reads_only_what_it_leases(
    client: Client, age: Age, monkeypatch: pytest.MonkeyPatch
):
    client.put_many("q", ["x" * 1000] * 20)
    read: list[int] = []
    stored = prefetch_module.stored_messages
    monkeypatch.setattr(
        prefetch_module,
        "stored_messages",
        lambda batches: (read.append(each.monoton) or each for each in stored(batches)),
    )
    exchange = client.exchange("q", "g", ahead=PrefetchBudget(0))

    received = [run_round(exchange, [], limit=2).messages for _ in range(3)]

    assert [each.monoton for messages in received for each in messages] == [*range(6)]
    assert read == [*range(6)]


def test_what_was_read_ahead_of_a_version_that_is_gone_comes_back_to_the_budget(
    client: Client, age: Age
):
    client.put_many("q", ["x" * 1000] * 20)
    budget = PrefetchBudget(100_000)
    exchange = client.exchange("q", "g", ahead=budget)
    run_round(exchange, [], limit=1)
    assert budget.take(100_000) == 100_000 - 19 * 1000
    client.purge_queue("q", force=True)
    age.seconds += CACHED_FOR.total_seconds()

    run_round(exchange, [], limit=1)

    assert budget.take(100_000) == 19 * 1000


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("max_deliveries", [1, 5])
def test_what_is_larger_than_it_was_stored_goes_back_and_is_not_counted(
    client: Client, age: Age, max_deliveries: int, *, known: bool
):
    client.create_queue("once", max_deliveries=max_deliveries)
    client.put_many("once", [b"0" * 100_000 for _ in range(30)])
    exchange = client.exchange("once", "g")
    received = list(exchange.round([], LeaseRequest(max_messages=1)).messages) if known else []
    most = LeaseRequest(max_messages=20, max_bytes=450_000, max_decoded_bytes=450_000)

    while messages := exchange.round([], most).messages:
        assert len(messages) <= 4
        received += messages

    assert monotons(received) == [*range(30)]
    assert {each.delivery_count for each in received} == {1}
    assert client.ack(*received) == []
    assert depth_of(client, "once") == 0


def test_what_is_handed_out_again_is_as_few_as_fit_and_keeps_its_count(client: Client, age: Age):
    client.create_queue("again", max_deliveries=0)
    client.put_many("again", [b"0" * 100_000 for _ in range(10)])
    client.release(*client.receive("again", "g", max=10))
    exchange = client.exchange("again", "g")

    received = [
        each
        for _ in range(5)
        for each in exchange.round(
            [], LeaseRequest(max_messages=10, max_decoded_bytes=200_000)
        ).messages
    ]

    assert monotons(received) == [*range(10)]
    assert {each.delivery_count for each in received} == {2}


def test_what_lies_between_delayed_messages_is_not_read(
    client: Client, clock: FakeClock, age: Age
):
    exchange = client.exchange("q", "g")
    run_round(exchange, [], limit=1)
    for _ in range(3):
        client.put("q", "late", delay=HOUR)
        client.put_many("q", [os.urandom(100_000)] * 30)
    client.ack(*run_round(exchange, [], limit=1000).messages)
    client.put_many("q", ["fresh"] * 3)
    clock.advance(HOUR)
    age.seconds += 1

    # That would count as bytes of the round.
    request = LeaseRequest(max_messages=100, max_decoded_bytes=1 << 20)
    messages = exchange.round([], request).messages

    assert sorted(each.value for each in messages) == [b"fresh"] * 3 + [b"late"] * 3


def test_one_message_is_handed_over_whatever_its_size(client: Client, age: Age):
    client.put_many("q", [b"0" * 100_000 for _ in range(2)])

    told = client.exchange("q", "g").round([], LeaseRequest(max_messages=2, max_decoded_bytes=1))

    assert monotons(told.messages) == [0]


def test_only_what_fits_is_read(client: Client, age: Age):
    client.put_many("q", [b"0" * 1_000_000 for _ in range(40)])
    exchange = client.exchange("q", "g")

    told = exchange.round(
        [], LeaseRequest(max_messages=40, max_bytes=10_000_000, max_decoded_bytes=3_000_000)
    )

    assert monotons(told.messages) == [0, 1, 2]
    (part,) = exchange._parts.values()
    assert len(part._prefetch._messages) <= 1


def test_a_receipt_of_a_lease_of_others_is_good(
    exchange: Exchange, client: Client, store: CountingStore
):
    run_round(exchange, [], limit=1)
    other = Client.from_store(store).receive("q", "g")

    told = run_round(exchange, other)

    assert told.stale == frozenset()
    assert depth(client) == 19


def test_a_receipt_that_is_stale_is_told_of_and_the_others_are_acked(
    exchange: Exchange, client: Client
):
    first, second = run_round(exchange, [], limit=2).messages
    client.ack(first)

    told = run_round(exchange, [first, second], limit=1)

    assert told.stale == {Receipt.parse(first.receipt)}
    assert monotons(told.messages) == [4]
    assert depth(client) == 18


def test_receipts_of_a_queue_that_was_made_anew_are_stale(
    exchange: Exchange, client: Client, store: CountingStore, age: Age
):
    (old,) = run_round(exchange, [], limit=1).messages
    delete_queue(store, "q", force=True)
    client.create_queue("q")
    client.put("q", "new")
    age.seconds += 1

    told = run_round(exchange, [old], limit=1)

    assert told.stale == {Receipt.parse(old.receipt)}
    assert [each.value for each in told.messages] == [b"new"]


def test_a_queue_that_is_made_anew_is_noticed_at_once(
    exchange: Exchange, client: Client, store: CountingStore
):
    (old,) = run_round(exchange, [], limit=1).messages
    delete_queue(store, "q", force=True)
    with pytest.raises(NotFoundError):
        run_round(exchange, [old], limit=30)
    client.create_queue("q")
    client.put("q", "new")

    told = run_round(exchange, [], limit=1)

    assert [each.value for each in told.messages] == [b"new"]
    assert run_round(exchange, told.messages).stale == frozenset()


def test_a_queue_that_was_purged_since_the_last_round_has_what_was_put_then(
    exchange: Exchange, client: Client, store: CountingStore
):
    run_round(exchange, [], limit=1)
    purge_queue(store, "q", force=True)
    client.put("q", "new")

    assert [each.value for each in run_round(exchange, [], limit=1).messages] == [b"new"]


def test_a_pause_is_noticed_in_a_tenth_of_a_second_and_acks_go_on(
    exchange: Exchange, client: Client, store: CountingStore, age: Age
):
    messages = run_round(exchange, [], limit=1).messages
    pause_queue(store, "q")
    age.seconds += CACHED_FOR.total_seconds()

    told = run_round(exchange, messages, limit=1)

    assert (told.messages, told.stale) == ([], frozenset())
    assert depth(client) == 19


def test_what_comes_again_is_not_passed_over(exchange: Exchange, clock: FakeClock, age: Age):
    run_round(exchange, [], limit=1)
    clock.advance(LEASE + MOMENT)
    age.seconds += 0.09

    fresh = run_round(exchange, [], limit=1).messages
    age.seconds += 0.02
    again = run_round(exchange, [], limit=5).messages

    assert [each.delivery_count for each in (*fresh, *again)] == [1, 2]


def test_a_lease_is_told_to_end_no_later_than_it_does(
    exchange: Exchange, clock: FakeClock, age: Age
):
    for _ in range(3):
        clock.advance(timedelta(milliseconds=20))
        age.seconds += 0.0199
        (message,) = run_round(exchange, [], limit=1).messages

        assert clock.now + LEASE - timedelta(milliseconds=2) <= message.lease_until
        assert message.lease_until <= clock.now + LEASE


def test_what_could_not_be_fetched_is_due_in_a_minute_and_the_acks_are_done(
    client: Client, age: Age, trouble: FaultyStore, clock: FakeClock
):
    client.put_many("q", ["a", "b"])
    exchange = client.exchange("q", "g")
    messages = run_round(exchange, [], limit=1).messages
    client.put("q", "c")
    age.seconds += 1
    run_round(exchange, [], limit=1)

    def fail() -> None:
        raise NotAppliedError("no replicas")

    # The definition, the head, the group twice, the LWT; then the fetch fails.
    age.seconds += 1
    trouble.interrupt(fail, after=5)
    told = run_round(exchange, messages, limit=1)

    assert (told.messages, told.stale) == ([], frozenset())
    assert isinstance(told.error, NotAppliedError)
    assert run_round(exchange, [], limit=1).messages == []
    clock.advance(READ_AGAIN_AFTER)
    (again,) = run_round(exchange, [], limit=1).messages
    assert (again.value, again.delivery_count) == (b"c", 2)


def test_of_a_query_s_batch_it_acks_what_is_of_the_delivery_in_hand(
    exchange: Exchange, client: Client, store: CountingStore
):
    queue_id = client.queue("q").queue_id
    (mine,) = run_round(exchange, [], limit=1).messages
    group = ConsumerGroup(Ledger(store, queue_id), "g")
    lease = group.lease(make_request(stop=5))
    group.take_again(make_request(held=lease.token))
    first, second = (
        [Receipt(queue_id, "g", lease.token, at, deliveries) for at in (3, 4)]
        for deliveries in (1, 2)
    )

    late = exchange.round([*first, Receipt.parse(mine.receipt)], NOTHING)

    assert late.stale == set(first)
    assert [str(slot.monotons) for slot in group.read().held_by(lease.token)] == ["3-5"]
    assert exchange.round([*second, *first], NOTHING).stale == set(first)
    assert client.stats("q").groups[0].depth == 17


def test_acks_make_no_group_and_of_none_they_fail(client: Client, age: Age):
    receipt = Receipt(client.queue("q").queue_id, "no", UUID(int=8), 0)

    with pytest.raises(QueueStateError, match="group 'no'"):
        client.exchange("q", "no").round([receipt], NOTHING)
    with pytest.raises(NotFoundError, match="no group 'no'"):
        client.exchange("q", "no", make_group=False).round([], LeaseRequest(max_messages=1))
    assert client.stats("q").groups == ()


def test_a_hundred_rounds_need_no_more_slots_than_leases(exchange: Exchange, client: Client):
    messages: list[Message] = []
    for number in range(18):
        messages = run_round(exchange, messages, limit=number % 2).messages

    state = ConsumerGroup(Ledger(client._store, client.queue("q").queue_id), "g").read()
    assert len(state.slots) <= 5


# -- while the schema of the queue changes --------------------------------------------------------


def typed_exchange(client: Client, count: int) -> Exchange:
    """Of a group of a queue with a schema, which has the first of some messages."""
    client.create_queue("t", schema="id int, card int")
    client.put_many("t", [{"id": each, "card": each} for each in range(count)])
    exchange = client.exchange("t", "g")
    assert [each.value for each in run_round(exchange, [], limit=1).messages] == [
        {"id": 0, "card": 0}
    ]
    return exchange


def test_what_was_read_ahead_has_the_columns_of_the_definition_that_is_read_next(
    client: Client, age: Age, store: CountingStore
):
    exchange = typed_exchange(client, 3)
    alter_queue(store, "t", schema="id bigint, fare int")
    age.seconds += CACHED_FOR.total_seconds()

    told = run_round(exchange, [], limit=9)

    assert [each.value for each in told.messages] == [{"id": at, "fare": None} for at in (1, 2)]
    assert told.queue.schema == "id bigint, fare int"


@pytest.mark.parametrize("new", [{"id": 1, "card": 2, "fare": 3}, {"id": 1 << 40, "card": 2}])
def test_what_a_newer_version_wrote_comes_with_its_columns_though_the_definition_is_known(
    client: Client, age: Age, store: CountingStore, new: dict[str, int]
):
    exchange = typed_exchange(client, 1)
    alter_queue(store, "t", schema="id bigint, card int, fare int")
    client.put("t", new)

    told = run_round(exchange, [], limit=9)

    (message,) = told.messages
    assert message.value == {"fare": None} | new
    assert message.delivery_count == 1
    assert told.error is None
    assert told.queue.schema == client.queue("t").schema


def test_a_schema_that_is_changed_during_a_round_is_read_in_it(
    client: Client, age: Age, trouble: FaultyStore
):
    exchange = typed_exchange(client, 1)
    age.seconds += CACHED_FOR.total_seconds()

    def change() -> None:
        alter_queue(trouble, "t", schema="id int, card int, fare int")
        client.put("t", {"id": 1, "card": 2, "fare": 3})

    # The definition is read, and nothing else.
    trouble.interrupt(change, after=1)
    told = run_round(exchange, [], limit=9)

    ((value, count),) = ((each.value, each.delivery_count) for each in told.messages)
    assert (value, count) == ({"id": 1, "card": 2, "fare": 3}, 1)


@pytest.mark.parametrize("rounds", [1, 2])
def test_of_two_partitions_each_message_has_the_columns_of_its_version(
    client: Client, age: Age, store: CountingStore, rounds: int
):
    client.create_queue("t", schema="id int", partitions=2)
    keys = {partition_of_key(key, 2): key for key in map(str, range(9))}
    exchange = client.exchange("t", "g")
    for _ in range(rounds):
        run_round(exchange, [], limit=1)
    client.put_many("t", [NewMessage({"id": 0}, keys[0])])
    alter_queue(store, "t", schema="id int, fare int")
    client.put_many("t", [NewMessage({"id": 1, "fare": 1}, keys[1])])

    told = [run_round(exchange, [], limit=9) for _ in range(2)]

    messages = [each for one in told for each in one.messages]
    for one in told:
        columns = schema_of(one.queue.schema or "").names
        assert all([*each.value] == columns for each in one.messages)
    by_id = {each.value["id"]: each for each in messages}
    assert by_id[0].value in ({"id": 0}, {"id": 0, "fare": None})
    assert by_id[1].value == {"id": 1, "fare": 1}
    assert {each.delivery_count for each in messages} == {1}


def test_what_nobody_has_seen_is_given_back_uncounted(exchange: Exchange, client: Client):
    first = run_round(exchange, [], limit=3).messages
    exchange.give_back(first[1:])

    again = client.receive("q", "g", max=2)

    assert monotons(again) == [3, 4]
    assert {each.delivery_count for each in again} == {1}
    assert client.ack(*first[1:]) == [each.receipt for each in first[1:]]
    assert client.ack(first[0]) == []
