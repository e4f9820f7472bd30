"""Scenes of those who lease and settle, in time or late."""

from __future__ import annotations

from cassieq_spark.repair.steps import Step
from tests.property.interleavings.scene import (
    LEASE,
    MOMENT,
    NOTHING,
    QueueScene,
)
from tests.property.machine.group import RETRY_MS
from tests.property.machine.operators import MakeGroup, Operators, Repair
from tests.property.machine.readers import Fate, GiveBack, HoldOn, Lease, Replay, Settle
from tests.property.machine.rows import MILLISECOND
from tests.property.machine.terms import Terms

#: What could not be dead-lettered is due again.
RETRY = RETRY_MS * MILLISECOND


class LeaseAgainstLease(QueueScene):
    """Two readers want fresh messages."""

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(3, 3)
        for name, limit in (("a", 2), ("b", 3)):
            readers = self.readers_as(name)
            self.stage.let(name, lambda each=readers, most=limit: each.lease(Lease(0, most)))


class LeaseWithinALimit(QueueScene):
    """No more than four messages may be in flight: one reader takes over, the other takes more."""

    terms = Terms(LEASE, max_in_flight=4)

    def begin(self) -> None:
        self.publish(3, 3)
        self.readers.lease(Lease(0, 3))
        self.clock.advance(LEASE + MOMENT)
        for name in "ab":
            readers = self.readers_as(name)
            take = Lease(0, 3, prefer_fresh=name == "a")
            self.stage.let(name, lambda each=readers, it=take: each.lease(it))


class SettleAgainstExpiry(QueueScene):
    """A lease runs out while some of it is settled, and another reader takes the rest."""

    fates = (("ack", None), ("release", NOTHING), None, ("extend", LEASE))
    terms = Terms(LEASE, max_deliveries=3)

    def begin(self) -> None:
        self.publish(5)
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0))
        self.stage.let("a", lambda: slow.settle(Settle(0, 0, self.fates)))
        self.stage.let("b", lambda: other.lease(Lease(0, 2)))
        self.stage.let_pass(LEASE + MOMENT)


class RejectAgainstExpiry(SettleAgainstExpiry):
    """The same with messages that are rejected, and so dead-lettered."""

    preemptions = 0
    fates = (("reject", "bad"), None)


class SettleAgainstSettle(QueueScene):
    """Two processes have receipts of one lease, and its reader is done with the batch."""

    writes = 2

    def begin(self) -> None:
        self.publish(4)
        reader = self.readers_as("c")
        reader.lease(Lease(0))
        self.stage.let("c", lambda: reader.lease(Lease(0)))
        for name, fates in (("a", [("ack", None), None]), ("b", [None, ("release", NOTHING)])):
            other = self.readers_as(name)
            other.receive_from(reader)
            self.stage.let(name, lambda each=other, its=fates: each.settle(Settle(0, 0, its)))


class RecordAgainstAck(QueueScene):
    """Outcomes are recorded for a batch, by a task that is late, while its reader acks it."""

    writes = 2

    def begin(self) -> None:
        self.publish(4)
        reader = self.readers_as("c")
        reader.lease(Lease(0))
        self.publish(2)
        self.stage.let("c", lambda: reader.lease(Lease(0)))
        for name, fates in (
            ("a", [("release", LEASE), None, ("extend", LEASE), None]),
            ("b", [None, ("release", NOTHING), None, ("ack", None)]),
        ):
            other = self.readers_as(name)
            other.receive_from(reader)
            settle = Settle(0, 0, fates, with_batch=True)
            self.stage.let(name, lambda each=other, its=settle: each.settle(its))


