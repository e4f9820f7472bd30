from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import count

import pyarrow as pa
import pytest

from cassieq_spark import Client
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest, Message
from cassieq_spark.client.receiver import PARTITION_FAILED, READ_AGAIN_AFTER, Receiver
from cassieq_spark.errors import MessageError, NotAppliedError
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.spark.sink.receipt_rows import Defaults, read_outcomes
from tests.support.partly_down import PartlyDownStore
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue, by_key, text

ALL = [key for keys in KEYS.values() for key in keys]
SECOND = timedelta(seconds=1)
NOTHING = LeaseRequest(max_messages=0)


@pytest.fixture(params=["none", "key"])
def queue(request: pytest.FixtureRequest) -> PartitionedQueue:
    return PartitionedQueue(request.param)


def drained(queue: PartitionedQueue, most: int) -> list[str]:
    values = []
    while messages := queue.receive(most):
        values += [text(each) for each in messages]
        assert queue.client.ack(*messages) == []
    return values


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_a_client_gets_all_messages_in_order_by_key(queue: PartitionedQueue, most: int):
    queue.put(*ALL, *ALL, *ALL)

    values = drained(queue, most)

    assert by_key(values) == {key: [f"{key}:{n}" for n in range(3)] for key in ALL}
    assert queue.client.stats("orders").groups[0].depth == 0


def test_messages_say_where_they_are(queue: PartitionedQueue):
    queue.put(*KEYS[3], *KEYS[1])

    messages = queue.receive()

    assert {(each.partition, each.monoton) for each in messages} == {
        (1, 0),
        (1, 1),
        (3, 0),
        (3, 1),
    }
    for each in messages:
        assert Receipt.parse(each.receipt).queue_id == f"orders@1.{each.partition}"
        assert Receipt.parse(each.receipt).queue == "orders"


