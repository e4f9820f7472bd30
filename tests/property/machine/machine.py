"""The state machine: anybody does anything at any time, and anything may come between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cassieq_spark import blocks
from cassieq_spark.ledger.read import read_blocks
from cassieq_spark.model import SinkBatch
from cassieq_spark.repair.sweep import Step
from cassieq_spark.stats import queue_stats
from cassieq_spark.store import race
from cassieq_spark.store.tables import Table
from tests.property.machine.operators import MakeGroup, Operators, Remove, Seek, Sweep
from tests.property.machine.producers import Producers, Publish, PublishLate, WriteOnly
from tests.property.machine.readers import (
    Forget,
    GiveBack,
    HoldOn,
    Lease,
    Reader,
    Readers,
    Replay,
    Settle,
)
from tests.property.machine.terms import Terms
from tests.property.machine.world import BUCKET, Trouble, World
from tests.support.faults import Fault, make_block_id

LEASE = timedelta(seconds=3)
SECOND = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=1)
NOTHING = timedelta(0)
LONG = timedelta(minutes=2)
GROUPS = ("one", "one", "one", "two")

TERMS = st.builds(
    Terms,
    lease=st.just(LEASE),
    max_deliveries=st.sampled_from([0, 1, 2, 3, 4, 5]),
    strict=st.sampled_from([False, False, True]),
    max_in_flight=st.sampled_from([None, None, 2, 6]),
    backoff=st.sampled_from([NOTHING, NOTHING, SECOND]),
)

PAUSES = st.sampled_from([NOTHING, NOTHING, MOMENT, SECOND, LEASE, LEASE + MOMENT, LONG])
READERS = st.integers(0, len(GROUPS) - 1)
NAMES = st.sampled_from(["one", "two"])
POSITIONS = st.sampled_from(["earliest", "latest"]) | st.integers(0, 40)
LIMITS = st.none() | st.integers(1, 7)
COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=3)
TIMES = st.sampled_from([-SECOND, NOTHING, MOMENT, SECOND, 2 * LEASE])
DELAYS = st.lists(
    st.none()
    | st.tuples(st.just("at"), TIMES)
    | st.tuples(st.just("after"), TIMES.filter(lambda by: by >= NOTHING)),
    min_size=1,
    max_size=3,
)
BATCHES = st.none() | st.builds(SinkBatch, st.sampled_from(["left", "right"]), st.integers(0, 3))
FATES = st.sampled_from(
    [
        None,
        ("ack", None),
        ("ack and release", NOTHING),
        ("reject", "bad"),
        ("reject", "worse"),
        ("release", NOTHING),
        ("release", SECOND),
        ("release", 2 * LEASE),
        ("extend", NOTHING),
        ("extend", SECOND),
        ("extend", 2 * LEASE),
    ]
)
STEPS = st.sampled_from([(Step.FINALISE,), (Step.FINALISE, Step.FENCE), tuple(Step)])

PUBLISH = st.builds(Publish, COUNTS, DELAYS, BATCHES)
WRITE_ONLY = st.builds(WriteOnly, COUNTS, DELAYS)
PUBLISH_LATE = st.builds(PublishLate, BATCHES)
TAKE = st.builds(Lease, READERS, LIMITS, prefer_fresh=st.booleans())
LEASE_WITH_TERMS = st.builds(
    Lease,
    READERS,
    LIMITS,
    prefer_fresh=st.booleans(),
    least=st.sampled_from([0, 0, 5]),
    max_bytes=st.sampled_from([None, None, 1, 1000]),
    skip_older=st.sampled_from([None, None, None, SECOND]),
    paused=st.sampled_from([False, False, False, True]),
    dead_queue_is_gone=st.sampled_from([False, False, False, True]),
)
REPLAY = st.builds(Replay, READERS, LIMITS)
HOLD_ON = st.builds(HoldOn, READERS)
GIVE_BACK = st.builds(GiveBack, READERS)
FORGET = st.builds(Forget, READERS)
SETTLE = st.builds(
    Settle, READERS, st.sampled_from([0, 0, 0, 1, 2]), st.lists(FATES, min_size=1, max_size=4)
)
MAKE_GROUP = st.builds(MakeGroup, NAMES, POSITIONS)
SEEK = st.builds(Seek, NAMES, POSITIONS, force=st.booleans())
REMOVE = st.builds(Remove, NAMES, force=st.booleans())
SWEEP = st.builds(Sweep, STEPS)


class Arrive:
    """The oldest request that is late arrives."""


MEANWHILE = st.one_of(
    TAKE,
    TAKE,
    TAKE,
    SETTLE,
    REPLAY,
    HOLD_ON,
    GIVE_BACK,
    PUBLISH,
    SEEK,
    REMOVE,
    MAKE_GROUP,
    SWEEP,
    st.just(Arrive()),
)
TROUBLES = st.none() | st.builds(
    Trouble,
    fault=st.none() | st.sampled_from(Fault),
    after=st.integers(0, 12),
    meanwhile=st.none() | MEANWHILE,
)


class QueueMachine(RuleBasedStateMachine):
    """Each rule lets time pass, and does one thing; trouble may come over it."""

    @initialize(terms=TERMS, dead_letters=st.sampled_from([True, True, False]))
    def begin(self, terms: Terms, *, dead_letters: bool) -> None:
        dead_letters = dead_letters and terms.max_deliveries > 0
        self.world = world = World(terms, dead_letters=dead_letters)
        self.patch = pytest.MonkeyPatch()
        # The clock of those who write dead letters is ours too.
        self.patch.setattr(blocks, "new_block_id", lambda: make_block_id(world.clock.now))
        self.patch.setattr(race, "_LONGEST_PAUSE", 0.0)
        self.readers = Readers(world, GROUPS)
        self.operators = Operators(world)
        producers = Producers(world, with_delays=not terms.strict)
        self.deeds: dict[type, Callable[[Any], None]] = {
            Publish: producers.publish,
            WriteOnly: producers.write_only,
            PublishLate: producers.publish_late,
            Lease: self.readers.lease,
            Replay: self.readers.replay,
            HoldOn: self.readers.hold_on,
            GiveBack: self.readers.give_back,
            Forget: self.readers.forget,
            Settle: self.readers.settle,
            MakeGroup: self.operators.make_group,
            Seek: self.operators.seek,
            Remove: self.operators.remove,
            Sweep: self.operators.sweep,
            Arrive: lambda _: world.arrive(),
        }

    def _do(self, action: object) -> None:
        self.deeds[type(action)](action)

    def _run(self, action: object, pause: timedelta, trouble: Trouble | None = None) -> None:
        self.world.clock.advance(pause)
        with self.world.in_trouble(trouble, self._do):
            self._do(action)

    # -- what happens -------------------------------------------------------------------------

    @rule(action=PUBLISH, pause=PAUSES)
    def publish(self, action: Publish, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=PUBLISH | PUBLISH_LATE, pause=PAUSES, trouble=TROUBLES)
    def publish_in_trouble(
        self, action: Publish | PublishLate, pause: timedelta, trouble: Trouble | None
    ) -> None:
        self._run(action, pause, trouble)

    @rule(action=WRITE_ONLY, pause=PAUSES)
    def write_and_stall(self, action: WriteOnly, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=TAKE, pause=PAUSES)
    def lease(self, action: Lease, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=LEASE_WITH_TERMS, pause=PAUSES, trouble=TROUBLES)
    def lease_in_trouble(
        self, action: Lease, pause: timedelta, trouble: Trouble | None
    ) -> None:
        self._run(action, pause, trouble)

    @rule(action=SETTLE, pause=PAUSES)
    def settle(self, action: Settle, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=SETTLE, pause=PAUSES, trouble=TROUBLES)
    def settle_in_trouble(
        self, action: Settle, pause: timedelta, trouble: Trouble | None
    ) -> None:
        self._run(action, pause, trouble)

    @rule(action=st.one_of(REPLAY, HOLD_ON, GIVE_BACK, FORGET), pause=PAUSES, trouble=TROUBLES)
    def something_else_happens_to_a_reader(
        self, action: object, pause: timedelta, trouble: Trouble | None
    ) -> None:
        self._run(action, pause, trouble)

    @rule(action=st.one_of(MAKE_GROUP, SEEK, REMOVE), pause=PAUSES, trouble=TROUBLES)
    def groups_change(self, action: object, pause: timedelta, trouble: Trouble | None) -> None:
        self._run(action, pause, trouble)

    @rule(action=SWEEP, pause=PAUSES, trouble=TROUBLES)
    def sweep(self, action: Sweep, pause: timedelta, trouble: Trouble | None) -> None:
        self._run(action, pause, trouble)

    @rule(pause=PAUSES)
    def a_late_request_arrives(self, pause: timedelta) -> None:
        self._run(Arrive(), pause)

    # -- what always holds --------------------------------------------------------------------

    @invariant()
    def figures_are_exact(self) -> None:
        for model in self.world.models.values():
            stats = queue_stats(self.world.memory, model.queue.queue_id)
            ledger = model.ledger
            assert (stats.finalised, stats.next) == (ledger.finalised, ledger.next)
            assert list(stats.groups) == [model.stats_of(name) for name in sorted(model.groups)]

    @invariant()
    def no_message_owed_is_deleted(self) -> None:
        for model in self.world.models.values():
            model.ledger.check_chunks(BUCKET)

    def teardown(self) -> None:
        """At last everything is settled or buried, once, and all of it is deleted."""
        if hasattr(self, "world"):
            try:
                self._finish()
            finally:
                self.patch.undo()

    def _finish(self) -> None:
        world, model = self.world, self.world.queue
        world.store.calm()
        while world.store.late:
            world.arrive()
        # What a seek left that broke off, another one clears away.
        for name in {hold.group for hold in model.ledger.holds.values()}:
            self.operators.seek(Seek(name, "earliest", force=True))
        assert not model.ledger.holds
        for name in model.groups:
            self._drain(name)
        world.clock.advance(LONG)
        self.operators.sweep(Sweep(tuple(Step), write_timeout=NOTHING))
        stored = {row["queue_id"] for row in world.memory.scan(Table.CHUNK)}
        left = {each.block for each in world.dead.ledger.published.values()}
        assert left == {row["block"] for row in world.memory.scan(Table.CHUNK)} or model.groups == {}
        if model.groups:
            assert model.ledger.finalised == model.ledger.next
            assert not read_blocks(world.memory, model.queue.queue_id)
            assert model.queue.queue_id not in stored

    def _drain(self, name: str) -> None:
        """Let one reader go on until the group is owed nothing."""
        model, reader = self.world.queue, Reader(name)
        self.operators.make_group(MakeGroup(name, "earliest"))
        group = model.groups[name]
        ledger = model.ledger
        for _ in range(50 + 8 * ledger.next):
            if not group.places and group.pointer == ledger.next:
                break
            # Whoever has something has gone, and all delays and pauses are over.
            self.world.clock.advance(timedelta(hours=2))
            self.readers.lease_as(reader, Lease(0))
        assert not group.places, "never over"
        assert group.fates.keys() == set(range(group.starts_at, ledger.next)), "I5: lost"
