"""Reading what all queues hold, so that an error of one of them does not hide the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from cassieq_spark.dead_letters.survey import read_dead
from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    InvariantError,
    MissingSchemaError,
)
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues.record import (
    QueueRecord,
    Records,
    Status,
    active,
    ledgers_of,
    read_records,
)
from cassieq_spark.queues.stats import QueueStats, stats_of, sum_of
from cassieq_spark.store.protocol import Store

#: Queues that are read at the same time.
QUEUES_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """What a queue held when it was read.

    Attributes:
        name: The queue; of one of several partitions, its label.
        stats: What it holds, and what each group is owed.
        leases: Leases that run, by group: one for each reader at work, and for each partition of
            which it has messages.
        paused: Whether its readers pause.
        fence: What was begun before is not published any more; None: not known.
        dead_letters: Dead letters in it that are neither redriven nor purged; None if no queue
            sends any there.
        read_at: When, in seconds of this process's monotonic clock.
        partitions: The same of each of several partitions, of which this is the sum; else none.
    """

    name: str
    stats: QueueStats
    leases: Mapping[str, int] = field(default_factory=dict)
    paused: bool = False
    fence: datetime | None = None
    dead_letters: int | None = None
    read_at: float = 0.0
    partitions: tuple[QueueSnapshot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the queues held, each at its own moment between ``begun_at`` and ``took`` later.

    Attributes:
        begun_at: By the clock of this machine.
        took: How long it took to read it.
        queues: Those that could be read, by name.
        errors: What went wrong with the others, by name of the queue.
    """

    begun_at: datetime
    took: timedelta
    queues: tuple[QueueSnapshot, ...] = ()
    errors: Mapping[str, CassieqError] = field(default_factory=dict)


def read_snapshot(
    store: Store, names: Sequence[str] = (), *, may_continue: Callable[[], bool] = lambda: True
) -> Snapshot:
    """Read queues, eight at a time. No LWT.

    The table of queues; for each queue two reads, and five for each group; as much again for one
    that others send dead letters to.

    Args:
        store: Where the queues are kept.
        names: Which queues; none means all that are active.
        may_continue: Asked before each queue; once false, those that are left are left out.

    Raises:
        ConnectError: No node answers.
        StoreError: The table of queues could not be read.
    """
    begun_at, begun = datetime.now(UTC), time.monotonic()
    found = read_records(store)
    records = found.readable
    existing = [name for name, record in records.items() if record.status is Status.ACTIVE]
    existing += found.unreadable
    chosen = sorted(set(names)) or existing
    targets = {
        record.definition.dead_letter_queue for record in records.values() if not record.is_gone
    }
    read = partial(_read_unless_broken, store, found, targets, may_continue)
    with ThreadPoolExecutor(QUEUES_AT_ONCE) as pool:
        # The first ConnectError ends it: what has not begun is cancelled.
        figures = dict(zip(chosen, pool.map(read, chosen), strict=True))
    return Snapshot(
        begun_at=begun_at,
        took=timedelta(seconds=time.monotonic() - begun),
        queues=tuple(each for each in figures.values() if isinstance(each, QueueSnapshot)),
        errors={name: each for name, each in figures.items() if isinstance(each, CassieqError)},
    )


def count_leases(state: GroupState) -> int:
    """How many leases run; pure."""
    return len({slot.lease for slot in state.slots if slot.monotons and slot.due_at >= state.now})


def _read_unless_broken(
    store: Store,
    records: Records,
    targets: Collection[str | None],
    may_continue: Callable[[], bool],
    name: str,
) -> QueueSnapshot | CassieqError | None:
    if not may_continue():
        return None
    try:
        if name in records.unreadable:
            return records.unreadable[name]
        record = active(name, records.readable.get(name))
        return _read_queue(store, record, is_target=name in targets)
    except (ConnectError, MissingSchemaError):
        raise
    except CassieqError as error:
        return error
    except Exception as error:  # noqa: BLE001 (rows of one queue must not hide the others)
        return InvariantError(f"queue {name!r}: {type(error).__name__}: {error}")


def _read_queue(store: Store, record: QueueRecord, *, is_target: bool) -> QueueSnapshot:
    queue = record.definition
    parts = [
        _read_ledger(ledger, part.label)
        for ledger, part in zip(ledgers_of(store, queue), queue.by_partition, strict=True)
    ]
    leases: Counter[str] = Counter()
    for part in parts:
        leases.update(part.leases)
    return QueueSnapshot(
        name=queue.name,
        stats=sum_of(queue, [part.stats for part in parts]),
        leases=leases,
        paused=any(part.paused for part in parts),
        fence=min(part.fence for part in parts if part.fence is not None),
        dead_letters=read_dead(store, queue).count if is_target else None,
        read_at=parts[-1].read_at,
        partitions=tuple(parts) if len(parts) > 1 else (),
    )


def _read_ledger(ledger: Ledger, name: str) -> QueueSnapshot:
    states = read_group_states(ledger)
    head = ledger.read_head()
    return QueueSnapshot(
        name=name,
        stats=stats_of(ledger, states, head),
        leases={group: count_leases(state) for group, state in states.items()},
        paused=head.paused,
        fence=head.fence,
        read_at=time.monotonic(),
    )
