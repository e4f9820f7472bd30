"""What a repair run did and found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from rich.table import Table
from rich.text import Text

from cassieq_spark.model import QueueId
from cassieq_spark.repair.diagnosis import Diagnosis, Finding, OrphanBlock
from cassieq_spark.terminal import PlainConsole

#: A ledger should have at most this many blocks: 70 MB. Cassandra warns of partitions above 100
#: MiB.
MOST_BLOCKS = 1_000_000

_HEADINGS = ("finalised", "settled buckets", "unpublished blocks", "audited", "findings")


class Outcome(StrEnum):
    """How a repair run has ended, or that it has not ended."""

    RUNNING = "running"
    DONE = "done"
    #: A signal or the caller ended the run, between two actions.
    STOPPED = "stopped"
    #: The run was paused, or did not reach Cassandra, and another run may have begun.
    LOCK_LOST = "lock lost"
    #: The run is done, except for some queues, in which errors occurred.
    SOME_FAILED = "some queues failed"
    #: An error ended the run.
    FAILED = "failed"
    #: The run's process ended without recording an outcome.
    BROKEN_OFF = "broken off"


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a run; in a dry run, only of what it audited.

    Attributes:
        finalised: Messages that were finalised.
        settled_buckets: Deleted buckets whose messages were settled.
        trimmed_blocks: Blocks whose ledger rows were deleted.
        fences_raised: Queues whose fence was raised.
        unpublished_blocks: Deleted blocks that could never be published.
        unpublished_buckets: Deleted buckets of such blocks.
        audited_messages: Messages that were compared with what is stored.
        postponed: How often work was left to the next run: another repair run or a new group
            interfered, an answer was lost, or too much was to expire at once.
        dead_lettered: Messages that the repair has dead-lettered, because no reader had.
        not_dead_lettered: Dead messages that could not be copied, or that a reader took.
        expired: Messages that nobody had consumed within the limit of their queue.
        retired_versions: Versions of queues that are deleted except for the heads of their
            ledgers.
    """

    finalised: int = 0
    settled_buckets: int = 0
    trimmed_blocks: int = 0
    fences_raised: int = 0
    unpublished_blocks: int = 0
    unpublished_buckets: int = 0
    audited_messages: int = 0
    postponed: int = 0
    dead_lettered: int = 0
    not_dead_lettered: int = 0
    expired: int = 0
    retired_versions: int = 0

    def __add__(self, other: Counts) -> Counts:
        names = [each.name for each in fields(self)]
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(slots=True)
class QueueReport:
    """The work and the findings of a repair run in one queue.

    Attributes:
        queue_id: The id of the queue.
        counts: What was done.
        planned: The actions that a dry run has planned, in order.
        findings: Messages that are lost, or stored wrongly.
        diagnoses: The explanation of each finding, if the run explains findings.
        orphans: Stored blocks that are not published, if the run explains findings.
        block_count: Blocks in the queue's ledger; 0 unless they were read for the steps of a scan.
        notes: What is stuck, and what to do about it.
        error: The error that ended the repair of this queue, if any.
    """

    queue_id: QueueId
    counts: Counts = field(default_factory=Counts)
    planned: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    diagnoses: list[Diagnosis] = field(default_factory=list)
    orphans: list[OrphanBlock] = field(default_factory=list)
    block_count: int = 0
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def has_large_ledger(self) -> bool:
        """True if the queue's ledger has more blocks than it should."""
        return self.block_count > MOST_BLOCKS

    @property
    def needed_something(self) -> bool:
        """True if the repair did, planned or found anything in the queue."""
        done = self.counts != Counts()
        found = self.findings or self.orphans or self.notes or self.has_large_ledger
        return bool(done or self.planned or found or self.error)


