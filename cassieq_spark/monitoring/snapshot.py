"""Reads the figures of all queues, so that an error in one queue does not hide the others."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, Self

from cassieq_spark.dead_letters.survey import read_dead
from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    InvariantError,
    MissingSchemaError,
    QueueStateError,
)
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.queues.record import QueueRecord, Records, Status, active, ledgers_of
from cassieq_spark.queues.stats import QueueStats, stats_of, sum_of
from cassieq_spark.schedules.changes import readable_schedules
from cassieq_spark.schedules.progress import ScheduleProgress, progress_of_all
from cassieq_spark.store.protocol import Store

#: How many queues are read in parallel.
QUEUES_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The figures of a queue.

    Attributes:
        name: Name of the queue, or label of one of several queue partitions.
        stats: The figures of the queue's messages, and of each group.
        leases: Leases that have not run out, by group: one per reader and queue partition.
        holders: The names of the readers that have these leases, by group, in order.
        paused: True if the queue is paused.
        fence: Writes that began before this instant are refused; the latest of several partitions;
            None if unknown.
        dead_letters: Dead letters that are neither redriven nor purged; None if no queue sends
            dead letters here.
        read_at: When the queue was read, in seconds of this process's monotonic clock.
        partitions: The figures of each of several queue partitions, whose sum this is.
    """

    name: str
    stats: QueueStats
    leases: Mapping[str, int] = field(default_factory=dict)
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    paused: bool = False
    fence: datetime | None = None
    dead_letters: int | None = None
    read_at: float = 0.0
    partitions: tuple[QueueSnapshot, ...] = ()


class SchedulesRead(NamedTuple):
    """The schedules of queues.

    Attributes:
        found: How far each is, by queue and name, without its next ticks.
        errors: The errors of queues whose schedules could not be read, by name.
    """

    found: tuple[ScheduleProgress, ...] = ()
    errors: Mapping[str, CassieqError] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The figures of queues, each read at a moment of its own after ``begun_at``.

    Attributes:
        begun_at: When reading began, by the clock of this machine.
        took: How long reading took.
        queues: The queues that could be read, by name.
        errors: The errors of the other queues, or of reading the schedules of queues, by name.
        schedules: How far the schedules of the queues are, by queue and name.
    """

    begun_at: datetime
    took: timedelta
    queues: tuple[QueueSnapshot, ...] = ()
    errors: Mapping[str, CassieqError] = field(default_factory=dict)
    schedules: tuple[ScheduleProgress, ...] = ()

    @classmethod
    def of(
        cls,
        figures: MetricsByQueue,
        schedules: SchedulesRead,
        *,
        begun_at: datetime,
        seconds: float,
    ) -> Self:
        """The snapshot of what `read_queues` and `read_schedules_of` returned."""
        errors = {name: it for name, it in figures.items() if isinstance(it, CassieqError)}
        return cls(
            begun_at=begun_at,
            took=timedelta(seconds=seconds),
            queues=tuple(it for it in figures.values() if isinstance(it, QueueSnapshot)),
            errors={**schedules.errors, **errors},
            schedules=schedules.found,
        )


#: The figures of a queue, or the error of reading it; None if the queue was left out.
MetricsByQueue = Mapping[str, "QueueSnapshot | CassieqError | None"]


def read_queues(
    store: Store,
    records: Records,
    names: Sequence[str],
    may_continue: Callable[[], bool],
    read: Callable[..., QueueSnapshot],
) -> MetricsByQueue:
    """Read queues, eight in parallel, independently: by name, the figures or the error.

    Args:
        store: Where the queues are kept.
        records: The records of all queues.
        names: Names of the queues to read; empty for all active ones.
        may_continue: Called before each queue; once False, the other queues are left out.
        read: Reads one queue, as `read_queue_snapshot` does.

    Raises:
        ConnectError: No node answers.
    """
    readable = records.readable
    existing = [name for name, record in readable.items() if record.status is Status.ACTIVE]
    existing += records.unreadable
    chosen = sorted(set(names)) or existing
    targets = {
        record.definition.dead_letter_queue for record in readable.values() if not record.is_gone
    }
    one = partial(_read_unless_broken, store, records, targets, may_continue, read)
    with ThreadPoolExecutor(QUEUES_AT_ONCE) as pool:
        # The first ConnectError ends it, and cancels the reads that have not begun.
        return dict(zip(chosen, pool.map(one, chosen), strict=True))


@dataclass(frozen=True, slots=True)
class Look:
    """One queue partition as read: the states of its groups by name, then the ledger's head."""

    states: Mapping[str, GroupState]
    head: LedgerHead


