"""In a queue ordered by key: who is given what, at which cost, and what everybody is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from cassieq_spark import Client, Message, NewMessage
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.backoff import Backoff
from cassieq_spark.client import LeaseRequest
from cassieq_spark.consumer import lane_reader
from cassieq_spark.consumer.lane_reader import LaneReader, LaneReaders
from cassieq_spark.groups import singly
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lanes import Window
from cassieq_spark.groups.rounds import Leasing
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import block_key
from cassieq_spark.model import BucketSlice, Chunk, QueueId, Range, Ranges
from cassieq_spark.producer.blocks import MOST_LANES
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Update, When
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store

#: Keys of the first of two partitions.
KEYS = [key for key in map(str, range(100)) if partition_of_key(key, 2) == 0]
A, B, C = KEYS[:3]


class Scene:
    """A queue in which all messages are in one of its two partitions."""

    def __init__(self, **settings: object) -> None:
        self.memory, self.clock = make_clocked_store()
        self.store = CountingStore(self.memory)
        self.client = Client.from_store(self.store)
        self.client.create_queue("q", order="key", partitions=2, **settings)  # type: ignore[arg-type]
        self.client.create_group("q", "g")

    def put(self, *keys: str) -> None:
        self.client.put_many("q", [NewMessage(f"{key}", key) for key in keys])

    def receive(self, most: int = 100) -> list[Message]:
        return self.client.receive("q", "g", max=most)

    @property
    def group(self) -> ConsumerGroup:
        queue = read_queue(self.memory, "q").of_partition(0)
        return ConsumerGroup(Ledger(self.memory, queue.queue_id), "g")


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    with made.client:
        yield made


def at(messages: list[Message]) -> list[int]:
    return [message.monoton for message in messages]


def test_a_held_key_holds_up_its_own_messages_only(scene: Scene):
    scene.put(A, A, B, A, C, B)
    (first,) = scene.receive(1)

    others = scene.receive()

    assert at([first]) == [0]
    assert at(others) == [2, 4, 5]
    assert scene.receive() == []
    scene.client.ack(first)
    assert at(scene.receive()) == [1, 3]


def test_what_is_given_back_comes_before_what_is_behind_it_in_its_key(scene: Scene):
    scene.put(A, A, B, A)
    held = scene.receive(1)
    scene.client.release(*held, delay=timedelta(seconds=5))

    assert at(scene.receive()) == [2]
    scene.clock.advance(timedelta(seconds=5))
    again = scene.receive()

    assert [(each.monoton, each.delivery_count) for each in again] == [(0, 2), (1, 1), (3, 1)]


def test_a_group_that_stops_at_a_dead_message_goes_on_with_other_keys():
    scene = Scene(on_dead="stop")
    scene.put(A, A, B)
    scene.client.reject(*scene.receive(1), reason="bad")

    assert at(scene.receive()) == [2]
    assert scene.client.groups("q")[0].stopped == 1
    scene.client.resume_group("q", "g", "drop")
    assert at(scene.receive()) == [1]


def test_ten_messages_that_were_released_are_one_receive_and_one_lwt():
    store = CountingStore(MemoryStore())
    with Client.from_store(store) as client:
        client.create_queue("plain")
        client.put_many("plain", map(str, range(10)))
        for each in client.receive("plain", "g", max=10):
            client.release(each)
        store.reset()

        messages = client.receive("plain", "g", max=10)

        assert at(messages) == list(range(10))
        assert {each.delivery_count for each in messages} == {2}
        assert store.cas_count == 1


def test_a_round_of_many_keys_and_receivers_is_one_lwt(scene: Scene):
    exchange = scene.client.exchange("q", "g")
    exchange.round([], LeaseRequest(max_messages=1))
    scene.put(*[key for key in KEYS[:8] for _ in range(3)])
    scene.store.reset()

    told = exchange.round([], LeaseRequest(max_messages=8, takers=(2, 2, 2, 2)))

    assert scene.store.cas_count == 1
    keys = [{message.key for message in share} for share in told.shares]
    assert [len(share) for share in told.shares] == [2, 2, 2, 2]
    assert all(not mine & theirs for mine in keys for theirs in keys if mine is not theirs)


def test_a_round_leases_from_all_partitions_for_all_receivers():
    scene = Scene()
    others = [key for key in map(str, range(100)) if partition_of_key(key, 2) == 1]
    exchange = scene.client.exchange("q", "g")
    scene.put(A, A, others[0], others[0])

    told = exchange.round([], LeaseRequest(max_messages=3, takers=(1, 1, 1)))

    assert sorted(message.partition for message in told.messages) == [0, 1]
    assert [len(share) for share in told.shares] == [1, 1, 0]


def test_threads_of_a_program_share_a_round_and_get_keys_of_their_own(scene: Scene):
    scene.put(*[key for key in KEYS[:8] for _ in range(4)])

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(lambda _: scene.receive(4), range(4)))

    keys = [{message.key for message in share} for share in shares if share]
    assert sum(map(len, keys)) == len(set().union(*keys))


def test_the_threads_of_a_round_see_as_many_messages_as_all_of_them_want(scene: Scene):
    scene.put(A)
    asked: list[int | None] = []

    def ahead(state: GroupState, request: LeaseRequest) -> Window:
        asked.append(request.max_messages)
        return Window(state.head.pointer, [7])

    wants = LeaseRequest(max_messages=30, strict_fifo=True, by_receipts=True, stop=1)
    scene.group._carry_out_round([Leasing(wants, None, ahead) for _ in range(3)], Backoff())

    assert asked == [90]


def test_an_exchange_reads_the_lanes_of_messages_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    read: list[Range] = []
    original = LaneReader._read
    monkeypatch.setattr(
        LaneReader, "_read", lambda it, which: read.append(which) or original(it, which)
    )
    exchange = scene.client.exchange("q", "g")
    scene.put(*[key for key in KEYS[:8] for _ in range(4)])

    for _ in range(4):
        # As if a tenth of a second had passed.
        exchange._queue = None
        assert exchange.round([], LeaseRequest(max_messages=2)).messages

    assert read == [Range(0, 32)]


def test_a_receive_steps_over_so_many_messages_only(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(singly, "MOST_PARKED", 1_000)
    scene.put(*[A] * 3_000, B)
    scene.receive(1)
    scene.store.reset()

    assert scene.receive() == []
    steps = scene.store.cas_count
    assert steps < 10
    assert scene.receive() == []
    assert scene.store.cas_count == steps, "it looks no further"
    assert scene.group.read().head.pointer <= 1_001


def test_lanes_are_kept_while_the_schema_of_a_queue_changes():
    scene = Scene(schema="n int")
    newer = Client.from_store(scene.memory)
    keys = [A, A, B]
    scene.client.put_many("q", [NewMessage({"n": at}, key) for at, key in enumerate(keys)])
    exchange = scene.client.exchange("q", "g")
    (first,) = exchange.round([], LeaseRequest(max_messages=1)).messages
    newer.alter_queue("q", schema="n int, more string")
    newer.put_many("q", [NewMessage({"n": 9, "more": "x"}, key) for key in (A, C)])

    others = exchange.round([], LeaseRequest(max_messages=10)).messages

    assert at([first]) == [0]
    assert [(each.monoton, each.value["n"]) for each in others] == [(2, 2), (4, 9)]
    exchange.round([Receipt.parse(first.receipt)], LeaseRequest(max_messages=0))
    assert at(exchange.round([], LeaseRequest(max_messages=10)).messages) == [1, 3]


def test_messages_that_were_stepped_over_are_told_as_not_delivered_yet(scene: Scene):
    scene.put(A, A, B)
    scene.receive(1)
    scene.receive(1)

    (group,) = scene.client.groups("q")
    assert (group.depth, group.leased, group.due, group.waiting) == (3, 2, 0, 0)
    assert group.pointer == 3
    assert group.floor == 0


def test_the_repair_says_nothing_of_messages_that_are_parked(scene: Scene):
    scene.put(A, A, B)
    scene.receive(1)
    scene.receive(1)

    report = run_once(scene.store, scan=DriverScan(scene.store), steps=(Step.REDELIVER,))

    assert report.queues
    assert not [note for each in report.queues.values() for note in each.notes]


def test_messages_that_others_have_settled_since_are_had_at_once(scene: Scene):
    scene.put(A, A)
    exchange = scene.client.exchange("q", "g")
    told = exchange.round([], LeaseRequest(max_messages=1))
    scene.client.ack(*told.messages)

    again = exchange.round([], LeaseRequest(max_messages=1))

    assert at(again.messages) == [1]


def test_a_seek_forgets_what_is_parked(scene: Scene):
    scene.put(A, A, B)
    scene.client.ack(*scene.receive(1))
    scene.receive(1)
    scene.put(A)

    scene.client.seek_group("q", "g", "earliest", force=True)

    assert at(scene.receive()) == [0, 1, 2, 3]


def test_after_a_purge_the_keys_are_free(scene: Scene):
    scene.put(A, A, B)
    scene.receive(1)
    scene.receive(1)
    scene.client.purge_queue("q", force=True)
    scene.put(A)

    assert at(scene.receive()) == [0]


def test_a_client_without_lanes_and_one_with_keep_the_order_together(scene: Scene):
    """An earlier release, or a batch of Spark's: a lease of which no lane is known."""
    scene.put(A, B, A, B)
    lease = scene.group.lease(
        LeaseRequest(strict_fifo=True, stop=4, max_messages=2, lease=timedelta(minutes=1))
    )

    assert [str(each.monotons) for each in lease.leased] == ["0-2"]
    assert scene.receive() == []
    scene.group.lease(LeaseRequest(strict_fifo=True, held=lease.token, stop=4, max_messages=0))
    assert at(scene.receive()) == [2, 3]


