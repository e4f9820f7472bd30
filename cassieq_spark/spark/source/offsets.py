"""Offsets: what a batch leased, as the JSON that Spark keeps in its log. Pure.

Spark compares offsets as text, so the keys are always in order. The offset before the first batch
depends on nothing but the options, since Spark asks for it twice and keeps neither answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.model import QueueId, Ranges

_VERSION = 1
_ADVICE = "use the checkpoint location of the query that wrote it, or a new one"


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch: the lease that it consists of.

    Attributes:
        queue_id: Queue with its version.
        group: Consumer group.
        lease: Token of the lease.
        pointer: First monoton not offered to the group by then.
        leased: What the batch has.
    """

    queue_id: QueueId
    group: str
    lease: UUID
    pointer: int
    leased: tuple[LeasedSlot, ...]

    @property
    def is_redelivery(self) -> bool:
        """Whether the batch had messages that had been handed out before."""
        return any(each.deliveries > 1 for each in self.leased)


def initial_offset(queue: str, group: str) -> dict[str, Any]:
    """The offset before the first batch of a query."""
    return {"group": group, "queue": queue, "v": _VERSION}


def encode(offset: Offset) -> dict[str, Any]:
    """The offset as JSON values, keys in order."""
    return {
        "group": offset.group,
        "lease": str(offset.lease),
        "pointer": offset.pointer,
        "queue_id": offset.queue_id,
        "ranges": [[each.slot, str(each.monotons), each.deliveries] for each in offset.leased],
        "v": _VERSION,
    }


def decode(values: Mapping[str, Any], *, queue_id: QueueId, group: str) -> Offset | None:
    """Read an offset of this queue and group; None for the one before the first batch.

    Raises:
        QueueStateError: It belongs to another queue, another version of it, or another group, was
            written by another release, or is damaged.
    """
    if values.get("v") != _VERSION:
        raise QueueStateError(
            f"the checkpoint has offsets of version {values.get('v')!r}, this release reads "
            f"version {_VERSION}; {_ADVICE}"
        )
    name, _, version = queue_id.rpartition("@")
    found_name, _, found_version = str(values.get("queue_id") or values.get("queue")).rpartition(
        "@"
    )
    if (found_name or found_version) != name or values.get("group") != group:
        raise QueueStateError(
            f"the checkpoint belongs to group {values.get('group')!r} of queue "
            f"{found_name or found_version!r}, not to group {group!r} of queue {name!r}; {_ADVICE}"
        )
    if "lease" not in values:
        return None
    if found_version != version:
        raise QueueStateError(
            f"the checkpoint belongs to version {found_version} of queue {name!r}, "
            f"which was purged or created again since (version {version}); use a "
            "new checkpoint location"
        )
    try:
        return Offset(
            queue_id=queue_id,
            group=group,
            lease=UUID(values["lease"]),
            pointer=int(values["pointer"]),
            leased=tuple(
                LeasedSlot(int(slot), Ranges.parse(ranges), int(deliveries))
                for slot, ranges, deliveries in values["ranges"]
            ),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise QueueStateError(
            f"the checkpoint has a damaged offset ({type(error).__name__}: {error}): {values}; "
            f"restore it, or use a new checkpoint location"
        ) from error