def look_at(ledger: Ledger) -> Look:
    """Read all groups of a partition, and then the ledger's head. Two reads, four per group.

    Raises:
        QueueStateError: There is no such queue.
    """
    states = read_group_states(ledger)
    return Look(states, ledger.read_head())


def _read_unless_broken(  # noqa: PLR0913, PLR0917 (the last one is what a pool's map gives)
    store: Store,
    records: Records,
    targets: Collection[str | None],
    may_continue: Callable[[], bool],
    read: Callable[..., QueueSnapshot],
    name: str,
) -> QueueSnapshot | CassieqError | None:
    if not may_continue():
        return None
    try:
        if name in records.unreadable:
            return records.unreadable[name]
        record = active(name, records.readable.get(name))
        return read(store, record, is_target=name in targets)
    except (ConnectError, MissingSchemaError):
        raise
    except CassieqError as error:
        return error
    except Exception as error:  # noqa: BLE001 (rows of one queue must not hide the others)
        return InvariantError(f"queue {name!r}: {type(error).__name__}: {error}")


def read_queue_snapshot(
    store: Store,
    record: QueueRecord,
    *,
    is_target: bool,
    look: Callable[[Ledger], Look] = look_at,
) -> QueueSnapshot:
    """Read the figures of one queue. Two reads, and five per group; no LWT.

    Twice that for a dead-letter queue.

    Args:
        store: Where the queue is kept.
        record: The record of the queue; an active one.
        is_target: True if other queues send dead letters to it; then these are counted.
        look: Returns a queue partition, read now or before.

    Raises:
        QueueStateError: The queue was purged or deleted meanwhile.
    """
    queue = record.definition
    parts = [
        _snapshot_of(ledger, part.label, look(ledger))
        for ledger, part in zip(ledgers_of(store, queue), queue.by_partition, strict=True)
    ]
    stats = sum_of(queue, [part.stats for part in parts])
    of_parts = stats.partitions or (stats,)
    parts = [replace(part, stats=each) for part, each in zip(parts, of_parts, strict=True)]
    leases: Counter[str] = Counter()
    holders: defaultdict[str, set[str]] = defaultdict(set)
    for part in parts:
        leases.update(part.leases)
        for group, names in part.holders.items():
            holders[group].update(names)
    return QueueSnapshot(
        name=queue.name,
        stats=stats,
        leases=leases,
        holders={group: tuple(sorted(names)) for group, names in holders.items()},
        paused=any(part.paused for part in parts),
        fence=max(part.fence for part in parts if part.fence is not None),
        dead_letters=read_dead(store, queue).count if is_target else None,
        read_at=parts[-1].read_at,
        partitions=tuple(parts) if len(parts) > 1 else (),
    )


def _snapshot_of(ledger: Ledger, name: str, look: Look) -> QueueSnapshot:
    running = {
        group: [it for it in state.slots if it.monotons and it.due_at >= state.now]
        for group, state in look.states.items()
    }
    return QueueSnapshot(
        name=name,
        stats=stats_of(ledger, look.states, look.head),
        leases={group: len({it.lease for it in slots}) for group, slots in running.items()},
        holders={
            group: tuple(sorted({it.by for it in slots if it.by}))
            for group, slots in running.items()
        },
        paused=look.head.paused,
        fence=look.head.fence,
        read_at=time.monotonic(),
    )


def read_schedules_of(store: Store, records: Records, names: Collection[str]) -> SchedulesRead:
    """Read how far schedules are. One read per queue partition that has some; no LWT.

    Args:
        store: Where the queues are kept.
        records: The records of all queues.
        names: Names of the queues; empty for all active ones.

    Raises:
        ConnectError: No node answers.
    """
    found: list[ScheduleProgress] = []
    errors: dict[str, CassieqError] = {}
    for name, record in records.readable.items():
        if names and name not in names:
            continue
        try:
            found += progress_of_all(store, record.definition, readable_schedules(record), 0)
        except (ConnectError, MissingSchemaError):
            raise
        except QueueStateError:
            continue  # Purged or deleted meanwhile.
        except CassieqError as error:
            errors[name] = error
    return SchedulesRead(tuple(found), errors)
