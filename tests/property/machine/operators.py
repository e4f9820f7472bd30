"""Who looks after the queue: makes, moves and removes groups; repairs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cassieq_spark.errors import OutcomeUnknownError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import delete_group, ensure_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import partition_of_group
from cassieq_spark.store.tables import Table
from tests.property.machine.world import World

#: The longest that a write may take, by the repair.
WRITE_TIMEOUT = timedelta(seconds=6)


@dataclass(frozen=True, slots=True)
class MakeGroup:
    """Make a group, if there is none."""

    group: str
    starting: StartingPosition


@dataclass(frozen=True, slots=True)
class Seek:
    """Move a group."""

    group: str
    position: StartingPosition
    force: bool


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a group."""

    group: str
    force: bool


@dataclass(frozen=True, slots=True)
class Repair:
    """Run the repair; without names, both queues. The servers' clocks may be wrong then."""

    steps: tuple[Step, ...]
    queues: tuple[str, ...] = ()
    write_timeout: timedelta = WRITE_TIMEOUT
    ahead: timedelta = timedelta(0)


class Operators:
    """All who look after the queue."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._model = world.queue

    def make_group(self, action: MakeGroup) -> None:
        world, starting, troubles = self._world, action.starting, self._world.store.unrest
        if isinstance(starting, int):
            starting = min(starting, self._model.ledger.next)
        ensure_group(
            ConsumerGroup(Ledger(world.store, world.definition.queue_id), action.group),
            starting=starting,
            fail_on_data_loss=False,
        )
        made = self._model.groups.get(action.group)
        # A plain read may still show a group whose removal has not been answered yet.
        assert world.store.unrest > troubles if made is None else made.is_open

    def seek(self, action: Seek) -> None:
        world, model, name = self._world, self._model, action.group
        troubles, group, ledger = world.store.unrest, model.groups.get(name), model.ledger
        position = action.position
        refused = group is None or (
            isinstance(position, int) and not ledger.finalised <= position <= ledger.next
        )
        if group is not None and not action.force:
            places = group.places.values()
            refused |= any(each.token and each.due >= model.now for each in places)
        try:
            target = seek_group(
                ConsumerGroup(Ledger(world.store, world.definition.queue_id), name),
                position,
                force=action.force,
            )
        except QueueStateError:
            assert refused or world.store.unrest > troubles
            return
        if troubles == world.store.unrest:
            assert not refused
            assert model.groups[name].pointer == target
            assert name not in {pin.group for pin in ledger.seek_pins.values()}

    def remove(self, action: Remove) -> None:
        world, name = self._world, action.group
        queue_id = world.definition.queue_id
        troubles, known = world.store.unrest, name in self._model.groups
        try:
            found = delete_group(
                ConsumerGroup(Ledger(world.store, queue_id), name), force=action.force
            )
        except QueueStateError:
            assert not action.force or world.store.unrest > troubles
            return
        if troubles == world.store.unrest:
            assert found or not known
            assert name not in self._model.groups
            assert not world.memory.read_rows(partition_of_group(queue_id, name)).rows

    def repair(self, action: Repair) -> None:
        clock, ahead = self._world.clock, self._world.clock.ahead
        clock.ahead = action.ahead
        try:
            self._repair(action)
        finally:
            clock.ahead = ahead

    def _repair(self, action: Repair) -> None:
        store, troubles = self._world.store, self._world.store.unrest
        report = run_once(
            store,
            scan=DriverScan(store),
            queues=action.queues,
            steps=action.steps,
            write_timeout=action.write_timeout,
        )
        assert report.is_whole, "I3"
        if errors := [report.queues[name].error or "" for name in report.failed]:
            assert all(OutcomeUnknownError.__name__ in each for each in errors), errors
            assert store.troubles
            return  # the next repair run goes on
        # What an earlier one finalised may have gone in late.
        if troubles == store.unrest and Step.FINALISE in action.steps:
            self._check_deleted()

    def _check_deleted(self) -> None:
        """Wherever earlier repair runs died, nothing is left of what is settled."""
        ledger = self._model.ledger
        assert all(block.stop > ledger.finalised for block in ledger.blocks), "not trimmed"
        stored = {row["block"] for row in self._world.memory.scan(Table.CHUNK)}
        settled = {
            block.block for block in ledger.published.values() if block.stop <= ledger.finalised
        }
        assert not stored & settled, "trimmed, and not deleted"
