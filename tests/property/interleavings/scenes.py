"""What is there before anybody acts, who acts then, and what has to hold whatever the order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta

from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import purge
from cassieq_spark.dead_letters.redrive import redrive
from cassieq_spark.dead_letters.survey import survey
from cassieq_spark.delivery.groups import ensure_group
from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.errors import (
    CassieqError,
    ContentionError,
    NotAppliedError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.ledger.state import check_open
from cassieq_spark.model import QueueId, SinkBatch
from cassieq_spark.queues import create_queue, delete_queue, purge_queue, read_queue, read_record
from cassieq_spark.repair.sweep import Step
from tests.property.interleavings.stage import Stage
from tests.property.machine.ending import check_figures, end
from tests.property.machine.lifecycle import LifecycleModel
from tests.property.machine.operators import MakeGroup, Operators, Remove, Seek, Sweep
from tests.property.machine.producers import Producers, Publish, PublishLate, WriteOnly
from tests.property.machine.readers import CatchUp, HoldOn, Lease, Readers, Settle
from tests.property.machine.terms import Terms
from tests.property.machine.world import World
from tests.support.builders import make_clocked_store, make_drafts, make_wish
from tests.support.faults import FakeClock
from tests.unit.dead_letters.dead_queue import DeadQueue

LEASE = timedelta(seconds=3)
MOMENT = timedelta(milliseconds=1)
NOTHING = timedelta(0)
FINALISE = Sweep((Step.FINALISE,), ("q",))
BATCH = SinkBatch("left", 0)


class Scene(ABC):
    """Sets the stage.

    Attributes:
        writes: The compare-and-sets of each process that a fault may strike, the first ones.
        preemptions: How many there may be in every order that is played in the normal tests.
        stage: Who acts.
        clock: The time of all.
    """

    writes = 1
    preemptions = 1

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.stage = Stage(clock)

    @abstractmethod
    def begin(self) -> None:
        """Prepare, and say who is to do what."""

    @abstractmethod
    def check(self) -> None:
        """What holds after each turn."""

    @abstractmethod
    def end(self) -> None:
        """What holds when all are done."""


class QueueScene(Scene):
    """A queue with a model, by which every compare-and-set is judged that goes in: I1 to I9."""

    terms = Terms(LEASE)

    def __init__(self) -> None:
        self.world = World(self.terms, dead_letters=self.terms.max_deliveries > 0)
        super().__init__(self.world.clock)
        self.producers = self.producers_as("-")
        self.readers = Readers(self.world, ["one"])
        self.operators = Operators(self.world)

    def view(self, name: str) -> World:
        return self.world.seen_by(self.stage.process(name).store_around)

    def producers_as(self, name: str) -> Producers:
        return Producers(self.world if name == "-" else self.view(name), with_delays=True)

    def readers_as(self, name: str) -> Readers:
        return Readers(self.view(name), ["one"])

    def publish(self, *counts: int) -> None:
        self.producers.publish(Publish(counts, [None], None))

    def check(self) -> None:
        self.world.check_chunks()

    def end(self) -> None:
        self.world.set_outdated(value=False)
        check_figures(self.world.queue, self.world.memory)
        end(self.world, self.operators, self.readers)


class PublishAgainstPublish(QueueScene):
    """Two writes without a sink, and a reader."""

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        for name, counts in (("a", [2]), ("b", [1, 2])):
            producers = self.producers_as(name)
            producers.write_only(WriteOnly(counts, [None]))
            self.stage.let(name, lambda each=producers: each.publish_late(PublishLate(None)))
        readers = self.readers_as("c")
        self.stage.let("c", lambda: readers.lease(Lease(0)))


class OneBatchTwice(QueueScene):
    """Two drivers publish the same batch of a sink, a third one the next."""

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        for name, batch in (("a", BATCH), ("b", BATCH), ("c", SinkBatch("left", 1))):
            producers = self.producers_as(name)
            producers.write_only(WriteOnly([2], [None]))
            self.stage.let(
                name, lambda each=producers, its=batch: each.publish_late(PublishLate(its))
            )


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


class FinaliseAgainstRegistration(QueueScene):
    """A sweep has something to let go of, and a group comes that is owed all of it."""

    writes = 2

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(3, 5)
        self.readers.catch_up(CatchUp("one"))
        sweeper, newcomer = Operators(self.view("a")), Operators(self.view("b"))
        self.stage.let("a", lambda: sweeper.sweep(FINALISE))
        self.stage.let("b", lambda: newcomer.make_group(MakeGroup("two", "earliest")))


class FinaliseAgainstSeek(QueueScene):
    """A group is moved back to where a sweep is about to delete."""

    writes = 3

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(3, 5)
        self.readers.catch_up(CatchUp("one"))
        sweeper, mover = Operators(self.view("a")), Operators(self.view("b"))
        self.stage.let("a", lambda: sweeper.sweep(FINALISE))
        self.stage.let("b", lambda: mover.seek(Seek("one", "earliest", force=False)))


class FinaliseAgainstFinalise(QueueScene):
    """Two sweeps at once, and a reader that goes on."""

    writes = 2

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(3, 6)
        reader = self.readers_as("c")
        reader.lease(Lease(0, 5))
        reader.lease(Lease(0))
        for name in "ab":
            sweeper = Operators(self.view(name))
            self.stage.let(name, lambda each=sweeper: each.sweep(FINALISE))
        self.stage.let("c", lambda: reader.lease(Lease(0)))


class SweepAgainstSlowPublish(QueueScene):
    """A write takes longer than the sweep allows."""

    writes = 2
    write_timeout = NOTHING

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        self.publish(2)
        slow, sweeper = self.producers_as("b"), Operators(self.view("a"))
        slow.write_only(WriteOnly([3], [None]))
        sweep = Sweep((Step.FENCE, Step.CLEAN), ("q",), write_timeout=self.write_timeout)
        self.stage.let("a", lambda: sweeper.sweep(sweep))
        self.stage.let("b", lambda: slow.publish_late(PublishLate(BATCH)))
        self.stage.let_pass(MOMENT)


class PatientSweepAgainstPublish(SweepAgainstSlowPublish):
    """A write is still within the time that the sweep allows: it must go in."""

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


class RemovalAgainstLease(QueueScene):
    """A group is removed while a reader acks and leases."""

    writes = 2

    def begin(self) -> None:
        self.publish(3)
        reader, remover = self.readers_as("b"), Operators(self.view("a"))
        reader.lease(Lease(0, 2))
        self.stage.let("a", lambda: remover.remove(Remove("one", force=True)))
        self.stage.let("b", lambda: reader.lease(Lease(0, 2)))


class EndAgainstPublish(Scene):
    """A queue is purged under a writer and a reader: whatever goes in goes where it was meant to.

    I10, and: no version is used once somebody was told that it is over.
    """

    writes = 3

    def __init__(self) -> None:
        self.memory, clock = make_clocked_store()
        super().__init__(clock)
        self.model = LifecycleModel(self.memory)

    def begin(self) -> None:
        setting_up = self.stage.process("-").store_around(self.memory, self.model.watch)
        queue = create_queue(setting_up, "q", bucket_size=8, chunk_size=4, lease=LEASE)
        ensure_group(setting_up, queue.queue_id, "one", starting="earliest")
        ops, writer, reader = (
            self.stage.process(name).store_around(self.memory, self.model.watch) for name in "abc"
        )
        self.drafts = make_drafts([2], self.clock.now)
        self.model.intended[self.drafts[0].block] = queue.queue_id
        self.told: list[bool] = []

        def write() -> None:
            monotons = publish(writer, queue.queue_id, self.drafts, batch=BATCH).monotons
            self.told.append(monotons is not None)

        def lease() -> None:
            head = read_head(reader, queue.queue_id)
            check_open(queue.queue_id, head)
            wish = make_wish(stop=head.offered_stop, length=LEASE)
            Delivery(reader, queue.queue_id, "one").ack_and_lease(wish)

        self.stage.let("a", self.surviving(lambda: self.bring_to_an_end(ops)))
        self.stage.let("b", self.surviving(write))
        self.stage.let("c", self.surviving(lease))

    def check(self) -> None:
        for block in read_blocks(self.memory, QueueId("q@2")):
            assert block.block not in self.model.intended, "landed in another version"

    def bring_to_an_end(self, store: object) -> None:
        purge_queue(store, "q", force=True)

    def end(self) -> None:
        # Whatever broke off, the next one of the kind finishes.
        self.bring_to_an_end(self.stage.process("-").store_around(self.memory, self.model.watch))
        record = read_record(self.memory, "q")
        assert record is not None
        assert read_queue(self.memory, "q") == record.definition
        assert not read_blocks(self.memory, record.definition.queue_id)
        for told in self.told:
            assert told == (self.drafts[0].block in self.model.published)

    @staticmethod
    def surviving(deed: Callable[[], None]) -> Callable[[], None]:
        def survive() -> None:
            try:
                deed()
            except (ContentionError, NotAppliedError, OutcomeUnknownError, QueueStateError):
                pass
            except CassieqError as error:
                raise AssertionError(f"{error!r} is nobody's fault") from error

        return survive


class DeletionAgainstPublish(EndAgainstPublish):
    """The same with a queue that is deleted, and made anew."""

    def bring_to_an_end(self, store: object) -> None:
        delete_queue(store, "q", force=True)
        create_queue(store, "q", bucket_size=8, chunk_size=4, lease=LEASE)


class RedriveAgainstRedrive(Scene):
    """Two want the same dead letters: each is published once, and none is lost (I9)."""

    writes = 3
    second = staticmethod(redrive)

    def __init__(self) -> None:
        self.queue = DeadQueue(["orders", "payments", "orders"])
        super().__init__(self.queue.clock)
        self.purged: set[int] = set()

    def begin(self) -> None:
        found = survey(self.queue.memory, "dead", Filter(origin="orders"))
        redrive(self.queue.memory, survey(self.queue.memory, "payments"))
        for name, act in (("a", redrive), ("b", self.second)):
            store = self.stage.process(name).store_around(self.queue.memory)
            self.stage.let(
                name,
                EndAgainstPublish.surviving(lambda at=store, does=act: does(at, found)),
            )

    def check(self) -> None:
        redriven = self.queue.arrived("orders")
        assert len(set(redriven)) == len(redriven), "I9: published twice"

    def end(self) -> None:
        self.queue.lapse()
        redrive(self.queue.memory, survey(self.queue.memory, "dead"))
        assert self.queue.left() == self.queue.held() == []
        assert sorted(self.queue.arrived("orders")) == [0, 2], "I9: lost, or twice"
        assert self.queue.arrived("payments") == [1]


class RedriveAgainstPurge(RedriveAgainstRedrive):
    """One wants to redrive, the other to purge the same: each is one or the other."""

    second = staticmethod(purge)

    def end(self) -> None:
        self.queue.lapse()
        redrive(self.queue.memory, survey(self.queue.memory, "dead"))
        assert self.queue.left() == self.queue.held() == []
        redriven = self.queue.arrived("orders")
        assert sorted(set(redriven)) == sorted(redriven), "I9: published twice"
        assert set(redriven) <= {0, 2}


SCENES: dict[str, type[Scene]] = {
    "publish against publish": PublishAgainstPublish,
    "one batch twice": OneBatchTwice,
    "lease against lease": LeaseAgainstLease,
    "lease within a limit": LeaseWithinALimit,
    "settle against expiry": SettleAgainstExpiry,
    "reject against expiry": RejectAgainstExpiry,
    "ack against expiry": AckAgainstExpiry,
    "settle against settle": SettleAgainstSettle,
    "extension against expiry": ExtensionAgainstExpiry,
    "settle against condemnation": SettleAgainstCondemnation,
    "burial against burial": BurialAgainstBurial,
    "finalise against registration": FinaliseAgainstRegistration,
    "finalise against seek": FinaliseAgainstSeek,
    "finalise against finalise": FinaliseAgainstFinalise,
    "sweep against slow publish": SweepAgainstSlowPublish,
    "patient sweep against publish": PatientSweepAgainstPublish,
    "seek against lease": SeekAgainstLease,
    "removal against lease": RemovalAgainstLease,
    "purge against publish": EndAgainstPublish,
    "deletion against publish": DeletionAgainstPublish,
    "redrive against redrive": RedriveAgainstRedrive,
    "redrive against purge": RedriveAgainstPurge,
}
