"""One repair run: each step over all queues, planned and then applied, or only planned."""

from __future__ import annotations

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from uuid import UUID

from cassieq_spark.errors import (
    ConnectError,
    ContentionError,
    MissingSchemaError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, parts_of_id
from cassieq_spark.queues import QueueRecord, Records, Status, read_records
from cassieq_spark.repair.actions import RepairAction
from cassieq_spark.repair.audit import audit_step, lacks_rows
from cassieq_spark.repair.context import (
    DEFAULT_WRITE_TIMEOUT,
    Checkpoint,
    Context,
    Outage,
    Scanned,
)
from cassieq_spark.repair.diagnosis import Belonging, orphans_of
from cassieq_spark.repair.expire import expire_step
from cassieq_spark.repair.finalise import finalise_step, retire_step
from cassieq_spark.repair.plan import plan_clean, plan_fence
from cassieq_spark.repair.read import Seen, read_ledger, see_all, see_one
from cassieq_spark.repair.redeliver import redeliver_step
from cassieq_spark.repair.report import Counts, Outcome, QueueReport, Report
from cassieq_spark.repair.scan import Run, Scan
from cassieq_spark.store.protocol import Store

#: Yields the actions of a step in one queue, given the scan, if there was one. Called for several
#: queues in parallel. The next action is asked for once the action before it is applied, so its
#: plan may depend on it.
TakeStep = Callable[[Context, QueueDefinition, Scanned | None], Iterable[RepairAction]]
#: Called with the part of the work that begins, the number of finished parts, and that of all
#: parts.
Watch = Callable[[str, int, int], None]

logger = logging.getLogger(__name__)

#: The repair of a queue has failed; the run continues with the others.
QUEUE_FAILED = "repair.queue_failed"
#: Another repair run or a new group interfered, an answer was lost, or too much was to expire at
#: once; the next run continues.
POSTPONED = "repair.postponed"
#: The survey could not read all queues at once, so it reads them one by one.
SURVEY_FAILED = "repair.survey_failed"

#: How many queues are worked on in parallel.
QUEUES_AT_ONCE = 8
#: Errors that concern every queue, and end the run.
_OF_ALL_QUEUES = (ConnectError, MissingSchemaError)


class Step(StrEnum):
    """The steps of a repair run, in their order; `STEPS` says what they do."""

    REDELIVER = "redeliver"
    EXPIRE = "expire"
    FINALISE = "finalise"
    FENCE = "fence"
    CLEAN = "clean"
    AUDIT = "audit"
    RETIRE = "retire"


#: The steps that read the whole table of chunks.
SCANNING = frozenset({Step.CLEAN, Step.AUDIT})
#: A scan is done before the first of these.
_AFTER_SCAN = SCANNING | {Step.FENCE}


def run_once(  # noqa: PLR0913 (each is a choice of its own, by name)
    store: Store,
    *,
    scan: Scan,
    queues: Sequence[str] = (),
    steps: Iterable[Step] = tuple(Step),
    dry_run: bool = False,
    write_timeout: timedelta = DEFAULT_WRITE_TIMEOUT,
    verify_data: bool = False,
    explain: bool = False,
    watch: Watch = lambda *_: None,
    checkpoint: Checkpoint | None = None,
) -> Report:
    """Run the repair once: survey all queues, scan the chunks if a step needs it, take the steps.

    An idle queue costs no read of its own. In other queues, finalising takes some reads and two
    LWTs per 10,000 blocks, and unpublished blocks take one LWT more.

    An error in one queue is reported, and ends the repair of that queue only; the queue is still
    audited.

    Args:
        store: Where the queues are kept.
        scan: Reads the table of chunks; not called unless a step needs it.
        queues: Names of the queues to repair; empty for all queues.
        steps: The steps to take, in any order.
        dry_run: Plan only. `clean` then uses the fence as it is.
        write_timeout: The longest that a write may take from its first block to its publication.
        verify_data: True if the audit reads and decodes every message, not only keys of chunks.
        explain: True if the audit explains its findings, and lists blocks that are in no ledger.
        watch: Called before each part of the work.
        checkpoint: Asked before each part and each action; ends the run early. None: never ends
            it.

    Raises:
        QueueStateError: A queue of ``queues`` does not exist.
        MissingSchemaError: The tables do not exist.
        ConnectError: No node answers.
        StoreError: The lock or the chunks could not be read, or the table of queues, at the
            beginning or after ten failures.
    """
    begun = time.monotonic()
    wanted = set(steps)
    ordered = tuple(step for step in Step if step in wanted)
    report = Report(ordered, dry_run)
    found = read_records(store)
    records = found.readable
    active = [each.definition for each in records.values() if each.status is Status.ACTIVE]
    every = [each for queue in active for each in queue.by_partition]
    existing = _existing(found)
    whole = _chosen(found, existing, queues)
    report.left_out = len(set(existing) - set(queues)) if queues else 0
    chosen = [each for queue in whole for each in queue.by_partition]
    report.queues = {
        each.label: QueueReport(each.queue_id)
        for queue in whole
        for each in (queue, *queue.by_partition)
    }
    for name, error in found.unreadable.items():
        if not queues or name in queues:
            report.queues[name] = QueueReport(QueueId(name), error=str(error))
            logger.error(
                "queue %a: %s", name, error, extra={"action": QUEUE_FAILED, "queue": name}
            )
    outage = Outage(store)
    context = Context(
        store,
        report,
        write_timeout,
        checkpoint or Checkpoint(),
        outage,
        records,
        verify_data,
        explain,
        _see(outage, _active(records, chosen), every=not queues),
    )
    for seen in context.survey.values():
        context.compare_clocks(seen.now, seen.ahead)
    parts = itertools.count()
    total = len(ordered) * len(chosen) + (not SCANNING.isdisjoint(ordered))

    def begin(doing: str) -> None:
        watch(doing, next(parts), total)

    scanned: dict[str, Scanned] | None = None
    for step in ordered:
        if scanned is None and step in _AFTER_SCAN and not SCANNING.isdisjoint(ordered):
            scanned = _scan(context, scan, every, chosen, begin)
        of_queues = whole if step is Step.RETIRE else chosen
        _take(context, step, of_queues, scanned or {}, begin)
    idle = {queue.name for queue in whole if queue.partitions > 1}
    idle |= {
        each.label for each in (*whole, *chosen) if records[each.name].status is Status.DELETED
    }
    report.queues = {
        label: queue
        for label, queue in report.queues.items()
        if queue.needed_something or label not in idle
    }
    report.outcome = context.checkpoint.outcome
    if report.outcome is Outcome.DONE and report.failed:
        report.outcome = Outcome.SOME_FAILED
    report.seconds = time.monotonic() - begun
    return report


def _see(outage: Outage, active: Sequence[QueueDefinition], *, every: bool) -> dict[QueueId, Seen]:
    if every and active:
        try:
            return see_all(outage.store, active[0].name)
        except _OF_ALL_QUEUES:
            raise
        except Exception as error:  # noqa: BLE001 (rows of one queue)
            # The rows of one queue can make the scan fail. Reading one by one shows which queue.
            logger.warning(
                "the survey of all queues failed, so each queue is read by itself: %s",
                error,
                extra={"action": SURVEY_FAILED},
            )

    def see(queue: QueueDefinition) -> Seen | None:
        outage.check()
        seen = see_one(outage.store, queue.queue_id)
        if seen is None:
            outage.count(queue.name, None)
        return seen

    with ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-repair") as pool:
        found = zip(active, pool.map(see, active), strict=True)
        return {queue.queue_id: seen for queue, seen in found if seen is not None}


def _fence_step(
    context: Context, queue: QueueDefinition, scanned: Scanned | None
) -> list[RepairAction]:
    # After a scan, only if there is something to clean: it takes an LWT for each queue.
    if scanned is not None and not scanned.has_unpublished:
        return []
    head, now = context.read_head_and_time(context.ledger(queue))
    return plan_fence(queue, head, now, context.write_timeout)


def _clean_step(
    context: Context, queue: QueueDefinition, scanned: Scanned | None
) -> list[RepairAction]:
    if scanned is None or not scanned.has_unpublished:
        return []
    head, blocks = read_ledger(context.ledger(queue))
    if lacks_rows(queue, head, blocks):
        return []
    published = {block.block for block in blocks}
    return plan_clean(queue, scanned.runs, fence=head.fence, published=published)


STEPS: Mapping[Step, TakeStep] = {
    Step.REDELIVER: redeliver_step,
    Step.EXPIRE: expire_step,
    Step.FINALISE: finalise_step,
    Step.FENCE: _fence_step,
    Step.CLEAN: _clean_step,
    Step.AUDIT: audit_step,
    Step.RETIRE: retire_step,
}


def _take(
    context: Context,
    step: Step,
    queues: Sequence[QueueDefinition],
    scanned: Mapping[str, Scanned],
    begin: Callable[[str], None],
) -> None:
    """Take one step in all queues, several in parallel; an error of all queues ends the step."""
    pool = ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-repair")
    try:
        parts = [
            pool.submit(_take_one, context, step, queue, scanned.get(queue.label))
            for queue in queues
        ]
        for queue, part in zip(queues, parts, strict=True):
            begin(f"{step} {queue.label}")
            part.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _take_one(
    context: Context, step: Step, queue: QueueDefinition, scanned: Scanned | None
) -> None:
    context.outage.check()
    active = context.records[queue.name].status is Status.ACTIVE
    if not context.checkpoint.is_open() or not (active or step is Step.RETIRE):
        return
    report = context.report.queues[queue.label]
    # The audit changes nothing, and may find the loss that has made another step fail.
    if report.error is not None and step is not Step.AUDIT:
        return
    with _apart(context, queue, step):
        try:
            actions = STEPS[step](context, queue, scanned)
            if context.report.dry_run:
                report.planned += map(str, actions)
                return
            _apply(context, report, actions)
        except ContentionError as error:
            _postpone(report, queue.queue_id, f"{step}: {error}")


def _apply(context: Context, report: QueueReport, actions: Iterable[RepairAction]) -> None:
    """Apply the actions of one queue until one is refused, as the later ones depend on it."""
    for action in actions:
        if not context.checkpoint.confirm():
            return
        try:
            done = action.apply(context.store)
        except (OutcomeUnknownError, ContentionError):
            done = None
        if done is None:
            _postpone(report, action.queue_id, str(action))
            return
        report.counts += done
        if done.postponed:
            _tell_postponed(action.queue_id, f"the rest of: {action}")


def _postpone(report: QueueReport, queue_id: QueueId, what: str) -> None:
    report.counts += Counts(postponed=1)
    _tell_postponed(queue_id, what)


def _tell_postponed(queue_id: QueueId, what: str) -> None:
    logger.info(
        "queue %s: left to the next run: %s",
        queue_id,
        what,
        extra={"action": POSTPONED, "queue": queue_id},
    )


@contextmanager
def _apart(context: Context, queue: QueueDefinition, doing: str) -> Iterator[None]:
    """Report an error of this queue, and let the run continue with the other queues."""
    try:
        yield
    except _OF_ALL_QUEUES:
        raise
    except Exception as error:
        if error is context.checkpoint.error:
            raise
        report = context.report.queues[queue.label]
        is_first = report.error is None
        rest = "; for the rest of this run the queue is only audited" if is_first else " as well"
        logger.log(
            logging.ERROR if is_first else logging.WARNING,
            "queue %s: %s failed%s: %s",
            queue.queue_id,
            doing,
            rest,
            error,
            exc_info=is_first,
            extra={"action": QUEUE_FAILED, "queue": queue.queue_id},
        )
        if is_first:
            report.error = f"{doing}: {type(error).__name__}: {error}"
        context.outage.count(queue.name, error)


def _scan(
    context: Context,
    scan: Scan,
    every: Sequence[QueueDefinition],
    chosen: Sequence[QueueDefinition],
    begin: Callable[[str], None],
) -> dict[str, Scanned]:
    """Read ledgers, then chunks. If the checkpoint ends the scan, no step uses its results."""
    with ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-repair") as pool:
        active = _active(context.records, chosen)
        read = zip(active, pool.map(partial(_read_ledger, context), active), strict=True)
        ledgers = {queue.queue_id: ledger for queue, ledger in read if ledger is not None}
    chosen = [queue for queue in active if queue.queue_id in ledgers]
    for queue in chosen:
        context.report.queues[queue.label].block_count = len(ledgers[queue.queue_id][1])
    begin("scan")
    bucket_sizes = {queue.queue_id: queue.bucket_size for queue in every}
    runs: dict[QueueId, list[Run]] = {queue.queue_id: [] for queue in chosen}
    strange: list[Run] = []
    if context.checkpoint.is_open():
        for run in scan(bucket_sizes):
            if not context.checkpoint.is_open():
                break
            if run.queue_id in runs:
                runs[run.queue_id].append(run)
            elif run.queue_id not in bucket_sizes and not context.keep(run):
                strange.append(run)
    obsolete = [run for run in strange if _is_obsolete(run, context.records)]
    foreign = [run for run in strange if not _is_obsolete(run, context.records)]
    if foreign:
        now = read_records(context.store)
        foreign = [run for run in foreign if _is_foreign(run, context.records, now)]
    context.report.foreign = _count_blocks(foreign)
    context.report.obsolete = _count_blocks(obsolete)
    if context.explain:
        left = [replace(it, belonging=Belonging.OBSOLETE) for it in orphans_of(obsolete, (), None)]
        context.report.orphans = [*orphans_of(foreign, (), None), *left]
    return {
        queue.label: Scanned(runs[queue.queue_id], *ledgers[queue.queue_id]) for queue in chosen
    }


def _is_obsolete(run: Run, before: Mapping[str, QueueRecord]) -> bool:
    """True if a block's version was purged or deleted, or is about to be."""
    try:
        name, version, _ = parts_of_id(run.queue_id)
    except ValueError:
        return False
    return name in before and before[name].has_left(version)


def _is_foreign(run: Run, before: Mapping[str, QueueRecord], now: Records) -> bool:
    """True if a block that is not obsolete belongs to no queue.

    False if its version was created during the scan, or by a purge that had not ended, or if the
    row of its queue cannot be read.
    """
    try:
        name, version, _ = parts_of_id(run.queue_id)
    except ValueError:
        return True
    if name in now.unreadable:
        return False
    record = before.get(name)
    was_open = record is not None and version == record.version and record.status is Status.ACTIVE
    return was_open or name not in now.readable or version > now.readable[name].version


def _count_blocks(runs: Iterable[Run]) -> dict[str, int]:
    """How many blocks there are, by queue id."""
    blocks: defaultdict[str, set[UUID]] = defaultdict(set)
    for run in runs:
        blocks[run.queue_id].add(run.block)
    return {queue_id: len(found) for queue_id, found in blocks.items()}


def _read_ledger(
    context: Context, queue: QueueDefinition
) -> tuple[LedgerHead, Sequence[LedgerBlock]] | None:
    """The ledger before the scan; None if it cannot be read.

    If the ledger has no blocks, the head of the survey is enough.
    """
    seen = context.seen(queue)
    if seen is not None and seen.ledger.head.trimmed == seen.ledger.head.next:
        return seen.ledger.head, ()
    with _apart(context, queue, "read the ledger"):
        return read_ledger(context.ledger(queue))
    return None


def _active(
    records: Mapping[str, QueueRecord], queues: Sequence[QueueDefinition]
) -> list[QueueDefinition]:
    return [queue for queue in queues if records[queue.name].status is Status.ACTIVE]


def _existing(found: Records) -> list[str]:
    """Names of the queues that are not deleted."""
    records = found.readable
    known = [name for name, each in records.items() if each.status is not Status.DELETED]
    return [*known, *found.unreadable]


def _chosen(
    found: Records, existing: Sequence[str], names: Sequence[str]
) -> list[QueueDefinition]:
    """The queues to repair, without those that cannot be read."""
    records = found.readable
    if unknown := [name for name in names if name not in existing]:
        raise QueueStateError(
            f"there is no queue {unknown[0]!r}; there are: {', '.join(existing) or 'none'}"
        )
    chosen = dict.fromkeys(names or records)
    return [records[name].definition for name in chosen if name in records]
