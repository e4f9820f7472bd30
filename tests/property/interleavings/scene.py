"""What is there before anybody acts, who acts then, and what has to hold whatever the order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta

from cassieq_spark.errors import (
    CassieqError,
    ContentionError,
    NotAppliedError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.model import SinkBatch
from cassieq_spark.repair.steps import Step
from cassieq_spark.testing.tearing import TearingStore
from tests.property.interleavings.stage import Stage
from tests.property.machine.ending import check_figures, end
from tests.property.machine.operators import Operators, Repair
from tests.property.machine.producers import Producers, Publish
from tests.property.machine.readers import Readers
from tests.property.machine.terms import Terms
from tests.property.machine.world import World
from tests.support.faults import FakeClock

LEASE = timedelta(seconds=3)
MOMENT = timedelta(milliseconds=1)
NOTHING = timedelta(0)
FINALISE = Repair((Step.FINALISE,), ("q",))
BATCH = SinkBatch("left", 0)


class Scene(ABC):
    """Sets the stage.

    Attributes:
        writes: The compare-and-sets of each process that a fault may strike, the first ones.
        preemptions: How many there may be in every order that is played in the normal tests.
        stage: Who acts.
        clock: The time of all.
        replicas: Where all of it is kept.
    """

    writes = 1
    preemptions = 1

    def __init__(self, clock: FakeClock, replicas: TearingStore) -> None:
        self.clock = clock
        self.replicas = replicas
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
    """A queue with a model, by which every compare-and-set is judged that goes in: I1 to I10.

    It has one partition; `interleavings.partitions` has scenes of several, and of I11.
    """

    terms = Terms(LEASE)

    def __init__(self) -> None:
        self.world = World(self.terms, dead_letters=self.terms.max_deliveries > 0)
        super().__init__(self.world.clock, self.world.replicas)
        self.producers = Producers(self.world, with_delays=True)
        self.readers = Readers(self.world, ["one"])
        self.operators = Operators(self.world)

    def view(self, name: str) -> World:
        """The world as one process sees it, which may have read what has changed since."""
        self.world.set_outdated(value=True)
        return self.world.seen_by(self.stage.process(name).store_around)

    def producers_as(self, name: str) -> Producers:
        return Producers(self.view(name), with_delays=True)

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


def surviving(deed: Callable[[], None]) -> Callable[[], None]:
    """The same, but for errors that others or a fault account for."""

    def survive() -> None:
        try:
            deed()
        except (ContentionError, NotAppliedError, OutcomeUnknownError, QueueStateError):
            pass
        except CassieqError as error:
            raise AssertionError(f"{error!r} is nobody's fault") from error

    return survive
