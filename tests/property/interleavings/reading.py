"""Scenes of those who lease and settle, in time or late."""

from __future__ import annotations

from tests.property.interleavings.scene import (
    LEASE,
    MOMENT,
    NOTHING,
    QueueScene,
)
from tests.property.machine.operators import MakeGroup
from tests.property.machine.readers import GiveBack, HoldOn, Lease, Replay, Settle
from tests.property.machine.terms import Terms


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
    """A lease is held on, or not, before another reader takes it over or condemns it."""

    writes = 2
    terms = Terms(LEASE, max_deliveries=1)

    def begin(self) -> None:
        self.publish(2)
        slow, other = self.readers_as("a"), self.readers_as("b")
        slow.lease(Lease(0))
        self.stage.let("a", lambda: slow.hold_on(HoldOn(0)))
        self.stage.let("b", lambda: other.lease(Lease(0)))
        self.stage.let_pass(LEASE + MOMENT)


class SettleAgainstCondemnation(ExtensionAgainstExpiry):
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


class BurialAgainstBurial(QueueScene):
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
