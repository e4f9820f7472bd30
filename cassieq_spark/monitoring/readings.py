"""Reads the figures of all queues repeatedly, at a cost that follows the changes.

Each reading surveys the heads of all ledgers and groups by two scans. If the rows of a queue are
the same as at the reading before, its figures are the same, too: only times go on. So a queue in
which nothing happened costs no read of its own, and a queue that no group reads never does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from cassieq_spark.errors import ConnectError, MissingSchemaError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, QueueId
from cassieq_spark.monitoring.snapshot import (
    Look,
    QueueSnapshot,
    SchedulesRead,
    Snapshot,
    look_at,
    read_queue_snapshot,
    read_queues,
    read_schedules_of,
)
from cassieq_spark.queues.record import QueueRecord, Records, Status, read_records
from cassieq_spark.queues.stats import GroupStats, QueueStats
from cassieq_spark.repair.read import Seen, SeenLedger, SeenState, see_all
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: The survey of all queues failed, and each queue was read by itself.
SURVEY_FAILED = "metrics.survey_failed"

#: Two scans cost about as much as the reads of this many queues.
_FEW = 20


class Facts(NamedTuple):
    """The rows on which the figures of a queue depend.

    Attributes:
        queue: The queue.
        is_target: True if another queue sends its dead letters to this queue.
        rows: The ledger and the groups of each partition, as the survey has seen them.
    """

    queue: QueueDefinition
    is_target: bool
    rows: tuple[tuple[SeenLedger, Mapping[str, SeenState]], ...]

    @classmethod
    def of(cls, queue: QueueDefinition, seen: Iterable[Seen], *, is_target: bool) -> Self:
        """The facts that the survey of all its partitions shows."""
        return cls(queue, is_target, tuple((each.ledger, each.states) for each in seen))

    def may_change(self, snapshot: QueueSnapshot) -> bool:
        """True if figures may change though nothing is written: leases and waits run out.

        In a queue that receives dead letters, claimed messages may be published elsewhere.
        """
        held = any(state.slots for _, states in self.rows for state in states.values())
        return (self.is_target and held) or any(
            group.leased or group.waiting for group in snapshot.stats.groups
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """The content of a queue at an earlier reading.

    Attributes:
        facts: What the survey before that reading found.
        snapshot: What was read.
        now: The server's time of that reading.
    """

    facts: Facts
    snapshot: QueueSnapshot
    now: datetime


class Readings:
    """Reads snapshots, one after the other. Not thread-safe.

    Args:
        store: Where the queues are kept.
        names: Names of the queues; empty for all active ones.
    """

    def __init__(self, store: Store, names: Sequence[str] = ()) -> None:
        self._store = store
        self._names = names
        self._known: dict[str, _Known] = {}

    def read(self, *, may_continue: Callable[[], bool] = lambda: True) -> Snapshot:
        """Read the figures of all queues. No LWT.

        Reads the table of queues, and scans ledgers and group states, unless few queues are
        requested. Two reads, and five per group, for each queue that has groups and has changed
        since the reading before, or whose messages are leased or wait. One read more for each
        queue partition that has schedules.

        Args:
            may_continue: Called before each queue; once False, the other queues are left out.

        Raises:
            ConnectError: No node answers.
            StoreError: The table of queues could not be read.
        """
        begun_at, begun = datetime.now(UTC), time.monotonic()
        records = read_records(self._store)
        seen = self._survey(records)
        fresh: dict[str, _Known] = {}

        def read(store: Store, record: QueueRecord, *, is_target: bool) -> QueueSnapshot:
            name, parts = record.name, record.definition.by_partition
            found = [seen[part.queue_id] for part in parts if part.queue_id in seen]
            if len(found) < len(parts):
                return read_queue_snapshot(store, record, is_target=is_target)
            facts = Facts.of(record.definition, found, is_target=is_target)
            known, now = self._known.get(name), found[0].now
            if known is not None and known.facts == facts and not facts.may_change(known.snapshot):
                snapshot = aged(known.snapshot, now - known.now)
            else:
                look = _Looking(seen)
                snapshot = read_queue_snapshot(store, record, is_target=is_target, look=look)
            fresh[name] = _Known(facts, snapshot, now)
            return snapshot

        figures = read_queues(self._store, records, self._names, may_continue, read)
        self._known = fresh
        schedules = SchedulesRead()
        if may_continue():
            schedules = read_schedules_of(self._store, records, self._names)
        seconds = time.monotonic() - begun
        return Snapshot.of(figures, schedules, begun_at=begun_at, seconds=seconds)

    def _survey(self, records: Records) -> Mapping[QueueId, Seen]:
        active = [name for name, it in records.readable.items() if it.status is Status.ACTIVE]
        if not active or len(self._names or active) <= _FEW:
            return {}
        try:
            return see_all(self._store, active[0])
        except (ConnectError, MissingSchemaError):
            raise
        except Exception as error:  # noqa: BLE001 (rows of one queue must not hide the others)
            logger.warning(
                "the survey of all queues failed, so each queue is read by itself: %s",
                error,
                extra={"action": SURVEY_FAILED},
            )
            return {}


@dataclass(frozen=True, slots=True)
class _Looking:
    """Looks at partitions: by the survey if no group reads, otherwise by reads."""

    seen: Mapping[QueueId, Seen]

    def __call__(self, ledger: Ledger) -> Look:
        found = self.seen[ledger.queue_id]
        if found.ledger.groups or found.states:
            return look_at(ledger)
        return Look({}, found.ledger.head)


def aged(snapshot: QueueSnapshot, by: timedelta) -> QueueSnapshot:
    """The same figures a while later, if nothing has happened: only ages grow."""
    return replace(
        snapshot,
        stats=_aged_stats(snapshot.stats, by),
        partitions=tuple(aged(each, by) for each in snapshot.partitions),
        read_at=time.monotonic(),
    )


def _aged_stats(stats: QueueStats, by: timedelta) -> QueueStats:
    return replace(
        stats,
        groups=tuple(_aged_group(each, by) for each in stats.groups),
        partitions=tuple(_aged_stats(each, by) for each in stats.partitions),
    )


def _aged_group(group: GroupStats, by: timedelta) -> GroupStats:
    if group.oldest_age is None:
        return group
    return replace(group, oldest_age=max(timedelta(0), group.oldest_age + by))
