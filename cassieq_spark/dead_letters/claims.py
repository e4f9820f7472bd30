"""Claims: dead letters that a run of redrive or purge has reserved for itself.

A claim is a lease of the group `ADMIN_GROUP`. A redrive publishes the messages of a claim under a
name of their own, and then acks them. A run that breaks off in between leaves its claim open. The
next run reads the name in the ledger of the target queue:

- If the messages are published, the run acks them.
- If they are not, and the lease has run out, the run closes the name, so that nothing can be
  published under it any more, and gives the messages back.
- If the run cannot know which queue is the target, because the row of a queue can't be read, it
  leaves the claim alone.

So each message is published once, however late a request arrives.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from itertools import groupby
from uuid import UUID

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ContentionError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.state import (
    GroupState,
    Settlement,
    Slot,
    Waiting,
    emptied,
    handed_out,
    holder_values,
    slot_values,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import REDRIVE_LIFETIME, Mark, Once, mark, read_mark
from cassieq_spark.model import QueueId, Range, Ranges
from cassieq_spark.processes import process_name
from cassieq_spark.queues import Records, read_records
from cassieq_spark.store.protocol import Op, ServerNow

logger = logging.getLogger(__name__)

#: The claim of a run that broke off was acked, or given back.
CLAIM_RESOLVED = "dead.claim_resolved"
#: An open claim was left alone, because its target may be a queue whose row can't be read.
CLAIM_UNKNOWN = "dead.claim_unknown"

#: A claim lies between two multiples of this number, so that the waiting row of the messages that
#: remain between them stays small, however scattered they are.
WINDOW = 4096

_HALF = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """Dead letters that one run has reserved: their monotons, and the token of their lease."""

    monotons: Ranges
    lease: UUID


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """A claim that is not acked yet.

    Attributes:
        slot: The slot of the claim in the state of the group.
        target: The ledger of the claim's target queue; None if that ledger no longer exists, or if
            the lease is no claim, or if the target is unknown.
        is_published: True if the claim's messages are visible in the target queue.
        is_unknown: True if the target may be a queue whose row can't be read.
    """

    slot: Slot
    target: Ledger | None
    is_published: bool
    is_unknown: bool


def batches_of(monotons: Ranges, most: int) -> Iterator[Ranges]:
    """Cut monotons into batches of at most ``most``, each within one window.

    >>> [str(each) for each in batches_of(Ranges.parse("0-3,4094-4098"), 4)]
    ['0-3,4094-4095', '4095-4096', '4096-4098']
    """
    parts = (part for each in monotons for part in each.split_at_multiples(WINDOW))
    for _, window in groupby(parts, key=lambda part: part.start // WINDOW):
        left = Ranges(tuple(window))
        while left:
            batch, left = left.split(most)
            yield batch


def claim(
    group: ConsumerGroup, monotons: Ranges, *, token: Callable[[], UUID], length: timedelta | None
) -> Claim | None:
    """Claim dead letters, except those under a lease. One LWT, three reads.

    The group is still owed all other messages.

    Args:
        group: `ADMIN_GROUP` of the dead-letter queue.
        monotons: Published messages, all within one window.
        token: Makes a fresh token for each attempt.
        length: How long the claim lasts; None if its messages are settled at once.

    Returns:
        None if none of the messages can be claimed.

    Raises:
        ContentionError: Competing changes won every attempt.
        QueueStateError: There is no such group.
    """
    tried: dict[UUID, Ranges] = {}
    for _ in attempts():
        state = group.read(every_waiting=True)
        # An attempt whose answer was lost may have been applied after our last read.
        for slot in state.slots:
            if slot.lease in tried:
                return Claim(tried[slot.lease], slot.lease)
        lease = token()
        taken, ops = plan_claim(state, monotons, lease, length, process_name())
        if not taken:
            return None
        if group.carry_out(ops, partial(_has_token, lease)):
            return Claim(taken, lease)
        tried[lease] = taken
    raise ContentionError(f"{group}: lost the race for messages again and again; try again")


def plan_claim(
    state: GroupState,
    monotons: Ranges,
    lease: UUID,
    length: timedelta | None,
    by: str | None = None,
) -> tuple[Ranges, tuple[Op, ...]]:
    """Plan to claim messages beyond the pointer and in waiting rows.

    The other messages of these rows, and messages that the pointer passes, go to new waiting rows:
    one row for messages within the window, one for messages below it, one for messages above it.
    Even if the messages are settled at once, a slot gets the token, which shows whether the plan
    was applied.

    Returns:
        The messages that are claimed, and the operations.
    """
    changes = Changes(state)
    pointer = state.head.pointer
    fresh = monotons - Ranges.of(Range(0, pointer))
    passed = Ranges.of(Range(pointer, fresh.hull.stop)) if fresh else Ranges()
    # Most rows lie elsewhere, and may be long.
    near = (each for each in state.waiting if each.monotons.hull & monotons.hull)
    rows = [each for each in near if each.monotons & monotons]
    found = Ranges.union([passed, *(each.monotons for each in rows)])
    taken = monotons & found
    if not taken:
        return taken, ()
    changes.move_pointer(max(pointer, passed.hull.stop) if passed else pointer)
    for each in rows:
        changes.remove_waiting(each)
    deliveries = max((each.deliveries for each in rows), default=0)
    # Later than the rows that are removed, so that no new row has the key of one of them.
    due = max([state.due_in(), *(each.due + 1 for each in rows)])
    for left in _around(found - taken, taken.start // WINDOW):
        changes.add_waiting(Waiting(due, left, deliveries))
    if length is None:
        values = emptied(lease)
    else:
        until = ServerNow(length)
        values = slot_values(monotons=taken, lease=lease, due_at=until, by_receipts=False)
        values |= holder_values(lease, by)
    changes.fill_slot(values | handed_out(deliveries + 1, None))
    return taken, changes.ops()


def token_for(target: QueueId) -> UUID:
    """Make a fresh token for a claim: half random, half a digest of that half and the target."""
    salt = secrets.token_bytes(_HALF)
    return UUID(bytes=salt + _digest(salt, target))


def is_token_for(token: UUID, target: QueueId) -> bool:
    """True if `token_for` has made this token for this target."""
    return token.bytes[_HALF:] == _digest(token.bytes[:_HALF], target)


def once_of(queue_id: QueueId, lease: UUID) -> Once:
    """The name under which a claim on a dead-letter queue is published, once."""
    return Once(f"redrive:{queue_id}:{lease}", REDRIVE_LIFETIME)


def is_published(target: Ledger, once: Once) -> bool:
    """True if a claim with this name is visible in its target queue. One read."""
    return read_mark(target, once) is Mark.PUBLISHED


def read_claims(ledger: Ledger, state: GroupState) -> list[OpenClaim]:
    """Read which claims in ``state`` are published. One scan of the queues, one read per claim."""
    slots = [slot for slot in state.slots if slot.monotons]
    records = read_records(ledger.store) if slots else Records({}, {})
    # Also of queues that were purged or deleted since, until the repair retires their ledgers.
    targets = [
        each.queue_id
        for record in records.readable.values()
        for version in range(record.retired + 1, record.definition.version + 1)
        for each in record.of_version(version)
    ]
    claims = []
    for slot in slots:
        found = next((each for each in targets if is_token_for(slot.lease, each)), None)
        target = None if found is None else Ledger(ledger.store, found)
        once = once_of(ledger.queue_id, slot.lease)
        published = target is not None and is_published(target, once)
        unknown = target is None and bool(records.unreadable)
        claims.append(OpenClaim(slot, target, published, unknown))
    return claims


def open_admin_group(ledger: Ledger, *, is_needed: bool) -> ConsumerGroup | None:
    """Open the group that claims dead letters, and resolve the claims of runs that broke off.

    Args:
        ledger: The ledger of the dead-letter queue.
        is_needed: True to create the group if it does not exist; False to return None then.

    Raises:
        ContentionError: Competing changes won every attempt.
    """
    if not is_needed and ledger.read_group(ADMIN_GROUP) is None:
        return None
    group = ConsumerGroup(ledger, ADMIN_GROUP)
    ensure_group(group, starting="earliest")
    _resolve_claims(group)
    return group


def _resolve_claims(group: ConsumerGroup) -> None:
    """Ack or give back the claims of runs that broke off. No LWT if there are none."""
    state = group.read(every_waiting=True)
    for claim in read_claims(group.ledger, state):
        runs = claim.slot.due_at >= state.now
        if not claim.is_published and (runs or claim.is_unknown):
            if claim.is_unknown and not runs:
                _log_unknown(group, claim)
            continue
        if claim.is_published or _is_published_after_all(group.ledger, claim):
            ack_claim(group, claim.slot.lease)
            _log(group, claim, "published by a run that broke off: acked")
        else:
            release_claim(group, Claim(claim.slot.monotons, claim.slot.lease))
            _log(group, claim, "claimed by a run that broke off: given back")


def ack_claim(group: ConsumerGroup, lease: UUID) -> None:
    """Settle the messages of a claim, which are published. One LWT, two reads."""
    group.lease(LeaseRequest(held=lease, max_messages=0))


def release_claim(group: ConsumerGroup, claim: Claim) -> None:
    """Give back the messages of a claim that are not published. One LWT, one read."""
    group.settle(claim.lease, Settlement(released={timedelta(0): claim.monotons}))


def _around(left: Ranges, window: int) -> list[Ranges]:
    """The parts of ``left`` below, within and above a window, without empty parts."""
    start, stop = window * WINDOW, (window + 1) * WINDOW
    below, within = left & Ranges.of(Range(0, start)), left & Ranges.of(Range(start, stop))
    return [each for each in (below, within, left - below - within) if each]


def _has_token(lease: UUID, slots: Sequence[Slot], _: object) -> bool:
    return any(slot.lease == lease for slot in slots)


def _is_published_after_all(ledger: Ledger, claim: OpenClaim) -> bool:
    """Close the name of a claim; True if it was used before. One LWT and one read."""
    if claim.target is None:
        return False
    once = once_of(ledger.queue_id, claim.slot.lease)
    closed = mark(once, Mark.CLOSED)
    for _ in attempts():
        if claim.target.try_cas([closed]) is not None:
            return is_published(claim.target, once)
    raise ContentionError(
        f"queue {claim.target.queue_id}: Cassandra gave no answer about {once.name}; try again"
    )


def _log(group: ConsumerGroup, claim: OpenClaim, what: str) -> None:
    monotons = claim.slot.monotons
    logger.info(
        "%s: dead letters %s were %s",
        group,
        monotons.short,
        what,
        extra={"action": CLAIM_RESOLVED, "count": monotons.count, **group.log_fields},
    )


def _log_unknown(group: ConsumerGroup, claim: OpenClaim) -> None:
    monotons = claim.slot.monotons
    logger.warning(
        "%s: dead letters %s were claimed by a run that broke off, perhaps for a queue whose row "
        "can't be read: they are left until it can be, or the queue is deleted; which one it is: "
        "cassieq queue list",
        group,
        monotons.short,
        extra={"action": CLAIM_UNKNOWN, "count": monotons.count, **group.log_fields},
    )


def _digest(salt: bytes, target: QueueId) -> bytes:
    return sha256(salt + target.encode()).digest()[:_HALF]
