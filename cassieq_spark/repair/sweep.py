"""One sweep: each step over each queue, planned and then applied, or only planned."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from cassieq_spark.errors import QueueStateError
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range
from cassieq_spark.queues import list_queues
from cassieq_spark.repair.apply import apply
from cassieq_spark.repair.audit import audit
from cassieq_spark.repair.plan import Action, plan_clean, plan_fence, plan_finalise
from cassieq_spark.repair.read import (
    confirm,
    read_blocks_below,
    read_floor,
    read_head_and_time,
)
from cassieq_spark.repair.report import Counts, QueueReport, Report
from cassieq_spark.repair.scan import Run, Scan
from cassieq_spark.store.protocol import Store

#: What is being done, how many parts are done, and of how many.
Watch = Callable[[str, int, int], None]

DEFAULT_WRITE_TIMEOUT = timedelta(hours=1)


class Step(StrEnum):
    """The steps of a sweep, in the order in which they are taken."""

    FINALISE = "finalise"
    FENCE = "fence"
    CLEAN = "clean"
    AUDIT = "audit"


#: The steps that read the whole table of chunks.
SCANNING = frozenset({Step.CLEAN, Step.AUDIT})


def _unwatched(doing: str, done: int, total: int) -> None:
    """Nobody watches."""


def run_once(  # noqa: PLR0913 (each is a choice of its own, by name)
    store: Store,
    *,
    scan: Scan,
    queues: Sequence[str] = (),
    steps: Iterable[Step] = tuple(Step),
    dry_run: bool = False,
    write_timeout: timedelta = DEFAULT_WRITE_TIMEOUT,
    watch: Watch = _unwatched,
) -> Report:
    """Sweep once. A few reads and up to three LWTs for each queue; one table scan if needed.

    Args:
        store: Where the queues are kept.
        scan: How to read the table of chunks; not called unless a step needs it.
        queues: Names of the queues to sweep; none means all.
        steps: What to do; taken in the order of `Step`.
        dry_run: Plan only. `clean` then goes by the fence as it stands.
        write_timeout: The longest that a write may take from its first block to its publication.
        watch: Told before each part of the work.

    Raises:
        QueueStateError: A queue of ``queues`` does not exist.
        MissingSchemaError: The tables do not exist.
        InvariantError: A ledger contradicts itself, or what its groups are owed.
    """
    begun = time.monotonic()
    ordered = tuple(step for step in Step if step in set(steps))
    report = Report(tuple(ordered), dry_run)
    every = list_queues(store)
    chosen = _chosen(every, queues)
    sweep = _Sweep(store, chosen, report, write_timeout, _Watched(watch, ordered, len(chosen)))
    for step in ordered:
        if step in SCANNING:
            break
        sweep.take(step)
    if SCANNING.intersection(ordered):
        sweep.scan(scan, every, ordered)
    report.seconds = time.monotonic() - begun
    return report


@dataclass(slots=True)
class _Watched:
    """Counts the parts of the work."""

    watch: Watch
    steps: Sequence[Step]
    queues: int
    done: int = 0

    def begin(self, doing: str) -> None:
        scans = 1 if SCANNING.intersection(self.steps) else 0
        self.watch(doing, self.done, len(self.steps) * self.queues + scans)
        self.done += 1


class _Sweep:
    """What the steps of one sweep share."""

    def __init__(
        self,
        store: Store,
        queues: Sequence[QueueDefinition],
        report: Report,
        write_timeout: timedelta,
        watched: _Watched,
    ) -> None:
        self._store = store
        self._queues = queues
        self._report = report
        self._write_timeout = write_timeout
        self._watched = watched
        report.queues = {queue.name: QueueReport(queue.queue_id) for queue in queues}

    def take(self, step: Step) -> None:
        """A step that needs no scan."""
        plan = self._plan_finalise if step is Step.FINALISE else self._plan_fence
        for queue in self._each(step):
            self._carry_out(queue, plan(queue))

    def scan(self, scan: Scan, every: Sequence[QueueDefinition], steps: Sequence[Step]) -> None:
        """The steps that share the scan; what was in the ledgers before it must be in it."""
        before = {queue.name: self._read_ledger(queue) for queue in self._queues}
        self._watched.begin("scan")
        bucket_sizes = {queue.queue_id: queue.bucket_size for queue in every}
        runs: dict[QueueId, list[Run]] = {queue.queue_id: [] for queue in self._queues}
        foreign: defaultdict[str, set[UUID]] = defaultdict(set)
        for run in scan(bucket_sizes):
            if run.queue_id in runs:
                runs[run.queue_id].append(run)
            elif run.queue_id not in bucket_sizes:
                foreign[run.queue_id].add(run.block)
        self._report.foreign = {queue_id: len(blocks) for queue_id, blocks in foreign.items()}
        if Step.CLEAN in steps:
            for queue in self._each(Step.CLEAN):
                self._carry_out(queue, self._plan_clean(queue, runs[queue.queue_id]))
        if Step.AUDIT in steps:
            for queue in self._each(Step.AUDIT):
                self._audit(queue, runs[queue.queue_id], *before[queue.name])

    def _each(self, step: Step) -> Iterator[QueueDefinition]:
        for queue in self._queues:
            self._watched.begin(f"{step} {queue.name}")
            yield queue

    def _carry_out(self, queue: QueueDefinition, actions: Sequence[Action]) -> None:
        report = self._report.queues[queue.name]
        if self._report.dry_run:
            report.planned += map(str, actions)
        else:
            report.counts += apply(self._store, actions)

    def _plan_finalise(self, queue: QueueDefinition) -> list[Action]:
        # I7: the head first; a group registered from here on makes its compare-and-set fail.
        head, _ = read_head_and_time(self._store, queue.queue_id)
        floor = read_floor(self._store, queue.queue_id)
        stop = head.finalised if floor is None else max(floor, head.finalised)
        blocks = read_blocks_below(self._store, queue.queue_id, min(stop, head.next))
        return plan_finalise(queue, head, blocks, floor)

    def _plan_fence(self, queue: QueueDefinition) -> list[Action]:
        head, now = read_head_and_time(self._store, queue.queue_id)
        return plan_fence(queue, head, now, self._write_timeout)

    def _plan_clean(self, queue: QueueDefinition, runs: Sequence[Run]) -> list[Action]:
        head, blocks = self._read_ledger(queue)
        published = {block.block for block in blocks}
        return plan_clean(queue, runs, fence=head.fence, published=published)

    def _audit(
        self,
        queue: QueueDefinition,
        runs: Sequence[Run],
        head: LedgerHead,
        blocks: Sequence[LedgerBlock],
    ) -> None:
        alive = Range(head.finalised, head.next)
        suspects = audit(blocks, runs, alive)
        report = self._report.queues[queue.name]
        report.findings = confirm(self._store, queue, suspects, runs)
        report.counts += Counts(audited_messages=len(alive))

    def _read_ledger(self, queue: QueueDefinition) -> tuple[LedgerHead, list[LedgerBlock]]:
        """Serially, the head first: every block from below its ``next`` and its fence is there."""
        head = read_head(self._store, queue.queue_id, serial=True)
        return head, read_blocks(self._store, queue.queue_id, serial=True)


def _chosen(every: Sequence[QueueDefinition], names: Sequence[str]) -> list[QueueDefinition]:
    known = {queue.name: queue for queue in every}
    if unknown := [name for name in names if name not in known]:
        raise QueueStateError(
            f"there is no queue {unknown[0]!r}; there are: {', '.join(known) or 'none'}"
        )
    return [known[name] for name in dict.fromkeys(names)] if names else list(every)
