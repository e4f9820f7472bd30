"""Messages that fail every batch they are in: they end up dead and alone, the others settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassieq_spark import backoff
from cassieq_spark.groups.deliveries import most_messages
from cassieq_spark.groups.lease import LeasedSlot, LeaseRequest
from tests.support.builders import LEASE, make_clocked_store, make_group, make_queue, make_request

MOMENT = timedelta(milliseconds=1)
READERS = 3

LIMITS = st.none() | st.integers(1, 12)


@pytest.fixture(autouse=True, scope="module")
def _no_pauses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        yield


class Process:
    """A query of one checkpoint: what its log says of the batch that is not done."""

    def __init__(self) -> None:
        self.done: UUID | None = None
        self.logged: UUID | None = None
        self.redelivered = False


@dataclass(frozen=True)
class Setup:
    """Messages, which of them are bad, most messages of a batch by process, and deliveries."""

    count: int
    bad: frozenset[int]
    limits: Sequence[int | None]
    max_deliveries: int


class Scene:
    """Some processes read a queue; a batch with a bad message fails, and its process with it."""

    def __init__(self, setup: Setup) -> None:
        store, self.clock = make_clocked_store()
        self.count, self.bad = setup.count, setup.bad
        self.limits, self.most = setup.limits, setup.max_deliveries
        self.group = make_group(store, make_queue(store, [setup.count]).queue_id)
        self.processes = [Process() for _ in range(READERS)]
        self.delivered: Counter[int] = Counter()
        self.settled: list[int] = []
        self.dead: list[int] = []
        self.holders: dict[int, UUID] = {}

    def is_over(self) -> bool:
        return len(self.settled) + len(self.dead) == self.count

    def turn(self, number: int, *, crashes: bool, lapse: bool) -> None:
        """A process has a batch, done or failed; or crashes with it, or before it is logged."""
        process = self.processes[number]
        self.clock.advance(LEASE + MOMENT if lapse else MOMENT)
        if lapse:
            self.holders.clear()
        if process.logged is not None:
            again = self._replay(number, process)
            if not crashes:
                self._process(process, again)
        else:
            self._next_batch(number, process, crashes=crashes)

    def _next_batch(self, number: int, process: Process, *, crashes: bool) -> None:
        request = self._request(number, process.done, prefer_fresh=process.redelivered)
        lease = self.group.lease(request)
        process.done = None
        self._dead_letter(lease.dead)
        if not lease.leased:
            return
        self._hand_out(lease.leased, lease.token)
        process.redelivered = any(each.deliveries > 1 for each in lease.leased)
        if not crashes:
            process.logged = lease.token
            self._process(process, lease.leased)

    def _replay(self, number: int, process: Process) -> Sequence[LeasedSlot]:
        leased = self.group.take_again(self._request(number, process.logged))
        assert process.logged is not None
        for monoton, holder in list(self.holders.items()):
            if holder == process.logged:
                del self.holders[monoton]
        self._hand_out(leased, process.logged)
        return leased

    def _process(self, process: Process, leased: Sequence[LeasedSlot]) -> None:
        monotons = members(leased)
        if self.bad.intersection(monotons):
            return
        process.done, process.logged = process.logged, None
        # Done is done: nobody else has the lease while it runs, so its ack settles all of it.
        lease = self.group.lease(make_request(held=process.done, stop=0))
        assert lease.acked == len(monotons)
        self.settled += monotons
        process.done = None
        for monoton in monotons:
            del self.holders[monoton]

    def _hand_out(self, leased: Sequence[LeasedSlot], lease: UUID) -> None:
        for each in leased:
            size = each.monotons.count
            most = most_messages(self.count, delivery=each.deliveries, max_deliveries=self.most)
            assert size <= most
            for monoton in members([each]):
                self.delivered[monoton] += 1
                assert self.delivered[monoton] == each.deliveries <= self.most, "I8"
                assert monoton not in self.holders, "I6"
                self.holders[monoton] = lease

    def _dead_letter(self, dead: Sequence[object]) -> None:
        for each in dead:
            assert each.monotons.count == 1, "alone"  # type: ignore[attr-defined]
            assert self.group.remove_dead(each)  # type: ignore[arg-type]
            self.dead += members([each])

    def _request(self, number: int, held: UUID | None, **changes: object) -> LeaseRequest:
        return make_request(
            held=held,
            max_messages=self.limits[number % len(self.limits)],
            stop=self.count,
            max_deliveries=self.most,
            **changes,
        )


def members(leased: Sequence[object]) -> list[int]:
    return [
        monoton
        for each in leased
        for part in each.monotons  # type: ignore[attr-defined]
        for monoton in range(part.start, part.stop)
    ]


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    count = draw(st.integers(1, 30))
    bad = draw(st.frozensets(st.integers(0, count - 1), max_size=4))
    limits = draw(st.lists(LIMITS, min_size=1, max_size=READERS))
    return Setup(count, bad, limits, max_deliveries=draw(st.integers(2, 6)))


TURNS = st.lists(st.tuples(st.integers(0, READERS - 1), st.booleans(), st.booleans()), max_size=60)


def drain(scene: Scene) -> None:
    """Let all processes run on without crashes of their own; leases that nobody knows run out."""
    for turn in range(6 * scene.count * scene.most + 50):
        if scene.is_over():
            return
        scene.turn(turn % READERS, crashes=False, lapse=turn % (2 * READERS) == 0)
    raise AssertionError(f"never over: {scene.group.read(every_waiting=True)}")


def check_the_end(scene: Scene) -> None:
    state = scene.group.read(every_waiting=True)
    assert state.floor == scene.count
    assert sorted(scene.settled + scene.dead) == list(range(scene.count)), "each exactly once"
    assert scene.bad <= set(scene.dead)
    assert {scene.delivered[monoton] for monoton in scene.dead} <= {scene.most}


#: A crash in the middle of a bad message is rare.
many = settings(max_examples=6 * settings().max_examples, deadline=None)


@given(setup=setups(), turns=TURNS)
@many
def test_whatever_crashes_bad_messages_die_alone_and_nothing_is_lost(
    setup: Setup, turns: list[tuple[int, bool, bool]]
):
    scene = Scene(setup)

    for number, crashes, lapse in turns:
        scene.turn(number, crashes=crashes, lapse=lapse)
    drain(scene)

    check_the_end(scene)


@given(setup=setups(), order=st.lists(st.integers(0, READERS - 1), max_size=60))
@many
def test_no_good_message_dies_of_its_neighbours(setup: Setup, order: list[int]):
    scene = Scene(setup)

    for number in order:
        scene.turn(number, crashes=False, lapse=False)
    drain(scene)

    check_the_end(scene)
    assert set(scene.dead) == scene.bad
