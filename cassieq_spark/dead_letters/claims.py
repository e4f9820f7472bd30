"""Claims: dead letters that a run has taken in order to redrive them, and what became of them.

A claim is a lease of the group `ADMIN_GROUP`. Its messages are published under a name of its own,
and acked after that. A run that breaks off in between leaves its claim behind; the next one looks
into the ledger of the queue that they were bound for. If they are published, they are acked. If
they are not, and the lease has run out, the name is closed, so that they never will be, and they
are given back. So each message is published once, however late a request arrives.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from cassieq_spark.errors import ContentionError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import attempt, ensure_group
from cassieq_spark.groups.state import GroupState, Settlement, Slot
from cassieq_spark.ledger.once import REDRIVE_LIFETIME, Mark, Once, mark, read_mark
from cassieq_spark.ledger.read import read_group
from cassieq_spark.model import QueueId
from cassieq_spark.queues import list_queues
from cassieq_spark.store.protocol import Store, partition_of_ledger
from cassieq_spark.store.race import pauses

logger = logging.getLogger(__name__)

#: What a run left behind that broke off is acked, or given back.
CLAIM_RESOLVED = "dead.claim_resolved"

#: The consumer group that dead letters are redriven and purged in.
ADMIN_GROUP = "cassieq-dead"

_HALF = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """Dead letters under a lease.

    Attributes:
        slot: Where they are.
        target: The queue that they are bound for; None if it does not exist any more, or the
            lease is not one of ours.
        is_published: Whether they are visible there.
    """

    slot: Slot
    target: QueueId | None
    is_published: bool


def token_for(target: QueueId) -> UUID:
    """A fresh token for a claim: whoever knows the target can tell that it is the one.

    Half of it is random, the other half a digest of that and the target.
    """
    salt = secrets.token_bytes(_HALF)
    return UUID(bytes=salt + _digest(salt, target))


def is_token_for(token: UUID, target: QueueId) -> bool:
    """Whether `token_for` has made the token for this target."""
    return token.bytes[_HALF:] == _digest(token.bytes[:_HALF], target)


def once_of(queue_id: QueueId, lease: UUID) -> Once:
    """Under what name the messages of a claim are published, once.

    Args:
        queue_id: The dead-letter queue.
        lease: The token of the claim.
    """
    return Once(f"redrive:{queue_id}:{lease}", REDRIVE_LIFETIME)


def is_published(store: Store, target: QueueId, once: Once) -> bool:
    """Whether a claim's messages are visible in the queue that they were bound for. One read."""
    return read_mark(store, target, once) is Mark.PUBLISHED


def read_claims(store: Store, queue_id: QueueId, state: GroupState) -> list[Claim]:
    """Read what became of the leases in ``state``. A scan of the queues, and a read for each."""
    slots = [slot for slot in state.slots if slot.monotons]
    targets = [queue.queue_id for queue in list_queues(store)] if slots else []
    return [_read_claim(store, queue_id, slot, targets) for slot in slots]


def open_admin_group(store: Store, queue_id: QueueId, *, is_needed: bool) -> ConsumerGroup | None:
    """The group to take dead letters out in, what runs have left behind in it being resolved.

    Args:
        store: Where the queues are kept.
        queue_id: The dead-letter queue.
        is_needed: Whether to make it if there is none; else None is returned.
    """
    if not is_needed and read_group(store, queue_id, ADMIN_GROUP) is None:
        return None
    ensure_group(store, queue_id, ADMIN_GROUP, starting="earliest")
    delivery = ConsumerGroup(store, queue_id, ADMIN_GROUP)
    resolve_claims(store, delivery)
    return delivery


def resolve_claims(store: Store, delivery: ConsumerGroup) -> None:
    """Finish what runs have left behind that broke off. No LWT if there is nothing of the kind.

    Raises:
        ContentionError: Lost to others again and again.
        QueueStateError: There is no group `ADMIN_GROUP`.
    """
    state = delivery.read(every_waiting=True)
    for claim in read_claims(store, delivery.queue_id, state):
        runs = claim.slot.due_at >= state.now
        if not claim.is_published and runs:
            continue
        if claim.is_published or _is_published_after_all(store, delivery.queue_id, claim):
            ack_claim(delivery, claim.slot.lease)
            _tell(delivery, claim, "published by a run that broke off: acked")
        else:
            released = {timedelta(0): claim.slot.monotons}
            delivery.settle(claim.slot.lease, Settlement(released=released))
            _tell(delivery, claim, "taken by a run that broke off: given back")


def ack_claim(delivery: ConsumerGroup, lease: UUID) -> None:
    """Settle the messages of a claim, which are published. One LWT, two reads."""
    nothing_more = LeaseRequest(held=lease, max_messages=0)
    delivery.lease(nothing_more)


def _read_claim(store: Store, queue_id: QueueId, slot: Slot, targets: Sequence[QueueId]) -> Claim:
    target = next((each for each in targets if is_token_for(slot.lease, each)), None)
    once = once_of(queue_id, slot.lease)
    return Claim(slot, target, target is not None and is_published(store, target, once))


def _is_published_after_all(store: Store, queue_id: QueueId, claim: Claim) -> bool:
    """Close the name of a claim, unless it has been used. One LWT and a read."""
    if claim.target is None:
        return False
    once = once_of(queue_id, claim.slot.lease)
    closed = mark(once, Mark.CLOSED)
    for _ in pauses():
        if attempt(store, partition_of_ledger(claim.target), [closed]) is not None:
            return is_published(store, claim.target, once)
    raise ContentionError(
        f"queue {claim.target}: Cassandra gave no answer about {once.name}; try again"
    )


def _tell(delivery: ConsumerGroup, claim: Claim, what: str) -> None:
    logger.info(
        "%s: dead letters %s were %s",
        delivery,
        claim.slot.monotons,
        what,
        extra={
            "action": CLAIM_RESOLVED,
            "queue": delivery.queue_id,
            "group": delivery.name,
            "count": claim.slot.monotons.count,
        },
    )


def _digest(salt: bytes, target: QueueId) -> bytes:
    return sha256(salt + target.encode()).digest()[:_HALF]