class RecordAgainstSettle(QueueScene):
    """One task records what is to become of messages, another one settles some at once."""

    writes = 2

    def begin(self) -> None:
        self.publish(3)
        reader = self.readers_as("c")
        reader.lease(Lease(0))
        for name, fates, with_batch in (
            ("a", [("release", LEASE)], True),
            ("b", [("ack", None), ("release", NOTHING), None], False),
        ):
            other = self.readers_as(name)
            other.receive_from(reader)
            settle = Settle(0, 0, fates, with_batch)
            self.stage.let(name, lambda each=other, its=settle: each.settle(its))
        self.stage.let("c", lambda: reader.lease(Lease(0)))


class RecordAgainstExpiry(SettleAgainstExpiry):
    """A lease runs out while outcomes are recorded under it, and another reader takes over."""

    def begin(self) -> None:
        self.publish(5)
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0))

        def record_and_go_on() -> None:
            slow.settle(Settle(0, 0, self.fates, with_batch=True))
            slow.lease(Lease(0))

        self.stage.let("a", record_and_go_on)
        self.stage.let("b", lambda: other.lease(Lease(0, 2)))
        self.stage.let_pass(LEASE + MOMENT)


class RecordAgainstReplay(QueueScene):
    """A task of a query that died records outcomes, while the restarted one replays the batch."""

    writes = 2
    fates = (("release", LEASE), ("extend", LEASE), None)

    def begin(self) -> None:
        self.publish(4)
        old, new = self.readers_as("a"), self.readers_as("b")
        old.lease(Lease(0))
        new.restart(old)

        def replay_and_go_on() -> None:
            new.replay(Replay(0))
            new.lease(Lease(0))

        self.stage.let("a", lambda: old.settle(Settle(0, 0, self.fates, with_batch=True)))
        self.stage.let("b", replay_and_go_on)


class AckAgainstExpiry(QueueScene):
    """A batch is done, and its lease has run out: another reader is after it."""

    def begin(self) -> None:
        self.publish(4)
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0, 2))
        self.stage.let("a", lambda: slow.lease(Lease(0)))
        self.stage.let("b", lambda: other.lease(Lease(0)))
        self.stage.let_pass(LEASE + MOMENT)


class ExtensionAgainstExpiry(QueueScene):
    """A lease is held on, or not, before another reader takes it over or marks it dead."""

    writes = 2
    terms = Terms(LEASE, max_deliveries=1)

    def begin(self) -> None:
        self.publish(2)
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0))
        self.stage.let("a", lambda: slow.hold_on(HoldOn(0)))
        self.stage.let("b", lambda: other.lease(Lease(0)))
        self.stage.let_pass(LEASE + MOMENT)


class SettleAgainstMarkDead(ExtensionAgainstExpiry):
    """Messages are settled late, which another reader finds dead."""

    def begin(self) -> None:
        self.publish(2)
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0))
        self.clock.advance(LEASE + MOMENT)
        self.stage.let("a", lambda: slow.settle(Settle(0, 0, [("ack", None), None])))
        self.stage.let("b", lambda: other.lease(Lease(0)))


class StopAgainstReplay(QueueScene):
    """A query is restarted, and its old process, which was cut off, holds its batch on and stops.

    What the new one has taken up stays its own.
    """

    writes = 2

    def begin(self) -> None:
        self.publish(4)
        old, new = self.readers_as("a"), self.readers_as("b")
        old.lease(Lease(0))
        new.restart(old)

        def go_on_late() -> None:
            old.hold_on(HoldOn(0))
            old.give_back(GiveBack(0))

        self.stage.let("a", go_on_late)
        self.stage.let("b", lambda: new.replay(Replay(0)))


class ReplayAgainstReplay(QueueScene):
    """Two drivers are started on one checkpoint: both take up the batch that it ends with."""

    def begin(self) -> None:
        self.publish(4)
        old = self.readers_as("c")
        old.lease(Lease(0))
        for name in "ab":
            driver = self.readers_as(name)
            driver.restart(old)
            self.stage.let(name, lambda each=driver: each.replay(Replay(0)))


