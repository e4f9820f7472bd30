"""One repair run: each step over each queue, planned and then applied, or only planned."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from uuid import UUID

from cassieq_spark.errors import (
    ConnectError,
    ContentionError,
    MissingSchemaError,
    QueueStateError,
)
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId
from cassieq_spark.queues import QueueRecord, Records, Status, read_records
from cassieq_spark.repair.actions import Action, carry_out, postpone
from cassieq_spark.repair.audit import audit_step, lacks_rows
from cassieq_spark.repair.context import (
    BRIEF,
    DEFAULT_WRITE_TIMEOUT,
    Checkpoint,
    Context,
    Outage,
    Scanned,
    Thoroughness,
)
from cassieq_spark.repair.diagnosis import orphans_of
from cassieq_spark.repair.expire import expire_step
from cassieq_spark.repair.finalise import finalise_step, retire_step
from cassieq_spark.repair.plan import plan_clean, plan_fence
from cassieq_spark.repair.read import Seen, read_ledger, see_all, see_each
from cassieq_spark.repair.redeliver import redeliver_step
from cassieq_spark.repair.report import Counts, Outcome, QueueReport, Report
from cassieq_spark.repair.scan import Run, Scan
from cassieq_spark.store.protocol import Store

#: Does a step in one queue, after the scan if there was one: yields what is to be done. Runs on
#: several queues at the same time. An action is asked for when the one before it has gone in, and
#: may be planned by that.
TakeStep = Callable[[Context, QueueDefinition, Scanned | None], Iterable[Action]]
#: What is being done, how many parts are done, and of how many.
Watch = Callable[[str, int, int], None]

logger = logging.getLogger(__name__)

#: An error kept the repair from a queue; it went on with the others.
QUEUE_FAILED = "repair.queue_failed"
#: All queues could not be seen at once, so they are one by one.
SURVEY_FAILED = "repair.survey_failed"

#: Queues that are worked on at the same time.
QUEUES_AT_ONCE = 8
#: What is wrong then is wrong with every queue: to go on would be to wait for each in turn.
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
    thoroughness: Thoroughness = BRIEF,
    watch: Watch = _unwatched,
    checkpoint: Checkpoint | None = None,
) -> Report:
    """Run the repair once: look at all heads and groups, and scan the chunks if a step needs it.

    A queue in which nothing has happened costs no read of its own. What happened costs: some reads
    and two LWTs for each 10,000 blocks with something to finalise, one more where something
    unpublished is found.

    What goes wrong with one queue is told in its report, and ends the repair of that queue only;
    it is audited all the same.

    Args:
        store: Where the queues are kept.
        scan: How to read the table of chunks; not called unless a step needs it.
        queues: Names of the queues to repair; none means all.
        steps: What to do; taken in the order of `Step`.
        dry_run: Plan only. `clean` then goes by the fence as it stands.
        write_timeout: The longest that a write may take from its first block to its publication.
        thoroughness: How far the audit goes.
        watch: Told before each part of the work.
        checkpoint: Asked before each part, and each action; ends the repair early. None: never.

    Raises:
        QueueStateError: A queue of ``queues`` does not exist.
        MissingSchemaError: The tables do not exist.
        ConnectError: No node answers.
        StoreError: The table of queues, the lock or the chunks could not be read; also later, once
            work on ten queues has failed.
    """
    begun = time.monotonic()
    wanted = set(steps)
    ordered = tuple(step for step in Step if step in wanted)
    report = Report(ordered, dry_run)
    found = read_records(store)
    records = found.readable
    active = [each.definition for each in records.values() if each.status is Status.ACTIVE]
    every = [each for queue in active for each in queue.by_partition]
    whole = _chosen(found, queues)
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
        thoroughness,
        _see(outage, _active(records, chosen), every=not queues),
    )
    for seen in context.survey.values():
        context.compare_clocks(seen.now, seen.ahead)
    watched = _Watched(watch, ordered, len(chosen))
    scanned: dict[str, Scanned] | None = None
    for step in ordered:
        if scanned is None and step in _AFTER_SCAN and not SCANNING.isdisjoint(ordered):
            scanned = _scan(context, scan, every, chosen, watched)
        of_queues = whole if step is Step.RETIRE else chosen
        _take(context, step, of_queues, scanned or {}, watched)
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
            # A scan dies of the rows of one queue. Who reads them one by one learns of which.
            logger.warning(
                "the survey of all queues failed, so each queue is read by itself: %s",
                error,
                extra={"action": SURVEY_FAILED},
            )
    with ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-repair") as pool:
        found = pool.map(partial(_see_one, outage), active)
        return {queue_id: seen for each in found for queue_id, seen in each.items()}


def _see_one(outage: Outage, queue: QueueDefinition) -> dict[QueueId, Seen]:
    outage.check()
    found = see_each(outage.store, [queue.queue_id])
    if not found:
        outage.count(queue.name, None)
    return found


def _fence_step(context: Context, queue: QueueDefinition, scanned: Scanned | None) -> list[Action]:
    """After a scan, only where there is something to clean: an LWT for each queue is a lot."""
    if scanned is not None and not _unpublished(scanned):
        return []
    head, now = context.read_head_and_time(context.ledger(queue))
    return plan_fence(queue, head, now, context.write_timeout)


def _clean_step(context: Context, queue: QueueDefinition, scanned: Scanned | None) -> list[Action]:
    if scanned is None or not _unpublished(scanned):
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
    context: Context,
    step: Step,
    queues: Sequence[QueueDefinition],
    scanned: Mapping[str, Scanned],
    watched: _Watched,
) -> None:
    """One step over all queues, some at the same time; what is wrong with all of them ends it."""
    pool = ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-repair")
    try:
        parts = [
            pool.submit(_take_one, context, step, queue, scanned.get(queue.label))
            for queue in queues
        ]
        for queue, part in zip(queues, parts, strict=True):
            watched.begin(f"{step} {queue.label}")
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
    # The audit changes nothing, and what failed may be the loss that it has to tell of.
    if report.error is not None and step is not Step.AUDIT:
        return
    with _apart(context, queue, step):
        try:
            actions = STEPS[step](context, queue, scanned)
            if context.report.dry_run:
                report.planned += map(str, actions)
                return
            for done in carry_out(context.store, actions, context.checkpoint):
                report.counts += done
        except ContentionError as error:
            postpone(queue.queue_id, f"{step}: {error}")
            report.counts += Counts(postponed=1)


@contextmanager
def _apart(context: Context, queue: QueueDefinition, doing: str) -> Iterator[None]:
    """Keep from the other queues what goes wrong with this one."""
    try:
        yield
    except _OF_ALL_QUEUES:
        raise
    except Exception as error:
        if error is context.checkpoint.error:
            raise
        report = context.report.queues[queue.label]
        if report.error is not None:
            logger.warning(
                "queue %s: %s failed as well: %s",
                queue.queue_id,
                doing,
                error,
                extra={"action": QUEUE_FAILED, "queue": queue.queue_id},
            )
            context.outage.count(queue.name, error)
            return
        report.error = f"{doing}: {type(error).__name__}: {error}"
        logger.exception(
            "queue %s: %s failed; for the rest of this run the queue is only audited",
            queue.queue_id,
            doing,
            extra={"action": QUEUE_FAILED, "queue": queue.queue_id},
        )
        context.outage.count(queue.name, error)


def _scan(
    context: Context,
    scan: Scan,
    every: Sequence[QueueDefinition],
    chosen: Sequence[QueueDefinition],
    watched: _Watched,
) -> dict[str, Scanned]:
    """Read ledgers, then chunks: some only, if the checkpoint says no; no step looks at them."""
    with ThreadPoolExecutor(QUEUES_AT_ONCE, thread_name_prefix="cassieq-repair") as pool:
        active = _active(context.records, chosen)
        read = zip(active, pool.map(partial(_read_ledger, context), active), strict=True)
        ledgers = {queue.queue_id: ledger for queue, ledger in read if ledger is not None}
    chosen = [queue for queue in active if queue.queue_id in ledgers]
    for queue in chosen:
        context.report.queues[queue.label].block_count = len(ledgers[queue.queue_id][1])
    watched.begin("scan")
    bucket_sizes = {queue.queue_id: queue.bucket_size for queue in every}
    runs: dict[QueueId, list[Run]] = {queue.queue_id: [] for queue in chosen}
    foreign: defaultdict[str, set[UUID]] = defaultdict(set)
    strange: list[Run] = []
    if context.checkpoint.is_open():
        for run in scan(bucket_sizes):
            if not context.checkpoint.is_open():
                break
            if run.queue_id in runs:
                runs[run.queue_id].append(run)
            elif run.queue_id not in bucket_sizes and not context.keep(run):
                foreign[run.queue_id].add(run.block)
                strange.append(run)
    context.report.foreign = {queue_id: len(blocks) for queue_id, blocks in foreign.items()}
    if context.thoroughness.explain:
        context.report.orphans = orphans_of(strange, (), None)
    return {
        queue.label: Scanned(runs[queue.queue_id], *ledgers[queue.queue_id]) for queue in chosen
    }


def _read_ledger(
    context: Context, queue: QueueDefinition
) -> tuple[LedgerHead, Sequence[LedgerBlock]] | None:
    """A ledger as it stands before the scan; what was seen of it will do if it has no blocks.

    None: it can't be read.
    """
    seen = context.seen(queue)
    if seen is not None and seen.ledger.head.trimmed == seen.ledger.head.next:
        return seen.ledger.head, ()
    with _apart(context, queue, "read the ledger"):
        return read_ledger(context.ledger(queue))
    return None


def _unpublished(scanned: Scanned) -> bool:
    """Whether there is a block that was in no row of the ledger; it may be by now."""
    known = {block.block for block in scanned.blocks}
    return any(run.block not in known for run in scanned.runs)


def _active(
    records: Mapping[str, QueueRecord], queues: Sequence[QueueDefinition]
) -> list[QueueDefinition]:
    return [queue for queue in queues if records[queue.name].status is Status.ACTIVE]


def _chosen(found: Records, names: Sequence[str]) -> list[QueueDefinition]:
    """The queues to be repaired; those that can't be read are left out."""
    records = found.readable
    known = [name for name, each in records.items() if each.status is not Status.DELETED]
    known += found.unreadable
    if unknown := [name for name in names if name not in known]:
        raise QueueStateError(
            f"there is no queue {unknown[0]!r}; there are: {', '.join(known) or 'none'}"
        )
    chosen = dict.fromkeys(names or records)
    return [records[name].definition for name in chosen if name in records]
