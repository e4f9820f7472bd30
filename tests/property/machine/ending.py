"""What holds at any time; and at the end: all is settled or dead-lettered once, and deleted."""

from __future__ import annotations

from datetime import timedelta

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.tables import Table
from tests.property.machine.model import QueueModel
from tests.property.machine.operators import MakeGroup, Operators, Repair, Seek
from tests.property.machine.readers import Lease, Reader, Readers
from tests.property.machine.world import World

#: Longer than any lease, delay or pause of a machine.
LONG = timedelta(hours=2)


def check_figures(model: QueueModel, memory: MemoryStore) -> None:
    """What is told of a queue is exactly so."""
    stats = queue_stats(Ledger(memory, model.queue.queue_id))
    assert (stats.finalised, stats.next) == (model.ledger.finalised, model.ledger.next)
    assert list(stats.groups) == [model.stats_of(name) for name in sorted(model.groups)]
    lowest = min((group.floor for group in stats.groups), default=stats.finalised)
    assert stats.settled == lowest - stats.finalised >= 0


def end(world: World, operators: Operators, readers: Readers) -> None:
    """Let everything late arrive, every group come to its end, and a repair run delete it all."""
    model = world.queue
    world.store.calm()
    while world.store.late:
        world.arrive()
    world.replicas.heal()
    # What a seek left that broke off, another one clears away.
    for name in {pin.group for pin in model.ledger.seek_pins.values()}:
        operators.seek(Seek(name, "earliest", force=True))
    assert not model.ledger.seek_pins
    for name in model.groups:
        _drain(world, operators, readers, name)
    world.clock.advance(LONG)
    operators.repair(Repair(tuple(Step), write_timeout=timedelta(0)))
    stored = {row["block"] for row in world.memory.scan(Table.CHUNK)}
    letters = {each.block for each in world.dead.ledger.published.values()}
    if model.groups or model.terms.expire_after:
        assert model.ledger.finalised == model.ledger.next
        assert not Ledger(world.memory, model.queue.queue_id).read_blocks()
        assert stored == letters, "not deleted, or a letter too many"


def _drain(world: World, operators: Operators, readers: Readers, name: str) -> None:
    """Let one reader go on until the group is owed nothing."""
    model, reader = world.queue, Reader(name)
    operators.make_group(MakeGroup(name, "earliest"))
    group = model.groups[name]
    ledger = model.ledger
    for _ in range(50 + 8 * ledger.next):
        if not group.places and group.pointer == ledger.next:
            break
        # All that held messages have gone, and all delays and pauses are over.
        world.clock.advance(LONG)
        readers.lease_as(reader, Lease(0))
    assert not group.places, "never over"
    assert group.fates.keys() == set(range(group.starts_at, ledger.next)), "I5: lost"
