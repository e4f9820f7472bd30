"""The moves of the repair on a ledger: finalise, trim, fence. One LWT each, safe to repeat."""

from __future__ import annotations

from datetime import datetime

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.state import HEAD, LedgerHead
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    DeleteBelow,
    Op,
    Store,
    Update,
    Values,
    When,
    partition_of_ledger,
)

_NO_END = 2**63 - 1


def finalise(store: Store, queue_id: QueueId, head: LedgerHead, floor: int) -> bool:
    """Move ``finalised`` up to ``floor``, unless a group was registered since ``head`` was read.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        head: As read before the floors of the groups were (I7).
        floor: Lowest monoton that any group is still owed.

    Returns:
        False: another repair run, or a new group, came between; look again at the next run.
    """
    if floor < head.finalised:
        raise InvariantError(f"queue {queue_id}: {floor} is below finalised {head.finalised} (I7)")
    unchanged = (
        When("finalised", "=", head.finalised),
        When("groups_version", "=", head.groups_version),
    )
    return store.cas(
        partition_of_ledger(queue_id), [Update(HEAD, {"finalised": floor}, when=unchanged)]
    )


def trim(store: Store, queue_id: QueueId, *, finalised: int, below: int) -> bool:
    """Delete the rows of the blocks that begin below ``below``; their buckets are gone already.

    The head says so in the same moment, so that no read of blocks begins among deleted rows.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        finalised: As it stands; it only rises, so the condition only fails by another repair run.
        below: At or below ``finalised``, and the first monoton of a block that stays.
    """
    unchanged = When("finalised", "=", finalised)
    trimmed = Update(HEAD, {"trimmed": below}, when=(unchanged,))
    return store.cas(partition_of_ledger(queue_id), [trimmed, DeleteBelow("block", below)])


def raise_fence(store: Store, queue_id: QueueId, head: LedgerHead, fence: datetime) -> bool:
    """Forbid the publication of blocks begun at or before ``fence``; it only ever rises (I10)."""
    if fence < head.fence:
        raise InvariantError(f"queue {queue_id}: {fence} is before the fence {head.fence} (I10)")
    older = (When("fence", "=", head.fence),)
    return store.cas(partition_of_ledger(queue_id), [Update(HEAD, {"fence": fence}, when=older)])


def lowered_fence(head: LedgerHead, fence: datetime) -> list[Op]:
    """Take back a fence that a wrong clock has raised. Pure; one LWT, see `fix_clocks`.

    Args:
        head: Its fence is beyond ``fence``.
        fence: No block that was deleted under the old one was begun later (I10), by a clock that
            is right; the head remembers for the others where the old one stood.
    """
    highest = max(head.fence, head.unfenced_until or head.fence)
    values: Values = {"fence": fence, "unfenced_until": highest}
    return [Update(HEAD, values, when=(When("fence", "=", head.fence),))]


def empty(store: Store, queue_id: QueueId, *, end: int) -> bool:
    """Delete all rows of a closed ledger but its head; the buckets of its blocks are gone already.

    Args:
        store: Where the queue is kept.
        queue_id: Which version of which queue; nobody needs it any more.
        end: Its ``next``, which ``finalised`` has reached.
    """
    trimmed = Update(HEAD, {"trimmed": end}, when=(When("finalised", "=", end),))
    gone = [DeleteBelow(kind, _NO_END) for kind in ("block", "sink", "once", "group", "hold")]
    return store.cas(partition_of_ledger(queue_id), [trimmed, *gone])
