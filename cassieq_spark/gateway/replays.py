"""Signed requests that were seen: none is carried out a second time. For one loop."""

from __future__ import annotations

from datetime import datetime, timedelta

from cassieq_spark.gateway.refusals import too_busy

#: Signatures that are remembered; more than a gateway serves while they are good.
_MOST = 1_000_000


class Replays:
    """Remembers signatures for as long as their time lets them be good, and no longer.

    Of this process only: a request that was sent to one gateway is new to another one.

    Args:
        skew: How far the time of a signature may be from ours.
        most: Signatures to remember.
    """

    def __init__(self, skew: timedelta, most: int = _MOST) -> None:
        self._skew = skew.total_seconds()
        self._most = most
        # By the second at which they were made: so what is over is dropped as a whole.
        self._seen: dict[int, set[str]] = {}
        self._count = 0

    def is_new(self, signature: str, at: datetime, now: datetime) -> bool:
        """Whether a signature was not seen before; from now on it was.

        Args:
            signature: A valid one.
            at: When it was made, by the clock of who made it; recent.
            now: By our clock.

        Raises:
            RefusedError: 429; there is no room to remember it.
        """
        second = int(at.timestamp())
        seen = self._seen.get(second)
        if seen is None:
            self._forget(now.timestamp() - self._skew)
            seen = self._seen[second] = set()
        if signature in seen:
            return False
        if self._count >= self._most:
            raise too_busy(f"{self._count} signed requests came within a short time")
        seen.add(signature)
        self._count += 1
        return True

    def _forget(self, before: float) -> None:
        for second in [each for each in self._seen if each + 1 < before]:
            self._count -= len(self._seen.pop(second))
