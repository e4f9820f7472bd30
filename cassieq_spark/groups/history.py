"""The history of messages: who got, extended, released, acked or rejected them, and when.

A queue with the setting ``history`` keeps it; other queues pay nothing. After the compare-and-set
of a lease or a settlement, its events go to a thread that writes them, one plain write for each,
without a condition and with a time to live. The history is best effort: events are lost if a
program dies, if Cassandra refuses them, or if the thread falls behind. Nothing is decided by it.

The rows are in Cassandra partitions of their own in the table of group states, one for each group
and 65,536 monotons, which no other read of a group touches.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from operator import itemgetter
from queue import Empty, Full, Queue
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary, ref

from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import CassieqError
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import Did, Settlement, Slot, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges, to_millis
from cassieq_spark.processes import lock_across_forks
from cassieq_spark.store.decoded import decoded, demand
from cassieq_spark.store.protocol import (
    Partition,
    Row,
    RowKey,
    Slice,
    Store,
    TimedRows,
    Value,
    partition_of_group,
)

logger = logging.getLogger(__name__)

#: Events of the history were not written.
HISTORY_LOST = "history.lost"

#: Monotons whose events are in one Cassandra partition.
SPAN = 1 << 16
#: The longest time for which a queue keeps the history of its messages.
LONGEST_HISTORY = timedelta(days=365)
#: Rows that wait to be written; further events are lost.
MOST_WAITING = 10_000
#: Events that are looked through for a message: the newest of each group, which gets an equal part
#: of them, but not fewer than a read. They take some seconds of processor time.
MOST_READ = 200_000

_KIND = "event"
#: Rows of a read.
_AT_ONCE = 2_000
#: The position of a row: the microseconds of its time, a count, and chance, for other processes.
_TURN_BITS, _CHANCE_BITS = 20, 32
_turns = count()
#: Seconds after which a thread that has nothing to write ends.
_IDLE = 1.0
#: Seconds from one warning about lost events to the next.
_WARN_EVERY = 60.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HistoryEvent(Displayed):
    """An event of some messages: one call of one reader.

    Attributes:
        did: What it did. ``returned`` messages were not handed over, and do not count as
            delivered; ``dead`` ones were delivered too often.
        monotons: The messages.
        group: The group.
        at: When, by the clock of the reader.
        by: The name of the reader; None if it has none.
        lease: The token of the lease.
        deliveries: How often the messages had been delivered; None if unknown.
        detail: Why the messages are dead or rejected; None if they are not.
    """

    did: Did
    monotons: Ranges
    group: str = ""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    by: str | None = None
    lease: UUID
    deliveries: int | None = None
    detail: str | None = None

    def _view(self) -> ObjectView:
        facts = {
            "at": self.at,
            "did": str(self.did),
            "group": self.group,
            "by": self.by,
            "delivery": self.deliveries,
            "lease": str(self.lease),
        }
        details = {"monotons": str(self.monotons), "detail": str(self.detail)}
        return ObjectView("events", "", facts, details)


def events_of_lease(lease: Lease, *, acked_by: str | None) -> Iterator[HistoryEvent]:
    """The events of a lease that was carried out.

    Args:
        lease: The lease. What is leased has the name in its request.
        acked_by: The name of the reader that acks.
    """
    left = Ranges.union(each.monotons for each in lease.left)
    for slot in lease.state.held_by(lease.request.held):
        if slot.number in lease.acked_slots:
            yield _of_slot(Did.ACKED, slot, slot.monotons - left, acked_by)
    for slot, monotons in lease.settled.items():
        yield _of_slot(Did.ACKED, slot, monotons, acked_by)
    held = lease.request.held or lease.token
    for row in lease.left:
        yield HistoryEvent(
            did=_did_with(row),
            monotons=row.monotons,
            by=acked_by,
            lease=held,
            deliveries=row.deliveries,
            detail=row.reason if isinstance(row, Waiting) else None,
        )
    known = {*lease.state.waiting, *(each for each in lease.left if isinstance(each, Waiting))}
    for dead in lease.dead:
        if dead not in known:
            yield HistoryEvent(
                did=Did.DEAD,
                monotons=dead.monotons,
                by=lease.request.by,
                lease=lease.token,
                deliveries=dead.deliveries,
                detail=dead.reason,
            )
    for leased in lease.leased:
        yield HistoryEvent(
            did=Did.LEASED,
            monotons=leased.monotons,
            by=lease.request.by,
            lease=lease.token,
            deliveries=leased.deliveries,
        )


def _of_slot(did: Did, slot: Slot, monotons: Ranges, by: str | None) -> HistoryEvent:
    return HistoryEvent(
        did=did, monotons=monotons, by=by, lease=slot.lease, deliveries=slot.deliveries
    )


def _did_with(row: Slot | Waiting) -> Did:
    if isinstance(row, Slot):
        return Did.EXTENDED
    return Did.RELEASED if row.reason is None else Did.REJECTED


def events_of_settlement(
    lease: UUID,
    settlement: Settlement,
    settled: Settled,
    *,
    by: str | None,
    deliveries: int | None,
) -> Iterator[HistoryEvent]:
    """The events of a settlement that was carried out, and not recorded for the ack of a batch."""
    done = settlement.within(settlement.named - settled.stale)
    for did, parameter, monotons in done.parts():
        yield HistoryEvent(
            did=did,
            monotons=monotons,
            by=by,
            lease=lease,
            deliveries=deliveries,
            detail=parameter if isinstance(parameter, str) else None,
        )


# -- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """A row to write."""

    partition: Partition
    row: RowKey
    values: dict[str, Value]
    timestamp: int
    ttl: timedelta


class HistoryWriter:
    """Writes events in a thread, which ends while there is nothing to write.

    Args:
        store: Where to write; the writer does not keep it alive.
        most: Most rows that wait; further ones are lost.
    """

    def __init__(self, store: TimedRows, most: int = MOST_WAITING) -> None:
        self._store = ref(store)
        self._lock = lock_across_forks()
        self._most = most
        self._warned_at = float("-inf")
        #: How many rows were written, and how many were lost.
        self.written = self.lost = 0
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._waiting: Queue[_Line] = Queue(self._most)
        self._thread: threading.Thread | None = None

    def record(self, queue: QueueDefinition, group: str, events: Iterable[HistoryEvent]) -> None:
        """Write these events of a group soon. Never waits, and never raises."""
        now = time.time()
        with self._lock:
            if self._pid != os.getpid():
                # The thread, and what waits for it, are those of the parent.
                self._begin()
            for event in events:
                for line in _lines_of(queue, replace(event, group=group), now):
                    try:
                        self._waiting.put_nowait(line)
                    except Full:
                        self._lose("they came too fast")
            if self._thread is None and not self._waiting.empty():
                self._thread = threading.Thread(
                    target=self._run, name="cassieq-history", daemon=True
                )
                self._thread.start()

    def flush(self, patience: timedelta) -> bool:
        """Wait until all that waits is written or lost; False if that took too long."""
        with self._lock:
            waiting = self._waiting if self._pid == os.getpid() else None
        if waiting is None:
            return True
        until = time.monotonic() + patience.total_seconds()
        with waiting.all_tasks_done:
            return waiting.all_tasks_done.wait_for(
                lambda: not waiting.unfinished_tasks, max(0.0, until - time.monotonic())
            )

    def _run(self) -> None:
        while True:
            try:
                line = self._waiting.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            try:
                self._write(line)
            finally:
                self._waiting.task_done()

    def _write(self, line: _Line) -> None:
        store = self._store()
        try:
            if store is not None:
                store.write_row(
                    line.partition, line.row, line.values, timestamp=line.timestamp, ttl=line.ttl
                )
                self.written += 1
                return
        except CassieqError as error:
            reason = str(error)
        else:
            reason = "the store is gone"
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        now = time.monotonic()
        with self._lock:
            self.lost += 1
            is_to_be_told = now >= self._warned_at + _WARN_EVERY
            if is_to_be_told:
                self._warned_at = now
        if is_to_be_told:
            logger.warning(
                "%d events of the history of messages were not written so far: %s",
                self.lost,
                reason,
                extra={"action": HISTORY_LOST, "count": self.lost},
            )


_writers: WeakKeyDictionary[TimedRows, HistoryWriter] = WeakKeyDictionary()
_lock = lock_across_forks()


def writer_of(store: TimedRows) -> HistoryWriter:
    """The writer of this process for a store."""
    with _lock:
        found = _writers.get(store)
        if found is None:
            found = _writers[store] = HistoryWriter(store)
        return found


def flush_history(store: TimedRows, patience: timedelta) -> None:
    """Wait for the writer of a store, if there is one, before the store is closed."""
    with _lock:
        found = _writers.get(store)
    if found is not None:
        found.flush(patience)


def _lines_of(queue: QueueDefinition, event: HistoryEvent, now: float) -> Iterator[_Line]:
    """The rows of an event: one for each span that it concerns."""
    at = datetime.fromtimestamp(now, UTC)
    ttl = queue.history or timedelta(0)
    for span, monotons in _by_span(event.monotons):
        values: dict[str, Value] = {
            "ranges": str(monotons),
            "reason": str(event.did),
            "lease": event.lease,
            "last_at": at,
        }
        given = {"holder": event.by, "outcomes": event.detail, "deliveries": event.deliveries}
        values |= {column: value for column, value in given.items() if value is not None}
        row = (_KIND, to_millis(at), _position(at))
        partition = _partition_of(queue.queue_id, event.group, span)
        yield _Line(partition, row, values, int(now * 1_000_000), ttl)


def _position(at: datetime) -> int:
    """The place of a row among those of its millisecond: later rows of a process come later."""
    micros = at.microsecond % 1000
    turn = next(_turns) % (1 << _TURN_BITS)
    return ((micros << _TURN_BITS) | turn) << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS)


def _by_span(monotons: Ranges) -> Iterator[tuple[int, Ranges]]:
    parts: dict[int, list[Range]] = {}
    for each in monotons:
        for part in each.split_at_multiples(SPAN):
            parts.setdefault(part.start // SPAN, []).append(part)
    for span, those in parts.items():
        yield span, Ranges.of(*those)


def _partition_of(queue_id: QueueId, group: str, span: int) -> Partition:
    # No group has such a name.
    return partition_of_group(queue_id, f"{group}/history/{span}")


# -- reading --------------------------------------------------------------------------------------


def read_history(store: Store, queue: QueueDefinition, monoton: int) -> list[HistoryEvent]:
    """The events of a message in all groups that exist, the earliest first.

    A read, and one for each group and 2,000 events of the 65,536 messages around it; see
    `MOST_READ`.

    Args:
        store: Where the queue is kept.
        queue: The queue, or the partition of it.
        monoton: The message.
    """
    found: list[tuple[Any, HistoryEvent]] = []
    groups = list(Ledger(store, queue.queue_id).read_groups())
    most = max(MOST_READ // max(len(groups), 1), _AT_ONCE)
    for group in groups:
        rows = _newest_first(store, queue, group.name, monoton // SPAN)
        for row in islice(rows, most):
            if monoton in _monotons_of(row):
                event = replace(_event_of(row), group=group.name)
                found.append(((row["ordinal"], row["position"]), event))
    return [event for _, event in sorted(found, key=itemgetter(0))]


def stream_span(
    store: Store, queue: QueueDefinition, group: str, span: int
) -> Iterator[HistoryEvent]:
    """The events of a group and 65,536 messages, the newest first. A read per 2,000 events."""
    for row in _newest_first(store, queue, group, span):
        yield replace(_event_of(row), group=group)


def _newest_first(store: Store, queue: QueueDefinition, group: str, span: int) -> Iterator[Row]:
    partition = _partition_of(queue.queue_id, group, span)
    # What is older has expired.
    kept = queue.history or LONGEST_HISTORY
    newest = Slice(
        kinds=(_KIND,),
        start=int((time.time() - kept.total_seconds()) * 1000),
        limit=_AT_ONCE,
        reverse=True,
    )
    while len(rows := store.read_rows(partition, newest).rows) == _AT_ONCE:
        # The last millisecond of a read may be cut short, so the next read begins with it.
        cut: Any = rows[-1]["ordinal"]
        whole = [row for row in rows if row["ordinal"] != cut]
        if whole:
            newest = replace(newest, stop=cut + 1)
        else:
            # One millisecond has more events than a read.
            of_it = replace(newest, start=cut, stop=cut + 1, limit=None)
            whole = list(store.read_rows(partition, of_it).rows)
            newest = replace(newest, stop=cut)
        yield from whole
    yield from rows


@decoded
def _monotons_of(row: Row) -> Ranges:
    values: Any = row
    demand(row, "ranges")
    return Ranges.parse(values["ranges"])


@decoded
def _event_of(row: Row) -> HistoryEvent:
    values: Any = row
    demand(row, "lease", "last_at")
    return HistoryEvent(
        did=Did(values["reason"]),
        monotons=_monotons_of(row),
        at=values["last_at"],
        by=values["holder"],
        lease=values["lease"],
        deliveries=values["deliveries"],
        detail=values["outcomes"],
    )


# -- as plain values ------------------------------------------------------------------------------


def plain_event(event: HistoryEvent) -> dict[str, Any]:
    """An event as plain values, for JSON: what commands print, and the gateway answers."""
    at = event.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "at": at,
        "did": str(event.did),
        "group": event.group,
        "by": event.by,
        "delivery": event.deliveries,
        "lease": str(event.lease),
        "monotons": str(event.monotons),
        "reason": event.detail,
    }


def event_of_plain(values: Mapping[str, Any]) -> HistoryEvent:
    """Read what `plain_event` writes.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    return HistoryEvent(
        did=Did(values["did"]),
        monotons=Ranges.parse(values["monotons"]),
        group=values["group"],
        at=datetime.fromisoformat(values["at"]),
        by=values["by"],
        lease=UUID(values["lease"]),
        deliveries=values["delivery"],
        detail=values["reason"],
    )
