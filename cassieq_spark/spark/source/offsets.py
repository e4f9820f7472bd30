"""Offsets: the lease of a batch, as the JSON that Spark keeps in its log.

Spark compares offsets as text, so the keys are always in order. The offset before the first batch
depends on the options only, since Spark asks for it twice and keeps neither answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn
from uuid import UUID

from cassieq_spark.errors import NEW_CHECKPOINT, QueueStateError
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.model import QueueDefinition, QueueId, Ranges, id_of, name_of, parts_of_id

#: Versions of the format: for a queue with one partition, with several, and for several queues.
_VERSION, _OF_SEVERAL, _OF_QUEUES = 1, 2, 3
#: What the offset of several queues says once.
_OF_EACH = ("group", "queue_id", "v")
_ADVICE = f"use the checkpoint location of the query that wrote it; or {NEW_CHECKPOINT}"


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch: its lease.

    Attributes:
        queue_id: Queue id with the version, or that of one of several partitions.
        group: Consumer group.
        lease: Token of the lease.
        pointer: The first monoton not offered to the group after the lease.
        leased: The messages of the batch, by slot.
    """

    queue_id: QueueId
    group: str
    lease: UUID
    pointer: int
    leased: tuple[LeasedSlot, ...]

    @property
    def is_redelivery(self) -> bool:
        """True if the batch had messages that had been handed out before."""
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
    """Read an offset of this queue and group; None for the offset before the first batch.

    Raises:
        QueueStateError: The offset belongs to another queue, another version of it, or another
            group, was written by another release, or is damaged.
    """
    _check(values, queue_id=queue_id, group=group, key="lease", version=_VERSION)
    if "lease" not in values:
        return None
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
        _refuse_damage(values, error)


def join_partitions(
    ends: Mapping[int, Mapping[str, Any]], *, queue_id: QueueId, group: str
) -> dict[str, Any]:
    """Make the offset of a batch of several partitions.

    Args:
        ends: The offset of each partition that has messages in the batch, as `encode` makes it.
        queue_id: Queue id with the version.
        group: Consumer group.
    """
    parts = [
        [number, {name: ends[number][name] for name in ("lease", "pointer", "ranges")}]
        for number in sorted(ends)
    ]
    return {"group": group, "partitions": parts, "queue_id": queue_id, "v": _OF_SEVERAL}


def split_partitions(
    values: Mapping[str, Any], queue: QueueDefinition, group: str
) -> dict[int, dict[str, Any]]:
    """The offset of each partition; the initial offset where the batch has no messages.

    Args:
        values: The result of `join_partitions` or `initial_offset`.
        queue: The queue, which has several partitions.
        group: Consumer group.

    Raises:
        QueueStateError: See `decode`.
    """
    _check(values, queue_id=queue.queue_id, group=group, key="partitions", version=_OF_SEVERAL)
    first = initial_offset(queue.name, group)
    found: dict[int, dict[str, Any]] = dict.fromkeys(range(queue.partitions), first)
    try:
        for number, part in values.get("partitions", ()):
            queue_id = queue.of_partition(int(number)).queue_id
            about = {"group": group, "queue_id": queue_id, "v": _VERSION}
            found[int(number)] = {**about, **{str(name): it for name, it in part.items()}}
    except (AttributeError, TypeError, ValueError) as error:
        _refuse_damage(values, error)
    if len(found) > queue.partitions:
        _refuse_damage(values, ValueError(f"the queue has {queue.partitions} partitions"))
    return found


def initial_offset_of_queues(group: str) -> dict[str, Any]:
    """The offset before the first batch of a query of several queues."""
    return join_queues([], group=group)


def join_queues(ends: Iterable[Mapping[str, Any]], *, group: str) -> dict[str, Any]:
    """Make the offset of a batch of several queues.

    Args:
        ends: The offset of each queue that has messages in the batch, as `encode` or
            `join_partitions` makes it.
        group: Consumer group.
    """
    parts = sorted(
        [end["queue_id"], {name: it for name, it in end.items() if name not in _OF_EACH}]
        for end in ends
    )
    return {"group": group, "queues": parts, "v": _OF_QUEUES}


