"""The audit of one queue: what looks wrong is looked at again, and explained."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, Range
from cassieq_spark.repair.actions import Action
from cassieq_spark.repair.audit import Finding, audit, holes
from cassieq_spark.repair.diagnosis import Belonging, Diagnosis, Stray, diagnose, strays_of
from cassieq_spark.repair.guard import Guard
from cassieq_spark.repair.read import confirm, read_ledger
from cassieq_spark.repair.report import Counts
from cassieq_spark.repair.verify import verify
from cassieq_spark.repair.work import Scanned, Work
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: What looks unpublished may be what the ledger has lost; it is left alone.
LACKS_ROWS = "repair.lacks_rows"


def plan_audit(work: Work, queue: QueueDefinition, scanned: Scanned | None) -> tuple[Action, ...]:
    """Audit a queue into its report; there is nothing to carry out."""
    if scanned is None:
        return ()
    report, head = work.report.queues[queue.name], scanned.head
    wish = work.thoroughness
    report.findings = find(
        work.store, queue, scanned, verify_data=wish.verify_data, guard=work.guard
    )
    report.counts += Counts(audited_messages=head.next - head.finalised)
    if wish.explain:
        report.diagnoses = explain(work.store, queue, report.findings)
        cleaned = "clean" in work.report.steps and not work.report.dry_run
        report.strays = [
            stray
            for stray in find_strays(work.store, queue, scanned)
            if not (cleaned and stray.belonging is Belonging.GARBAGE)
        ]
    return ()


def lacks_rows(queue: QueueDefinition, head: LedgerHead, blocks: Sequence[LedgerBlock]) -> bool:
    """Whether the ledger lacks rows (I1). The blocks that they named look as if unpublished.

    Args:
        queue: Which queue.
        head: The ledger's.
        blocks: The ledger's, read after ``head``.
    """
    alive = Range(head.finalised, head.next)
    found = [str(each) for each in holes([block.monotons for block in blocks], alive)]
    if found:
        logger.error(
            "queue %s: the ledger has no row for monotons %s; nothing unpublished is deleted",
            queue.queue_id,
            ", ".join(found),
            extra={"action": LACKS_ROWS, "queue": queue.queue_id},
        )
    return bool(found)


def find(
    store: Store, queue: QueueDefinition, scanned: Scanned, *, verify_data: bool, guard: Guard
) -> list[Finding]:
    """Find what is not stored as it should be. No read if nothing is suspicious.

    With ``verify_data``, one read for each bucket, and all data pass through this process.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        scanned: What is stored of it, and what must be.
        verify_data: Whether to read and decode every message.
        guard: Ends that early when it says no.
    """
    alive = Range(scanned.head.finalised, scanned.head.next)
    suspects = audit(scanned.blocks, scanned.runs, alive)
    findings = confirm(store, queue, suspects, scanned.runs)
    if verify_data:
        findings += verify(store, queue, scanned.blocks, alive, guard)
    return findings


def explain(store: Store, queue: QueueDefinition, findings: Sequence[Finding]) -> list[Diagnosis]:
    """Find out what findings mean. No read without any; else that of the ledger and its groups.

    Raises:
        ContentionError: A group's readers were faster again and again.
    """
    if not findings:
        return []
    states = read_group_states(store, queue.queue_id)
    head = read_head(store, queue.queue_id, serial=True)
    blocks = read_blocks(store, queue.queue_id, start=head.trimmed)
    return diagnose(queue, findings, blocks, Range(head.finalised, head.next), states)


def find_strays(store: Store, queue: QueueDefinition, scanned: Scanned) -> list[Stray]:
    """Find the stored blocks that are not published by now. Reads the ledger if there may be any.

    The fence first: a block that is older, and not in a ledger that is read later, never will be.
    """
    known = {block.block for block in scanned.blocks}
    if all(run.block in known for run in scanned.runs):
        return []
    head, blocks = read_ledger(store, queue.queue_id)
    lacking = lacks_rows(queue, head, blocks)
    published = {block.block for block in blocks}
    return strays_of(scanned.runs, published, head.fence, lacks_rows=lacking)
