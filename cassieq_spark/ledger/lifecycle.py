"""Closes a ledger for ever, opens the next one with its groups and sinks, or pauses it."""

from __future__ import annotations

from collections.abc import Sequence

from cassieq_spark.arguments import LAST_INSTANT
from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ContentionError, OutcomeUnknownError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import (
    HEAD,
    LedgerHead,
    LedgerStatus,
    check_open,
    close_head,
    group_key,
    group_values,
    head_of,
    keep_prepared,
    open_prepared,
    pause_head,
    sink_key,
    sink_values,
)
from cassieq_spark.store.protocol import Insert, Op, Slice

#: A fence later than every block, so that nothing can be published.
FOR_EVER = LAST_INSTANT

#: How many sinks one compare-and-set copies.
_SINKS_AT_ONCE = 200


def close_ledger(ledger: Ledger, status: LedgerStatus, *, bucket_size: int) -> LedgerHead:
    """Close a ledger for ever. One LWT and two serial reads; one read if it is closed already.

    A change that has read the head before is refused: a publish by the fence, which is raised for
    ever; a registration, a seek, a pause and the end of a purge by the groups version, which
    grows. If there is no ledger, a closed one is created, so that no id is ever opened again
    (I10).

    Args:
        ledger: The ledger of this version.
        status: ``PURGED`` or ``DELETED``; a ledger that is closed already keeps its status.
        bucket_size: Messages per bucket of this version.

    Returns:
        The head, whose ``next`` is final.

    Raises:
        ContentionError: Every attempt remained without an answer.
    """
    for _ in attempts():
        try:
            found = ledger.read(Slice(row=HEAD), serial=True).rows
            if not found:
                ledger.create(status=LedgerStatus.PREPARED)
                continue
            head = head_of(found[0])
            if head.is_closed:
                return head
            ledger.cas([close_head(head, status, fence=FOR_EVER, bucket_size=bucket_size)])
        except OutcomeUnknownError:
            continue
    raise ContentionError(f"could not close queue {ledger.queue_id}; try again")


def open_next(ledger: Ledger, *, after: Ledger, paused: bool) -> None:
    """Open a ledger with the groups and sinks of another one. Two LWTs, and one per 200 sinks.

    Every group is owed all messages of the new ledger. No sink publishes a batch again (I4). Safe
    to repeat, also concurrently: a late call, when the ledger is open or closed already, changes
    nothing.

    Args:
        ledger: The ledger of the version to open.
        after: The ledger of the version before, which is closed.

    Raises:
        ContentionError: Every attempt remained without an answer.
    """
    steps = _steps_to_open(after)
    done = 0
    for _ in attempts():
        try:
            ledger.create(status=LedgerStatus.PREPARED, paused=paused)
            while done < len(steps):
                if not ledger.cas(steps[done]):
                    return  # another call has opened the ledger, or closed it
                done += 1
        except OutcomeUnknownError:
            continue
        return
    raise ContentionError(f"could not open queue {ledger.queue_id}; try again")


def set_paused(ledger: Ledger, *, paused: bool) -> bool:
    """Pause or resume a queue: readers lease no messages while paused. One LWT, one serial read.

    Returns:
        False if it already was as ``paused`` says.

    Raises:
        QueueStateError: There is no such queue, or it is closed.
        ContentionError: Competing changes won every attempt.
    """
    in_doubt = False
    for _ in attempts():
        head = ledger.read_head(serial=True)
        check_open(ledger.queue_id, head)
        if head.paused is paused:
            return in_doubt
        try:
            if ledger.cas([pause_head(head, paused=paused)]):
                return True
        except OutcomeUnknownError:
            in_doubt = True
    raise ContentionError(f"could not pause or resume queue {ledger.queue_id}; try again")


def _steps_to_open(after: Ledger) -> list[Sequence[Op]]:
    """The compare-and-sets to carry out, one after the other; the last one opens the ledger."""
    # Without names, which are remembered for a limited time only.
    sinks = [Insert(sink_key(each.sink), sink_values(each)) for each in after.read_sinks()]
    steps: list[Sequence[Op]] = [
        [keep_prepared(), *sinks[at : at + _SINKS_AT_ONCE]]
        for at in range(0, len(sinks), _SINKS_AT_ONCE)
    ]
    groups = after.read_groups(serial=True)
    registered = [
        Insert(group_key(group.name), group_values(0, number))
        for number, group in enumerate(groups, 1)
    ]
    return [*steps, [open_prepared(len(groups)), *registered]]
