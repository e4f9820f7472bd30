"""The gate of a ledger: closed for ever, opened with what an earlier one knew, paused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cassieq_spark.arguments import LAST_INSTANT
from cassieq_spark.errors import ContentionError, OutcomeUnknownError, QueueStateError
from cassieq_spark.ledger.read import open_ledger, read_groups, read_head
from cassieq_spark.ledger.state import (
    HEAD,
    Gate,
    LedgerHead,
    check_open,
    group_key,
    sink_batch_of,
    sink_key,
    sink_values,
)
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    Insert,
    Op,
    ServerNow,
    Slice,
    Store,
    Update,
    Values,
    When,
    partition_of_ledger,
)
from cassieq_spark.store.race import pauses

#: Every block is older: nothing can be published behind this fence.
FOR_EVER = LAST_INSTANT

#: Sinks that one compare-and-set carries over.
_SINKS_AT_ONCE = 200


def close_ledger(store: Store, queue_id: QueueId, gate: Gate, *, bucket_size: int) -> LedgerHead:
    """Let nothing in or out any more, for ever. One LWT and two serial reads; once closed, a read.

    The fence goes up for ever, so that a publish which has read the head before is refused; the
    groups version grows, so that a registration, a seek, a pause, and the end of a purge are.
    A ledger that is not there is made closed: no id is ever opened again (I10).

    Args:
        store: Where the queue is kept.
        queue_id: Which version of which queue.
        gate: ``PURGED`` or ``DELETED``; a ledger that is closed stays as it is.
        bucket_size: Messages per bucket of this version.

    Returns:
        The head, whose ``next`` is final.

    Raises:
        ContentionError: No answer, again and again.
    """
    for _ in pauses():
        try:
            head = _head_or_none(store, queue_id)
            if head is None:
                open_ledger(store, queue_id, gate=Gate.PREPARED)
            elif head.is_closed:
                return head
            else:
                values: Values = {"gate": gate, "fence": FOR_EVER, "bucket_size": bucket_size}
                store.cas(partition_of_ledger(queue_id), [_change(head, values)])
        except OutcomeUnknownError:
            continue
    raise ContentionError(f"could not close queue {queue_id}; try again")


def open_next(store: Store, queue_id: QueueId, *, after: QueueId, paused: bool) -> None:
    """Open a ledger with the groups and sinks of another one. Two LWTs, and one per 200 sinks.

    Every group is owed whatever is published from its beginning on. A sink does not publish again
    what it has published before (I4). Safe to repeat, and at the same time: what comes late, when
    the ledger is open or closed already, changes nothing.

    Args:
        store: Where the queue is kept.
        queue_id: The version to open.
        after: The version before, which is closed.
        paused: Whether its readers pause.

    Raises:
        ContentionError: No answer, again and again.
    """
    steps = _steps_to_open(store, after)
    done = 0
    for _ in pauses():
        try:
            open_ledger(store, queue_id, gate=Gate.PREPARED, paused=paused)
            while done < len(steps):
                if not store.cas(partition_of_ledger(queue_id), steps[done]):
                    return  # somebody else has finished it, or closed it
                done += 1
        except OutcomeUnknownError:
            continue
        return
    raise ContentionError(f"could not open queue {queue_id}; try again")


def set_paused(store: Store, queue_id: QueueId, *, paused: bool) -> bool:
    """Let readers lease nothing more, or go on. One LWT and a serial read.

    Returns:
        False: it was so already.

    Raises:
        QueueStateError: There is no such queue, or it is closed.
        ContentionError: Lost to others again and again.
    """
    in_doubt = False
    for _ in pauses():
        head = read_head(store, queue_id, serial=True)
        check_open(queue_id, head)
        if head.paused is paused:
            return in_doubt
        try:
            if store.cas(partition_of_ledger(queue_id), [_change(head, {"paused": paused})]):
                return True
        except OutcomeUnknownError:
            in_doubt = True
    raise ContentionError(f"could not pause or resume queue {queue_id}; try again")


def _change(head: LedgerHead, values: Values) -> Op:
    """Change the head, unless someone has changed it so since it was read."""
    when = [When("groups_version", "=", head.groups_version)]
    if head.gate is not Gate.OPEN:
        # An open one closes only here, with the version; of an earlier release, it is not stored.
        when.append(When("gate", "=", head.gate))
    changed = {**values, "groups_version": head.groups_version + 1}
    return Update(HEAD, changed, when=tuple(when))


def _head_or_none(store: Store, queue_id: QueueId) -> LedgerHead | None:
    try:
        return read_head(store, queue_id, serial=True)
    except QueueStateError:
        return None


def _steps_to_open(store: Store, after: QueueId) -> list[Sequence[Op]]:
    """What is carried over, bit by bit; with the last step the ledger is open."""
    steps: list[Sequence[Op]] = [
        [_prepared({"gate": Gate.PREPARED}), *sinks] for sinks in _sinks(store, after)
    ]
    groups = read_groups(store, after, serial=True)
    registered: list[Op] = [
        Insert(
            group_key(group.name),
            {"starts_at": 0, "groups_version": number, "created_at": ServerNow()},
        )
        for number, group in enumerate(groups, 1)
    ]
    opened = _prepared({"gate": Gate.OPEN, "groups_version": len(groups)})
    return [*steps, [opened, *registered]]


def _prepared(values: Values) -> Op:
    return Update(HEAD, values, when=(When("gate", "=", Gate.PREPARED),))


def _sinks(store: Store, queue_id: QueueId) -> Iterator[Sequence[Op]]:
    """Those of streams and applications. What is remembered for a time only stays behind."""
    which = Slice(kinds=("sink",))
    rows = store.read_rows(partition_of_ledger(queue_id), which, serial=True).rows
    found = [Insert(sink_key(each.sink), sink_values(each)) for each in map(sink_batch_of, rows)]
    yield from (found[at : at + _SINKS_AT_ONCE] for at in range(0, len(found), _SINKS_AT_ONCE))
