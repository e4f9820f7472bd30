"""Two clients, a gateway and its client against a model: whatever each does in whatever order, no
message is lost, each has what was put, and its count says how often it was handed out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cassieq_spark import CassieqError, Client, Message, NewMessage, backoff
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.errors import BatchChangedError, SchemaError
from cassieq_spark.http.accounts.account import full_name
from cassieq_spark.http.client import HttpStateError
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Slice, partition_of_group
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.changing_schema import ChangingSchema
from tests.support.faults import Age, FakeClock
from tests.support.gateway import RECEIPTS, InProcess
from tests.support.inline_gateway import InlineGateway, Leaves, Request

#: As the account names it at the gateway, its name is shorter.
QUEUE = full_name("acme", "q")
LEASE = timedelta(seconds=3)
MOMENT = timedelta(milliseconds=1)
#: Longer than any delay, lease, or pause before dead-lettering is tried again.
LONG = timedelta(minutes=5)

DURATIONS = st.sampled_from([MOMENT, LEASE, 2 * LEASE])
DELAYS = st.just(timedelta(0)) | DURATIONS
SOME = st.lists(st.integers(0, 100), min_size=1, max_size=4)
FAULTS = st.none() | st.sampled_from(Fault)
#: Idempotency keys.
NAMES = st.sampled_from("ab")
#: What no queue takes, in what is put between good messages.
BAD = st.sampled_from(
    [
        {"value": None},
        {"value": "\ud800"},
        {"key": 0},
        {"headers": {"a": 0}},
        {"headers": {"": "b"}},
        {"headers": 0},
        {"delay": 5},
        {"delay": -MOMENT},
        {"visible_at": datetime(2026, 1, 1)},  # noqa: DTZ001 (that is it),
    ]
)
#: Which of the clients: as behind a balancer, who acks need not have received.
#: Most bytes of what is handed over; the values have one or two.
ROOMS = st.none() | st.integers(1, 4)
EITHER = st.integers(0, 1)
REQUESTS = st.lists(
    st.builds(Request, st.integers(1, 3), st.sampled_from(Leaves)), min_size=1, max_size=3
)
#: Slots beyond those that held messages at once: what one step fills and frees again.
SPARE = 3


def receipt_of_http(sent: str) -> str:
    """The receipt as `Client` has it."""
    return str(RECEIPTS.parse(sent, QUEUE))


#: The clock by which an exchange knows how old its knowledge is.
AGE = Age()


class ClientMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.store = FaultyStore(MemoryStore(self.clock))
        self.client = Client.from_store(self.store)

    @initialize(
        strict=st.booleans(), typed=st.booleans(), draws=st.text("fs", min_size=1, max_size=6)
    )
    def begin(self, *, strict: bool, typed: bool, draws: str) -> None:
        self.strict = strict
        self.schema = ChangingSchema(("number", "bigint")) if typed else None
        self.store.replicas.draw(draws)
        self.client.create_queue(
            QUEUE,
            lease=LEASE,
            max_deliveries=1000,
            order="strict" if strict else "none",
            schema=self.schema and self.schema.ddl,
        )
        self.client.receive(QUEUE, "g")
        self.clients = (self.client, Client.from_store(self.store))
        self.desks = [each.exchange(QUEUE, "g") for each in self.clients]
        self.gateway = InlineGateway(self.client)
        # Idempotency keys: the first message that each has put, and how many.
        self.names: dict[str, tuple[int, int]] = {}
        self._http: tuple[InProcess, Any] | None = None
        # For each exchange, and the gateways: the version of the schema that it knows at least.
        self.known = [0, 0, 0, 0]
        self.most_filled = 0
        self.values: dict[int, Any] = {}
        self.written_by: dict[int, int] = {}
        self.owed: set[int] = set()
        self.dead: set[int] = set()
        self.deliveries: dict[int, int] = {}
        # Which receipt holds a message, and until when nobody else may.
        self.holder: dict[int, tuple[str, datetime]] = {}
        self.received: list[Message] = []

    @property
    def by_http(self) -> Any:
        """A client of a whole gateway, which is made when a history first needs it."""
        if self._http is None:
            gateway = InProcess(self.store).__enter__()
            self._http = gateway, gateway.queue("q")
        return self._http[1]

    @rule(count=st.integers(1, 4), delay=DELAYS, as_table=st.booleans(), fault=FAULTS)
    def put(
        self, count: int, delay: timedelta, fault: Fault | None, *, as_table: bool = False
    ) -> None:
        first = len(self.values)
        values = [self._value(number) for number in range(first, first + count)]
        is_table = as_table and self.schema is not None
        given = pa.Table.from_pylist(values) if is_table else values
        self.store.fault = fault
        monotons = self.client.put_many(QUEUE, given, delay=self._possible(delay))
        assert (monotons.start, monotons.stop) == (first, first + count)
        self._is_put(values)

    @rule(count=st.integers(1, 4), bad=st.lists(BAD, max_size=2), fault=FAULTS)
    def produce(self, count: int, bad: list[dict[str, Any]], fault: Fault | None) -> None:
        first = len(self.values)
        values = [self._value(number) for number in range(first, first + count)]
        with self.client.producer(QUEUE, linger=LONG) as producer:
            self.store.fault = fault
            futures = []
            for number, value in enumerate(values):
                for each in bad[number : number + 1]:
                    with pytest.raises(CassieqError):
                        producer.put(NewMessage(**({"value": self._value(0)} | each)))
                futures.append(producer.put(value))
        assert [each.result(0) for each in futures] == list(range(first, first + count))
        self._is_put(values)

    @rule(
        name=NAMES,
        count=st.integers(1, 3),
        same=st.booleans(),
        by_http=st.booleans(),
        fault=FAULTS,
    )
    def put_under_a_key(
        self, name: str, count: int, fault: Fault | None, *, same: bool, by_http: bool
    ) -> None:
        """Again with the same content, or with another one, by either way in."""
        # The gateway's keys are its own.
        name = f"{name} by HTTP" if by_http else name
        put = self.by_http.put_many if by_http else partial(self.client.put_many, QUEUE)
        at = len(self.values)
        first, of_key = self.names.get(name, (at, count))
        self.store.fault = fault
        if name not in self.names:
            values = [self._value(number) for number in range(at, at + count)]
            monotons = put(values, idempotency_key=name)
            assert monotons is not None
            assert (monotons.start, monotons.stop) == (at, at + count)
            self.names[name] = (at, count)
            self._is_put(values)
        elif same:
            values = [self.values[number] for number in range(first, first + of_key)]
            if self.schema is None or self.written_by[first] == self.schema.now:
                assert put(values, idempotency_key=name) is None
        else:
            with pytest.raises((BatchChangedError, HttpStateError), match="other content"):
                put([self._value(at)] * count, idempotency_key=name)
        self.store.fault = None

    @rule(most=st.integers(1, 5))
    def receive_by_http(self, most: int) -> None:
        messages = [
            replace(each, receipt=receipt_of_http(each.receipt))
            for each in self.by_http.receive("g", max=most)
        ]
        assert len(messages) <= most
        self._take(messages, known=self.known[3])

    @precondition(lambda self: self.received)
    @rule(which=SOME, fault=FAULTS, acks=st.booleans())
    def settle_by_http(self, which: Sequence[int], fault: Fault | None, *, acks: bool) -> None:
        chosen = self._choose(which)
        self.store.fault = fault
        settle = self.by_http.ack if acks else self.by_http.release
        stale = settle(*(RECEIPTS.of(message.receipt) for message in chosen))
        told = [receipt_of_http(each) for each in stale]
        gone = self._forget(self._live(chosen, told, fault))
        self.owed -= gone if acks else set()

    @rule(count=st.integers(1, 4), fault=FAULTS)
    def put_by_http(self, count: int, fault: Fault | None) -> None:
        first = len(self.values)
        values = [self._value(number) for number in range(first, first + count)]
        self.store.fault = fault
        monotons = self.by_http.put_many(values)
        assert (monotons.start, monotons.stop) == (first, first + count)
        self.store.fault = None
        self._is_put(values)

    @rule(bad=BAD)
    def put_what_no_queue_takes(self, bad: dict[str, Any]) -> None:
        with pytest.raises(CassieqError):
            self.client.put(QUEUE, **({"value": self._value(0)} | bad))
        good = {name: what for name, what in bad.items() if name in {"value", "key", "headers"}}
        if good:
            wrong = NewMessage(**({"value": self._value(0)} | good))
            with pytest.raises(CassieqError):
                self.client.put_many(QUEUE, [self._value(0), wrong])

    @precondition(lambda self: self.schema is not None)
    @rule(what=st.integers(0, 20), by_http=st.booleans(), fault=FAULTS)
    def alter(self, *, what: int, by_http: bool, fault: Fault | None) -> None:
        assert self.schema is not None
        self.schema.change(what)
        ddl, by = self.schema.ddl, self.by_http if by_http else None
        self.store.fault = fault
        # What one call sets, the other leaves: the length of a lease stays.
        altered = (
            self.client.alter_queue(QUEUE, schema=ddl) if by is None else by.alter(schema=ddl)
        )
        self.store.fault = None
        assert (altered.schema, altered.lease) == (ddl, LEASE)

    @precondition(lambda self: self.schema is not None and self.schema.unsafe)
    @rule(fault=FAULTS)
    def a_wide_column_gets_narrow_never(self, fault: Fault | None) -> None:
        """Neither one that there is nor one that comes back: its messages are stored."""
        self.store.fault = fault
        with pytest.raises(SchemaError, match="the schema can't be changed so"):
            self.client.alter_queue(QUEUE, schema=self.schema.unsafe)
        self.store.fault = None

    @rule()
    def what_exchanges_know_gets_old(self) -> None:
        AGE.seconds += 1
        if self.schema is not None:
            self.known = [self.schema.now] * 4

    @rule(client=EITHER, most=st.integers(1, 5), room=ROOMS, fault=FAULTS)
    def receive(
        self, client: int, most: int, fault: Fault | None, room: int | None = None
    ) -> None:
        self.store.fault = fault
        messages = self.clients[client].receive(QUEUE, "g", max=most, max_bytes=room)
        assert len(messages) <= most
        self._fits(messages, room)
        assert {message.lease_until for message in messages} <= {self.clock.now + LEASE}
        self._take(messages, known=self.schema.now if self.schema else 0)

    @rule(
        client=EITHER, most=st.integers(0, 5), which=st.just([]) | SOME, room=ROOMS, fault=FAULTS
    )
    def exchange(
        self,
        client: int,
        most: int,
        which: Sequence[int],
        fault: Fault | None,
        room: int | None = None,
    ) -> None:
        chosen = self._choose(which) if self.received else []
        self.store.fault = fault
        receipts = [Receipt.parse(message.receipt) for message in chosen]
        told = self.desks[client].round(
            receipts, LeaseRequest(max_messages=most, max_decoded_bytes=room)
        )
        assert told.error is None
        assert len(told.messages) <= most
        self._fits(told.messages, room)
        live = self._live(chosen, [str(each) for each in told.stale], fault)
        self.owed -= self._forget(live)
        self._take(told.messages, known=self.known[client])

    @rule(requests=REQUESTS, which=st.just([]) | SOME, fault=FAULTS)
    def request(
        self, requests: Sequence[Request], which: Sequence[int], fault: Fault | None
    ) -> None:
        chosen = self._choose(which) if self.received else []
        self.store.fault = fault
        served = self.gateway.serve(
            QUEUE, "g", requests, [Receipt.parse(message.receipt) for message in chosen]
        )
        live = self._live(chosen, [str(each) for each in served.stale], fault)
        self.owed -= self._forget(live)
        for messages in served.answers:
            self._take(messages, known=self.known[2])

    def _possible(self, delay: timedelta) -> timedelta:
        return timedelta(0) if self.strict else delay

    def _value(self, number: int) -> Any:
        return self.schema.row(number, number) if self.schema else b"%d" % number

    def _is_as_put(self, message: Message, known: int) -> bool:
        put = self.values[message.monoton]
        if self.schema is None:
            return bool(message.value == put)
        value = json.loads(message.value) if isinstance(message.value, bytes) else message.value
        # No reader may know less than who wrote it.
        since = max(known, self.written_by[message.monoton])
        return self.schema.shows(value, put, since=since)

    def _fits(self, messages: Sequence[Message], room: int | None) -> None:
        # Numbers take 8 bytes each, in however many columns.
        size = sum(8 if isinstance(each.value, dict) else len(each.value) for each in messages)
        assert room is None or size <= room or len(messages) == 1

    def _take(self, messages: Sequence[Message], *, known: int) -> None:
        """What was handed out, by a reader that knows this version of the schema at least."""
        taken = {message.monoton for message in messages}
        if self.strict and taken:
            assert min(self.owed) in taken, "offered before all earlier ones were settled"
            assert not {at for at in self.owed if at < max(taken)} - taken, "out of order"
        for message in messages:
            assert message.monoton in self.owed
            assert self._is_as_put(message, known)
            assert message.delivery_count == self.deliveries.get(message.monoton, 0) + 1
            _, until = self.holder.get(message.monoton, ("", self.clock.now - MOMENT))
            assert until < self.clock.now, "somebody holds it"
            assert message.lease_until <= self.clock.now + LEASE
            self.deliveries[message.monoton] = message.delivery_count
            self.holder[message.monoton] = (message.receipt, self.clock.now + LEASE)
        self.received += messages

    @precondition(lambda self: self.received)
    @rule(client=EITHER, which=SOME, fault=FAULTS)
    def ack(self, client: int, which: Sequence[int], fault: Fault | None) -> None:
        chosen = self._choose(which)
        self.store.fault = fault
        live = self._live(chosen, self.clients[client].ack(*chosen))
        self.owed -= self._forget(live)

    @precondition(lambda self: self.received)
    @rule(which=SOME, delay=DELAYS, fault=FAULTS)
    def release(self, which: Sequence[int], delay: timedelta, fault: Fault | None) -> None:
        chosen = self._choose(which)
        self.store.fault = fault
        live = self._live(chosen, self.client.release(*chosen, delay=delay))
        self._forget(live)

    @precondition(lambda self: self.received)
    @rule(which=SOME, by=DURATIONS, fault=FAULTS)
    def extend(self, which: Sequence[int], by: timedelta, fault: Fault | None) -> None:
        chosen = self._choose(which)
        self.store.fault = fault
        live = self._live(chosen, self.client.extend(*chosen, by=by))
        for message in live:
            self.holder[message.monoton] = (message.receipt, self.clock.now + by)

    @precondition(lambda self: self.received)
    @rule(which=SOME, fault=FAULTS)
    def reject(self, which: Sequence[int], fault: Fault | None) -> None:
        chosen = self._choose(which)
        self.store.fault = fault
        live = self._live(chosen, self.client.reject(*chosen, reason="bad"))
        gone = self._forget(live)
        self.owed -= gone
        self.dead |= gone

    @precondition(lambda self: self.received)
    @rule(which=st.integers(0, 100), delay=DELAYS)
    def replace(self, which: int, delay: timedelta) -> None:
        (message,) = self._choose([which])
        value = self._value(len(self.values))
        live = self._live(
            [message], self.client.replace(message, value, delay=self._possible(delay))
        )
        if live:
            self.owed -= self._forget(live)
            self._is_put([value])

    @rule(client=EITHER, rounds=st.integers(1, 6), extends=st.booleans())
    def one_receives_and_the_other_acks(self, client: int, rounds: int, *, extends: bool) -> None:
        for _ in range(rounds):
            self.receive(client=client, most=1, fault=None)
            if self.received and extends:
                self.extend(which=[-1], by=2 * LEASE, fault=None)
            if self.received:
                self.ack(client=1 - client, which=[-1], fault=None)

    @precondition(lambda self: self.schema is not None)
    @rule(
        desk=EITHER, fates=st.lists(st.integers(0, 20), min_size=1, max_size=2), ages=st.booleans()
    )
    def the_schema_changes_between_rounds(
        self, desk: int, fates: Sequence[int], *, ages: bool
    ) -> None:
        self.put(count=3, delay=timedelta(0), fault=None)
        # What comes next is read ahead.
        self.exchange(client=desk, most=1, which=[], fault=None)
        for what in fates:
            self.alter(what=what, by_http=False, fault=None)
        if ages:
            self.what_exchanges_know_gets_old()
        self.put(count=1, delay=timedelta(0), fault=None)
        self.exchange(client=desk, most=5, which=[-1], fault=None)
        self.request([Request(5)], which=[], fault=None)

    @rule(by=DURATIONS)
    def time_passes(self, by: timedelta) -> None:
        self.clock.advance(by)

    @rule()
    def late_requests_arrive(self) -> None:
        self.store.arrive()

    @invariant()
    def nothing_is_lost(self) -> None:
        (figures,) = self.client.stats(QUEUE).groups
        assert len(self.owed) <= figures.depth <= len(self.owed) + len(self.dead)
        assert figures.leased <= figures.depth

    @invariant()
    def there_are_no_more_slots_than_leases_were_held_at_once(self) -> None:
        partition = partition_of_group(self.client.queue(QUEUE).queue_id, "g")
        rows = self.store.read_rows(partition, Slice(kinds=("slot",))).rows
        self.most_filled = max(self.most_filled, sum(bool(row["ranges"]) for row in rows))
        assert len(rows) <= self.most_filled + SPARE

    def teardown(self) -> None:
        self.store.calm()
        while self.owed:
            self.clock.advance(LONG)
            self.receive(client=0, most=5, fault=None)
            assert self.received, "what is owed is delivered"
            live = self._live(self.received, self.client.ack(*self.received))
            assert live, "what is owed is delivered"
            self.owed -= self._forget(live)
        self.clock.advance(LONG)
        assert self.client.receive(QUEUE, "g", max=100) == []
        assert self.client.stats(QUEUE).groups[0].depth == 0
        letters = self.client.peek(f"{QUEUE}.dead", max=1000)
        assert sorted(int(each.headers["cassieq.origin-monoton"] or -1) for each in letters) == (
            sorted(self.dead)
        )
        self.gateway.close()
        if self._http is not None:
            self._http[0].__exit__()
        for each in self.clients:
            each.close()

    def _is_put(self, values: Sequence[Any]) -> None:
        for value in values:
            self.owed.add(len(self.values))
            self.written_by[len(self.values)] = self.schema.now if self.schema else 0
            self.values[len(self.values)] = value

    def _choose(self, which: Sequence[int]) -> list[Message]:
        """Some of the messages ever received."""
        numbers = {number % len(self.received) for number in which}
        return [self.received[number] for number in sorted(numbers)]

    def _live(
        self, chosen: Sequence[Message], stale: Sequence[str], fault: Fault | None = None
    ) -> list[Message]:
        """The messages of ``chosen`` that were held still, as their receipts were not stale.

        An ack by a state that was known, whose answer is lost, counts as applied if somebody else
        has settled the message since that state: nothing tells the two apart.
        """
        self.store.fault = None
        assert len(set(stale)) == len(stale)
        assert set(stale) <= {message.receipt for message in chosen}
        for message in chosen:
            receipt, until = self.holder.get(message.monoton, ("", self.clock.now))
            if receipt != message.receipt:
                assert fault is not None or message.receipt in stale
            elif until >= self.clock.now:
                assert message.receipt not in stale
            # Else it ran out, and may have been offered again to somebody who took a part of it.
        held = {receipt for receipt, _ in self.holder.values()}
        return [each for each in chosen if each.receipt not in stale and each.receipt in held]

    def _forget(self, messages: Sequence[Message]) -> set[int]:
        for message in messages:
            del self.holder[message.monoton]
        return {message.monoton for message in messages}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
    # What an exchange knows is as old as can be, until a rule makes it too old.
    monkeypatch.setattr(exchange_module, "monotonic", AGE)
    monkeypatch.setattr(consumer_module, "monotonic", AGE)


ClientMachine.TestCase.settings = settings(
    stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
TestClient = ClientMachine.TestCase