def test_messages_without_a_key_go_out_in_any_order():
    scene = Scene()
    scene.client.put_many("q", ["x", "y", "z"])

    first = scene.receive(1)
    second = scene.receive(2)

    assert len(first + second) == 3


class Watched(CountingStore):
    """Counts reads of chunks, too."""

    chunk_reads = 0

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        self.chunk_reads += 1
        return super().read_chunks(queue_id, slices)


def reads_for_lanes(client: Client, store: Watched, count: int) -> int:
    """Put messages, and count the reads of chunks by which a receive learns their lanes."""
    keys = [KEYS[number % 5] for number in range(count)]
    client.put_many("q", [NewMessage(key, key) for key in keys])
    store.chunk_reads = 0
    (first,) = client.receive("q", "g")
    # One for the message itself.
    reads = store.chunk_reads - 1
    others = client.receive("q", "g", max=count)
    expected = [key for key in keys if key != keys[0]]
    assert [str(each.value, "utf-8") for each in others] == expected
    client.ack(first, *others)
    client.ack(*client.receive("q", "g", max=count))
    return reads


@pytest.fixture
def watched() -> Iterator[tuple[Client, Watched]]:
    store = Watched(MemoryStore())
    with Client.from_store(store) as client:
        client.create_queue("q", order="key", deduplicate=timedelta(minutes=5))
        yield client, store


