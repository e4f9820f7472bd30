"""Scenes of a queue with two partitions, in order by key."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from cassieq_spark import Client, NewMessage
from cassieq_spark.consumer.message import StoredMessage
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId, Ranges, SinkBatch
from cassieq_spark.producer.new_message import batches_of, check_message
from cassieq_spark.producer.partitioned import publish_all, write_messages
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.producer.publisher import Written
from cassieq_spark.queues import read_queue
from cassieq_spark.store.protocol import Partition, Store
from cassieq_spark.testing.tearing import TearingStore
from tests.property.interleavings.scene import LEASE, MOMENT, Scene, surviving
from tests.support.builders import make_clocked_store, make_request

#: One key of each partition.
KEYS = ("a", "b")
assert [partition_of_key(key, len(KEYS)) for key in KEYS] == [0, 1]


class PartitionedScene(Scene):
    """Those who act use stores of their own; I11 is checked after each turn."""

    def __init__(self) -> None:
        self.memory, clock = make_clocked_store()
        super().__init__(clock, TearingStore(self.memory))
        self.onlooker = Client.from_store(self.memory)
        self.onlooker.create_queue("q", order="key", partitions=len(KEYS), lease=LEASE)
        self.queue = read_queue(self.memory, "q")
        self.tokens: defaultdict[QueueId, set[UUID]] = defaultdict(set)
        self.has_changed = False
        #: What somebody has received, in the order of the answers.
        self.received: list[str] = []

    def store_of(self, name: str) -> Store:
        return self.stage.process(name).store_around(self.replicas, self.watch)

    def watch(self, _partition: Partition) -> None:
        self.has_changed = True

    def put(self, *values: str) -> None:
        self.onlooker.put_many("q", [NewMessage(value, value[0]) for value in values])

    def check(self) -> None:
        """Nothing but a compare-and-set changes what is checked."""
        if self.has_changed:
            self.has_changed = False
            self.check_changed()

    def check_changed(self) -> None:
        """I11."""
        for queue in self.queue.by_partition:
            ledger = Ledger(self.memory, queue.queue_id)
            if (
                ledger.read_group("g") is not None
                and ConsumerGroup(ledger, "g").read_registrations()
            ):
                state = ConsumerGroup(ledger, "g").read(every_waiting=True)
                check_order(state, self.tokens[queue.queue_id])

    def end(self) -> None:
        """All that is left comes, in order."""
        self.clock.advance(LEASE + MOMENT)
        while messages := self.onlooker.receive("q", "g", max=10):
            self.check_changed()
            self.received += map(text, messages)
            assert not self.onlooker.ack(*messages)
        put = self.onlooker.peek("q", max=100)
        for key in KEYS:
            in_order = [value for each in put if (value := text(each))[0] == key]
            first = dict.fromkeys(each for each in self.received if each[0] == key)
            assert list(first) == in_order, "lost, or out of order"


def check_order(state: GroupState, tokens: set[UUID]) -> None:
    """I11: nothing is leased before all that is earlier, unless under the same lease.

    Args:
        state: Of a group in one partition.
        tokens: Of the leases that were looked at before; the new ones are added.
    """
    held = [slot for slot in state.slots if slot.monotons]
    for token in {slot.lease for slot in held} - tokens:
        tokens.add(token)
        own = Ranges.union([slot.monotons for slot in held if slot.lease == token])
        others = [slot.monotons for slot in held if slot.lease != token]
        others += [row.monotons for row in state.waiting if row.reason is None]
        assert all(own.hull.stop <= each.start for each in others), "I11"
        assert own.hull.stop <= state.head.pointer, "I11"


def text(message: StoredMessage) -> str:
    return bytes(message.value).decode()


class ReplayAgainstSecondHalf(PartitionedScene):
    """A driver has died for Spark between its publishes of two partitions, and goes on late.

    A restarted driver replays the batch meanwhile, and publishes the next one; a client reads.
    """

    writes = 2
    batches = (("a0", "b0"), ("a1", "b1"))

    def begin(self) -> None:
        self.onlooker.create_group("q", "g")
        old, new, reader = map(self.store_of, "abc")
        written = self.write(self.memory, 0)
        self.done = 0
        # The other driver may be two batches ahead, which refuses it.
        self.stage.let("a", surviving(lambda: publish_all(old, written)))
        self.stage.let("b", surviving(lambda: self.go_on(new)))
        self.stage.let("c", surviving(lambda: self.lease(reader)))

    def write(self, store: Store, number: int) -> list[Written]:
        messages = [NewMessage(value, value[0]) for value in self.batches[number]]
        rows = batches_of([check_message(each, self.queue) for each in messages], self.queue)
        return write_messages(store, self.queue, rows, SinkBatch("left", number))

    def go_on(self, store: Store) -> None:
        """Publish the batches that are not done: the first of them is a replay."""
        while self.done < len(self.batches):
            publish_all(store, self.write(store, self.done))
            self.done += 1

    def lease(self, store: Store) -> None:
        for queue in self.queue.by_partition:
            ledger = Ledger(store, queue.queue_id)
            stop = ledger.read_head().next
            ConsumerGroup(ledger, "g").lease(
                make_request(stop=stop, lease=LEASE, strict_fifo=True)
            )

    def check_changed(self) -> None:
        super().check_changed()
        for queue in self.queue.by_partition:
            head = Ledger(self.memory, queue.queue_id).read_head()
            assert head.next <= len(self.batches), "I4: published twice"

    def end(self) -> None:
        self.go_on(self.memory)
        super().end()
        assert sorted(set(self.received)) == ["a0", "a1", "b0", "b1"]


class ReaderAgainstReader(PartitionedScene):
    """Two readers divide the partitions, each with a share of one; they look beyond it, too."""

    def begin(self) -> None:
        self.onlooker.create_group("q", "g")
        self.put("a0", "a1", "a2", "b0", "b1", "b2")
        for name in "ab":
            client = Client.from_store(self.store_of(name))
            self.stage.let(name, surviving(lambda each=client: self.receive_and_ack(each)))

    def receive_and_ack(self, client: Client) -> None:
        messages = client.receive("q", "g", max=2)
        self.received += map(text, messages)
        client.ack(*messages)


class GroupAgainstLease(PartitionedScene):
    """A client makes its group in all partitions, while another one finds it in the first."""

    writes = 4

    def begin(self) -> None:
        self.put("a0", "b0", "b1")
        for name in "ab":
            client = Client.from_store(self.store_of(name))
            self.stage.let(name, surviving(lambda each=client: self.receive(each)))

    def receive(self, client: Client) -> None:
        self.received += map(text, client.receive("q", "g", max=10))

    def check_changed(self) -> None:
        super().check_changed()
        first, second = (Ledger(self.memory, each.queue_id) for each in self.queue.by_partition)
        is_in_second = second.read_group("g") is not None
        assert is_in_second <= (first.read_group("g") is not None), "not in the first one first"
        assert is_in_second or not any(self.tokens.values()), "I7: leased before it is in all"
