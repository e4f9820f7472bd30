"""Upkeep amid publishes, readers and trouble: I5, I6, I7 and I9 of docs/design.md.

Every message that a group is not owed any more was acked, or is too old, or is in the dead-letter
queue, once; and what a reader holds under a lease that runs, it keeps.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import backoff
from cassieq_spark.arrow.chunks import decode
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.fetch.find import bucket_slices, find_pieces
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.repair.report import Counts
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings import SinkOptions
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import make_clocked_store, make_group, make_request
from tests.support.repeatable import repeatable

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
EXPIRE_AFTER = 5 * HOUR
LEASE = 10 * MINUTE
LIMIT = 2
UPKEEP = (Step.REDELIVER, Step.EXPIRE, Step.RETIRE)


class Crash(BaseException):
    """The process ends: nothing may catch it."""


class World:
    """A queue that keeps messages for five hours, its dead-letter queue, and one group.

    Attributes:
        visible_since: Of each message, by monoton; one that is not yet visible will be then.
        acked: What readers have settled.
        held: The leases of readers, each with what it may hold.
    """

    def __init__(self) -> None:
        self.memory, self.clock = make_clocked_store()
        self.store = FaultyStore(self.memory)
        self.dead = create_queue(self.memory, "dead", bucket_size=4, chunk_size=2)
        self.queue = create_queue(
            self.memory,
            "q",
            bucket_size=4,
            chunk_size=2,
            lease=LEASE,
            expire_after=EXPIRE_AFTER,
            max_deliveries=LIMIT,
            dead_letter_queue="dead",
        )
        self.group = make_group(self.memory, self.queue.queue_id)
        self.visible_since: list[datetime] = []
        self.acked: set[int] = set()
        self.leases: list[UUID] = []
        self.totals = Counts()

    def publish(self, count: int, delay: timedelta | None) -> None:
        first = len(self.visible_since)
        values = [str(first + number) for number in range(count)]
        batch = pa.record_batch({"value": pa.array(values)})
        written = write_block(self.memory, self.queue, [batch], SinkOptions(queue="q"))
        timed = PendingBlock(written.block, written.count, written.size, delay)
        publish(Ledger(self.memory, self.queue.queue_id), [timed])
        self.visible_since += [self.clock.now + (delay or timedelta(0))] * count

    def lease(self, limit: int, *, fresh: bool) -> None:
        head = Ledger(self.memory, self.queue.queue_id).read_head()
        lease = self.group.lease(
            make_request(
                max_messages=limit,
                lease=LEASE,
                stop=head.next,
                delayed_stop=head.delayed_stop,
                max_deliveries=LIMIT,
                prefer_fresh=fresh,
            )
        )
        for each in lease.leased:
            for monoton in at(each.monotons):
                assert self.visible_since[monoton] <= self.clock.now, "early"
        self.leases.append(lease.token)
        dead_letter_messages(self.memory, self.queue, self.group, lease.dead)

    def settle(self, number: int, fate: str, by: timedelta) -> None:
        """Settle every other message of some lease."""
        if not self.leases:
            return
        lease = self.leases[number % len(self.leases)]
        slots = self.group.read(every_waiting=True).held_by(lease)
        wanted = [each for slot in slots for each in at(slot.monotons)][::2]
        ranges = Ranges.of(*(Range(each, each + 1) for each in wanted))
        match fate:
            case "ack":
                settlement = Settlement(acked=ranges)
                self.acked |= set(wanted)
            case "reject":
                settlement = Settlement(rejected={"bad": ranges})
            case _:
                settlement = Settlement(released={by: ranges})
        self.group.settle(lease, settlement)

    def repair(self, *steps: Step) -> None:
        report = run_once(self.store, scan=DriverScan(self.store), steps=steps)
        assert report.is_whole
        assert not report.failed, report.to_json()
        self.totals += report.totals

    def copies(self) -> Counter[int]:
        """What is in the dead-letter queue."""
        head = Ledger(self.memory, self.dead.queue_id).read_head()
        every = Ranges.of(Range(0, head.next))
        found: Counter[int] = Counter()
        for piece in find_pieces(Ledger(self.memory, self.dead.queue_id), every, deliveries=None):
            slices = bucket_slices(piece, self.dead)
            for _, chunk in self.memory.read_chunks(self.dead.queue_id, slices):
                values = decode(chunk, piece.offsets).column("value").to_pylist()
                found.update(int(value) for value in values)
        return found

    def running(self) -> Counter[tuple[UUID, int]]:
        """What is held under leases that run."""
        state = self.group.read(every_waiting=True)
        running = [slot for slot in state.slots if slot.due_at >= state.now]
        return Counter((slot.lease, each) for slot in running for each in at(slot.monotons))

    def check(self) -> None:
        state = self.group.read(every_waiting=True)
        rows = [*state.slots, *state.waiting]
        outstanding = Counter(each for row in rows for each in at(row.monotons))
        end = len(self.visible_since)
        assert all(count == 1 for count in outstanding.values()), "I6"
        assert all(each < state.head.pointer <= end for each in outstanding), "I5"
        copies = self.copies()
        assert all(count == 1 for count in copies.values()), "I9"
        gone = set(range(state.head.pointer)) - set(outstanding)
        old = {each for each in gone if self.visible_since[each] < self.clock.now - EXPIRE_AFTER}
        assert gone <= self.acked | set(copies) | old, "I5: lost"
        assert not self.acked - gone, "settled, and still owed"
        head = Ledger(self.memory, self.queue.queue_id).read_head()
        assert head.finalised <= state.floor, "I7"


def at(ranges: Ranges) -> list[int]:
    return [each for part in ranges for each in range(part.start, part.stop)]


@pytest.fixture(autouse=True, scope="module")
def _no_pauses() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        yield


LIMITS = st.integers(1, 6)
READ = st.tuples(st.just("lease"), LIMITS, st.booleans())
SETTLE = st.tuples(
    st.just("settle"),
    st.integers(0, 5),
    st.sampled_from(["ack", "ack", "reject", "release"]),
    st.sampled_from([timedelta(0), HOUR, 7 * HOUR]),
)
PUBLISH = st.tuples(
    st.just("publish"), st.integers(1, 6), st.sampled_from([None, None, None, HOUR, 8 * HOUR])
)
REPAIRS = st.sampled_from([*((step,) for step in UPKEEP), UPKEEP, tuple(Step)])
CALLS = st.integers(0, 40)
STEPS = st.one_of(
    PUBLISH,
    READ,
    SETTLE,
    st.tuples(
        st.just("pass time"), st.sampled_from([MINUTE, LEASE + 2 * MINUTE, HOUR, EXPIRE_AFTER])
    ),
    st.tuples(st.just("repair"), REPAIRS),
    st.tuples(st.just("lose"), REPAIRS, CALLS, st.sampled_from(Fault)),
    st.tuples(st.just("crash"), REPAIRS, CALLS),
    st.tuples(st.just("race"), REPAIRS, CALLS, st.one_of(PUBLISH, READ, SETTLE)),
)


def act(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("publish", int(count), delay):
            world.publish(count, delay)  # type: ignore[arg-type]
        case ("lease", int(limit), bool(fresh)):
            world.lease(limit, fresh=fresh)
        case ("settle", int(number), str(fate), timedelta() as by):
            world.settle(number, fate, by)
        case ("pass time", timedelta() as by):
            world.clock.advance(by)


def crash() -> None:
    raise Crash


def repair_in_trouble(world: World, step: tuple[object, ...]) -> None:
    held = world.running()
    match step:
        case ("repair", tuple(steps)):
            world.repair(*steps)
            assert world.running() == held, "a lease that runs is left alone"
        case ("lose", tuple(steps), int(call), Fault() as fault):
            world.store.interrupt(lambda: setattr(world.store, "fault", fault), after=call)
            world.repair(*steps)
            world.store.calm()
            world.check()
            world.store.arrive()
            assert world.running() == held, "a lease that runs is left alone"
        case ("crash", tuple(steps), int(call)):
            world.store.interrupt(crash, after=call)
            with suppress(Crash):
                world.repair(*steps)
            world.store.calm()
        case ("race", tuple(steps), int(call), tuple(other)):
            world.store.interrupt(lambda: act(world, other), after=call)
            world.repair(*steps)
            world.store.calm()


@given(st.lists(STEPS, max_size=25))
def test_nothing_is_lost_that_is_neither_settled_nor_dead_nor_too_old(
    steps: list[tuple[object, ...]],
):
    world = World()
    # Blocks are begun by the same clock: what its writer began later is not too old.
    patch = repeatable(world.clock)
    try:
        _check_upkeep(world, steps)
    finally:
        patch.undo()


def _check_upkeep(world: World, steps: list[tuple[object, ...]]) -> None:
    for step in steps:
        act(world, step)
        repair_in_trouble(world, step)
        world.check()

    # Nobody reads any more: all of it goes, by itself.
    for _ in range(3):
        world.clock.advance(8 * HOUR + EXPIRE_AFTER + MINUTE)
        world.repair(*UPKEEP, Step.FINALISE)
        world.check()
    head = Ledger(world.memory, world.queue.queue_id).read_head()
    assert head.finalised == head.next == len(world.visible_since)
