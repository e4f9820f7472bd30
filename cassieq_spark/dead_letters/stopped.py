"""Groups that have stopped at a dead message, in queues with ``OnDead.STOP``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cassieq_spark.arguments import check_choice, check_count
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages, reason_of
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import OnDead, QueueDefinition, Ranges
from cassieq_spark.parallel import in_parallel
from cassieq_spark.store.protocol import Store


class Resume(StrEnum):
    """How an operator lets a group go on that has stopped at dead messages.

    ``RETRY``: they are delivered again, and their deliveries are counted anew.
    ``DEAD_LETTER``: they go to the dead-letter queue.
    ``DROP``: they are settled without a copy.
    """

    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Dead messages at which a group has stopped.

    Attributes:
        partition: The queue partition of the messages; None if the queue has only one.
        monotons: The messages.
        deliveries: How often the messages were handed out.
        reason: Why the messages are dead.
        last_delivered_at: When the messages were handed out last, by the coordinator's clock.
    """

    partition: int | None
    monotons: Ranges
    deliveries: int
    reason: str
    last_delivered_at: datetime | None


def find_stopped(store: Store, queue: QueueDefinition, group: str) -> list[Stopped]:
    """Find the messages at which a group has stopped. Three reads per partition.

    Raises:
        QueueStateError: There is no such group.
    """
    return [
        Stopped(part.partition, each.monotons, each.deliveries, reason_of(each), each.last_at)
        for part, rows in zip(
            queue.by_partition, _dead_of_each(store, queue.by_partition, group), strict=True
        )
        for each in rows
    ]


def resume_group(
    store: Store,
    queue: QueueDefinition,
    group: str,
    how: Resume | str,
    *,
    partition: int | None = None,
) -> int:
    """Let a group that has stopped at dead messages continue.

    Three reads per partition. One LWT and two or three reads per dead row; to dead-letter a row,
    two LWTs and a few reads. If the call breaks off, it has resumed some partitions, and the
    next call resumes the others.

    Args:
        how: What becomes of the dead messages; see `Resume`.
        partition: The only partition to resume; None for all.

    Returns:
        How many messages were dead; 0 if the group has not stopped.

    Raises:
        OptionError: There is no such choice or partition, or the queue does not stop at dead
            messages, or it has no dead-letter queue.
        QueueStateError: There is no such group, or messages could not be dead-lettered; the log
            says why.
        ContentionError: Competing changes won every attempt.
    """
    check_choice("how to resume", how, Resume)
    how = Resume(how)
    if queue.on_dead is not OnDead.STOP:
        raise OptionError(
            f"queue {queue.name!r} does not stop at dead messages (on_dead is "
            f"{queue.on_dead.value!r}), so there is nothing to resume"
        )
    if how is Resume.DEAD_LETTER and queue.dead_letter_queue is None:
        raise OptionError(
            f"queue {queue.name!r} has no dead-letter queue: name one with cassieq queue alter "
            f"{queue.name} --dead-letter-queue NAME, or retry or drop the messages"
        )
    parts = queue.by_partition
    if partition is not None:
        check_count("partition", partition, least=0, most=len(parts) - 1)
        parts = (parts[partition],)
    count = 0
    for part, rows in zip(parts, _dead_of_each(store, parts, group), strict=True):
        for dead in rows:
            if _resume(store, part, group, how, dead):
                count += dead.monotons.count
    return count


def _resume(store: Store, part: QueueDefinition, name: str, how: Resume, dead: Waiting) -> bool:
    """True if this call has resumed the group in this partition; False if another was faster."""
    group = ConsumerGroup(Ledger(store, part.queue_id), name)
    match how:
        case Resume.RETRY:
            return group.retry_dead(dead)
        case Resume.DROP:
            return group.remove_dead(dead)
        case Resume.DEAD_LETTER:
            if dead_letter_messages(store, part, group, [dead]):
                return True
            if any(each.monotons == dead.monotons for each in _dead_of(group)):
                raise QueueStateError(
                    f"{group}: messages {dead.monotons.short} could not be moved to queue "
                    f"{part.dead_letter_queue!r}, and the group still stops there; the log says "
                    "why"
                )
            return False


def _dead_of_each(
    store: Store, parts: Sequence[QueueDefinition], name: str
) -> list[list[Waiting]]:
    groups = [ConsumerGroup(Ledger(store, part.queue_id), name) for part in parts]
    return in_parallel(_dead_of, groups)


def _dead_of(group: ConsumerGroup) -> list[Waiting]:
    try:
        state = group.read(every_waiting=True)
    except QueueStateError:
        # A purge registers the groups anew; each has a state once somebody reads for it.
        if group.ledger.read_group(group.name, serial=True) is None:
            raise
        return []
    return [each for each in state.waiting if each.reason is not None]
