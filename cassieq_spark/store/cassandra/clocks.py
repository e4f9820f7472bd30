"""The clocks of Cassandra's nodes, as far as this process has seen them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import NamedTuple

#: A clock that was seen longer ago than this may have been set since.
REMEMBERED = timedelta(minutes=1)


class _Seen(NamedTuple):
    """How far a clock is ahead of our monotonic clock, and when that was seen; in seconds."""

    ahead: float
    at: float


class NodeClocks:
    """Compares the clock of a node with those of the other nodes, and with that of this process.

    Each of them may be wrong. Safe to call from several threads.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def see(self, address: str, clock: datetime) -> None:
        """Remember what a node's clock says now."""
        at = time.monotonic()
        self._seen[address] = _Seen(clock.timestamp() - at, at)

    def knows_another(self, address: str) -> bool:
        """Whether the clock of any other node was seen lately."""
        return bool(self._others(address))

    def ahead(self, address: str) -> timedelta:
        """How far a node's clock, which was seen, is ahead of the earliest of all clocks."""
        ours = time.time() - time.monotonic()
        earliest = min([ours, *self._others(address)])
        return timedelta(seconds=self._seen[address].ahead - earliest)

    def _others(self, address: str) -> list[float]:
        since = time.monotonic() - REMEMBERED.total_seconds()
        seen = list(self._seen.items())
        return [each.ahead for other, each in seen if other != address and each.at >= since]
