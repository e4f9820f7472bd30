"""Gateways' exchanges over several partitions, of which some fail, while the schema changes: a
good ack is never stale, what is told as done is done, each message has what was put, its count
says how often it was handed out, and nothing is lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cassieq_spark import Client, NewMessage, parallel
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest, Message
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.client.exchange import RoundResult
from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.errors import NotAppliedError
from cassieq_spark.groups.presence import Presence
from cassieq_spark.queues import CACHED_FOR, alter_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from tests.support.builders import LEASE, make_clocked_store
from tests.support.changing_schema import ChangingSchema
from tests.support.inline_gateway import InlineGateway, Leaves, Request
from tests.support.partly_down import PartlyDownStore

MOST_PARTITIONS = 4
#: Some for each partition.
KEYS = [str(number) for number in range(9)]
#: What fails during a round: calls, and in which partitions.
DOWN = st.frozensets(
    st.tuples(st.sampled_from(["cas", "read_chunks"]), st.integers(0, MOST_PARTITIONS - 1)),
    max_size=3,
)
LONG = LEASE + timedelta(seconds=1)
REQUESTS = st.lists(
    st.builds(Request, st.integers(1, 3), st.sampled_from(Leaves)), min_size=1, max_size=4
)
#: Which of the readers by HTTP is the third.
COALESCER = 2


class Exchanges(RuleBasedStateMachine):
    """Two gateways and a client of a slow group, a fast group, the repair, an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        # One after the other, so that a run can be repeated.
        self.patch.setattr(parallel, "AT_ONCE", 1)
        self.patch.setattr(secrets, "randbelow", lambda _: 0)
        # What an exchange knows is as old as a rule says.
        self.seconds = 0.0
        self.patch.setattr(exchange_module, "monotonic", lambda: self.seconds)
        self.patch.setattr(consumer_module, "monotonic", lambda: self.seconds)
        self.share = frozenset(range(MOST_PARTITIONS))
        self.patch.setattr(Presence, "share", lambda _: self.share)
        memory, self.clock = make_clocked_store()
        self.store = PartlyDownStore(memory)
        self.client = Client.from_store(self.store)
        self.gateways = [Client.from_store(self.store) for _ in range(2)]
        self.desks = [each.exchange("q", "slow") for each in self.gateways]
        self.coalescer = InlineGateway(self.client)
        self.number = 0
        #: Receipts of earlier versions of the queue, and of messages that were settled.
        self.spent: list[str] = []
        #: By receipt: messages under a lease that runs, and under one that ran out.
        self.held: dict[str, str] = {}
        self.lapsed: dict[str, str] = {}

    @initialize(
        partitions=st.integers(1, MOST_PARTITIONS), in_order=st.booleans(), typed=st.booleans()
    )
    def create(self, partitions: int, *, in_order: bool, typed: bool) -> None:
        self.schema = ChangingSchema(("text", "string")) if typed else None
        several = "key" if in_order else "none"
        order = several if partitions > 1 else "strict" if in_order else "none"
        self.client.create_queue(
            "q",
            order=order,
            partitions=partitions,
            lease=LEASE,
            max_deliveries=0,
            schema=self.schema and self.schema.ddl,
        )
        self.client.create_group("q", "fast")
        #: Whether the slow group is there for certain: before that, it is owed what is left only.
        self.joined = False
        self.put: set[str] = set()
        #: What was put, and by which version of the schema.
        self.rows: dict[str, tuple[Any, int]] = {}
        #: For each exchange: the version that it knows at least.
        self.known = [0, 0, 0]
        #: How often each was handed out, and rounds whose reads have failed, which counts.
        self.handed: dict[str, int] = {}
        self.failed_reads = 0
        #: What the fast group has settled, and what may be deleted so.
        self.passed: set[str] = set()
        self.optional: set[str] = set()
        self.done: set[str] = set()
        self.spent += [*self.held, *self.lapsed]
        self.held, self.lapsed = {}, {}

    @rule(partitions=st.integers(1, MOST_PARTITIONS), in_order=st.booleans(), typed=st.booleans())
    def create_anew(self, partitions: int, *, in_order: bool, typed: bool) -> None:
        self.client.delete_queue("q", force=True)
        self.create(partitions, in_order=in_order, typed=typed)

    @precondition(lambda self: self.schema is not None)
    @rule(what=st.integers(0, 20))
    def alter(self, what: int) -> None:
        assert self.schema is not None
        self.schema.change(what)
        alter_queue(self.store, "q", schema=self.schema.ddl)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def put_many(self, keys: list[str]) -> None:
        values = [str(self.number + at) for at in range(len(keys))]
        self.number += len(keys)
        rows = [self.schema.row(len(self.put), each) if self.schema else each for each in values]
        self.client.put_many("q", list(map(NewMessage, rows, keys)))
        self.put |= {*values}
        self.rows |= {each: (row, self._now) for each, row in zip(values, rows, strict=True)}

    @rule(
        desk=st.integers(0, 1),
        most=st.integers(0, 4) | st.just(100),
        max_bytes=st.none() | st.integers(1, 5),
        down=st.just(frozenset()) | DOWN,
        data=st.data(),
    )
    def round(
        self,
        desk: int,
        most: int,
        max_bytes: int | None,
        down: frozenset[tuple[str, int]],
        data: st.DataObject,
    ) -> None:
        every = [*self.held, *self.lapsed, *self.spent]
        some = st.lists(st.sampled_from(every), unique=True) if every else st.just([])
        request = LeaseRequest(max_messages=most, max_bytes=max_bytes, max_decoded_bytes=max_bytes)
        acked = data.draw(some, label="receipts")
        queue_ids = [each.queue_id for each in self.client.queue("q").by_partition]
        self.store.down = {(call, queue_ids[number % len(queue_ids)]) for call, number in down}
        self.failed_reads += any(call == "read_chunks" for call, _ in down)
        try:
            told = self._round(desk, acked, request)
        except NotAppliedError:
            # Nothing was done: the receipts are as good as before.
            assert down
        else:
            assert down or not (told.error or told.failed)
        self.store.down.clear()

    def _round(self, desk: int, acked: Sequence[str], request: LeaseRequest) -> RoundResult:
        told = self.desks[desk].round([Receipt.parse(each) for each in acked], request)
        failed = {str(each) for each in told.failed}
        stale = {str(each) for each in told.stale}
        assert stale | failed <= {*acked}
        assert not stale & failed
        self._settle([each for each in acked if each not in failed], stale)
        self._hand_over(told.messages, self.known[desk])
        self.joined |= bool(request.max_messages) and told.error is None
        return told

    def _settle(self, acked: Sequence[str], stale: set[str]) -> None:
        for receipt in acked:
            if receipt in self.held:
                assert receipt not in stale, "the ack of a lease that runs is stale"
            elif receipt in self.spent:
                assert receipt in stale, "a receipt is good twice"
                continue
            value = self.held.pop(receipt, None) or self.lapsed.pop(receipt)
            self.spent.append(receipt)
            if receipt not in stale:
                assert value not in {*self.held.values(), *self.done}
                self.done.add(value)

    def _hand_over(self, messages: Sequence[Message], known: int) -> None:
        """What a reader got that knows this version of the schema at least."""
        for message in messages:
            is_row = isinstance(message.value, dict)
            value = message.value["text"] if is_row else bytes(message.value).decode()
            assert value in self.put - self.done - {*self.held.values()}
            self.held[message.receipt] = value
            put, written_by = self.rows[value]
            if self.schema is not None:
                assert self.schema.shows(message.value, put, since=max(known, written_by))
            before = self.handed.get(value, 0)
            assert before < message.delivery_count <= before + 1 + self.failed_reads
            self.handed[value] = message.delivery_count

    @property
    def _now(self) -> int:
        return self.schema.now if self.schema else 0

    @precondition(lambda self: self.joined)
    @rule(requests=REQUESTS, data=st.data())
    def request(self, requests: Sequence[Request], data: st.DataObject) -> None:
        every = [*self.held, *self.lapsed, *self.spent]
        some = st.lists(st.sampled_from(every), unique=True) if every else st.just([])
        acked = data.draw(some, label="receipts")
        served = self.coalescer.serve("q", "slow", requests, list(map(Receipt.parse, acked)))
        self._settle(acked, {str(each) for each in served.stale})
        for messages in served.answers:
            self._hand_over(messages, self.known[COALESCER])

    @rule(most=st.integers(1, 4))
    def receive(self, most: int) -> None:
        self._hand_over(self.client.receive("q", "slow", max=most), self._now)
        self.joined = True

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        given = data.draw(st.lists(st.sampled_from([*self.held]), unique=True), label="given")
        assert self.client.release(*given) == []
        for receipt in given:
            del self.held[receipt]
            self.spent.append(receipt)

    @rule()
    def let_the_fast_group_take_all(self) -> None:
        for _ in range(2 + len(self.put)):
            messages = self.client.receive("q", "fast", max=100)
            assert self.client.ack(*messages) == []
        self.passed = {*self.put}

    @rule()
    def repair(self) -> None:
        assert not run_once(self.store, scan=DriverScan(self.store)).failed
        if not self.joined:
            self.optional |= self.passed

    @rule(numbers=st.sets(st.integers(0, MOST_PARTITIONS - 1)))
    def others_come_and_go(self, numbers: set[int]) -> None:
        """Others take these partitions: only where a reader looks first follows from it."""
        self.share = frozenset(numbers)

    @rule(seconds=st.sampled_from([0.01, 1]))
    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.advance(timedelta(seconds=seconds))
        if seconds >= CACHED_FOR.total_seconds():
            self.known = [self._now] * 3

    @rule()
    def let_leases_run_out(self) -> None:
        self.wait(LONG.total_seconds())
        self.lapsed |= self.held
        self.held.clear()

    def teardown(self) -> None:
        try:
            if hasattr(self, "put"):
                self._drain()
        finally:
            self.coalescer.close()
            self.patch.undo()

    def _drain(self) -> None:
        """Everything is delivered in the end."""
        self.let_leases_run_out()
        idle = 0
        while idle < 2:
            self.wait(1)
            told = self._round(idle % 2, [*self.held], LeaseRequest(max_messages=3))
            idle = 0 if told.messages else idle + 1
        assert self.put - self.optional <= self.done, "a message is lost"


TestExchanges = Exchanges.TestCase
TestExchanges.settings = settings(deadline=None, stateful_step_count=25)
