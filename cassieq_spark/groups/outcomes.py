"""What is to become of messages of one lease, as a value, and as the text of a slot. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from cassieq_spark.errors import InvariantError
from cassieq_spark.model import Ranges
from cassieq_spark.store.decoded import OF_DECODING

_NOTHING = Ranges()
_MICROSECOND = timedelta(microseconds=1)
_Key = TypeVar("_Key", str, timedelta)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to become of messages of one lease.

    A message that is named several times is acked; if not that, rejected; if not that, released.

    Attributes:
        acked: They are done.
        rejected: They are dead, by reason.
        released: They are to be offered again, by how much later.
        extended: They are to be held on, by how long from now; an ack of their whole batch leaves
            them alone.
        unread: They are to be offered again at once, and this delivery does not count, as nobody
            has seen them (I8). Only for messages of a client's lease: it is never recorded.
    """

    acked: Ranges = _NOTHING
    rejected: Mapping[str, Ranges] = field(default_factory=dict)
    released: Mapping[timedelta, Ranges] = field(default_factory=dict)
    extended: Mapping[timedelta, Ranges] = field(default_factory=dict)
    unread: Ranges = _NOTHING

    @property
    def named(self) -> Ranges:
        """All the messages."""
        back = (*self.released.values(), *self.extended.values(), self.unread)
        return union([self.acked, self.dead, *back])

    @property
    def dead(self) -> Ranges:
        """Those that are rejected."""
        return union(self.rejected.values())

    def within(self, monotons: Ranges) -> Settlement:
        """The same for these messages only, and each of them named once."""
        acked = monotons & self.acked
        rejected, left = _deal(monotons - acked, self.rejected)
        released, left = _deal(left, self.released)
        extended, left = _deal(left, self.extended)
        return Settlement(acked, rejected, released, extended, left & self.unread)

    def then(self, later: Settlement) -> Settlement:
        """What both come to: for a message that both name, what the later one says."""
        gone = later.named
        return Settlement(
            union([self.acked - gone, later.acked]),
            _merge(self.rejected, later.rejected, gone),
            _merge(self.released, later.released, gone),
            _merge(self.extended, later.extended, gone),
            union([self.unread - gone, later.unread]),
        )


def encode(outcomes: Settlement, lease: UUID, deliveries: int) -> str:
    """Outcomes of a batch, as text; empty, if all is acked, which needs no telling.

    Args:
        outcomes: Each message is named once.
        lease: The token of the batch.
        deliveries: How often its messages were handed out: a replay counts one more.
    """
    told = {
        "rejected": {reason: str(part) for reason, part in outcomes.rejected.items()},
        "released": {str(by // _MICROSECOND): str(it) for by, it in outcomes.released.items()},
        "extended": {str(by // _MICROSECOND): str(it) for by, it in outcomes.extended.items()},
    }
    if not any(told.values()):
        return ""
    whose = {"lease": str(lease), "deliveries": deliveries}
    return json.dumps(whose | told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def decode(text: str | None, lease: UUID, deliveries: int) -> Settlement:
    """Read what `encode` writes; no outcomes, if they are of another lease, or another delivery.

    So whatever hands a slot out anew, or empties it, drops them.

    Raises:
        InvariantError: The text is not ours.
    """
    if not text:
        return Settlement()
    try:
        told: dict[str, Any] = json.loads(text)
        if (told["lease"], told["deliveries"]) != (str(lease), deliveries):
            return Settlement()
        return Settlement(
            rejected={reason: Ranges.parse(part) for reason, part in told["rejected"].items()},
            released=_by_span(told["released"]),
            extended=_by_span(told["extended"]),
        )
    except OF_DECODING as error:
        raise InvariantError(f"outcomes of lease {lease} can't be read: {error}") from error


def union(every: Iterable[Ranges]) -> Ranges:
    """All of them together."""
    return Ranges.of(*(part for each in every for part in each))


def _deal(left: Ranges, wanted: Mapping[_Key, Ranges]) -> tuple[dict[_Key, Ranges], Ranges]:
    dealt: dict[_Key, Ranges] = {}
    for key, ranges in sorted(wanted.items()):
        if found := left & ranges:
            dealt[key] = found
            left -= found
    return dealt, left


def _merge(
    before: Mapping[_Key, Ranges], later: Mapping[_Key, Ranges], gone: Ranges
) -> dict[_Key, Ranges]:
    merged: dict[_Key, Ranges] = {key: ranges - gone for key, ranges in before.items()}
    for key, ranges in later.items():
        merged[key] = union([merged.get(key, _NOTHING), ranges])
    return {key: ranges for key, ranges in merged.items() if ranges}


def _by_span(told: Mapping[str, str]) -> dict[timedelta, Ranges]:
    return {int(by) * _MICROSECOND: Ranges.parse(part) for by, part in told.items()}
