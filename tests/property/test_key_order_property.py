"""I11: whatever happens, nothing of a key comes before all earlier messages of it are settled."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cassieq_spark import Client, NewMessage, parallel
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest, Message
from cassieq_spark.consumer import consumer, idle_backoff
from cassieq_spark.consumer.consumer import Consumer, StateCache
from cassieq_spark.consumer.message import stored_messages
from cassieq_spark.dead_letters.stopped import Resume
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.presence import Presence
from cassieq_spark.groups.state import GroupState, Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Range, Ranges, SinkBatch
from cassieq_spark.producer.new_message import batches_of, check_message
from cassieq_spark.producer.partitioned import publish_all, write_messages
from cassieq_spark.queues import read_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from tests.support.builders import make_clocked_store
from tests.support.dying import publish_some

LEASE = timedelta(seconds=60)
KEYS = [str(number) for number in range(6)]
FIRST = initial_offset("q", "g")


class KeyOrder(RuleBasedStateMachine):
    """Writers, clients, streams that crash and are restarted, a gateway's exchange, the repair."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(idle_backoff, "LONGEST_PAUSE", timedelta(0))
        self.patch.setattr(idle_backoff, "SHORTEST_PAUSE", timedelta(0))
        self.patch.setattr(idle_backoff, "RECHECK", timedelta(0))
        # One after the other, so that a run can be repeated.
        self.patch.setattr(parallel, "AT_ONCE", 1)
        self.patch.setattr(secrets, "randbelow", lambda _: 0)
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
    )
    def begin(
        self, partitions: int, max_deliveries: int, cache_for: timedelta, *, stops: bool
    ) -> None:
        self.stops = stops
        # It lasts by the real clock, so a reader uses its cache always, or never.
        self.patch.setattr(consumer, "StateCache", lambda _: StateCache(cache_for))
        self.store, self.clock = make_clocked_store()
        self.client = Client.from_store(self.store)
        self.client.create_queue(
            "q",
            order="key" if partitions > 1 else "strict",
            partitions=partitions,
            lease=LEASE,
            max_deliveries=max_deliveries,
            on_dead="stop" if stops else "continue",
        )
        self.client.create_group("q", "g")
        self.share = frozenset(range(partitions))
        #: By key, in the order in which they were published; of which some are settled.
        self.put: defaultdict[str, list[str]] = defaultdict(list)
        self.settled: set[str] = set()
        self.held: dict[str, Message] = {}
        self.desk = self.client.exchange("q", "g")
        self.batches = 0
        self.number = 0
        self.restart()

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.reader.stop()
        self.patch.undo()

    # -- writers ----------------------------------------------------------------------------------

    def _messages(self, keys: list[str]) -> list[NewMessage]:
        messages = []
        for key in keys:
            self.number += 1
            messages.append(NewMessage(f"{key}:{self.number}", key))
        return messages

    def _published(self, messages: list[NewMessage]) -> None:
        for message in messages:
            self.put[str(message.key)].append(str(message.value))

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=8))
    def put_many(self, keys: list[str]) -> None:
        messages = self._messages(keys)
        self.client.put_many("q", messages)
        self._published(messages)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8), data=st.data())
    def publish_a_batch_of_a_stream(self, keys: list[str], data: st.DataObject) -> None:
        """The driver dies after some partitions are published, and Spark repeats the batch."""
        self.batches += 1
        queue, batch = read_queue(self.store, "q"), SinkBatch("query:s", self.batches)
        messages = self._messages(keys)

        def written() -> Any:
            rows = batches_of([check_message(each, queue) for each in messages], queue)
            return write_messages(self.store, queue, rows, batch)

        first = written()
        done = data.draw(st.integers(0, len(first)), label="published before the crash")
        publish_some(self.store, first, first[:done])
        publish_all(self.store, written())
        self._published(messages)

    # -- readers ----------------------------------------------------------------------------------

    def _got(self, values: list[str]) -> None:
        """Nothing comes before what is earlier of its key, settled, or here before it (I11)."""
        self._note_dead()
        here: set[str] = set()
        for value in values:
            key = value.partition(":")[0]
            before = self.put[key][: self.put[key].index(value)]
            late = [each for each in before if each not in self.settled and each not in here]
            assert not late, f"{value} came before {late}"
            here.add(value)

    @rule(most=st.integers(1, 10))
    def receive(self, most: int) -> None:
        messages = self.client.receive("q", "g", max=most)
        self._got([text(each) for each in messages])
        self.held |= {each.receipt: each for each in messages}

    @rule(most=st.integers(1, 10), data=st.data())
    def round(self, most: int, data: st.DataObject) -> None:
        acked = self._some(data)
        receipts = [Receipt.parse(each) for each in acked]
        told = self.desk.round(receipts, LeaseRequest(max_messages=most))
        stale = {str(each) for each in told.stale}
        self.settled |= {text(self.held[each]) for each in acked if each not in stale}
        self._forget(acked)
        self._got([text(each) for each in told.messages])
        self.held |= {each.receipt: each for each in told.messages}

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        acked = self._some(data)
        stale = set(self.client.ack(*acked))
        self.settled |= {text(self.held[each]) for each in acked if each not in stale}
        self._forget(acked)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay=st.sampled_from([timedelta(0), timedelta(seconds=5)]))
    def release(self, data: st.DataObject, delay: timedelta) -> None:
        given = self._some(data)
        self.client.release(*given, delay=delay)
        self._forget(given)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        given = self._some(data)
        stale = set(self.client.reject(*given, reason="bad") if given else ())
        if not self.stops:
            self.settled |= {text(self.held[each]) for each in given if each not in stale}
        self._forget(given)

    @precondition(lambda self: self.stops)
    @rule(how=st.sampled_from(list(Resume)), data=st.data())
    def resume(self, how: Resume, data: st.DataObject) -> None:
        queue = self.client.queue("q")
        if how is Resume.DEAD_LETTER and queue.dead_letter_queue is None:
            return
        partition = data.draw(st.none() | st.integers(0, queue.partitions - 1), label="partition")
        stopped = self._dead()
        count = self.client.resume_group("q", "g", how, partition=partition)
        assert count == len(stopped - self._dead())
        if how is not Resume.RETRY:
            self.settled |= stopped - self._dead()

    def _some(self, data: st.DataObject) -> list[str]:
        if not self.held:
            return []
        return data.draw(st.lists(st.sampled_from(list(self.held)), unique=True), label="some")

    def _forget(self, receipts: list[str]) -> None:
        for each in receipts:
            del self.held[each]

    @rule(numbers=st.sets(st.integers(0, 3)), others=st.booleans())
    def others_come_and_go(self, numbers: set[int], *, others: bool) -> None:
        """Another share of the partitions is theirs, and they look beyond it, or not."""
        self.share = frozenset(
            each for each in numbers if each < self.client.queue("q").partitions
        )
        self.looks_at_others = others

    # -- a stream ---------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """A crash: the query goes on from Spark's log, in a new process."""
        if not hasattr(self, "done"):
            self.done: Mapping[str, Any] = FIRST
            self.logged: Mapping[str, Any] | None = None
        queue = read_queue(self.store, "q")
        self.reader = QueueReader(self.store, queue, "g", starting="earliest")

    @rule(limit=st.sampled_from([None, 1, 4]), is_logged=st.booleans())
    def trigger(self, limit: int | None, *, is_logged: bool) -> None:
        """A micro-batch; the process dies before Spark's log has it, or not, and not before."""
        if self.logged is None:
            end = self.reader.next_batch(self.done, limit=limit)
            self._note_acked()
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

    @rule(limit=st.sampled_from([None, 4]))
    def fail_a_batch(self, limit: int | None) -> None:
        """A batch whose sink fails: Spark replays it in a new process."""
        if self.logged is not None:
            return
        end = self.reader.next_batch(self.done, limit=limit)
        self._note_acked()
        if end is not self.done:
            self._got(self._read(end))
            self.logged = end
            self.restart()

    @rule(limit=st.sampled_from([None, 1, 4]), rejects=st.booleans())
    def read_what_is_there(self, limit: int | None, *, rejects: bool) -> None:
        """Another query of the group, with availableNow, runs to its end."""
        reader = QueueReader(self.store, read_queue(self.store, "q"), "g", starting="earliest")
        reader.aim()
        done: Mapping[str, Any] = FIRST
        values: list[str] = []
        while True:
            end = reader.next_batch(done, limit=limit)
            owed = self._owed()
            self.settled |= {each for each in values if each not in owed}
            if end is done:
                break
            done, values = end, self._read(end, reader)
            self._got(values)
            if rejects:
                self._reject_first(reader, done)
        reader.stop()
        assert not self._to_be_had(), "it has ended too early"

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

    running: list[str] = []  # noqa: RUF012 (each machine replaces it)

    def _note_acked(self) -> None:
        """What the batch before had is acked now, as far as it was held."""
        owed = self._owed()
        self.settled |= {each for each in self.running if each not in owed}
        self.running = []

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

    @rule()
    def repair(self) -> None:
        report = run_once(self.store, scan=DriverScan(self.store))
        assert not report.failed

    @precondition(lambda self: self.stops and self.client.queue("q").max_deliveries)
    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=8))
    def give_everything_back(self, keys: list[str]) -> None:
        """A client that is given nothing any more can see where the group has stopped."""
        self.put_many(keys)
        self.clock.advance(timedelta(seconds=200))
        while messages := self.client.receive("q", "g", max=10):
            self._got([text(each) for each in messages])
            self.client.release(*messages)
        (group,) = self.client.groups("q")
        owed = sum(1 for each in read_queue(self.store, "q").by_partition if self._owes(each))
        assert group.stopped == owed, "it is given nothing, and nothing says why"
        found = {each.partition for each in self.client.stopped("q", "g")}
        assert len(found) == owed, "it can't be resumed"

    def _owes(self, partition: QueueDefinition) -> bool:
        group = ConsumerGroup(Ledger(self.store, partition.queue_id), "g")
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
        if read_queue(self.store, "q").max_deliveries:
            self.settled |= {text(each) for each in self.client.peek("q.dead", max=10_000)}

    def _to_be_had(self) -> list[Ranges]:
        """The first messages of partitions that nobody holds and that wait for nothing."""
        found: list[Ranges] = []
        for queue in read_queue(self.store, "q").by_partition:
            ledger = Ledger(self.store, queue.queue_id)
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
        for queue in read_queue(self.store, "q").by_partition:
            ledger = Ledger(self.store, queue.queue_id)
            state, head = ConsumerGroup(ledger, "g").read(every_waiting=True), ledger.read_head()
            every = which(state)
            if fresh:
                every.append(Ranges.of(Range(state.head.pointer, head.next)))
            pieces = find_pieces(ledger, Ranges.union(every), deliveries=None)
            found |= {text(each) for each in stored_messages(fetch(self.store, queue, pieces))}
        return found

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "store"):
            self._note_dead()
            every = {value for values in self.put.values() for value in values}
            assert every <= self._owed() | self.settled | set(self.running), "a message is lost"


def slots_of(state: GroupState) -> list[Ranges]:
    return [slot.monotons for slot in state.slots]


def waiting_of(state: GroupState, *, is_dead: bool) -> list[Ranges]:
    return [each.monotons for each in state.waiting if (each.reason is not None) is is_dead]


def text(message: Any) -> str:
    return bytes(message.value).decode()


TestKeyOrder = KeyOrder.TestCase
TestKeyOrder.settings = settings(deadline=None, stateful_step_count=30)