def split_queues(values: Mapping[str, Any], group: str) -> dict[QueueId, dict[str, Any]]:
    """The offset of each queue of a batch, by queue id; also if the query read one queue.

    Args:
        values: The result of `join_queues`, `join_partitions`, `encode` or `initial_offset`.
        group: Consumer group.

    Raises:
        QueueStateError: The offset belongs to another group, was written by another release, or
            is damaged.
    """
    if values.get("v") in {_VERSION, _OF_SEVERAL}:
        found = {QueueId(str(values["queue_id"])): dict(values)} if "queue_id" in values else {}
    elif values.get("v") != _OF_QUEUES:
        raise QueueStateError(
            f"the checkpoint has offsets of version {values.get('v')!r}, this release reads "
            f"version {_OF_QUEUES} of several queues; {_ADVICE}"
        )
    else:
        try:
            found = {
                QueueId(str(queue_id)): {
                    "group": values["group"],
                    "queue_id": str(queue_id),
                    "v": _OF_SEVERAL if "partitions" in part else _VERSION,
                    **{str(name): it for name, it in part.items()},
                }
                for queue_id, part in values["queues"]
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            _refuse_damage(values, error)
    if values.get("group") != group:
        raise QueueStateError(
            f"the checkpoint belongs to group {values.get('group')!r}, not to group {group!r}; "
            f"{_ADVICE}"
        )
    return found


def is_of_queues(values: Mapping[str, Any]) -> bool:
    """True if `join_queues` made the offset."""
    return values.get("v") == _OF_QUEUES


def leases_of(values: Mapping[str, Any]) -> list[tuple[QueueId, str, UUID]]:
    """The leases in a possible offset of any source: queue id (or partition's), group, token.

    Empty if the offset is not one of this package.
    """
    try:
        if is_of_queues(values):
            each = split_queues(values, str(values["group"])).values()
            return list(chain.from_iterable(map(leases_of, each)))
        queue_id, group = QueueId(values["queue_id"]), str(values["group"])
        if not is_of_several(values):
            return [(queue_id, group, UUID(values["lease"]))]
        name, version, _ = parts_of_id(queue_id)
        return [
            (id_of(name, version, int(number)), group, UUID(part["lease"]))
            for number, part in values["partitions"]
        ]
    except (AttributeError, KeyError, QueueStateError, TypeError, ValueError):
        return []


def is_of_several(values: Mapping[str, Any]) -> bool:
    """True if `join_partitions` made the offset."""
    return values.get("v") == _OF_SEVERAL


def _check(
    values: Mapping[str, Any], *, queue_id: QueueId, group: str, key: str, version: int
) -> None:
    """Refuse the offset of another queue or group; the end of a batch must have ``key``."""
    name, number, _ = parts_of_id(queue_id)
    found = str(values.get("queue_id") or values.get("queue"))
    found_name = name_of(found) or found
    if is_of_queues(values):
        names = ", ".join(name_of(each) for each in split_queues(values, group)) or "no queue yet"
        raise QueueStateError(
            f"the checkpoint is that of a query of several queues ({names}), and this one reads "
            f"queue {name!r} alone: name it by the option queuePattern to go on; or "
            f"{NEW_CHECKPOINT}"
        )
    if values.get("v") not in {_VERSION, version}:
        raise QueueStateError(
            f"the checkpoint has offsets of version {values.get('v')!r}, this release reads "
            f"version {version} of this queue; {_ADVICE}"
        )
    if found_name != name or values.get("group") != group:
        raise QueueStateError(
            f"the checkpoint belongs to group {values.get('group')!r} of queue "
            f"{found_name!r}, not to group {group!r} of queue {name!r}; {_ADVICE}"
        )
    if "queue_id" in values and found != queue_id:
        raise QueueStateError(
            f"the checkpoint belongs to version {found.rpartition('@')[2]} of queue {name!r}, "
            f"which was purged or created again since (version {number}); use {NEW_CHECKPOINT}"
        )
    if "queue_id" in values and key not in values:
        _refuse_damage(values, KeyError(key))


def _refuse_damage(values: Mapping[str, Any], error: Exception) -> NoReturn:
    raise QueueStateError(
        f"the checkpoint has a damaged offset ({type(error).__name__}: {error}): {values}; "
        f"restore it; or use {NEW_CHECKPOINT}"
    ) from error
