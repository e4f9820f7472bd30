"""Reads all queues in the background, at a bounded cost, and remembers what it read.

From time to time a *survey* sees the heads of all ledgers and groups by three scans. A queue whose
rows are unchanged needs no read. For a queue that has changed, the survey mostly has all but the
end of the ledger and the age of the oldest message: two reads. Other queues are read in full.
Queues on a page that a user looks at are read in full every few seconds. All these reads wait for
their turn at a `Pace`: so more queues mean older figures, and no more reads.

| event | result |
|---|---|
| Cassandra is unreachable | the figures stay, with the error; a new attempt every few seconds |
| one queue can't be read | it has its error; the others go on |
| there was no request for long | the watcher rests, if so configured, until the next request |
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cassieq_spark.console.history import QueueHistory
from cassieq_spark.console.looking import LookingStore, Pace
from cassieq_spark.errors import CassieqError, InvariantError
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId
from cassieq_spark.monitoring.readings import Facts
from cassieq_spark.monitoring.snapshot import (
    Look,
    QueueSnapshot,
    look_at,
    read_queue_snapshot,
)
from cassieq_spark.queues import QueueRecord, Records, Status, read_record, read_records
from cassieq_spark.queues.record import active
from cassieq_spark.repair.read import Seen, see_all
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: The queues could not be read; the next reading retries.
READ_FAILED = "console.read_failed"

#: Maximum number of background reads per second.
DEFAULT_READS = 100
#: Pause between two readings of queues on a page that a user looks at.
EVERY = timedelta(seconds=5)
#: This many reads may come at once, so that a first page has its figures soon.
_AT_ONCE = 400
#: The part of the time that surveys may take, as a divisor.
_SURVEY_PART = 20
#: How long a queue counts as looked at after a page has shown it.
_LOOKED_AT = timedelta(seconds=30)
#: Maximum number of queues that count as looked at.
_MOST_LOOKED_AT = 500
#: How long a full reading serves all requests.
_FRESH = timedelta(seconds=1)
#: How many blocks of a partition are read to find what was published before the console started.
_BLOCKS = 2000


@dataclass(frozen=True, slots=True)
class Looked:
    """A queue that was read in full.

    Attributes:
        record: The record of the queue.
        snapshot: The figures of the queue.
        looks: Each queue partition as read, in order.
        at: When the queue was read, by the clock of this machine.
    """

    record: QueueRecord
    snapshot: QueueSnapshot
    looks: tuple[Look, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class Known:
    """The last reading of a queue.

    Attributes:
        snapshot: The figures when the queue was read.
        at: When it was read.
        confirmed_at: When a survey last found it unchanged.
    """

    snapshot: QueueSnapshot
    at: datetime
    confirmed_at: datetime


@dataclass(frozen=True, slots=True)
class Fleet:
    """All queues, as they are known now.

    Attributes:
        records: The records of queues that are not deleted, by name.
        unreadable: What is wrong with the rows of other queues, by name.
        known: The readings of these queues.
        errors: The errors of queues that could not be read.
        surveyed_at: When the queues were surveyed last; None if not yet.
        away: Why the last survey failed; None if it did not.
        began_at: When the console began to read.
        load: Background reads per second, the mean of the last half minute.
        most_reads: The maximum of this load.
        page_load: Reads per second by pages, the same mean; these are not delayed.
    """

    records: Mapping[str, QueueRecord] = field(default_factory=dict)
    unreadable: Mapping[str, InvariantError] = field(default_factory=dict)
    known: Mapping[str, Known] = field(default_factory=dict)
    errors: Mapping[str, CassieqError] = field(default_factory=dict)
    surveyed_at: datetime | None = None
    away: CassieqError | None = None
    began_at: datetime | None = None
    load: float = 0.0
    most_reads: float = 0.0
    page_load: float = 0.0


class Watcher:
    """Reads queues in the background. Safe to call from several threads.

    Args:
        store: Where the queues are kept.
        reads_per_second: Maximum number of background reads per second.
        rest_after: The watcher rests if there was no request for this time; None: never.
        clock: Returns the time.
    """

    def __init__(
        self,
        store: Store,
        *,
        reads_per_second: float = DEFAULT_READS,
        rest_after: timedelta | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._background = LookingStore(
            store, Pace(reads_per_second, at_once=max(_AT_ONCE, reads_per_second))
        )
        #: The store for reads by pages; they are counted, and not delayed.
        self.looking = LookingStore(store, Pace())
        self._rest_after = rest_after
        self._clock = clock
        self._lock = threading.Lock()
        self._records = Records({}, {})
        self._known: dict[str, Known] = {}
        self._facts: dict[str, Facts] = {}
        self._errors: dict[str, CassieqError] = {}
        self._histories: dict[str, QueueHistory] = {}
        self._targets: frozenset[str | None] = frozenset()
        self._backlog: dict[str, Mapping[QueueId, Seen]] = {}
        self._on_pages: dict[str, datetime] = {}
        self._looked: dict[str, Looked] = {}
        self._surveyed_at: datetime | None = None
        self._next_survey = 0.0
        self._away: CassieqError | None = None
        self._began_at: datetime | None = None
        self._asked_at = clock()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read, in a thread of its own; a second call does nothing."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="cassieq-console", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """End the thread. No other call may follow."""
        self._stop.set()
        self._wake.set()
        self._background.pace.end()
        if self._thread is not None:
            self._thread.join()

    def fleet(self) -> Fleet:
        """All queues, as they are known now. No read."""
        self._ask()
        records = self._records
        return Fleet(
            {name: each for name, each in records.readable.items() if not each.is_gone},
            records.unreadable,
            self._known.copy(),
            self._errors.copy(),
            self._surveyed_at,
            self._away,
            self._began_at,
            self._background.pace.load,
            self._background.pace.per_second or 0.0,
            self.looking.pace.load,
        )

    def show(self, names: Iterable[str], *, wait: timedelta = timedelta(0)) -> None:
        """Register that a page shows these queues: they are read more often for a while.

        Args:
            names: Names of the queues.
            wait: How long to wait for the first survey, and for queues that were not read yet.
        """
        now, wanted = self._clock(), list(names)[:_MOST_LOOKED_AT]
        with self._lock:
            self._on_pages |= dict.fromkeys(wanted, now)
            while len(self._on_pages) > _MOST_LOOKED_AT:
                del self._on_pages[next(iter(self._on_pages))]
        self._ask()
        until = time.monotonic() + wait.total_seconds()
        while time.monotonic() < until and not self._stop.is_set():
            if self._away is not None or not self._is_to_come(wanted):
                return
            self._wake.set()
            self._stop.wait(0.02)

    def read(self, name: str) -> Looked:
        """Read a queue in full, unless that was done a moment ago.

        Per queue partition two reads, and five per group; and one for the queue.

        Raises:
            QueueStateError: There is no active queue of that name.
            StoreError: Cassandra failed.
        """
        now = self._clock()
        found = self._looked.get(name)
        if found is not None and now - found.at < _FRESH:
            return found
        self.show([name])
        return self._look(self.looking, active(name, read_record(self.looking, name)))

    @property
    def pace(self) -> Pace:
        """The pace of the background reads."""
        return self._background.pace

    def history(self, name: str) -> QueueHistory | None:
        """The readings of a queue over the last hours; None if there are none yet."""
        return self._histories.get(name)

    def history_with_blocks(self, looked: Looked) -> QueueHistory:
        """The history, with what was published before the console started, as far as blocks show.

        The first call for a queue reads once from each queue partition.
        """
        name = looked.record.name
        history = self._histories.get(name) or QueueHistory(looked.record.definition.queue_id)
        if not history.has_blocks:
            ledgers = [
                Ledger(self.looking, part.queue_id)
                for part in looked.record.definition.by_partition
            ]
            found = [
                (_BLOCKS, ledger.read_newest_blocks(look.head, _BLOCKS))
                for ledger, look in zip(ledgers, looked.looks, strict=True)
            ]
            with self._lock:
                if not history.has_blocks:
                    history.add_blocks(found)
        return history

    def forget(self, name: str) -> None:
        """Survey anew, and read the queue anew on request: the console has changed it."""
        self._looked.pop(name, None)
        self._next_survey = 0.0
        self._wake.set()

    def round(self, *, seconds: float = EVERY.total_seconds()) -> None:
        """Survey if it is time, and read queues that must be read, for about ``seconds``."""
        until = time.monotonic() + seconds
        if time.monotonic() >= self._next_survey:
            self._survey()
        if self._away is not None:
            return
        for name in self._due():
            self._read_unless_broken(name, None)
        while self._backlog and time.monotonic() < until and not self._stop.is_set():
            name = next(iter(self._backlog))
            self._read_unless_broken(name, self._backlog.pop(name))

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            if self._is_wanted():
                self._round_unless_broken()
            left = EVERY.total_seconds() - (time.monotonic() - begun)
            if left > 0:
                self._wake.wait(left)
            self._wake.clear()

    def _round_unless_broken(self) -> None:
        try:
            self.round()
        except Exception as error:  # noqa: BLE001 (the next round tries again)
            logger.warning(
                "the console could not read the queues: %s: %s",
                type(error).__name__,
                error,
                extra={"action": READ_FAILED, "queue": ""},
            )

    def _is_wanted(self) -> bool:
        return self._rest_after is None or self._clock() - self._asked_at < self._rest_after

    def _ask(self) -> None:
        self._asked_at = self._clock()

    def _survey(self) -> None:
        begun = time.monotonic()
        try:
            records = read_records(self._background)
            name = next(iter(records.readable), None)
            seen = see_all(self._background, name) if name is not None else {}
        except CassieqError as error:
            self._away = error
            logger.warning(
                "the console could not read the queues: %s",
                error,
                extra={"action": READ_FAILED, "queue": ""},
            )
            return
        now = self._clock()
        self._away = None
        self._began_at = self._began_at or now
        self._records, self._surveyed_at = records, now
        self._targets = frozenset(
            each.definition.dead_letter_queue
            for each in records.readable.values()
            if not each.is_gone
        )
        names = set(filter(self._is_active, records.readable))
        self._drop_others(names)
        self._backlog = self._changed(names, seen, now)
        took = time.monotonic() - begun
        self._next_survey = time.monotonic() + max(
            EVERY.total_seconds() * 0.9, took * _SURVEY_PART
        )

    def _changed(
        self, names: Iterable[str], seen: Mapping[QueueId, Seen], now: datetime
    ) -> dict[str, Mapping[QueueId, Seen]]:
        """The queues that must be read, starting with those that were read longest ago."""
        changed: dict[str, Mapping[QueueId, Seen]] = {}
        for name in names:
            parts = self._records.readable[name].definition.by_partition
            ours = {part.queue_id: seen[part.queue_id] for part in parts if part.queue_id in seen}
            known, facts = self._known.get(name), self._facts_of(name, ours)
            is_same = len(ours) == len(parts) and self._facts.get(name) == facts
            if known is not None and is_same and not facts.may_change(known.snapshot):
                self._known[name] = Known(known.snapshot, known.at, now)
                self._histories[name].add(now.timestamp(), known.snapshot)
                continue
            changed[name] = ours
        never = datetime.fromtimestamp(0, UTC)
        order = sorted(
            changed, key=lambda name: self._known[name].at if name in self._known else never
        )
        return {name: changed[name] for name in order}

    def _facts_of(self, name: str, seen: Mapping[QueueId, Seen]) -> Facts:
        definition, is_target = self._records.readable[name].definition, name in self._targets
        return Facts.of(definition, seen.values(), is_target=is_target)

    def _drop_others(self, names: set[str]) -> None:
        for kept in (self._known, self._facts, self._errors, self._histories, self._looked):
            for name in [each for each in kept.copy() if each not in names]:
                kept.pop(name, None)

    def _is_to_come(self, names: Iterable[str]) -> bool:
        """True if the next round reads queues that are not known yet."""
        return self._surveyed_at is None or any(
            self._is_active(name) and name not in self._known and name not in self._errors
            for name in names
        )

    def _is_active(self, name: str) -> bool:
        record = self._records.readable.get(name)
        return record is not None and record.status is Status.ACTIVE

    def _due(self) -> list[str]:
        """The queues that pages show, and that were not read just now."""
        now = self._clock()
        with self._lock:
            shown = [name for name, at in self._on_pages.items() if now - at < _LOOKED_AT]
            self._on_pages = {name: self._on_pages[name] for name in shown}
        return [
            name
            for name in shown
            if self._is_active(name)
            and (name not in self._known or now - self._known[name].at >= EVERY / 2)
        ]

    def _read_unless_broken(self, name: str, seen: Mapping[QueueId, Seen] | None) -> None:
        if self._stop.is_set():
            return
        record = self._records.readable[name]
        states = _states_of(record, seen) if seen else None
        try:
            self._look(self._background, record, states)
            if seen:
                # Not before: what could not be read counts as changed at the next survey as well.
                self._facts[name] = self._facts_of(name, seen)
        except CassieqError as error:
            self._errors[name] = error
        except Exception as error:  # noqa: BLE001 (rows of one queue must not hide the others)
            self._errors[name] = InvariantError(f"{type(error).__name__}: {error}")

    def _look(
        self,
        store: LookingStore,
        record: QueueRecord,
        states: Mapping[QueueId, Mapping[str, GroupState]] | None = None,
    ) -> Looked:
        found: list[Look] = []

        def look(ledger: Ledger) -> Look:
            if states is None:
                found.append(look_at(ledger))
            else:
                # The survey has seen the head before the groups, and maybe seconds before.
                found.append(Look(states[ledger.queue_id], ledger.read_head()))
            return found[-1]

        name = record.name
        snapshot = read_queue_snapshot(store, record, is_target=name in self._targets, look=look)
        now = self._clock()
        looked = Looked(record, snapshot, tuple(found), now)
        with self._lock:
            self._known[name] = Known(snapshot, now, now)
            self._errors.pop(name, None)
            queue_id = record.definition.queue_id
            history = self._histories.get(name)
            if history is None or history.queue_id != queue_id:
                history = self._histories[name] = QueueHistory(queue_id)
            history.add(now.timestamp(), snapshot)
            if store is self.looking:
                self._looked[name] = looked
        return looked


def _states_of(
    record: QueueRecord, seen: Mapping[QueueId, Seen]
) -> dict[QueueId, Mapping[str, GroupState]] | None:
    """The figures of all groups by a survey; None if the survey may miss messages that wait."""
    found: dict[QueueId, Mapping[str, GroupState]] = {}
    for part in record.definition.by_partition:
        survey = seen.get(part.queue_id)
        if survey is None or survey.ledger.seek_pins:
            return None
        states = {group.name: survey.state_of(group) for group in survey.ledger.groups}
        known = {name: state for name, state in states.items() if state is not None}
        if len(known) < len(states):
            return None
        found[part.queue_id] = known
    return found
