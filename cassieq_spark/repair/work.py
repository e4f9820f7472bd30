"""What the steps of one repair run share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId
from cassieq_spark.queues import QueueRecord
from cassieq_spark.repair.actions import Action
from cassieq_spark.repair.audit import BRIEF, Thoroughness
from cassieq_spark.repair.guard import Guard
from cassieq_spark.repair.outage import Outage
from cassieq_spark.repair.report import Counts, Report
from cassieq_spark.repair.scan import Run
from cassieq_spark.repair.survey import Seen
from cassieq_spark.store.protocol import Store

DEFAULT_WRITE_TIMEOUT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Work:
    """One repair run.

    Attributes:
        store: Where the queues are kept.
        report: What was done and found so far.
        write_timeout: The longest that a write may take.
        guard: Asked before each part.
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
    guard: Guard
    outage: Outage
    records: Mapping[str, QueueRecord]
    thoroughness: Thoroughness = BRIEF
    survey: Mapping[QueueId, Seen] = field(default_factory=dict)
    leftover: dict[str, dict[int, list[Run]]] = field(default_factory=dict)

    def seen(self, queue: QueueDefinition) -> Seen | None:
        """What was seen of a queue; None if that is over, as this repair run has changed it."""
        is_changed = self.report.queues[queue.name].counts != Counts()
        return None if is_changed else self.survey.get(queue.queue_id)

    def compare_clocks(self, now: datetime, ahead: timedelta) -> None:
        """Report that a server's clock disagrees with this machine's, if it does.

        Args:
            now: By the server's clock.
            ahead: How far it is ahead of this machine's; see `Rows.ahead`.
        """
        if ahead:
            self.report.clocks = (now, now - ahead)

    def keep(self, run: Run) -> bool:
        """Keep what a scan has found of a version that is to be retired; False: it is not.

        What a purge that is not over yet still needs, or makes, is passed over.
        """
        name, _, version = run.queue_id.rpartition("@")
        record = self.records.get(name)
        is_wanted = "retire" in self.report.steps and name in self.report.queues
        if record is None or not is_wanted or not version.isdecimal():
            return False
        if int(version) > record.version:
            return False
        if int(version) <= record.obsolete:
            self.leftover.setdefault(name, {}).setdefault(int(version), []).append(run)
        return True


@dataclass(frozen=True, slots=True)
class Scanned:
    """What the scan found of a queue, and what was in its ledger before: that must be in it."""

    runs: Sequence[Run]
    head: LedgerHead
    blocks: Sequence[LedgerBlock]


#: Plans a step for one queue, after the scan if there was one. Several queues at the same time.
#: What comes later may be planned by what was carried out before.
PlanStep = Callable[[Work, QueueDefinition, Scanned | None], Iterable[Action]]
