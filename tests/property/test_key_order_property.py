"""I11: whatever happens, nothing of a key comes before all earlier messages of it are settled.

Trouble comes over what is done: a compare-and-set is lost, late, or on one replica only, somebody
else acts between two calls of the store, or the process dies; see `FaultyStore`. What is published
and what is settled is looked up in the store beneath, which has all that is decided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cassieq_spark import Client, NewMessage
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest, Message
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.consumer import consumer, idle_backoff
from cassieq_spark.consumer.consumer import Consumer, StateCache
from cassieq_spark.consumer.message import stored_messages
from cassieq_spark.dead_letters.stopped import Resume
from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.presence import Presence
from cassieq_spark.groups.state import GroupState, Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges, SinkBatch
from cassieq_spark.producer import blocks
from cassieq_spark.producer.new_message import batches_of, check_message
from cassieq_spark.producer.partitioned import publish_all, write_messages
from cassieq_spark.queues import read_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.protocol import Partition, partition_of_ledger
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.property.machine.world import Crash, Trouble
from tests.support.builders import make_clocked_store
from tests.support.dying import publish_some
from tests.support.repeatable import repeatable

LEASE = timedelta(seconds=60)
KEYS = [str(number) for number in range(6)]
FIRST = initial_offset("q", "g")
#: None is a crash; the others are methods of the machine, by name.
MEANWHILE = ["_receive_as_other", "_ack_as_other", "_put_as_other", "_pass", "_arrive", "_repair"]
TROUBLES = st.none() | st.builds(
    Trouble,
    fault=st.none() | st.sampled_from(Fault),
    after=st.integers(0, 14),
    meanwhile=st.none() | st.sampled_from(MEANWHILE),
    draws=st.text("fs", min_size=1, max_size=6),
)


class KeyOrder(RuleBasedStateMachine):
    """Writers, clients, streams that crash and are restarted, a gateway's exchange, the repair."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.clock = make_clocked_store()
        self.patch = repeatable(self.clock)
        # What a gateway knows is as old as can be.
        self.patch.setattr(exchange_module, "monotonic", lambda: 0.0)
        self.patch.setattr(idle_backoff, "LONGEST_PAUSE", timedelta(0))
        self.patch.setattr(idle_backoff, "SHORTEST_PAUSE", timedelta(0))
        self.patch.setattr(idle_backoff, "RECHECK", timedelta(0))
        # The share of a reader may be any: it says who looks where, and nothing of what is right.
        self.share = frozenset(range(4))
        self.looks_at_others = True
        self.patch.setattr(Presence, "share", lambda _: self.share)
        self.patch.setattr(
            QueueReader,
            "_is_time_for_others",
            lambda reader: self.looks_at_others or reader._is_aimed,
        )

    @initialize(
        partitions=st.integers(1, 4),
        max_deliveries=st.sampled_from([0, 1, 3, 6]),
        cache_for=st.sampled_from([timedelta(0), timedelta(minutes=1)]),
        stops=st.booleans(),
        lanes=st.sampled_from([0, 2, blocks.MOST_LANES]),
    )
    def begin(
        self,
        partitions: int,
        max_deliveries: int,
        cache_for: timedelta,
        lanes: int,
        *,
        stops: bool,
    ) -> None:
        self.stops = stops
        # The ledger tells the lanes of no block, of some, or of all of them.
        self.patch.setattr(blocks, "MOST_LANES", lanes)
        # It lasts by the real clock, so a reader uses its cache always, or never.
        self.patch.setattr(consumer, "StateCache", lambda _: StateCache(cache_for))
        #: Who looks, and sees all that is decided.
        self.onlooker = Client.from_store(self.memory)
        self.onlooker.create_queue(
            "q",
            order="key" if partitions > 1 else "strict",
            partitions=partitions,
            lease=LEASE,
            max_deliveries=max_deliveries,
            on_dead="stop" if stops else "continue",
        )
        self.onlooker.create_group("q", "g")
        self.by_partition = read_queue(self.memory, "q").by_partition
        self.store = FaultyStore(self.memory, self._watch)
        self.share = frozenset(range(partitions))
        #: By key, in the order in which they were published; of which some are settled.
        self.put: defaultdict[str, list[str]] = defaultdict(list)
        self.settled: set[str] = set()
        #: What was settled by a request whose outcome nobody knows.
        self.doubtful: set[str] = set()
        #: How many messages of each partition are in ``put``.
        self.next: defaultdict[QueueId, int] = defaultdict(int)
        self.held: dict[str, Message] = {}
        self.batches = 0
        self.number = 0
        #: Readers that have ended, or whose process has died.
        self.dead: list[QueueReader] = []
        self._begin_processes()

    def _begin_processes(self) -> None:
        self.client = Client.from_store(self.store)
        self.desk = self.client.exchange("q", "g")
        self.restart()

    # -- trouble ----------------------------------------------------------------------------------

    @contextmanager
    def _in_trouble(self, trouble: Trouble | None) -> Iterator[None]:
        """Let trouble come over what is done within; if all processes die of that, so be it."""
        if trouble is not None:
            self.store.replicas.draw(trouble.draws)
            self.store.fault = trouble.fault
            self.store.interrupt(
                lambda: self._happen(trouble.meanwhile), after=trouble.after, bit_by_bit=True
            )
        try:
            yield
        except Crash:
            self.store.calm()
            self._begin_processes()
        self.store.calm()
        self._look()

    def _happen(self, what: object) -> None:
        if what is None:
            # Nothing that the process does after that is done.
            self.store.interrupt(lambda: self._happen(what), after=0)
            raise Crash
        getattr(self, str(what))()

    def _watch(self, partition: Partition) -> None:
        """Note what is published, in its order."""
        for queue in self.by_partition:
            if partition == partition_of_ledger(queue.queue_id):
                ledger, first = Ledger(self.memory, queue.queue_id), self.next[queue.queue_id]
                self.next[queue.queue_id] = end = ledger.read_head().next
                for value in self._stored(queue, Ranges.of(Range(first, end))):
                    self.put[value.partition(":")[0]].append(value)

    def _look(self) -> None:
        """Find out what became of what is doubtful, unless a request is still under way."""
        self._note_dead()
        self.settled |= self.doubtful - self._owed()
        if not self.store.late:
            self.doubtful.clear()

    def _receive_as_other(self) -> None:
        self._receive(Client.from_store(self.store), most=4)

    def _ack_as_other(self) -> None:
        self._ack(Client.from_store(self.store), list(self.held))

    def _put_as_other(self) -> None:
        self._put(Client.from_store(self.store), KEYS)

    def _pass(self) -> None:
        self.clock.advance(timedelta(seconds=61))

    def _arrive(self) -> None:
        self.store.arrive()

    @rule()
    def a_late_request_arrives(self) -> None:
        self._arrive()

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.store.calm()
            self.reader.stop()
            for each in self.dead:
                bury(each)
        self.patch.undo()

    # -- writers ----------------------------------------------------------------------------------

    def _messages(self, keys: list[str]) -> list[NewMessage]:
        messages = []
        for key in keys:
            self.number += 1
            messages.append(NewMessage(f"{key}:{self.number}", key))
        return messages

    def _check_published(self, messages: list[NewMessage]) -> None:
        """All of them, once, and those of a key in their order."""
        for key in {str(each.key) for each in messages}:
            values = [str(each.value) for each in messages if each.key == key]
            assert [each for each in self.put[key] if each in values] == values

    def _put(self, client: Client, keys: list[str]) -> None:
        messages = self._messages(keys)
        client.put_many("q", messages)
        self._check_published(messages)

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=8), trouble=TROUBLES)
    def put_many(self, keys: list[str], trouble: Trouble | None) -> None:
        with self._in_trouble(trouble):
            self._put(self.client, keys)

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8),
        data=st.data(),
        trouble=TROUBLES,
    )
    def publish_a_batch_of_a_stream(
        self, keys: list[str], data: st.DataObject, trouble: Trouble | None
    ) -> None:
        """The driver dies after some partitions are published, and Spark repeats the batch."""
        self.batches += 1
        queue, batch = read_queue(self.store, "q"), SinkBatch("query:s", self.batches)
        messages = self._messages(keys)

        def written() -> Any:
            rows = batches_of([check_message(each, queue) for each in messages], queue)
            return write_messages(self.store, queue, rows, batch)

        first = written()
        done = data.draw(st.integers(0, len(first)), label="published before the crash")
        with self._in_trouble(trouble):
            publish_some(self.store, first, first[:done])
        publish_all(self.store, written())
        self._check_published(messages)

    # -- readers ----------------------------------------------------------------------------------

    def _got(self, values: list[str]) -> None:
        """Nothing comes before what is earlier of its key, settled, or here before it (I11)."""
        self._note_dead()
        settled = self.settled | (self.doubtful - self._owed())
        here: set[str] = set()
        for value in values:
            key = value.partition(":")[0]
            before = self.put[key][: self.put[key].index(value)]
            late = [each for each in before if each not in settled and each not in here]
            assert not late, f"{value} came before {late}"
            here.add(value)

    def _receive(self, client: Client, most: int) -> None:
        messages = client.receive("q", "g", max=most)
        self._got([text(each) for each in messages])
        self.held |= {each.receipt: each for each in messages}

    @rule(most=st.integers(1, 10), trouble=TROUBLES)
    def receive(self, most: int, trouble: Trouble | None) -> None:
        with self._in_trouble(trouble):
            self._receive(self.client, most)

    @rule(most=st.integers(1, 10), data=st.data(), trouble=TROUBLES)
    def round(self, most: int, data: st.DataObject, trouble: Trouble | None) -> None:
        acked = self._some(data)
        receipts = [Receipt.parse(each) for each in acked]
        with self._in_trouble(trouble), self._settling(acked) as stale:
            told = self.desk.round(receipts, LeaseRequest(max_messages=most))
            stale |= {str(each) for each in told.stale}
            self._got([text(each) for each in told.messages])
            self.held |= {each.receipt: each for each in told.messages}

    def _ack(self, client: Client, acked: list[str]) -> None:
        with self._settling(acked) as stale:
            stale |= set(client.ack(*acked))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), trouble=TROUBLES)
    def ack(self, data: st.DataObject, trouble: Trouble | None) -> None:
        with self._in_trouble(trouble):
            self._ack(self.client, self._some(data))

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        delay=st.sampled_from([timedelta(0), timedelta(seconds=5)]),
        trouble=TROUBLES,
    )
    def release(self, data: st.DataObject, delay: timedelta, trouble: Trouble | None) -> None:
        given = self._some(data)
        with self._in_trouble(trouble):
            self.client.release(*given, delay=delay)
        self._forget(given)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), trouble=TROUBLES)
    def reject(self, data: st.DataObject, trouble: Trouble | None) -> None:
        given = self._some(data)
        with self._in_trouble(trouble):
            if self.stops:
                self.client.reject(*given, reason="bad")
            else:
                with self._settling(given) as stale:
                    stale |= set(self.client.reject(*given, reason="bad"))
        self._forget(given)

    @rule(
        delay=st.sampled_from([timedelta(0), timedelta(seconds=5)]),
        after=st.integers(2, 6),
        draws=st.text("fs", min_size=1, max_size=6),
        most=st.integers(1, 10),
    )
    def what_is_given_back_is_on_one_replica_while_something_else_is_received(
        self, delay: timedelta, after: int, draws: str, most: int
    ) -> None:
        self._put(self.client, KEYS * 2)
        self._receive(self.client, most)
        with self._in_trouble(Trouble(None, after, None, draws)):
            self.client.release(*self.held, delay=delay)
        self._receive(self.client, most)

    @contextmanager
    def _settling(self, receipts: list[str]) -> Iterator[set[str]]:
        """Settle messages, unless their receipts turn out to be stale; they are doubtful then."""
        values = {each: text(self.held[each]) for each in receipts}
        new = set(values.values()) - self.doubtful
        self.doubtful |= new
        stale: set[str] = set()
        yield stale
        self.doubtful -= new
        self.settled |= {value for each, value in values.items() if each not in stale}
        self._forget(receipts)

    @precondition(lambda self: self.stops)
    @rule(how=st.sampled_from(list(Resume)), data=st.data(), trouble=TROUBLES)
    def resume(self, how: Resume, data: st.DataObject, trouble: Trouble | None) -> None:
        queue = self.onlooker.queue("q")
        if how is Resume.DEAD_LETTER and queue.dead_letter_queue is None:
            return
        partition = data.draw(st.none() | st.integers(0, queue.partitions - 1), label="partition")
        stopped, unrest = self._dead(), self.store.unrest
        if how is not Resume.RETRY:
            self.doubtful |= stopped
        with self._in_trouble(trouble):
            count = self.client.resume_group("q", "g", how, partition=partition)
            assert count == len(stopped - self._dead()) or unrest != self.store.unrest

    def _some(self, data: st.DataObject) -> list[str]:
        if not self.held:
            return []
        return data.draw(st.lists(st.sampled_from(list(self.held)), unique=True), label="some")

    def _forget(self, receipts: list[str]) -> None:
        for each in receipts:
            self.held.pop(each, None)

    @rule(numbers=st.sets(st.integers(0, 3)), others=st.booleans())
    def others_come_and_go(self, numbers: set[int], *, others: bool) -> None:
        """Another share of the partitions is theirs, and they look beyond it, or not."""
        self.share = frozenset(each for each in numbers if each < len(self.by_partition))
        self.looks_at_others = others

    # -- a stream ---------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """A crash: the query goes on from Spark's log, in a new process."""
        if not hasattr(self, "done"):
            self.done: Mapping[str, Any] = FIRST
            self.logged: Mapping[str, Any] | None = None
        else:
            bury(self.reader)
        queue = read_queue(self.store, "q")
        self.reader = QueueReader(self.store, queue, "g", starting="earliest")

    @rule(limit=st.sampled_from([None, 1, 4]), is_logged=st.booleans(), trouble=TROUBLES)
    def trigger(self, limit: int | None, trouble: Trouble | None, *, is_logged: bool) -> None:
        """A micro-batch; the process dies before Spark's log has it, or after that, or not."""
        with self._in_trouble(trouble):
            if self.logged is None:
                end = self._next_batch(limit)
                if end is self.done:
                    return
                if not is_logged:
                    self.restart()
                    return
                self.logged = end
            values = self._read(self.logged)
            self._got(values)
            self.running = values
            self.done, self.logged = self.logged, None

    @rule(limit=st.sampled_from([None, 4]), trouble=TROUBLES)
    def fail_a_batch(self, limit: int | None, trouble: Trouble | None) -> None:
        """A batch whose sink fails: Spark replays it in a new process."""
        if self.logged is not None:
            return
        with self._in_trouble(trouble):
            end = self._next_batch(limit)
            if end is not self.done:
                self.logged = end
                self._got(self._read(end))
                self.restart()

    def _next_batch(self, limit: int | None) -> Mapping[str, Any]:
        """Ack what the batch before had, as far as it is held, and lease."""
        self.doubtful |= set(self.running)
        end = self.reader.next_batch(self.done, limit=limit)
        self._look()
        self.running = []
        return end

    @rule(limit=st.sampled_from([None, 1, 4]), rejects=st.booleans(), trouble=TROUBLES)
    def read_what_is_there(
        self, limit: int | None, trouble: Trouble | None, *, rejects: bool
    ) -> None:
        """Another query of the group, with availableNow, runs to its end."""
        unrest = self.store.unrest
        with self._in_trouble(trouble):
            reader = QueueReader(self.store, read_queue(self.store, "q"), "g", starting="earliest")
            self.dead.append(reader)
            reader.aim()
            done: Mapping[str, Any] = FIRST
            values: list[str] = []
            while True:
                self.doubtful |= set(values)
                end = reader.next_batch(done, limit=limit)
                self._look()
                if end is done:
                    break
                done, values = end, self._read(end, reader)
                self._got(values)
                if rejects:
                    self._reject_first(reader, done)
            reader.stop()
            assert unrest != self.store.unrest or not self._to_be_had(), "it has ended too early"

    def _reject_first(self, reader: QueueReader, end: Mapping[str, Any]) -> None:
        """Record that the first message of a batch is bad."""
        part = reader.tasks(end, messages_per_task=3)[0][0]
        first = part.pieces[0].first_monoton
        receipt = Receipt.parse(f"{part.receipt_prefix}{first}")
        Consumer(self.store, part.queue, "g").settle(
            receipt.lease,
            Settlement(rejected={"bad": Ranges.of(Range(first, first + 1))}),
            deliveries=receipt.deliveries,
            with_batch=True,
        )

    #: What the last batch had, which the next one acks.
    running: list[str] = []  # noqa: RUF012 (each machine replaces it)

    def _read(self, end: Mapping[str, Any], reader: QueueReader | None = None) -> list[str]:
        return [
            text(message)
            for parts in (reader or self.reader).tasks(end, messages_per_task=3)
            for part in parts
            for message in stored_messages(fetch(self.store, part.queue, part.pieces))
        ]

    # -- time and upkeep --------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 30, 61, 200]))
    def pass_by(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule(trouble=TROUBLES)
    def repair(self, trouble: Trouble | None) -> None:
        with self._in_trouble(trouble):
            self._repair()

    def _repair(self) -> None:
        report = run_once(self.store, scan=DriverScan(self.store))
        for name in report.failed:
            assert OutcomeUnknownError.__name__ in str(report.queues[name].error)

    @precondition(lambda self: self.stops and self.onlooker.queue("q").max_deliveries)
    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=8))
    def give_everything_back(self, keys: list[str]) -> None:
        """A client that is given nothing any more can see where the group has stopped."""
        self.store.replicas.heal()
        self._put(self.client, keys)
        self.clock.advance(timedelta(seconds=200))
        while messages := self.client.receive("q", "g", max=10):
            self._got([text(each) for each in messages])
            self.client.release(*messages)
        (group,) = self.client.groups("q")
        owed = sum(1 for each in self.by_partition if self._owes(each))
        assert group.stopped == owed, "it is given nothing, and nothing says why"
        found = {each.partition for each in self.client.stopped("q", "g")}
        assert len(found) == owed, "it can't be resumed"

    def _owes(self, partition: QueueDefinition) -> bool:
        group = ConsumerGroup(Ledger(self.memory, partition.queue_id), "g")
        return group.read(every_waiting=True).floor < group.ledger.read_head().next

    def _owed(self) -> set[str]:
        """What the group has not settled; what is dead is settled, unless it stops the group."""
        return self._values(
            lambda state: [
                *slots_of(state),
                *waiting_of(state, is_dead=False),
                *(waiting_of(state, is_dead=True) if self.stops else ()),
            ]
        )

    def _dead(self) -> set[str]:
        return self._values(lambda state: waiting_of(state, is_dead=True), fresh=False)

    def _note_dead(self) -> None:
        """What was marked dead steps aside, and goes to the dead-letter queue."""
        if not self.stops:
            self.settled |= self._dead()
        if self.onlooker.queue("q").max_deliveries:
            self.settled |= {text(each) for each in self.onlooker.peek("q.dead", max=10_000)}

    def _to_be_had(self) -> list[Ranges]:
        """The first messages of partitions that nobody holds and that wait for nothing."""
        found: list[Ranges] = []
        for queue in self.by_partition:
            ledger = Ledger(self.memory, queue.queue_id)
            state, head = ConsumerGroup(ledger, "g").read(every_waiting=True), ledger.read_head()
            rows = [(each.monotons, each.due_at < state.now) for each in state.slots]
            for row in state.waiting:
                stands = self.stops and row.reason is not None
                rows.append((row.monotons, row.due <= state.now_ms and not stands))
            rows.append((Ranges.of(Range(state.head.pointer, head.next)), True))
            outstanding = [each for each in rows if each[0]]
            if outstanding:
                first, is_free = min(outstanding, key=lambda each: each[0].start)
                found += [first] if is_free else []
        return found

    def _values(
        self, which: Callable[[GroupState], list[Ranges]], *, fresh: bool = True
    ) -> set[str]:
        found: set[str] = set()
        for queue in self.by_partition:
            ledger = Ledger(self.memory, queue.queue_id)
            state, head = ConsumerGroup(ledger, "g").read(every_waiting=True), ledger.read_head()
            every = which(state)
            if fresh:
                every.append(Ranges.of(Range(state.head.pointer, head.next)))
            found |= set(self._stored(queue, Ranges.union(every)))
        return found

    def _stored(self, queue: QueueDefinition, monotons: Ranges) -> list[str]:
        pieces = find_pieces(Ledger(self.memory, queue.queue_id), monotons, deliveries=None)
        return [text(each) for each in stored_messages(fetch(self.memory, queue, pieces))]

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "store"):
            self._note_dead()
            every = {value for values in self.put.values() for value in values}
            done = self.settled | self.doubtful | set(self.running)
            assert every <= self._owed() | done, "a message is lost"


def bury(reader: QueueReader) -> None:
    """End the heartbeats of a reader whose process is dead; the store is left as it is."""
    for each in reader._readers.values():
        each.abandon()


def slots_of(state: GroupState) -> list[Ranges]:
    return [slot.monotons for slot in state.slots]


def waiting_of(state: GroupState, *, is_dead: bool) -> list[Ranges]:
    return [each.monotons for each in state.waiting if (each.reason is not None) is is_dead]


def text(message: Any) -> str:
    return bytes(message.value).decode()


TestKeyOrder = KeyOrder.TestCase
TestKeyOrder.settings = settings(deadline=None, stateful_step_count=30)
