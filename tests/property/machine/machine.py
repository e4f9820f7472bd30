"""The state machine: anybody does anything at any time, and anything may come between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cassieq_spark.repair.steps import Step
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.tearing import Draws
from tests.property.machine.drawn import (
    BACK,
    BATCHES,
    CATCH_UP,
    CHANGES,
    COUNTS,
    DRAWS,
    FATES,
    FAULTS,
    FORGET,
    GIVE_BACK,
    GROUP_TROUBLES,
    GROUPS,
    HOLD_ON,
    JUST_BEFORE,
    KEEP_WHOLE,
    KEYS,
    LEASE,
    LEASE_WITH_TERMS,
    LIMITS,
    LONG,
    MADE,
    MOMENT,
    NAMES,
    NOTHING,
    PASS,
    PAUSES,
    POSITIONS,
    PUBLISH,
    PUBLISH_LATE,
    READERS,
    READS,
    RECORDED,
    REPAIR,
    REPAIR_TROUBLES,
    REPLAY,
    SETTLE,
    STALLS,
    TAKE,
    TERMS,
    TROUBLES,
    WRITE_ONLY,
    WRONG_REPAIR,
    Arrive,
    Pass,
)
from tests.property.machine.ending import check_figures, end
from tests.property.machine.operators import MakeGroup, Operators, Remove, Repair, Seek
from tests.property.machine.producers import Key, Named, Producers, Publish, PublishLate, WriteOnly
from tests.property.machine.readers import (
    CatchUp,
    Fate,
    Forget,
    GiveBack,
    HoldOn,
    KeepWhole,
    Lease,
    Readers,
    Replay,
    Settle,
)
from tests.property.machine.terms import Terms
from tests.property.machine.world import Trouble, World
from tests.support.repeatable import repeatable


class QueueMachine(RuleBasedStateMachine):
    """Each rule lets time pass, and does one thing; trouble may come over it."""

    @initialize(terms=TERMS, dead_letters=st.sampled_from([True, True, False]))
    def begin(self, terms: Terms, *, dead_letters: bool) -> None:
        dead_letters = dead_letters and terms.max_deliveries > 0
        self.world = world = World(terms, dead_letters=dead_letters)
        self.patch = repeatable(world.clock)
        self.readers = Readers(world, GROUPS)
        self.operators = Operators(world)
        self.producers = producers = Producers(world, with_delays=not terms.strict)
        self.deeds: dict[type, Callable[[Any], None]] = {
            Publish: producers.publish,
            WriteOnly: producers.write_only,
            PublishLate: producers.publish_late,
            Lease: self.readers.lease,
            Replay: self.readers.replay,
            KeepWhole: self.readers.keep_whole,
            HoldOn: self.readers.hold_on,
            GiveBack: self.readers.give_back,
            Forget: self.readers.forget,
            CatchUp: self.readers.catch_up,
            Settle: self.readers.settle,
            MakeGroup: self.operators.make_group,
            Seek: self.operators.seek,
            Remove: self.operators.remove,
            Repair: self.operators.repair,
            Arrive: lambda _: world.arrive(),
            Pass: lambda action: world.clock.advance(action.by),
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

    @rule(forgets=st.booleans())
    def another_process_publishes_from_now_on(self, *, forgets: bool) -> None:
        self.producers.take_turns(forgets=forgets)

    @rule(action=WRITE_ONLY, pause=PAUSES)
    def write_and_stall(self, action: WriteOnly, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=TAKE, pause=PAUSES)
    def lease(self, action: Lease, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=LEASE_WITH_TERMS, pause=PAUSES, trouble=TROUBLES)
    def lease_in_trouble(self, action: Lease, pause: timedelta, trouble: Trouble | None) -> None:
        self._run(action, pause, trouble)

    @rule(action=SETTLE, pause=PAUSES)
    def settle(self, action: Settle, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=SETTLE, pause=PAUSES, trouble=TROUBLES)
    def settle_in_trouble(self, action: Settle, pause: timedelta, trouble: Trouble | None) -> None:
        self._run(action, pause, trouble)

    @rule(
        action=st.one_of(REPLAY, KEEP_WHOLE, HOLD_ON, GIVE_BACK, FORGET),
        pause=PAUSES,
        trouble=TROUBLES,
    )
    def something_else_happens_to_a_reader(
        self, action: object, pause: timedelta, trouble: Trouble | None
    ) -> None:
        self._run(action, pause, trouble)

    @rule(action=CATCH_UP, pause=PAUSES)
    def a_group_catches_up(self, action: CatchUp, pause: timedelta) -> None:
        self._run(action, pause)

    @rule(action=CHANGES, pause=PAUSES, trouble=GROUP_TROUBLES)
    def groups_change(self, action: object, pause: timedelta, trouble: Trouble | None) -> None:
        self._run(action, pause, trouble)

    @rule(action=REPAIR, pause=PAUSES, trouble=REPAIR_TROUBLES)
    def repair(self, action: Repair, pause: timedelta, trouble: Trouble | None) -> None:
        self._run(action, pause, trouble)

    @rule(action=WRONG_REPAIR, pause=PAUSES)
    def repair_by_a_wrong_clock(self, action: Repair, pause: timedelta) -> None:
        self._run(action, pause)

    # -- what is rare, and matters -------------------------------------------------------------

    @rule(
        action=TAKE | SETTLE,
        other=READS,
        pause=st.sampled_from([LEASE + MOMENT, LEASE + MOMENT, NOTHING]),
        fault=FAULTS,
        after=JUST_BEFORE,
    )
    def two_readers_at_once(
        self, action: object, other: object, pause: timedelta, fault: Fault | None, after: int
    ) -> None:
        self._run(action, pause, Trouble(fault, after, other))

    @rule(name=NAMES, change=st.none() | BACK | BACK | MADE, after=st.integers(1, 14))
    def a_repair_has_read_what_changes(self, name: str, change: object, after: int) -> None:
        self._let_all_catch_up(but=name)
        self._run(Repair((Step.FINALISE,), ("q",)), NOTHING, Trouble(None, after, change))

    @rule(name=NAMES, change=BACK | MADE, after=st.integers(1, 12))
    def a_change_has_read_what_is_repaired(self, name: str, change: object, after: int) -> None:
        self._let_all_catch_up(but=name)
        repair = Repair((Step.FINALISE,), ("q",))
        self._run(change, NOTHING, Trouble(None, after, repair))

    @rule(number=READERS, limit=LIMITS, after=st.integers(1, 14))
    def a_repair_has_read_what_is_taken(self, number: int, limit: int | None, after: int) -> None:
        self._run(Lease(number), NOTHING)
        self._run(Settle(number, 0, [("release", NOTHING)]), NOTHING)
        self._let_all_catch_up(but=GROUPS[number])
        take = Lease(number, limit)
        self._run(Repair((Step.FINALISE,), ("q",)), NOTHING, Trouble(None, after, take))

    @rule(action=PUBLISH, after=st.integers(1, 24))
    def a_repair_breaks_off_and_the_next_one_finishes(self, action: Publish, after: int) -> None:
        self._run(action, NOTHING)
        self._let_all_catch_up()
        repair = Repair((Step.FINALISE,), ("q",))
        self._run(repair, LONG, Trouble(None, after, None))
        self._run(repair, NOTHING)

    @rule(
        number=READERS,
        limit=LIMITS,
        after=st.integers(6, 10),
        meanwhile=PASS | READS,
    )
    def an_attempt_arrives_after_the_one_that_followed_it(
        self, number: int, limit: int | None, after: int, meanwhile: object
    ) -> None:
        self._run(Publish([3, 3], [None], None), NOTHING)
        self._run(Forget(number), NOTHING)
        self._run(Lease(number, 2), LEASE + MOMENT)
        self._run(Forget(number), NOTHING)
        self._run(Lease(number, limit), NOTHING, Trouble(Fault.REQUEST_LATE, after, meanwhile))
        self._run(Arrive(), NOTHING)

    @rule(
        numbers=st.permutations([0, 1, 2]),
        fates=st.lists(FATES, min_size=1, max_size=2),
        action=TAKE,
        after=st.sampled_from([5, 5, 4, 6]),
        draws=DRAWS,
    )
    def what_is_given_back_is_on_one_replica_while_something_else_is_taken(
        self, numbers: list[int], fates: list[Fate], action: Lease, after: int, draws: Draws
    ) -> None:
        dies, gives_back, takes = numbers
        self._run(Publish([4], [None], None), NOTHING)
        self._run(Lease(dies, 2), NOTHING)
        self._run(Lease(gives_back, 2), NOTHING)
        self._run(Settle(gives_back, 0, [("release", MOMENT)]), NOTHING)
        self._run(Settle(dies, 0, fates), NOTHING, Trouble(None, after, None, draws))
        self._run(replace(action, reader=takes), MOMENT)

    @rule(
        number=READERS,
        fates=st.lists(FATES, min_size=1, max_size=3),
        limit=LIMITS,
        fault=FAULTS,
        after=JUST_BEFORE,
    )
    def a_client_settles_what_its_reader_is_about_to_ack(
        self, number: int, fates: list[Fate], limit: int | None, fault: Fault | None, after: int
    ) -> None:
        self._run(Publish([4], [None], None), NOTHING)
        self._run(Lease(number, 2), NOTHING)
        settle = Settle(number, 0, fates, by_client=True)
        self._run(Lease(number, limit), NOTHING, Trouble(fault, after, settle))

    @rule(number=READERS, deed=HOLD_ON | GIVE_BACK, pause=PAUSES)
    def a_query_is_restarted_while_its_old_process_goes_on(
        self, number: int, deed: HoldOn | GiveBack, pause: timedelta
    ) -> None:
        self._run(Lease(number), NOTHING)
        self._run(Replay(number), NOTHING)
        self._run(replace(deed, reader=number, late=True), pause)

    @rule(
        number=READERS,
        limit=LIMITS,
        before=st.integers(0, 2),
        times=st.integers(1, 6),
        fates=st.none() | st.lists(RECORDED, min_size=1, max_size=1),
    )
    def a_published_batch_is_replayed_again_and_again(
        self,
        number: int,
        limit: int | None,
        before: int,
        times: int,
        fates: list[list[Any]] | None,
    ) -> None:
        self._run(Lease(number, limit), NOTHING)
        for _ in range(before):
            self._run(Replay(number, limit), NOTHING)
        self._run(KeepWhole(number), NOTHING)
        for _ in range(times):
            for each in fates or ():
                self._run(Settle(number, 0, each, with_batch=True), NOTHING)
            self._run(Replay(number, limit), NOTHING)

    @rule(number=READERS, fault=FAULTS, after=st.integers(3, 8))
    def two_drivers_replay_one_batch(self, number: int, fault: Fault | None, after: int) -> None:
        self._run(Lease(number), NOTHING)
        other = Replay(number, by_other=True)
        self._run(Replay(number), NOTHING, Trouble(fault, after, other))

    @rule(
        number=READERS,
        limit=LIMITS,
        fates=st.lists(RECORDED, min_size=1, max_size=2),
        then=st.sampled_from(["done", "done", "replayed", "cut off", "lost", "stopped"]),
    )
    def outcomes_are_recorded_for_a_batch(
        self, number: int, limit: int | None, fates: list[list[Any]], then: str
    ) -> None:
        self._run(Lease(number, limit), NOTHING)
        for each in fates:
            self._run(Settle(number, 0, each, with_batch=True), NOTHING)
        if then == "replayed":
            self._run(Replay(number), NOTHING)
        elif then == "cut off":
            self._run(Replay(number), NOTHING)
            for each in fates:
                self._run(Settle(number, 0, each, with_batch=True, late=True), NOTHING)
        elif then == "lost":
            self._run(Lease((number + 1) % len(GROUPS)), LEASE + MOMENT)
        elif then == "stopped":
            self._run(GiveBack(number), NOTHING)
        self._run(Lease(number, limit), NOTHING)

    @rule(counts=COUNTS, batch=BATCHES, after=st.integers(0, 24), repair_is_slow=st.booleans())
    def a_publish_is_slower_than_a_repair_allows(
        self, counts: list[int], batch: Named, after: int, *, repair_is_slow: bool
    ) -> None:
        self._run(WriteOnly(counts, [None]), NOTHING)
        deeds = [PublishLate(batch), Repair((Step.FENCE, Step.CLEAN), ("q",))]
        first, meanwhile = reversed(deeds) if repair_is_slow else deeds
        self._run(first, LONG, Trouble(None, after if repair_is_slow else after % 4, meanwhile))

    @rule(
        counts=COUNTS,
        key=KEYS,
        pauses=st.tuples(st.sampled_from(STALLS), st.sampled_from(STALLS)),
        after=st.integers(0, 3),
        fault=FAULTS,
    )
    def a_put_stalls_while_its_key_is_used_and_perhaps_forgotten(
        self,
        counts: list[int],
        key: Key,
        pauses: tuple[timedelta, timedelta],
        after: int,
        fault: Fault | None,
    ) -> None:
        before, then = pauses
        self._run(WriteOnly(counts, [None]), NOTHING)
        self._run(Publish(counts, [None], key), before)
        self._run(PublishLate(key), NOTHING, Trouble(fault, after, Pass(then)))

    @rule(name=NAMES, position=POSITIONS, after=st.integers(5, 14))
    def a_seek_breaks_off_and_is_repaired(
        self, name: str, position: StartingPosition, after: int
    ) -> None:
        self._let_all_catch_up(but=name)
        self._run(Seek(name, position, force=True), NOTHING, Trouble(None, after, None))
        self._let_all_catch_up()
        self._run(Repair((Step.FINALISE,), ("q",)), NOTHING)

    def _let_all_catch_up(self, *, but: str | None = None) -> None:
        """Settle what the groups are owed, so that the repair has something to do."""
        for name in list(self.world.queue.groups):
            if name != but or name == "three":
                self._run(CatchUp(name), NOTHING)

    # -- what comes late ----------------------------------------------------------------------

    @rule(pause=PAUSES)
    def a_late_request_arrives(self, pause: timedelta) -> None:
        self._run(Arrive(), pause)

    # -- what always holds --------------------------------------------------------------------

    @invariant()
    def figures_are_exact(self) -> None:
        check_figures(self.world.queue, self.world.memory)

    @invariant()
    def no_message_owed_is_deleted(self) -> None:
        self.world.check_chunks()

    def teardown(self) -> None:
        """At last everything is settled or dead-lettered, once, and all of it is deleted."""
        if hasattr(self, "world"):
            try:
                end(self.world, self.operators, self.readers)
            finally:
                self.patch.undo()