class LeaseAgainstRelease(QueueScene):
    """Messages go back to the group while a reader takes what went back before, for longer."""

    def begin(self) -> None:
        self.publish(3)
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0, 2))
        self.readers.lease(Lease(0))
        self.readers.settle(Settle(0, 0, [("release", MOMENT)]))
        self.stage.let("a", lambda: slow.settle(Settle(0, 0, [("release", NOTHING)])))
        self.stage.let("b", lambda: other.lease(Lease(0)))
        self.stage.let_pass(MOMENT)


class DeadLetterAgainstRelease(QueueScene):
    """Messages go back to the group while a reader dead-letters what it could not before."""

    terms = Terms(LEASE, max_deliveries=1)

    def begin(self) -> None:
        self.publish(3)
        self.readers.lease(Lease(0, 1))
        self.readers.give_back(GiveBack(0))
        self.clock.advance(MOMENT)
        self.readers.lease(Lease(0, 1, dead_queue_is_gone=True))
        self.readers.lease(Lease(0, paused=True))
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0, 1))
        self.clock.advance(RETRY - MOMENT)
        slow.hold_on(HoldOn(0))
        self.stage.let("a", lambda: slow.settle(Settle(0, 0, [("release", NOTHING)])))
        self.stage.let("b", lambda: other.lease(Lease(0)))
        self.stage.let_pass(MOMENT)


class OrderAgainstSettle(QueueScene):
    """Order is strict: a client gives back what a reader is about to ack, to lease the next."""

    terms = Terms(LEASE, strict=True)
    fates: tuple[Fate, ...] = (("release", NOTHING), None)
    by_memory = False

    def begin(self) -> None:
        self.publish(4)
        reader, client = self.readers_as("b"), self.readers_as("a")
        reader.lease(Lease(0, 2))
        client.receive_from(reader)
        self.stage.let("a", lambda: client.settle(Settle(0, 0, self.fates)))
        self.stage.let("b", lambda: reader.lease(Lease(0, by_memory=self.by_memory)))


class OrderAgainstExtension(OrderAgainstSettle):
    """The same with a client that holds on to it."""

    fates = (("extend", LEASE), None)


class OrderByMemory(OrderAgainstSettle):
    """The same with a reader that does not look before it acks, or leases."""

    fates = (("release", NOTHING), ("extend", LEASE))
    by_memory = True


class OrderAgainstScan(QueueScene):
    """The same, while a repair's scan repairs some rows of the group, and others not."""

    preemptions = 0
    terms = Terms(LEASE, strict=True)

    def begin(self) -> None:
        self.publish(4)
        reader, client = self.readers_as("b"), self.readers_as("a")
        reader.lease(Lease(0, 1))
        client.receive_from(reader)
        repairer = Operators(self.view("c"))
        self.stage.let("a", lambda: client.settle(Settle(0, 0, [("extend", LEASE)])))
        self.stage.let("b", lambda: reader.lease(Lease(0)))
        self.stage.let("c", lambda: repairer.repair(Repair((Step.FINALISE,))))


class OrderOfTwo(QueueScene):
    """Order is strict: two readers want the one message that waits; others follow it."""

    terms = Terms(LEASE, strict=True)

    def begin(self) -> None:
        self.publish(4)
        first, other = self.readers_as("a"), self.readers_as("b")
        first.lease(Lease(0, 2))
        first.settle(Settle(0, 0, [("ack", None), ("release", NOTHING)]))
        self.stage.let("a", lambda: first.lease(Lease(0)))
        self.stage.let("b", lambda: other.lease(Lease(0)))


class DeadLetterAgainstDeadLetter(QueueScene):
    """Two readers meet dead messages."""

    writes = 3
    terms = Terms(LEASE, max_deliveries=1)

    def begin(self) -> None:
        self.publish(2)
        self.readers.lease(Lease(0))
        self.clock.advance(LEASE + MOMENT)
        for name in "ab":
            readers = self.readers_as(name)
            self.stage.let(name, lambda each=readers: each.lease(Lease(0)))
