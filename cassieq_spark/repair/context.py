"""What the steps of a repair run share: the context, its checkpoint, its count of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cassieq_spark.errors import QueueStateError, StoreError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import HEAD, LedgerHead, head_of
from cassieq_spark.lock.bakery import Held
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, parts_of_id
from cassieq_spark.queues import QueueRecord
from cassieq_spark.repair.read import Seen
from cassieq_spark.repair.report import Counts, Outcome, Report
from cassieq_spark.repair.scan import Run
from cassieq_spark.store.protocol import Slice, Store, partition_of_queue

DEFAULT_WRITE_TIMEOUT = timedelta(hours=1)
#: After so many failures one question is asked that concerns no queue.
FAILURES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoroughness:
    """How far an audit goes.

    Attributes:
        verify_data: Whether to read and decode every message, not only the keys of the chunks.
        explain: Whether to find out what the findings mean, and which blocks are in no ledger.
    """

    verify_data: bool = False
    explain: bool = False


#: Keys only, and no explanations.
BRIEF = Thoroughness()


class Checkpoint:
    """Ends a repair run between two actions.

    An action that was asked for before a pause and carried out after it does no harm: each is
    conditioned on what it was planned by, or deletes what nobody can ever need again. So the lock
    saves work, and the checkpoint makes a repair run that was overtaken stop.

    Args:
        lock: Under which the repair runs; None: under none.
        may_continue: Whether to go on; asked again and again.

    Attributes:
        error: What kept it from asking the lock. It is the repair's, whichever queue was its turn.
    """

    def __init__(
        self, lock: Held | None = None, may_continue: Callable[[], bool] = lambda: True
    ) -> None:
        self._lock = lock
        self._may_continue = may_continue
        self.error: Exception | None = None

    def is_open(self) -> bool:
        """Whether to begin another part of the work. Reads nothing."""
        return self._may_continue() and (self._lock is None or self._lock.is_held())

    def confirm(self) -> bool:
        """Whether to carry out an action. One read, under a lock."""
        try:
            return self._may_continue() and (self._lock is None or self._lock.confirm())
        except Exception as error:
            self.error = error
            raise

    @property
    def outcome(self) -> Outcome:
        """What became of the repair that asked."""
        if self._lock is not None and not self._lock.is_held():
            return Outcome.LOCK_LOST
        return Outcome.DONE if self._may_continue() else Outcome.STOPPED


@dataclass(slots=True)
class Outage:
    """Counts failures, and asks now and then whether the cluster answers at all.

    Each queue waits for a budget of time before it fails. If none can be reached, to wait for
    thousands of them would take hours, and tell the same thousands of times.

    Args:
        store: Where the queues are kept.
    """

    store: Store
    _failures: int = 0
    _found: StoreError | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raise if it was found that the cluster does not answer: nothing more is to be begun."""
        if self._found is not None:
            raise self._found

    def count(self, queue: str, error: Exception | None) -> None:
        """Count that a queue failed. After each tenth failure of the store, one read.

        Args:
            queue: Its name.
            error: Why; None: that was logged, and is not known here.

        Raises:
            StoreError: The table of queues can't be read either.
        """
        if error is not None and not isinstance(error, StoreError):
            return
        with self._lock:
            self._failures += 1
            failures = self._failures
        if failures % FAILURES:
            return
        try:
            self.store.read_rows(partition_of_queue(queue), Slice(limit=1))
        except StoreError as found:
            self._found = StoreError(
                f"{failures} times the repair of a queue has failed, and now the table "
                "of queues can't be read, so the run ends here: "
                f"{type(found).__name__}: {found}; check the cluster, and run the "
                "repair again, which continues"
            )
            raise self._found from found


@dataclass(frozen=True, slots=True)
class Context:
    """What one repair run knows.

    Attributes:
        store: Where the queues are kept.
        report: What was done and found so far.
        write_timeout: The longest that a write may take.
        checkpoint: Asked before each part.
        outage: Told of each queue that fails.
        records: All queues that are or were, by name.
        thoroughness: How far the audit goes.
        survey: What was seen of each queue at the beginning.
        leftover: What a scan has found of versions that nobody needs any more, by name of the
            queue and by version.
    """

    store: Store
    report: Report
    write_timeout: timedelta
    checkpoint: Checkpoint
    outage: Outage
    records: Mapping[str, QueueRecord]
    thoroughness: Thoroughness = BRIEF
    survey: Mapping[QueueId, Seen] = field(default_factory=dict)
    leftover: dict[str, dict[int, list[Run]]] = field(default_factory=dict)

    def seen(self, queue: QueueDefinition) -> Seen | None:
        """What was seen of a queue; None if that is over, as this repair run has changed it."""
        is_changed = self.report.queues[queue.label].counts != Counts()
        return None if is_changed else self.survey.get(queue.queue_id)

    def compare_clocks(self, now: datetime, ahead: timedelta) -> None:
        """Report that a server's clock disagrees with this machine's, if it does.

        Args:
            now: By the server's clock.
            ahead: How far it is ahead of this machine's; see `Rows.ahead`.
        """
        if ahead:
            self.report.clocks = (now, now - ahead)

    def ledger(self, queue: QueueDefinition) -> Ledger:
        """The ledger of this version of a queue."""
        return Ledger(self.store, queue.queue_id)

    def read_head_and_time(self, ledger: Ledger) -> tuple[LedgerHead, datetime]:
        """Read the ledger's head serially, and the time; see `Rows.sure_now`. One read.

        Serially, so that a publish or a registration whose answer was lost is there for all reads
        that follow, or never.

        Raises:
            QueueStateError: There is no such ledger.
        """
        found = ledger.read(Slice(row=HEAD), serial=True)
        if not found.rows or found.now is None or found.sure_now is None:
            raise QueueStateError(f"queue {ledger.queue_id} has no ledger")
        self.compare_clocks(found.now, found.ahead)
        return head_of(found.rows[0]), found.sure_now

    def keep(self, run: Run) -> bool:
        """Keep what a scan has found of a version that is to be retired; False: it is not.

        What a purge that is not over yet still needs, or makes, is passed over.
        """
        try:
            name, version, _ = parts_of_id(run.queue_id)
        except ValueError:
            return False
        record = self.records.get(name)
        is_retiring = "retire" in self.report.steps and name in self.report.queues
        if record is None or not is_retiring or version > record.version:
            return False
        if version <= record.obsolete:
            self.leftover.setdefault(name, {}).setdefault(version, []).append(run)
        return True


@dataclass(frozen=True, slots=True)
class Scanned:
    """What the scan found of a queue, and what was in its ledger before: that must be in it."""

    runs: Sequence[Run]
    head: LedgerHead
    blocks: Sequence[LedgerBlock]