def test_a_table_has_the_messages_of_all_partitions(queue: PartitionedQueue):
    queue.put(*ALL)

    table = queue.client.receive_table("orders", "billing")

    assert sorted(table.column("partition").to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert queue.client.ack(*table.column("receipt").to_pylist()) == []
    assert queue.client.stats("orders").groups[0].depth == 0


@pytest.mark.parametrize("call", ["cas", "read_chunks"])
@pytest.mark.parametrize("as_table", [False, True])
def test_when_a_partition_fails_messages_of_others_are_handed_over_once(
    call: str, caplog: pytest.LogCaptureFixture, *, as_table: bool
):
    queue = PartitionedQueue(max_deliveries=3)
    queue.put(*ALL)
    store = PartlyDownStore(queue.store)
    client = Client.from_store(store)
    client.create_group("orders", "billing")
    store.down = {(call, "orders@1.1")}
    receive = client.receive_table if as_table else client.receive
    got: list[tuple[int, int]] = []

    for _ in range(24):
        with suppress(NotAppliedError):
            handed = receive("orders", "billing", max=100)
            if as_table:
                columns = [handed.column(name) for name in ("partition", "delivery_count")]
                got += zip(*(each.to_pylist() for each in columns), strict=True)
            else:
                got += [(each.partition, each.delivery_count) for each in handed]

    assert sorted(got) == [(partition, 1) for partition in (0, 2, 3) for _ in KEYS[partition]]
    told = [each for each in caplog.records if getattr(each, "action", "") == PARTITION_FAILED]
    assert {each.queue for each in told} <= {"orders@1.1"}
    store.down.clear()
    queue.clock.advance(READ_AGAIN_AFTER)
    assert {each.partition for each in client.receive("orders", "billing", max=100)} == {1}
    assert client.peek("orders.dead") == []


def test_a_partition_that_fails_keeps_no_receive_from_the_others():
    for _ in range(8):  # Each client begins with another partition.
        queue = PartitionedQueue()
        queue.put(*ALL)
        store = PartlyDownStore(queue.store)
        client = Client.from_store(store)
        client.create_group("orders", "billing")
        store.down = {("cas", "orders@1.1")}

        received = client.receive("orders", "billing", max=100)

        assert {each.partition for each in received} == {0, 2, 3}


def test_when_a_receive_is_interrupted_what_it_had_is_given_back_and_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
):
    queue = PartitionedQueue(max_deliveries=1)
    queue.put(*ALL)
    queue.client.create_group("orders", "billing")
    look, looks = Receiver.look, count(1)

    def interrupted(receiver: Receiver, request: LeaseRequest, head: LedgerHead) -> list[Message]:
        if next(looks) == 3:
            raise KeyboardInterrupt
        return look(receiver, request, head)

    monkeypatch.setattr(Receiver, "look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.receive()

    queue.clock.advance(timedelta(milliseconds=1))
    messages = queue.receive()
    assert [each.delivery_count for each in messages] == [1] * len(ALL)


def test_a_key_waits_for_its_message_before_and_no_other_key_does():
    queue = PartitionedQueue("key")
    queue.put(*ALL, *ALL)
    first = queue.receive(1)[0]
    key = bytes(first.key or b"").decode()

    others = drained(queue, 1000)

    assert set(by_key(others)) == set(ALL) - {key}
    assert len(others) == 2 * len(ALL) - 2
    queue.client.ack(first)
    assert drained(queue, 1000) == [f"{key}:1"]


def test_receipts_of_several_partitions_are_settled_together(queue: PartitionedQueue):
    queue.put(*ALL)
    messages = queue.receive()

    assert queue.client.release(*messages[:3]) == []
    assert queue.client.extend(*messages[3:5], by=60 * SECOND) == []
    assert queue.client.reject(messages[5], reason="bad") == []
    assert queue.client.ack(*messages[3:5], *messages[6:]) == []
    assert queue.client.ack(messages[6]) == [messages[6].receipt]
    depth = queue.client.stats("orders").groups[0].depth
    assert depth == 3


@pytest.mark.parametrize(
    "queue_id", ["orders@1", "orders@1.4", "orders@2.0", "orders@1.00", "orders@1.x"]
)
def test_receipts_of_partitions_that_are_not_there_settle_nothing(
    queue: PartitionedQueue, queue_id: str
):
    queue.put(*ALL)
    good = queue.receive()[0].receipt
    forged = good.replace(good.partition("/")[0], queue_id)

    if queue_id in {"orders@1.00", "orders@1.x"}:
        with pytest.raises(MessageError, match="is not a receipt"):
            queue.client.ack(forged)
    else:
        assert queue.client.ack(forged) == [forged]
    assert queue.client.stats("orders").groups[0].depth == 8


def test_a_message_is_replaced_in_the_partition_of_its_new_key(queue: PartitionedQueue):
    queue.put(KEYS[0][0])
    (message,) = queue.receive()

    queue.client.replace(message, "again", key=KEYS[3][1])

    (new,) = queue.receive()
    assert (new.partition, text(new)) == (3, "again")
    assert queue.client.ack(message) == [message.receipt]


def test_an_exchange_acks_and_leases_in_all_partitions(queue: PartitionedQueue):
    queue.put(*ALL, *ALL)
    exchange = queue.client.exchange("orders", "billing")
    values: list[str] = []
    receipts: list[Receipt] = []

    for _ in range(40):
        told = exchange.round(receipts, LeaseRequest(max_messages=3))
        assert told.stale == frozenset()
        assert len(told.messages) <= 3 or told.queue.is_ordered
        values += [text(each) for each in told.messages]
        receipts = [Receipt.parse(each.receipt) for each in told.messages]
    exchange.round(receipts, NOTHING)

    assert by_key(values) == {key: [f"{key}:0", f"{key}:1"] for key in ALL}
    assert queue.client.stats("orders").groups[0].depth == 0


def test_an_exchange_settles_what_another_one_has_leased(queue: PartitionedQueue):
    queue.put(*ALL)
    receipts = [Receipt.parse(each.receipt) for each in queue.receive()]

    told = queue.client.exchange("orders", "billing").round(receipts, NOTHING)

    assert told.stale == frozenset()
    assert queue.client.stats("orders").groups[0].depth == 0


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_an_exchange_goes_on_when_the_queue_is_made_anew_with_other_partitions(
    queue: PartitionedQueue, partitions: int
):
    queue.put(*ALL)
    exchange = queue.client.exchange("orders", "billing")
    old = [
        Receipt.parse(each.receipt)
        for each in exchange.round([], LeaseRequest(max_messages=99)).messages
    ]
    queue.client.delete_queue("orders", force=True)
    queue.client.create_queue("orders", partitions=partitions)
    queue.put(*ALL, of="new")

    told = exchange.round(old, LeaseRequest(max_messages=99))
    stale, values = told.stale, [text(each) for each in told.messages]
    for _ in range(20):
        told = exchange.round([], LeaseRequest(max_messages=99))
        values += [text(each) for each in told.messages]

    assert stale == frozenset(old)
    assert {value.partition(":")[0] for value in values} == set(ALL)


def test_rows_of_receipts_are_dealt_to_their_partitions(queue: PartitionedQueue):
    queue.put(*ALL)
    receipts = [each.receipt for each in queue.receive()]
    defaults = Defaults(
        queue=queue.definition,
        operation="ack",
        delay=timedelta(0),
        seconds=60 * SECOND,
        reason="",
        max_message_bytes=100,
    )

    found = read_outcomes([pa.record_batch({"receipt": receipts})], defaults)

    assert sorted(key.queue_id for key in found) == [f"orders@1.{n}" for n in range(PARTITIONS)]
    other = "orders@1" + receipts[0][receipts[0].index("/") :]
    with pytest.raises(MessageError, match="is of queue orders@1, not of"):
        read_outcomes([pa.record_batch({"receipt": [other]})], defaults)


def test_typed_messages_go_by_their_key():
    queue = PartitionedQueue()
    queue.client.create_queue("trips", schema="vendor string, fare int", partitions=PARTITIONS)
    table = pa.table({"vendor": ALL, "fare": pa.array(range(8), pa.int32()), "_key": ALL})

    put = queue.client.put_many("trips", table)

    assert len(put) == 8
    for message in queue.client.receive("trips", "g", max=100):
        assert message.value["vendor"] in KEYS[message.partition]
