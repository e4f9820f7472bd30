"""A queue in plain Python: its ledger, its groups, and what the dead-letter queue has of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues.stats import GroupStats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, partition_of_group
from cassieq_spark.store.tables import Table
from tests.property.machine.declared import Declared
from tests.property.machine.group import GroupModel
from tests.property.machine.ledger import LedgerModel
from tests.property.machine.rows import millis, of_kind
from tests.property.machine.terms import Terms
from tests.support.faults import FakeClock


class QueueModel:
    """Follows a queue: told of each compare-and-set that went in.

    Attributes:
        groups: Those that are registered, by name.
        dead: Messages that each name of a group ever had to dead-letter.
        first_values: The value of the first message of each block; the others count on from it.
    """

    def __init__(
        self,
        memory: MemoryStore,
        queue: QueueDefinition,
        clock: FakeClock,
        terms: Terms,
        is_copied: Callable[[str, int], bool],
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._is_copied = is_copied
        self._tokens: set[UUID] = set()
        self._epochs: Counter[str] = Counter()
        self.queue = queue
        self.terms = terms
        self.declared = Declared()
        self.ledger = LedgerModel(memory, queue.queue_id, clock, terms)
        self.groups: dict[str, GroupModel] = {}
        self.dead: dict[str, set[int]] = {}
        self.first_values: dict[UUID, int] = {}
        self.outdated = False

    @property
    def now(self) -> int:
        """The time, in ms."""
        return millis(self._clock.now)

    def epochs(self, name: str) -> int:
        """How often a group of that name began: made, or moved."""
        group = self.groups.get(name)
        return self._epochs[name] + (group.epoch if group else 0)

    def watch(self, partition: Partition) -> None:
        """Check what a compare-and-set on ``partition`` has changed."""
        if partition.table is Table.LEDGER:
            self.ledger.watch()
            self._follow_registrations()
            self._check_floors()
        elif partition.table is Table.GROUP_STATE:
            self._watch_group(partition.key[1])

    def stats_of(self, name: str) -> GroupStats:
        """What `queue_stats` has to say."""
        group, ledger, now = self.groups[name], self.ledger, self.now
        places = list(group.places.values())
        leased = [each for each in places if each.token is not None and each.due >= now]
        lapsed = [each for each in places if each.token is not None and each.due < now]
        marked = [each for each in places if each.reason is not None]
        waited = [each for each in places if each.token is each.reason is None and each.due <= now]
        seen = len(leased) + len(lapsed) + len(marked) + len(waited)
        unseen = range(group.pointer, ledger.next)
        early = [at for at in unseen if millis(ledger.visible_since(at)) > now]
        held = [pin.position for pin in ledger.seek_pins.values() if pin.group == name]
        return GroupStats(
            group=name,
            depth=len(unseen) + len(places),
            leased=len(leased),
            due=len(lapsed) + len(waited),
            waiting=len(places) - seen + len(early),
            dead=len(marked),
            oldest_age=self._oldest_age(group),
            pointer=group.pointer,
            floor=min([group.floor, *held]),
        )

    def _oldest_age(self, group: GroupModel) -> timedelta | None:
        """For how long the lowest message has been visible that is owed, and is visible."""
        now, ledger = self.now, self.ledger
        unseen = range(group.pointer, ledger.next)
        visible = {
            at
            for at, each in group.places.items()
            if each.token or each.deliveries or each.due <= now
        }
        visible |= {at for at in unseen if millis(ledger.visible_since(at)) <= now}
        if not visible:
            return None
        return max(timedelta(0), self._clock.now - ledger.visible_since(min(visible)))

    def _follow_registrations(self) -> None:
        for name, group in list(self.groups.items()):
            if self.ledger.registered.get(name) != (group.starts_at_first, group.registered_as):
                del self.groups[name]
                self._epochs[name] += group.epoch
        for name, (starts_at, number) in self.ledger.registered.items():
            if name not in self.groups:
                self._epochs[name] += 1
                self.groups[name] = GroupModel(
                    name,
                    starts_at,
                    number,
                    ledger=self.ledger,
                    terms=self.terms,
                    declared=self.declared,
                    is_copied=self._is_copied,
                    tokens=self._tokens,
                )

    def _check_floors(self) -> None:
        ledger = self.ledger
        for group in self.groups.values():
            assert ledger.finalised <= group.floor, (group.name, "I7")
        for pin in ledger.seek_pins.values():
            assert ledger.finalised <= pin.position, (pin, "I7")

    def _watch_group(self, name: str) -> None:
        rows = self._memory.read_rows(partition_of_group(self.queue.queue_id, name)).rows
        found = of_kind(rows, "registration")
        assert len(found) == (1 if rows else 0), "one registration, or nothing is left"
        group = self.groups.get(name)
        if group is None or not found or found[0]["ordinal"] != group.registered_as:
            return  # left by a group that is removed
        group.outdated = self.outdated
        group.watch(rows, self.now)
        self.dead.setdefault(name, set()).update(group.ever_dead)
