"""Servers whose clocks are wrong by a month now and then: nothing is lost, nothing is for ever.

Each call is answered by a server whose clock is right, or a month ahead or behind; the clock of
the process is right. Nothing is thrown away early then, a lease is given away only by a server
whose clock has passed its end, and each message is acked once. Once the clocks are right again and
`fix_clocks` was called, all messages are delivered and puts are taken.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark import backoff
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.errors import NotAppliedError
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import KEY_LIFETIME, Once
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.window import UniqueIds, UniqueWindow
from cassieq_spark.model import Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue, fix_clocks
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import CLOCKS_APART
from tests.support.builders import make_clocked_store, make_group, make_request
from tests.support.repeatable import repeatable

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MONTH = timedelta(days=30)
LEASE = timedelta(minutes=1)
WINDOW = timedelta(minutes=3)
NOTHING = timedelta(0)


class World:
    """A queue with a group; what its readers have acked, and what they hold."""

    def __init__(self) -> None:
        self.store, self.clock = make_clocked_store()
        create_queue(self.store, "dead", bucket_size=4, chunk_size=2)
        self.queue = create_queue(
            self.store,
            "q",
            bucket_size=4,
            chunk_size=2,
            lease=LEASE,
            expire_after=20 * DAY,
            keep_settled=DAY,
            max_deliveries=50,
            dead_letter_queue="dead",
            deduplicate=WINDOW,
        )
        self.group = make_group(self.store, self.queue.queue_id)
        self.published = 0
        self.names: set[str] = set()
        # A process that goes on, and when a message of each unique id was published last.
        self.ids = UniqueIds(self.clock.seconds)
        self.unique: dict[str, datetime] = {}
        self.acked: set[int] = set()
        self.rejected: set[int] = set()

    def publish(self, count: int) -> None:
        values = [str(number) for number in range(count)]
        batch = pa.record_batch({"value": pa.array(values)})
        written = write_block(self.store, self.queue, [batch], SinkOptions(queue="q"))
        publish(Ledger(self.store, self.queue.queue_id), [written])
        self.published += count

    def put_once(self, name: str) -> None:
        """Publish a message under a key, unless it was; a server that is ahead may refuse it."""
        batch = pa.record_batch({"value": pa.array(["once"])})
        once = Once(f"key:{name}", KEY_LIFETIME, self.clock.now)
        written = write_block(self.store, self.queue, [batch], SinkOptions(queue="q"))
        try:
            done = publish(Ledger(self.store, self.queue.queue_id), [written], batch=once)
        except NotAppliedError:
            assert self.clock.ahead > KEY_LIFETIME / 2
            return
        assert (done.monotons is None) == (name in self.names), "a key was forgotten"
        self.published += done.monotons is not None
        self.names.add(name)

    def put_unique(self, name: str, *, is_new: bool) -> None:
        """Publish a message with a unique id, by a process that goes on or a new one."""
        batch = pa.record_batch({"value": pa.array(["unique"]), "unique_id": pa.array([name])})
        written = write_block(self.store, self.queue, [batch], SinkOptions(queue="q"))
        ids = UniqueIds(self.clock.seconds) if is_new else self.ids
        ledger = Ledger(self.store, self.queue.queue_id)
        done = publish(ledger, [written], window=UniqueWindow(WINDOW, ids))
        since = self.unique.get(name)
        if since is not None and self.clock.now < since + WINDOW:
            assert done.repeats, "an id was forgotten"
        elif since is None or (self.clock.now > since + WINDOW and self.clock.ahead >= NOTHING):
            # A server that is behind may not know yet that the time is over.
            assert not done.repeats, "an id is known for too long"
        if not done.repeats:
            self.published += 1
            self.unique[name] = self.clock.now

    def lease(self, limit: int | None = None) -> list[tuple[UUID, list[int]]]:
        head = Ledger(self.store, self.queue.queue_id).read_head()
        lease = self.group.lease(
            make_request(max_messages=limit, lease=LEASE, stop=head.next, max_deliveries=50)
        )
        dead_letter_messages(self.store, self.queue, self.group, lease.dead)
        return [(lease.token, at(each.monotons)) for each in lease.leased]

    def consume(self, limit: int, fate: str, by: timedelta) -> None:
        """Lease, and settle every other message; the rest is left to its lease."""
        for lease, monotons in self.lease(limit):
            some = monotons[::2]
            ranges = Ranges.of(*(Range(each, each + 1) for each in some))
            match fate:
                case "ack":
                    settlement = Settlement(acked=ranges)
                    self.acked |= set(some)
                case "reject":
                    settlement = Settlement(rejected={"bad": ranges})
                    self.rejected |= set(some)
                case "extend":
                    settlement = Settlement(extended={by: ranges})
                case _:
                    settlement = Settlement(released={by: ranges})
            self.group.settle(lease, settlement)

    def compete(self, limit: int, ahead: timedelta) -> None:
        """Lease by one server and then by another one; both readers ack what they were given."""
        apart = ahead - self.clock.ahead
        first = self.lease(limit)
        self.clock.ahead = ahead
        second = self.lease()
        taken = {each for _, monotons in second for each in monotons}
        held = {each for _, monotons in first for each in monotons}
        # Only a server whose clock has passed the end of the lease gives its messages away: all
        # of them, of which the second reader may get some only.
        assert apart > LEASE or not held & taken, "held twice"
        given_away = held if apart > LEASE else set()
        for is_first, leases in ((True, first), (False, second)):
            for lease, monotons in leases:
                ranges = Ranges.of(*(Range(each, each + 1) for each in monotons))
                stale = set(at(self.group.settle(lease, Settlement(acked=ranges)).stale))
                if is_first:
                    assert set(monotons) & taken <= stale <= given_away, "settled twice"
                else:
                    assert not stale, "taken back"
                self.acked |= set(monotons) - stale

    def ack(self, lease: UUID, monotons: list[int]) -> None:
        ranges = Ranges.of(*(Range(each, each + 1) for each in monotons))
        assert self.group.settle(lease, Settlement(acked=ranges)).count == len(monotons)
        self.acked |= set(monotons)

    def repair(self, *steps: Step) -> None:
        assert run_once(self.store, scan=DriverScan(self.store), steps=steps).is_whole

    def check(self) -> None:
        head = Ledger(self.store, self.queue.queue_id).read_head()
        assert head.finalised == 0, "thrown away early, or not kept"
        assert head.fence <= self.clock.now, "puts are refused"
        state = self.group.read(every_waiting=True)
        owed = {each for row in (*state.slots, *state.waiting) for each in at(row.monotons)}
        owed |= set(range(state.head.pointer, self.published))
        assert set(range(self.published)) - owed <= self.acked | self.rejected, "lost"


def at(ranges: Ranges) -> list[int]:
    return [each for part in ranges for each in range(part.start, part.stop)]


@pytest.fixture(autouse=True, scope="module")
def _no_pauses() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        yield


AHEAD = st.sampled_from([timedelta(0), timedelta(0), timedelta(0), MONTH, MONTH, -MONTH])
PASSES = st.sampled_from([timedelta(0), SECOND, 2 * LEASE])
STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 5)),
    st.tuples(st.just("put once"), st.sampled_from("ab")),
    st.tuples(st.just("put unique"), st.sampled_from("ab"), st.booleans()),
    st.tuples(
        st.just("consume"),
        st.integers(1, 6),
        st.sampled_from(["ack", "reject", "release", "extend"]),
        st.sampled_from([timedelta(0), SECOND, HOUR]),
    ),
    st.tuples(
        st.just("compete"),
        st.integers(1, 6),
        st.sampled_from([timedelta(0), LEASE / 2, 2 * LEASE, MONTH, -MONTH]),
    ),
    st.tuples(st.just("repair"), st.sampled_from([(each,) for each in Step] + [tuple(Step)])),
)


@given(st.lists(st.tuples(STEPS, AHEAD, PASSES), max_size=15))
@example([(("put once", "a"), -MONTH, timedelta(0)), (("put once", "a"), timedelta(0), SECOND)])
@example(
    [
        (("publish", 3), timedelta(0), timedelta(0)),
        (("compete", 2, timedelta(0)), -MONTH, timedelta(0)),
    ]
)
@example(
    [
        (("publish", 1), timedelta(0), timedelta(0)),
        (("publish", 2), timedelta(0), timedelta(0)),
        (("consume", 3, "release", timedelta(0)), timedelta(0), timedelta(0)),
        (("compete", 2, 2 * LEASE), timedelta(0), timedelta(0)),
    ]
)
@example(
    [
        (("publish", 1), MONTH, timedelta(0)),
        (("publish", 1), -MONTH, timedelta(0)),
        (("repair", (Step.EXPIRE,)), timedelta(0), timedelta(0)),
    ]
)
def test_whatever_clocks_say_for_a_while_all_of_it_is_delivered_in_the_end(
    steps: list[tuple[tuple[object, ...], timedelta, timedelta]],
):
    world = World()
    patch = repeatable(world.clock)
    try:
        for step, ahead, by in steps:
            world.clock.advance(by)
            world.clock.ahead = ahead
            match step:
                case ("publish", int(count)):
                    world.publish(count)
                case ("put once", str(name)):
                    world.put_once(name)
                case ("put unique", str(name), bool(is_new)):
                    world.put_unique(name, is_new=is_new)
                case ("consume", int(limit), str(fate), timedelta() as delay):
                    world.consume(limit, fate, delay)
                case ("compete", int(limit), timedelta() as other):
                    world.compete(limit, other)
                case ("repair", tuple(which)):
                    world.repair(*which)
            world.clock.ahead = timedelta(0)
            world.check()

        fix_clocks(world.store, "q")
        world.clock.advance(CLOCKS_APART + HOUR)
        world.publish(1)
        while leased := world.lease():
            for lease, monotons in leased:
                world.ack(lease, monotons)
            world.clock.advance(HOUR)
        state = world.group.read(every_waiting=True)
        assert world.acked | world.rejected == set(range(world.published)), "not delivered"
        assert not state.waiting
        world.clock.advance(2 * DAY)
        world.repair(Step.FINALISE)
        head = Ledger(world.store, world.queue.queue_id).read_head()
        assert head.finalised == head.next, "kept for longer than it was to be kept"
    finally:
        patch.undo()