def test_the_ledger_tells_the_lanes_of_a_small_block(watched: tuple[Client, Watched]):
    client, store = watched

    assert reads_for_lanes(client, store, MOST_LANES) == 0
    assert reads_for_lanes(client, store, MOST_LANES + 1) == 1


@pytest.mark.parametrize("schema", [None, "n int"])
def test_the_ledger_tells_the_lanes_that_the_messages_have(schema: str | None):
    store = MemoryStore()
    keys = ["a", "b", None, "", "ä", b"\xff", "a", *map(str, range(20))]
    with Client.from_store(store) as client:
        client.create_queue("q", order="key", partitions=3, schema=schema)
        client.put_many("q", [NewMessage({"n": 1} if schema else "x", key) for key in keys])

    assert check_lanes(store, "q") == len(keys)


def check_lanes(store: MemoryStore, name: str) -> int:
    """Check that the ledger tells the lanes of all messages of a queue, and count these."""
    count = 0
    for part in read_queue(store, name).by_partition:
        ledger = Ledger(store, part.queue_id)
        every = Range(0, ledger.read_head().next)
        assert all(block.lanes for block in ledger.locate(every))
        reader = LaneReader(store, part)
        told = dict(zip(range(every.stop), reader._read(every), strict=True))
        assert dict(reader._lanes_of_messages(Ranges.of(every))) == told
        count += len(told)
    return count


