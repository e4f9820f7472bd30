"""One sweep: each step over each queue, planned and then applied, or only planned."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range
from cassieq_spark.queues import list_queues
from cassieq_spark.repair.apply import apply, postpone
from cassieq_spark.repair.audit import audit
from cassieq_spark.repair.guard import Guard
from cassieq_spark.repair.idle import has_nothing_to_finalise
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
#: Queues that are worked on at the same time.
QUEUES_AT_ONCE = 8


class Step(StrEnum):
    """The steps of a sweep, in the order in which they are taken; what they do is in `STEPS`."""

    FINALISE = "finalise"
    FENCE = "fence"
    CLEAN = "clean"
    AUDIT = "audit"


#: The steps that read the whole table of chunks.
SCANNING = frozenset({Step.CLEAN, Step.AUDIT})
#: The scan, if there is one, comes before the first of these.
_AFTER_SCAN = SCANNING | {Step.FENCE}


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
    guard: Guard | None = None,
) -> Report:
    """Sweep once. Three reads for each queue in which nothing happens, a table scan if needed.

    What happened costs: some reads and two LWTs for a queue with something to finalise, one more
    where something unpublished is found.

    Args:
        store: Where the queues are kept.
        scan: How to read the table of chunks; not called unless a step needs it.
        queues: Names of the queues to sweep; none means all.
        steps: What to do; taken in the order of `Step`.
        dry_run: Plan only. `clean` then goes by the fence as it stands.
        write_timeout: The longest that a write may take from its first block to its publication.
        watch: Told before each part of the work.
        guard: Asked before each part, and each action; ends the sweep early. None: never.

    Raises:
        QueueStateError: A queue of ``queues`` does not exist.
        MissingSchemaError: The tables do not exist.
        InvariantError: A ledger contradicts itself, or what its groups are owed.
    """
    begun = time.monotonic()
    wanted = set(steps)
    ordered = tuple(step for step in Step if step in wanted)
    report = Report(ordered, dry_run)
    every = list_queues(store)
    chosen = _chosen(every, queues)
    report.queues = {queue.name: QueueReport(queue.queue_id) for queue in chosen}
    work = Work(store, report, write_timeout, guard or Guard())
    watched = _Watched(watch, ordered, len(chosen))
    scanned: dict[str, Scanned] | None = None
    for step in ordered:
        if scanned is None and step in _AFTER_SCAN and not SCANNING.isdisjoint(ordered):
            scanned = _scan(work, scan, every, chosen, watched)
        _take(work, step, chosen, scanned or {}, watched)
    report.outcome = work.guard.outcome
    report.seconds = time.monotonic() - begun
    return report


@dataclass(frozen=True, slots=True)
class Work:
    """What the steps of one sweep share."""

    store: Store
    report: Report
    write_timeout: timedelta
    guard: Guard


@dataclass(frozen=True, slots=True)
class Scanned:
    """What the scan found of a queue, and what was in its ledger before: that must be in it."""

    runs: Sequence[Run]
    head: LedgerHead
    blocks: Sequence[LedgerBlock]


#: Plans a step for one queue, after the scan if there was one. Several queues at the same time.
PlanStep = Callable[[Work, QueueDefinition, Scanned | None], Iterable[Action]]


def _plan_finalise(work: Work, queue: QueueDefinition, _: Scanned | None) -> list[Action]:
    if has_nothing_to_finalise(work.store, queue.queue_id):
        return []
    # I7: the head first; a group registered from here on makes its compare-and-set fail.
    head, _now = read_head_and_time(work.store, queue.queue_id)
    floor = read_floor(work.store, queue.queue_id)
    stop = head.finalised if floor is None else max(floor, head.finalised)
    blocks = read_blocks_below(work.store, queue.queue_id, min(stop, head.next))
    return plan_finalise(queue, head, blocks, floor)


def _plan_fence(work: Work, queue: QueueDefinition, scanned: Scanned | None) -> list[Action]:
    """After a scan, only where there is something to clean: an LWT for each queue is a lot."""
    if scanned is not None and not _unpublished(scanned):
        return []
    head, now = read_head_and_time(work.store, queue.queue_id)
    return plan_fence(queue, head, now, work.write_timeout)


def _plan_clean(work: Work, queue: QueueDefinition, scanned: Scanned | None) -> list[Action]:
    if scanned is None or not _unpublished(scanned):
        return []
    head, blocks = _read_ledger(work.store, queue)
    published = {block.block for block in blocks}
    return plan_clean(queue, scanned.runs, fence=head.fence, published=published)


def _audit(work: Work, queue: QueueDefinition, scanned: Scanned | None) -> list[Action]:
    if scanned is not None:
        alive = Range(scanned.head.finalised, scanned.head.next)
        suspects = audit(scanned.blocks, scanned.runs, alive)
        report = work.report.queues[queue.name]
        report.findings = confirm(work.store, queue, suspects, scanned.runs)
        report.counts += Counts(audited_messages=len(alive))
    return []


STEPS: Mapping[Step, PlanStep] = {
    Step.FINALISE: _plan_finalise,
    Step.FENCE: _plan_fence,
    Step.CLEAN: _plan_clean,
    Step.AUDIT: _audit,
}


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


def _take(
    work: Work,
    step: Step,
    queues: Sequence[QueueDefinition],
    scanned: Mapping[str, Scanned],
    watched: _Watched,
) -> None:
    """One step over all queues, some at the same time; the first error ends it."""
    pool = ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-sweep")
    try:
        parts = [
            pool.submit(_take_one, work, step, queue, scanned.get(queue.name)) for queue in queues
        ]
        for queue, part in zip(queues, parts, strict=True):
            watched.begin(f"{step} {queue.name}")
            part.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _take_one(work: Work, step: Step, queue: QueueDefinition, scanned: Scanned | None) -> None:
    if not work.guard.is_open():
        return
    report = work.report.queues[queue.name]
    try:
        actions = STEPS[step](work, queue, scanned)
    except ContentionError as error:
        postpone(queue.queue_id, f"{step}: {error}")
        report.counts += Counts(postponed=1)
        return
    if work.report.dry_run:
        report.planned += map(str, actions)
    else:
        report.counts += apply(work.store, actions, work.guard)


def _scan(
    work: Work,
    scan: Scan,
    every: Sequence[QueueDefinition],
    chosen: Sequence[QueueDefinition],
    watched: _Watched,
) -> dict[str, Scanned]:
    """Read ledgers, then chunks; some of them, if the guard says no: then no step looks at it."""
    with ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-sweep") as pool:
        ledgers = list(pool.map(lambda queue: _read_ledger(work.store, queue), chosen))
    watched.begin("scan")
    bucket_sizes = {queue.queue_id: queue.bucket_size for queue in every}
    runs: dict[QueueId, list[Run]] = {queue.queue_id: [] for queue in chosen}
    foreign: defaultdict[str, set[UUID]] = defaultdict(set)
    if work.guard.is_open():
        for run in scan(bucket_sizes):
            if not work.guard.is_open():
                break
            if run.queue_id in runs:
                runs[run.queue_id].append(run)
            elif run.queue_id not in bucket_sizes:
                foreign[run.queue_id].add(run.block)
    work.report.foreign = {queue_id: len(blocks) for queue_id, blocks in foreign.items()}
    return {
        queue.name: Scanned(runs[queue.queue_id], *ledger)
        for queue, ledger in zip(chosen, ledgers, strict=True)
    }


def _unpublished(scanned: Scanned) -> bool:
    """Whether there is a block that was in no row of the ledger; it may be by now."""
    known = {block.block for block in scanned.blocks}
    return any(run.block not in known for run in scanned.runs)


def _read_ledger(store: Store, queue: QueueDefinition) -> tuple[LedgerHead, list[LedgerBlock]]:
    """Serially, the head first: every block from below its ``next`` and its fence is there."""
    head = read_head(store, queue.queue_id, serial=True)
    return head, read_blocks(store, queue.queue_id, serial=True)


def _chosen(every: Sequence[QueueDefinition], names: Sequence[str]) -> list[QueueDefinition]:
    known = {queue.name: queue for queue in every}
    if unknown := [name for name in names if name not in known]:
        raise QueueStateError(
            f"there is no queue {unknown[0]!r}; there are: {', '.join(known) or 'none'}"
        )
    return [known[name] for name in dict.fromkeys(names)] if names else list(every)
