"""Whether a step has anything to do in a queue, by what was seen of it before. Pure.

True is no more than a reason to look again at the next run.
"""

from __future__ import annotations

from cassieq_spark.ledger.state import Group
from cassieq_spark.model import QueueDefinition
from cassieq_spark.repair.survey import Seen


def has_nothing_owed(seen: Seen) -> bool:
    """Whether all that was published is settled for every group, or there is none."""
    head = seen.ledger.head
    return not seen.ledger.groups or head.finalised == head.next


def has_nothing_to_finalise(queue: QueueDefinition, seen: Seen) -> bool:
    """Whether a group is still owed ``finalised``, or nothing goes without one; a crash aside."""
    head, groups = seen.ledger.head, seen.ledger.groups
    if not groups:
        return queue.expire_after is None or head.finalised == head.next
    is_held = any(position <= head.finalised for position in seen.ledger.holds)
    return is_held or any(_keeps_finalised(seen, group) for group in groups)


def is_trimmed(seen: Seen) -> bool:
    """Whether no row is left of a block that is settled; False may mean that it is not known."""
    return seen.ledger.head.trimmed == seen.ledger.head.finalised


def _keeps_finalised(seen: Seen, group: Group) -> bool:
    found = seen.delivery_of(group)
    if found is None:
        return False
    held = [slot.monotons.start for slot in found.slots]
    return min([found.head.pointer, *held]) <= seen.ledger.head.finalised