def test_the_ledger_tells_the_lanes_of_dead_letters_of_what_is_redriven_and_of_a_producer():
    store = MemoryStore()
    with Client.from_store(store) as client:
        client.create_queue("dead", order="key")
        client.create_queue("q", order="key", partitions=3, dead_letter_queue="dead")
        client.create_group("q", "g")
        with client.producer("q") as producer:
            for number in range(20):
                producer.put(NewMessage("x", str(number)))
        client.reject(*client.receive("q", "g", max=100), reason="bad")
        assert client.redrive(client.dead_letters("q")).redriven == {"q": 20}

    assert check_lanes(store, "dead") == 20
    assert check_lanes(store, "q") == 40


def test_the_ledger_tells_no_lanes_where_nothing_is_in_order():
    store = MemoryStore()
    with Client.from_store(store) as client:
        queue = client.create_queue("q")
        client.put("q", "x", key="k")

    (block,) = Ledger(store, queue.queue_id).locate(Range(0, 1))
    assert block.lanes == ""


@pytest.mark.parametrize("repeats", [{1, 3}, {0}, {0, 1}, {0, 2, 4}, {4, 5}, {5}])
def test_the_ledger_tells_the_lanes_of_messages_of_which_repeats_were_left_out(
    watched: tuple[Client, Watched], repeats: set[int]
):
    client, store = watched
    messages = [NewMessage(key, key, unique_id=str(it)) for it, key in enumerate("abcbac")]
    client.put_many("q", [messages[it] for it in repeats])
    client.ack(*client.receive("q", "g", max=len(repeats)))
    client.put_many("q", messages)
    left = [each.value for it, each in enumerate(messages) if it not in repeats]
    store.chunk_reads = 0

    (first,) = client.receive("q", "g")
    others = client.receive("q", "g", max=10)

    assert str(first.value, "utf-8") == left[0]
    assert [str(each.value, "utf-8") for each in others] == [it for it in left if it != left[0]]
    # For the messages themselves.
    assert store.chunk_reads == 2


@pytest.mark.parametrize("damage", ["", "7", "7*9", "x", "70000", "7*0,1,2,3"])
def test_messages_are_read_if_the_ledger_does_not_tell_their_lanes(
    watched: tuple[Client, Watched], damage: str
):
    client, store = watched
    client.create_group("q", "g")
    client.put_many("q", [NewMessage(key, key) for key in (A, B, A)])
    ledger = Ledger(store, read_queue(store, "q").queue_id)
    assert ledger.locate(Range(0, 3))[0].lanes
    assert ledger.cas([Update(block_key(0), {"lanes": damage}, when=(When("stop", "=", 3),))])
    store.chunk_reads = 0

    (first,) = client.receive("q", "g")
    (other,) = client.receive("q", "g", max=10)

    assert (first.key, other.key) == (A.encode(), B.encode())
    # Once for the lanes, and for each message.
    assert store.chunk_reads == 3


def test_a_client_reads_the_keys_ahead_once_for_many_receives(watched: tuple[Client, Watched]):
    client, store = watched
    client.put_many("q", [NewMessage(b"x", str(number % 50)) for number in range(400)])
    found = client.receive("q", "g", max=4)
    before = store.chunk_reads

    for _ in range(20):
        found += client.receive("q", "g", max=4)

    assert len(found) == len({each.monoton for each in found}) > 40
    # One for the messages of each receive.
    assert store.chunk_reads - before == 20


def test_lanes_of_partitions_that_are_used_least_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lane_reader, "_MOST_READERS", 2)
    store = MemoryStore()
    readers = LaneReaders(store)
    queues = [create_queue(store, name, order="key") for name in "abc"]
    first = [readers.of(queue, "g") for queue in queues[:2]]
    readers.of(queues[0], "g")
    readers.of(queues[2], "g")

    assert readers.of(queues[0], "g") is first[0]
    assert readers.of(queues[1], "g") is not first[1]
