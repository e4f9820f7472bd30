"""Leases of a client that are wholly settled, so that their slots can be filled again."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from cassieq_spark.client.settlement import LeaseKey
from cassieq_spark.model import QueueId, Ranges


@dataclass(slots=True)
class _Open:
    """A lease: what is not settled of it, and when it has run out at the latest."""

    left: set[int]
    until: float


@dataclass(frozen=True, slots=True)
class Finished:
    """What one client has leased, and whether it is settled.

    The slot of a lease whose messages were settled by receipts stays under its token until the
    lease runs out, as a query may still have to see that it holds it. A client that knows that all
    is settled has no use for it any more; without this, a group would come to have a slot for
    each `receive` of the length of a lease, and everybody reads all of them.

    Safe to use from many threads: no step needs more than the interpreter's own lock.
    """

    _open: dict[LeaseKey, _Open] = field(default_factory=dict)
    _done: defaultdict[tuple[QueueId, str], list[UUID]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def lease(self, key: LeaseKey, monotons: Ranges, seconds: float) -> None:
        """Remember what was received, for as long as it is held; forget what has run out."""
        now = time.monotonic()
        for other, lease in list(self._open.items()):
            if lease.until > now:
                break
            self._open.pop(other, None)
        self._open[key] = _Open(_each(monotons), now + seconds)

    def settle(self, leases: Mapping[LeaseKey, Ranges]) -> None:
        """Note that the queue has confirmed that these leases do not hold these messages."""
        for key, monotons in leases.items():
            lease = self._open.get(key)
            if lease is None:
                continue
            lease.left.difference_update(_each(monotons))
            if not lease.left and self._open.pop(key, None) is not None:
                self._done[key.queue_id, key.group].append(key.lease)

    def take(self, queue_id: QueueId, group: str) -> UUID | None:
        """The token of a lease that is wholly settled, once; None if there is none."""
        done = self._done[queue_id, group]
        try:
            return done.pop()
        except IndexError:
            return None

    def give_back(self, queue_id: QueueId, group: str, lease: UUID) -> None:
        """Undo `take`: there was nothing to put into its slot."""
        self._done[queue_id, group].append(lease)


def _each(monotons: Ranges) -> set[int]:
    return {each for part in monotons for each in range(part.start, part.stop)}