@dataclass(slots=True)
class Report:
    """The work and the findings of a repair run.

    Attributes:
        steps: The steps, in order.
        dry_run: True if the run only planned.
        queues: What the run did in each queue, by `QueueDefinition.label`.
        left_out: How many queues exist that the run was not asked to repair.
        foreign: How many blocks there are of queues that do not exist, by queue id; left alone.
        obsolete: How many blocks there are of versions that a purge or deletion has left and this
            run does not retire, by queue id.
        orphans: The foreign and obsolete blocks, if the run explains findings.
        seconds: How long the run took.
        outcome: How the run ended.
        epoch: The epoch of the lock; None without a lock.
        clocks: The time by a server's clock and by this machine's, if they disagree.
    """

    steps: tuple[str, ...]
    dry_run: bool
    queues: dict[str, QueueReport] = field(default_factory=dict)
    left_out: int = 0
    foreign: dict[str, int] = field(default_factory=dict)
    obsolete: dict[str, int] = field(default_factory=dict)
    orphans: list[OrphanBlock] = field(default_factory=list)
    seconds: float = 0.0
    outcome: Outcome = Outcome.DONE
    epoch: int | None = None
    clocks: tuple[datetime, datetime] | None = None

    @property
    def totals(self) -> Counts:
        """The counts of all queues."""
        return sum((queue.counts for queue in self.queues.values()), Counts())

    @property
    def queue_count(self) -> int:
        """The number of queues; each counts once, however many partitions it has."""
        return len(_queues_of(self.queues))

    @property
    def failed(self) -> list[str]:
        """Labels of the queues in which an error occurred."""
        return [name for name, queue in self.queues.items() if queue.error is not None]

    @property
    def is_whole(self) -> bool:
        """True if the audit has found no problem; True without an audit."""
        return not any(queue.findings for queue in self.queues.values())

    def to_json(self) -> str:
        """Serialise the report as one line of JSON; queues without work are left out."""
        return json.dumps(
            {
                "whole": self.is_whole,
                "outcome": self.outcome,
                "epoch": self.epoch,
                "steps": self.steps,
                "dry_run": self.dry_run,
                "seconds": round(self.seconds, 3),
                "totals": asdict(self.totals),
                "failed": self.failed,
                "queue_count": self.queue_count,
                "queues": {name: _queue_to_json(queue) for name, queue in self._busy()},
                "foreign_blocks": self.foreign,
                "obsolete_blocks": self.obsolete,
                "orphans": [each.to_json() for each in self.orphans],
            }
        )

    def show(self, console: PlainConsole) -> None:
        """Print one row per queue with work, and then what was planned and found."""
        title = "Repair (dry run)" if self.dry_run else "Repair"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("queue", overflow="fold")
        for heading in _HEADINGS:
            table.add_column(heading, justify="right")
        for name, queue in self._busy():
            counts = queue.counts
            figures = (
                counts.finalised,
                counts.settled_buckets,
                counts.unpublished_blocks,
                counts.audited_messages,
                len(queue.findings),
            )
            table.add_row(name, *(f"{count:,}" for count in figures))
        if table.row_count:
            console.print(table)
        for line in (*self._remarks(), *self._explanations()):
            # Not wrapped, so that people can search for it.
            console.print(line, soft_wrap=True)

    def problems(self) -> Iterator[str]:
        """The problems that an operator should know of, in sentences; the worst first."""
        yield from self.alarms()
        if self.clocks is not None:
            server, here = (each.isoformat(timespec="seconds") for each in self.clocks)
            yield (
                f"clocks disagree: it was {server} by a server's, {here} by this machine's; the "
                "repair used the earlier one, so nothing is lost. Correct the wrong clock (NTP), "
                "restart Cassandra there if its clock was ahead, then check the queues: cassieq "
                "queue fix-clocks QUEUE --dry-run"
            )
        for queue_id, count in self.obsolete.items():
            yield (
                f"{queue_id}: this version was purged or deleted, and {count} block(s) of it are "
                "left; the step retire deletes them"
            )
        for name, queue in self.queues.items():
            yield from (f"{name}: {note}" for note in queue.notes)
            if queue.counts.expired:
                yield (
                    f"{name}: {queue.counts.expired:,} message(s) have expired: they were not "
                    "consumed within the time that the queue says (--expire-after); the log says "
                    "which"
                )
            if queue.counts.not_dead_lettered:
                yield (
                    f"{name}: {queue.counts.not_dead_lettered:,} dead message(s) are left: they "
                    "could not be dead-lettered (the log says why), or a reader is doing it"
                )
            if queue.has_large_ledger:
                yield (
                    f"{name}: its ledger has {queue.block_count:,} blocks, and should have "
                    f"{MOST_BLOCKS:,} at the most: look for a group that does not read (cassieq "
                    f"queue stats {_queue_of(name)}), and publish larger batches from fewer tasks"
                )

    def alarms(self) -> Iterator[str]:
        """The problems that deserve an alert: findings of the audit, and errors of queues."""
        for queue_id, count in self.foreign.items():
            yield f"{queue_id}: no such queue; {count} block(s) left alone"
        for name, queue in self.queues.items():
            for each in queue.findings:
                where = f"block {each.block}" if each.block else "no block in the ledger"
                yield f"{name}: messages {each.monotons} are {each.problem} ({where})"
            if queue.error is not None:
                yield f"{name}: {queue.error}; nothing more was done to this queue"

    def _explanations(self) -> Iterator[Text]:
        yield from (Text(str(each)) for each in self.orphans)
        for name, queue in self.queues.items():
            yield from (Text(line) for each in queue.diagnoses for line in each.lines(name))
            yield from (Text(str(each)) for each in queue.orphans)

    def _busy(self) -> list[tuple[str, QueueReport]]:
        return [(name, queue) for name, queue in self.queues.items() if queue.needed_something]

    def _remarks(self) -> Iterator[Text]:
        busy = _queues_of(name for name, _ in self._busy())
        if idle := self.queue_count - len(busy):
            yield Text(f"{idle:,} {'other ' if busy else ''}queue(s): nothing to do")
        for name, queue in self.queues.items():
            yield from (Text(f"{name}: would {action}") for action in queue.planned)
        if self.dry_run and "clean" in self.steps:
            yield Text("clean used the fences as they are")
        for name, queue in self.queues.items():
            yield from (Text(f"{name}: {text}") for text in _upkeep(queue.counts))
        for name, queue in self.queues.items():
            if queue.counts.postponed:
                yield Text(
                    f"{name}: something is left, because another run or a new group interfered, "
                    "or because very much was to expire; the next run continues",
                    style="yellow",
                )
        if self.outcome is Outcome.SOME_FAILED:
            yield Text(
                f"{len(_queues_of(self.failed)):,} queue(s) failed; the others are done",
                style="red",
            )
        elif self.outcome is not Outcome.DONE:
            yield Text(f"{self.outcome}: the next run continues", style="yellow")
        for problem in self.problems():
            yield Text(problem, style="yellow" if self.is_whole else "bold red")


def _queues_of(labels: Iterable[str]) -> set[str]:
    """Names of the queues to which these labels of queues and queue partitions belong."""
    return {_queue_of(label) for label in labels}


def _queue_of(label: str) -> str:
    return label.partition("/")[0]


def _upkeep(counts: Counts) -> Iterator[str]:
    if counts.dead_lettered:
        yield f"{counts.dead_lettered:,} dead message(s) were dead-lettered"
    if counts.retired_versions:
        yield f"{counts.retired_versions:,} old version(s) were retired"


def _queue_to_json(queue: QueueReport) -> dict[str, Any]:
    return {
        "queue_id": queue.queue_id,
        **asdict(queue.counts),
        "block_count": queue.block_count,
        "planned": queue.planned,
        "notes": queue.notes,
        "error": queue.error,
        "diagnoses": [each.to_json() for each in queue.diagnoses],
        "orphans": [each.to_json() for each in queue.orphans],
        "findings": [each.to_json() for each in queue.findings],
    }
