"""I8: a receive hands over no more bytes than it may, and what went back was not delivered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import Client, Message
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest
from cassieq_spark.store.memory import MemoryStore
from tests.support.inline_gateway import InlineGateway, Leaves, Request

SIZES = st.lists(st.integers(1, 3_000), min_size=1, max_size=30)
REQUESTS = st.lists(
    st.builds(Request, st.integers(1, 9), st.sampled_from(Leaves)), min_size=1, max_size=4
)


@given(
    sizes=SIZES,
    cuts=st.lists(st.integers(1, 10), max_size=4),
    rooms=st.lists(st.integers(1, 6_000), min_size=1, max_size=4),
    most=st.integers(1, 30),
    max_deliveries=st.integers(0, 2),
    strict=st.booleans(),
)
def test_each_message_is_delivered_once_whatever_room_there_is(  # noqa: PLR0913 (each is drawn)
    sizes: list[int],
    cuts: list[int],
    rooms: list[int],
    most: int,
    max_deliveries: int,
    *,
    strict: bool,
):
    client = Client.from_store(MemoryStore())
    client.create_queue("q", max_deliveries=max_deliveries, order="strict" if strict else "none")
    left = [b"0" * size for size in sizes]
    for cut in [*cuts, len(left)]:
        part, left = left[:cut], left[cut:]
        if part:
            client.put_many("q", part)
    exchange = client.exchange("q", "g")
    received = []
    acks: list[Receipt] = []

    for number in range(2 * len(sizes)):
        room = rooms[number % len(rooms)]
        lease_request = LeaseRequest(max_messages=most, max_bytes=room, max_decoded_bytes=room)
        messages = exchange.round(acks, lease_request).messages
        assert sum(len(each.value) for each in messages) <= room or len(messages) == 1
        acks = [Receipt.parse(each.receipt) for each in messages]
        received += messages

    assert [len(each.value) for each in received] == sizes
    assert {each.delivery_count for each in received} == {1}
    assert client.stats("q").groups[0].depth == 0


@given(
    sizes=SIZES,
    room=st.integers(1, 6_000),
    rounds=st.lists(REQUESTS, min_size=1, max_size=4),
    max_deliveries=st.integers(0, 2),
    partitions=st.integers(1, 3),
    strict=st.booleans(),
)
def test_a_gateway_delivers_each_message_once_whoever_leaves(  # noqa: PLR0913 (each is drawn)
    sizes: list[int],
    room: int,
    rounds: list[list[Request]],
    max_deliveries: int,
    partitions: int,
    *,
    strict: bool,
):
    client = Client.from_store(MemoryStore())
    client.create_queue(
        "q",
        max_deliveries=max_deliveries,
        order="strict" if strict else "none",
        partitions=1 if strict else partitions,
    )
    client.create_group("q", "g")
    for number, size in enumerate(sizes):
        client.put("q", b"0" * size, key=str(number))
    gateway = InlineGateway(client, room)
    received: list[Message] = []
    acks: list[Receipt] = []

    for requests in [*rounds, *([Request(5)] for _ in range(2 * len(sizes)))]:
        served = gateway.serve("q", "g", requests, acks)
        assert served.stale == []
        messages = [message for answer in served.answers for message in answer]
        acks = [Receipt.parse(each.receipt) for each in messages]
        received += messages
    gateway.close()

    assert sorted(len(each.value) for each in received) == sorted(sizes)
    assert {each.delivery_count for each in received} == {1}
    assert client.stats("q").groups[0].depth == 0
