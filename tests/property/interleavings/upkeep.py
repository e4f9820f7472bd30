"""Scenes of repair runs, and of groups that come, go and move."""

from __future__ import annotations

from datetime import timedelta

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import fix_clocks
from cassieq_spark.repair.steps import Step
from tests.property.interleavings.scene import (
    BATCH,
    FINALISE,
    LEASE,
    MOMENT,
    NOTHING,
    QueueScene,
    surviving,
)
from tests.property.machine.operators import MakeGroup, Operators, Remove, Repair, Seek
from tests.property.machine.producers import PublishLate, WriteOnly
from tests.property.machine.readers import CatchUp, Fate, Lease, Replay, Settle
from tests.property.machine.terms import Terms


class FinaliseAgainstRegistration(QueueScene):
    """A repair run has something to delete, and a group comes that is owed all of it."""

    writes = 2

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(3, 5)
        self.readers.catch_up(CatchUp("one"))
        repairer, newcomer = Operators(self.view("a")), Operators(self.view("b"))
        self.stage.let("a", lambda: repairer.repair(FINALISE))
        self.stage.let("b", lambda: newcomer.make_group(MakeGroup("two", "earliest")))


class FinaliseAgainstSeek(QueueScene):
    """A group is moved back to where a repair run is about to delete."""

    writes = 3

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(3, 5)
        self.readers.catch_up(CatchUp("one"))
        repairer, mover = Operators(self.view("a")), Operators(self.view("b"))
        self.stage.let("a", lambda: repairer.repair(FINALISE))
        self.stage.let("b", lambda: mover.seek(Seek("one", "earliest", force=False)))


class FinaliseAgainstFinalise(QueueScene):
    """Two repair runs at once, and a reader that goes on."""

    writes = 2

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(3, 6)
        reader = self.readers_as("c")
        reader.lease(Lease(0, 5))
        reader.lease(Lease(0))
        for name in "ab":
            repairer = Operators(self.view(name))
            self.stage.let(name, lambda each=repairer: each.repair(FINALISE))
        self.stage.let("c", lambda: reader.lease(Lease(0)))


class RepairAgainstSlowPublish(QueueScene):
    """A write takes longer than the repair allows."""

    writes = 2
    write_timeout = NOTHING

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(2)
        slow, repairer = self.producers_as("b"), Operators(self.view("a"))
        slow.write_only(WriteOnly([3], [None]))
        repair = Repair((Step.FENCE, Step.CLEAN), ("q",), write_timeout=self.write_timeout)
        self.stage.let("a", lambda: repairer.repair(repair))
        self.stage.let("b", lambda: slow.publish_late(PublishLate(BATCH)))
        self.stage.let_pass(MOMENT)


class FenceTakenBack(QueueScene):
    """A fence that is ahead comes down while the repair deletes by it what a slow write began."""

    writes = 2
    #: Three who act, and one of them repairs: more takes a minute, and is for the night.
    preemptions = 0
    #: How far the clock of the slow writer is ahead.
    ahead = NOTHING

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(2)
        world = self.world
        world.queue.ledger.fence_is_wrong = True
        queue_id = world.definition.queue_id
        ahead = self.clock.now + timedelta(days=30)
        assert Ledger(world.store, queue_id).raise_fence(
            Ledger(world.store, queue_id).read_head(), ahead
        )
        slow, repairer, fixer = self.producers_as("b"), self.view("a"), self.view("c")
        self.clock.advance(self.ahead)
        slow.write_only(WriteOnly([3], [None]))
        self.clock.advance(-self.ahead)
        clean = Repair((Step.CLEAN,), ("q",))
        self.stage.let("a", lambda: Operators(repairer).repair(clean))
        self.stage.let("b", lambda: slow.publish_late(PublishLate(BATCH)))
        self.stage.let("c", surviving(lambda: fix_clocks(fixer.store, "q")))
        self.stage.let_pass(MOMENT)


class FenceTakenBackFromAhead(FenceTakenBack):
    """The same with a writer whose own clock is ahead: its time is one yet to come."""

    ahead = timedelta(days=10)

    def end(self) -> None:
        self.clock.advance(self.ahead)
        super().end()


class PatientRepairAgainstPublish(RepairAgainstSlowPublish):
    """A write is still within the time that the repair allows: it must go in."""

    write_timeout = LEASE


class SeekAgainstLease(QueueScene):
    """A group is moved while a reader acks and leases."""

    writes = 3

    def begin(self) -> None:
        self.publish(3, 3)
        reader, mover = self.readers_as("b"), Operators(self.view("a"))
        reader.lease(Lease(0, 2))
        self.stage.let("a", lambda: mover.seek(Seek("one", "earliest", force=True)))
        self.stage.let("b", lambda: reader.lease(Lease(0, 2)))


class SeekAgainstSettle(QueueScene):
    """A group is moved while messages of a lease are settled: in place, or out of their slot."""

    writes = 3
    fates: tuple[Fate, ...] = (("extend", LEASE), None, ("ack", None))

    def begin(self) -> None:
        self.publish(3, 3)
        reader, mover = self.readers_as("b"), Operators(self.view("a"))
        reader.lease(Lease(0, 4))
        self.stage.let("a", lambda: mover.seek(Seek("one", "earliest", force=True)))
        self.stage.let("b", lambda: reader.settle(Settle(0, 0, self.fates)))


class SeekAgainstRelease(SeekAgainstSettle):
    """The same with messages that go back to the group."""

    fates = (("release", NOTHING), None)


class SeekAgainstReplay(QueueScene):
    """A group is moved while a batch comes again, smaller than it was."""

    writes = 3
    terms = Terms(LEASE, max_deliveries=4)

    def begin(self) -> None:
        self.publish(3, 3)
        reader, mover = self.readers_as("b"), Operators(self.view("a"))
        reader.lease(Lease(0, 4))
        reader.replay(Replay(0))
        self.stage.let("a", lambda: mover.seek(Seek("one", "earliest", force=True)))
        self.stage.let("b", lambda: reader.replay(Replay(0)))


class RemovalAgainstSettle(QueueScene):
    """A group is removed, and made anew, while messages of a lease are settled."""

    writes = 2

    def begin(self) -> None:
        self.publish(3)
        reader, remover = self.readers_as("b"), Operators(self.view("a"))
        reader.lease(Lease(0, 3))

        def make_anew() -> None:
            remover.remove(Remove("one", force=True))
            remover.make_group(MakeGroup("one", "earliest"))

        fates: tuple[Fate, ...] = (("extend", LEASE), ("release", NOTHING), ("ack", None))
        self.stage.let("a", make_anew)
        self.stage.let("b", lambda: reader.settle(Settle(0, 0, fates)))


class RemovalAgainstLease(QueueScene):
    """A group is removed while a reader acks and leases."""

    writes = 2

    def begin(self) -> None:
        self.publish(3)
        reader, remover = self.readers_as("b"), Operators(self.view("a"))
        reader.lease(Lease(0, 2))
        self.stage.let("a", lambda: remover.remove(Remove("one", force=True)))
        self.stage.let("b", lambda: reader.lease(Lease(0, 2)))
