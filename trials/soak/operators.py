"""Operators and repair runs of a soak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import (
    alter_queue,
    delete_queue,
    pause_queue,
    purge_queue,
    read_queue,
    read_record,
    resume_queue,
)
from cassieq_spark.repair.report import Report
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.protocol import Store
from trials.soak.actors import (
    CLIENTS,
    QUEUE_KINDS,
    READERS,
    WRITE_TIMEOUT,
    Actor,
    QueueKind,
    UntilTheEnd,
    World,
)
from trials.stores import Abandoned, MortalStore


class Operator(UntilTheEnd):
    """Alters, pauses, purges, deletes and creates queues; completes what broke off."""

    def act(self) -> None:
        kind = self.chance.choice(QUEUE_KINDS)
        ways: list[Callable[[QueueKind], None]] = [self._alter, self._pause]
        if kind.restless:
            ways = [self._alter, self._pause, self._purge, self._delete, self._delete]
        way = self.chance.choice(ways)
        self.repair()
        way(kind)
        self.world.note(way.__name__.strip("_"))
        self.pause(self.chance.uniform(0.5, 4))

    def repair(self) -> None:
        """Complete purges, creations and pauses that broke off."""
        for kind in QUEUE_KINDS:
            record = read_record(self.store, kind.name)
            if record is None or record.is_gone:
                with suppress(QueueStateError):
                    self.world.make(self.store, kind)
                continue
            if record.status.value == "purging":
                purge_queue(self.store, kind.name, force=True)
            with suppress(QueueStateError):
                queue = read_queue(self.store, kind.name)
                for group in (CLIENTS, READERS):
                    ensure_group(
                        ConsumerGroup(Ledger(self.store, queue.queue_id), group),
                        starting="earliest",
                    )
                resume_queue(self.store, kind.name)

    def _alter(self, kind: QueueKind) -> None:
        lease = timedelta(seconds=self.chance.randrange(2, 8))
        alter_queue(self.store, kind.name, lease=lease)

    def _pause(self, kind: QueueKind) -> None:
        pause_queue(self.store, kind.name)
        self.pause(self.chance.uniform(0, 2))
        resume_queue(self.store, kind.name)

    def _purge(self, kind: QueueKind) -> None:
        purge_queue(self.store, kind.name, force=True)

    def _delete(self, kind: QueueKind) -> None:
        delete_queue(self.store, kind.name, force=True)
        self.pause(self.chance.choice((0, 0, 2)))
        self.world.make(self.store, kind)


class Repairer(Actor):
    """Runs the repair without a lock, so that several run at the same time."""

    def act(self) -> None:
        """Run the repair once; if it may die, without expiry, as it could not report that."""
        steps = [step for step in Step if self.lifetime is None or step is not Step.EXPIRE]
        repair(self.world, self.store, steps, WRITE_TIMEOUT)
        self.pause(self.chance.uniform(1, 6))


def repair(world: World, store: Store, steps: Sequence[Step], write_timeout: timedelta) -> Report:
    """Run the repair once, and record findings of the audit: there must be none.

    Raises:
        Abandoned: The store died meanwhile; the repair has reported that as an error of queues.
    """
    report = run_once(store, scan=DriverScan(store), steps=steps, write_timeout=write_timeout)
    world.note("repairs")
    for queue in report.queues.values():
        world.journal.alarms += [f"audit: {queue.queue_id}: {each}" for each in queue.findings]
        if queue.error is not None and Abandoned.__name__ not in queue.error:
            world.journal.alarms.append(f"repair: {queue.queue_id}: {queue.error}")
    if isinstance(store, MortalStore) and store.is_dead:
        raise Abandoned
    return report
