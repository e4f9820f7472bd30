"""What the steps of a repair run share: the context, its checkpoint, its count of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cassieq_spark.errors import QueueStateError, StoreError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import HEAD, LedgerHead, head_of
from cassieq_spark.lock.bakery import HeldLock
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, parts_of_id
from cassieq_spark.queues import QueueRecord
from cassieq_spark.repair.plan import is_of_the_future
from cassieq_spark.repair.read import Seen
from cassieq_spark.repair.report import Counts, Outcome, Report
from cassieq_spark.repair.scan import Run
from cassieq_spark.store.protocol import Slice, Store, partition_of_queue

DEFAULT_WRITE_TIMEOUT = timedelta(hours=1)
#: After this many failures of the store, the run checks whether the cluster answers.
FAILURES = 10


@dataclass(slots=True)
class Checkpoint:
    """Ends a repair run between two actions.

    The lock saves work, and the checkpoint ends a run that has lost it. Neither is needed for
    correctness: an action that is applied after a pause is conditioned on the state that it was
    planned from, or deletes what nobody can ever need again.

    Attributes:
        lock: The lock of the run; None if it has none.
        may_continue: Returns True if the run may continue; called repeatedly.
        error: The error of reading the lock. It ends the run, and is not an error of a queue.
    """

    lock: HeldLock | None = None
    may_continue: Callable[[], bool] = lambda: True
    error: Exception | None = None

    def is_open(self) -> bool:
        """True if another part of the work may begin. No read."""
        return self.may_continue() and (self.lock is None or self.lock.is_held())

    def confirm(self) -> bool:
        """True if an action may be applied. One read, if there is a lock."""
        try:
            return self.may_continue() and (self.lock is None or self.lock.confirm())
        except Exception as error:
            self.error = error
            raise

    @property
    def outcome(self) -> Outcome:
        """How the run has ended, as far as the checkpoint knows."""
        if self.lock is not None and not self.lock.is_held():
            return Outcome.LOCK_LOST
        return Outcome.DONE if self.may_continue() else Outcome.STOPPED


@dataclass(slots=True)
class Outage:
    """Counts failures, and after some of them checks whether the cluster answers at all.

    A queue fails only after the store has used up its budget of time. If the cluster is down,
    waiting for that in thousands of queues would take hours.
    """

    store: Store
    _failures: int = 0
    _found: StoreError | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raise the error again if `count` has found that the cluster does not answer."""
        if self._found is not None:
            raise self._found

    def count(self, queue: str, error: Exception | None) -> None:
        """Count a failure of the store in a queue. After each tenth, one read of another table.

        If ``error`` is None, it was logged before, and counts as an error of the store.

        Raises:
            StoreError: The table of queues cannot be read either.
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
                f"the repair of queues has failed {failures} times, and now the table of queues "
                f"cannot be read, so the run ends here: {type(found).__name__}: {found}; check "
                "the cluster, and run the repair again, which continues"
            )
            raise self._found from found


@dataclass(frozen=True, slots=True)
class Context:
    """The state of one repair run, for its steps.

    Attributes:
        store: Where the queues are kept.
        report: What was done and found so far.
        write_timeout: The longest that a write may take.
        checkpoint: Ends the run early.
        outage: Counts failures of queues.
        records: All queues that exist or existed, by name.
        verify_data: True if the audit reads and decodes every message, not only keys of chunks.
        explain: True if the audit explains its findings, and lists the blocks that are in no
            ledger.
        survey: Each queue as it was at the beginning.
        leftover: The runs of chunks, of versions that nobody needs any more, that a scan has
            found; by name of the queue and by version.
    """

    store: Store
    report: Report
    write_timeout: timedelta
    checkpoint: Checkpoint
    outage: Outage
    records: Mapping[str, QueueRecord]
    verify_data: bool
    explain: bool
    survey: Mapping[QueueId, Seen]
    leftover: dict[str, dict[int, list[Run]]] = field(default_factory=dict)

    def seen(self, queue: QueueDefinition) -> Seen | None:
        """A queue as the survey has read it; None if this repair run has changed it since."""
        is_changed = self.report.queues[queue.label].counts != Counts()
        return None if is_changed else self.survey.get(queue.queue_id)

    def oldest(self, queue: QueueDefinition, seen: Seen) -> LedgerBlock | None:
        """The oldest block that is not finalised; None if its time is in the future. One read."""
        first = self.ledger(queue).read_block_of(seen.ledger.head.finalised)
        return None if first is None or is_of_the_future(first, seen.now) else first

    def compare_clocks(self, now: datetime, ahead: timedelta) -> None:
        """Report that a server's clock, which says ``now``, disagrees with this machine's."""
        if ahead:
            self.report.clocks = (now, now - ahead)

    def ledger(self, queue: QueueDefinition) -> Ledger:
        """The ledger of this version of a queue."""
        return Ledger(self.store, queue.queue_id)

    def read_head_and_time(self, ledger: Ledger) -> tuple[LedgerHead, datetime]:
        """Read the ledger's head serially, and the time (`Rows.sure_now`). One read.

        After a serial read, a publish or a registration whose answer was lost is visible to all
        later reads, or never will be.

        Raises:
            QueueStateError: There is no such ledger.
        """
        found = ledger.read(Slice(row=HEAD), serial=True)
        if not found.rows or found.now is None or found.sure_now is None:
            raise QueueStateError(f"queue {ledger.queue_id} has no ledger")
        self.compare_clocks(found.now, found.ahead)
        return head_of(found.rows[0]), found.sure_now

    def keep(self, run: Run) -> bool:
        """Keep a run that a scan has found, if its version is one that this repair run retires.

        Returns:
            False if the run is foreign: of no queue, or of a version that this repair run does not
            retire.
        """
        try:
            name, version, _ = parts_of_id(run.queue_id)
        except ValueError:
            return False
        record = self.records.get(name)
        is_retiring = "retire" in self.report.steps and name in self.report.queues
        if record is None or not is_retiring or not record.has_left(version):
            return False
        # A purge under way still needs the last of them.
        if version <= record.obsolete:
            self.leftover.setdefault(name, {}).setdefault(version, []).append(run)
        return True


@dataclass(frozen=True, slots=True)
class Scanned:
    """The findings of the scan for a queue, and the ledger as it was before the scan."""

    runs: Sequence[Run]
    head: LedgerHead
    blocks: Sequence[LedgerBlock]

    @property
    def has_unpublished(self) -> bool:
        """True if the scan found a block that had no row in the ledger."""
        known = {block.block for block in self.blocks}
        return any(run.block not in known for run in self.runs)
