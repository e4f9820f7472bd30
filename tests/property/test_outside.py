"""Clients of a queue ordered by key against what the documentation promises, and nothing else.

Several clients put messages with keys and unique ids, receive, and settle what anybody has got, in
any order. The oracle counts: deliveries of each message, the order of each key, who holds what and
until when, and how often each unique id is there. It knows no row of any table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cassieq_spark import Client, Message, NewMessage
from cassieq_spark.consumer import consumer
from cassieq_spark.ledger import window
from cassieq_spark.producer import blocks
from tests.support.builders import make_clocked_store
from tests.support.repeatable import repeatable

LEASE, WINDOW, LONG = timedelta(seconds=30), timedelta(minutes=1), timedelta(hours=1)
MOMENT = timedelta(milliseconds=1)
QUEUE, DEAD, GROUP = "q", "q.dead", "g"
Place = tuple[int, int]


# -- the oracle -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Known:
    """A message that was published, and what has become of it."""

    put: NewMessage
    published: datetime
    place: Place | None = None
    deliveries: int = 0
    receipt: str = ""
    until: datetime | None = None  # held by the holder of the receipt until then
    due: datetime | None = None  # released, and not to be delivered before
    is_acked: bool = False
    is_rejected: bool = False

    @property
    def is_gone(self) -> bool:
        return self.is_acked or self.is_rejected

    def is_held(self, now: datetime) -> bool:
        return self.until is not None and now <= self.until


class Promises:
    """What docs/client.md, docs/partitions.md and docs/dead-letters.md promise."""

    def __init__(self, max_deliveries: int) -> None:
        self.most = max_deliveries
        self.all: list[Known] = []

    def publish(self, now: datetime, messages: Iterable[NewMessage]) -> list[tuple[Known, bool]]:
        """For each message, which one is there now, and whether it is a repeat of that one."""
        found = []
        for message in messages:
            same = [
                it for it in self.all if is_same(it.put, message) and now < it.published + WINDOW
            ]
            if not same:
                self.all.append(Known(message, now))
            found.append((same[0] if same else self.all[-1], bool(same)))
        return found

    def hand_out(self, now: datetime, messages: Sequence[Message], *, again: bool = False) -> None:
        """Some client has got these, for the first time or by a repeated receive."""
        got: list[Known] = []
        for message in messages:
            known = next(it for it in self.all if it.put.value == message.value)
            assert as_text(message.key) == known.put.key
            assert known.place in {None, (message.partition, message.monoton)}
            known.place = (message.partition, message.monoton)
            assert sum(it.place == known.place for it in self.all) == 1, "two in one place"
            assert not known.is_gone, "delivered after it was settled"
            assert known.due is None or now >= known.due, "delivered too early"
            assert again or not known.is_held(now), "somebody holds it"
            known.deliveries += not again
            assert message.delivery_count == known.deliveries <= self.most
            assert message.lease_until == now + LEASE
            for earlier in self.before(known):
                is_dead = earlier.is_gone or self.may_be_dead(now, earlier)
                assert is_dead or earlier in got, "before an earlier one of its key"
            got.append(known)
        for known, message in zip(got, messages, strict=True):
            known.receipt, known.until, known.due = message.receipt, now + LEASE, None
        if not messages and not again:
            assert not self.is_any_available(now), "a free message did not come"

    def before(self, known: Known) -> list[Known]:
        """The earlier messages of its key."""
        of_key = [it for it in self.all if it.put.key == known.put.key is not None]
        return of_key[: of_key.index(known)] if of_key else []

    def may_be_dead(self, now: datetime, known: Known) -> bool:
        return known.deliveries >= self.most and not known.is_held(now)

    def is_any_available(self, now: datetime) -> bool:
        owed = [it for it in self.all if not it.is_gone and not it.is_held(now)]
        if any(self.may_be_dead(now, it) for it in owed):
            return False  # the receive was about a dead message
        free = [it for it in owed if it.due is None or now >= it.due]
        return any(all(earlier.is_gone for earlier in self.before(it)) for it in free)

    def settle(
        self,
        now: datetime,
        verb: str,
        receipts: Sequence[str],
        stale: Sequence[str],
        by: timedelta,
    ) -> None:
        """Somebody has settled these receipts, of which some were told to be stale."""
        assert set(stale) <= set(receipts)
        for receipt in receipts:
            known = next((it for it in self.all if it.receipt == receipt), None)
            if known is None or known.is_gone or known.until is None:
                assert receipt in stale, "settled by the receipt of another delivery"
            elif known.is_held(now):
                assert receipt not in stale, "refused to its holder"
            if receipt in stale or known is None:
                continue
            known.is_acked, known.is_rejected = verb == "ack", verb == "reject"
            known.until = now + by if verb == "extend" else None
            known.due = now + by if verb == "release" else None

    def end(self, visible: Iterable[tuple[Any, Place]], dead: Iterable[Any]) -> None:
        """All is drained: these messages were published, and these are dead letters."""
        there = dict(visible)
        assert there.keys() == {it.put.value for it in self.all}, "published, or not, or twice"
        assert all(it.place in {None, there[it.put.value]} for it in self.all)
        of_dead = [it.put.value for it in self.all if not it.is_acked]
        assert sorted(dead) == sorted(of_dead), "acked, or a dead letter once"
        assert all(it.is_gone or it.deliveries == self.most for it in self.all)


def is_same(one: NewMessage, other: NewMessage) -> bool:
    return one.unique_id is not None and (one.key, one.unique_id) == (other.key, other.unique_id)


def as_text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()


# -- what clients do ------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "a", "b", None])
IDS = st.sampled_from([None, None, "x", "y"])
SPANS = st.sampled_from([timedelta(0), LEASE / 2, LEASE, 2 * LEASE])
WHO = st.integers(0, 2)


class Outside(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        memory, self.clock = make_clocked_store()
        # The clocks of the process go with that of the store.
        self.patch = repeatable(self.clock)
        self.patch.setattr(consumer, "monotonic", self.clock.seconds)
        self.patch.setattr(window, "time", SimpleNamespace(monotonic=self.clock.seconds))
        self.clients = [Client.from_store(memory) for _ in range(3)]
        self.got: list[str] = []
        self.calls = self.values = 0

    @initialize(
        partitions=st.sampled_from([1, 3]),
        most=st.sampled_from([2, 3, 100]),
        lanes=st.sampled_from([0, 2, blocks.MOST_LANES]),
    )
    def begin(self, partitions: int, most: int, lanes: int) -> None:
        # The ledger tells the lanes of no block, of some, or of all of them.
        self.patch.setattr(blocks, "MOST_LANES", lanes)
        self.clients[0].create_queue(
            QUEUE,
            order="key",
            partitions=partitions,
            lease=LEASE,
            max_deliveries=most,
            deduplicate=WINDOW,
        )
        self.clients[0].create_group(QUEUE, GROUP)
        self.promises = Promises(most)

    @rule(who=WHO, key=KEYS, unique_id=IDS)
    def put(self, who: int, key: str | None, unique_id: str | None) -> None:
        message = self._new(key, unique_id)
        ((known, is_repeat),) = self.promises.publish(self.clock.now, [message])

        position = self.clients[who].put(QUEUE, message)

        assert position.is_repeat == is_repeat
        assert known.place in {None, (position.partition, position)}
        known.place = (position.partition, int(position))

    @rule(who=WHO, parts=st.lists(st.tuples(KEYS, IDS), min_size=2, max_size=6))
    def put_many(self, who: int, parts: Sequence[tuple[str | None, str | None]]) -> None:
        messages = [self._new(*each) for each in parts]
        found = self.promises.publish(self.clock.now, messages)

        told = self.clients[who].put_many(QUEUE, messages)

        assert len(told) == sum(not is_repeat for _, is_repeat in found)

    @rule(who=WHO, most=st.integers(1, 5))
    def receive(self, who: int, most: int) -> None:
        self.clock.advance(MOMENT)
        messages = self.clients[who].receive(QUEUE, GROUP, max=most)
        assert len(messages) <= most
        self.promises.hand_out(self.clock.now, messages)
        self.got += [each.receipt for each in messages]

    @rule(first=WHO, second=WHO, most=st.integers(1, 5), later=SPANS)
    def lose_an_answer(self, first: int, second: int, most: int, later: timedelta) -> None:
        """A receive that is repeated has what the first one holds, whoever repeats it."""
        self.clock.advance(MOMENT)
        self.calls += 1
        named: Any = {"max": most, "attempt": str(self.calls)}
        lost = self.clients[first].receive(QUEUE, GROUP, **named)
        self.promises.hand_out(self.clock.now, lost)
        if not lost or later >= LEASE:
            return
        self.clock.advance(later)
        messages = self.clients[second].receive(QUEUE, GROUP, **named)
        assert {each.value for each in messages} == {each.value for each in lost}
        self.promises.hand_out(self.clock.now, messages, again=True)
        self.got += [each.receipt for each in messages]

    @precondition(lambda self: self.got)
    @rule(
        who=WHO,
        verb=st.sampled_from(["ack", "ack", "release", "release", "extend", "reject"]),
        which=st.lists(st.integers(0, 8), min_size=1, max_size=4),
        by=SPANS,
    )
    def settle(self, who: int, verb: str, which: Sequence[int], by: timedelta) -> None:
        """One of the last receipts, whoever has got them and whatever has become of them."""
        receipts = list(dict.fromkeys(self.got[-1 - each % len(self.got)] for each in which))
        by = by if verb == "release" else by + LEASE
        named: Any = {"release": {"delay": by}, "extend": {"by": by}, "reject": {"reason": "bad"}}
        stale = getattr(self.clients[who], verb)(*receipts, **named.get(verb, {}))
        self.promises.settle(self.clock.now, verb, receipts, stale, by)

    @rule(count=st.integers(2, 4), back=st.sets(st.integers(0, 3), min_size=1), most=WHO)
    def some_come_back(self, count: int, back: set[int], most: int) -> None:
        """Some messages of a key are released, the others' lease runs out."""
        self.put_many(who=0, parts=[("a", None)] * count)
        self.receive(who=1, most=5)
        if self.got:
            self.settle(who=1, verb="release", which=sorted(back), by=timedelta(0))
        self.time_passes(by=LEASE)
        self.receive(who=2, most=3 + most)

    @rule(by=SPANS)
    def time_passes(self, by: timedelta) -> None:
        self.clock.advance(by + MOMENT)

    def teardown(self) -> None:
        """Whoever has what, all of it is delivered in the end."""
        client = self.clients[0]
        for _ in range(2 * len(getattr(self, "promises", Promises(0)).all) + 2):
            self.clock.advance(LONG)
            messages = client.receive(QUEUE, GROUP, max=100)
            self.promises.hand_out(self.clock.now, messages)
            receipts = [each.receipt for each in messages]
            assert not client.ack(*messages)
            self.promises.settle(self.clock.now, "ack", receipts, [], LEASE)
        assert client.stats(QUEUE).groups[0].depth == 0
        visible = client.peek(QUEUE, max=10_000)
        assert len(visible) == len(self.promises.all), "published twice"
        self.promises.end(
            [(each.value, (each.partition, each.monoton)) for each in visible],
            [each.value for each in client.peek(DEAD, max=10_000)],
        )
        self.patch.undo()

    def _new(self, key: str | None, unique_id: str | None) -> NewMessage:
        self.values += 1
        return NewMessage(b"%d" % self.values, key, unique_id=unique_id)


Outside.TestCase.settings = settings(
    stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
TestOutside = Outside.TestCase
