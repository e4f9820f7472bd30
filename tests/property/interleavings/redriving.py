"""Scenes of those who take dead letters out of their queue."""

from __future__ import annotations

from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import purge
from cassieq_spark.dead_letters.redrive import redrive
from cassieq_spark.dead_letters.survey import survey
from tests.property.interleavings.scene import (
    Scene,
    surviving,
)
from tests.unit.dead_letters.dead_queue import DeadQueue


class RedriveAgainstRedrive(Scene):
    """Two want the same dead letters: each is published once, and none is lost (I9)."""

    writes = 3
    second = staticmethod(redrive)

    def __init__(self) -> None:
        self.queue = DeadQueue(["orders", "payments", "orders"])
        super().__init__(self.queue.clock, self.queue.store.replicas)

    def begin(self) -> None:
        found = survey(self.queue.memory, "dead", Filter(origin="orders"))
        redrive(self.queue.memory, survey(self.queue.memory, "payments"))
        for name, act in (("a", redrive), ("b", self.second)):
            store = self.stage.process(name).store_around(self.replicas)
            self.stage.let(name, surviving(lambda at=store, does=act: does(at, found)))

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
