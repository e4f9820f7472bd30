"""The settings of a queue and of its groups, in whole milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Terms:
    """What all readers of a queue agree on.

    Attributes:
        lease: How long a lease lasts, unless it is extended.
        max_deliveries: After so many a message is dead; 0 for never.
        strict: Nothing is offered before all below it is settled.
        max_in_flight: Most messages that the readers of a group hold together.
        backoff: How long messages that failed once are left alone; doubles each time.
        expire_after: What was not consumed so long after it became visible is thrown away.
        keep_settled: What is settled is kept until so long after it became visible.
    """

    lease: timedelta
    max_deliveries: int = 0
    strict: bool = False
    max_in_flight: int | None = None
    backoff: timedelta = timedelta(0)
    expire_after: timedelta | None = None
    keep_settled: timedelta | None = None

    def has_expired(self, age: timedelta) -> bool:
        """Whether what has been visible for so long may be thrown away."""
        return self.expire_after is not None and age > self.expire_after

    def is_dead(self, deliveries: int) -> bool:
        """Whether what was handed out so often must not be handed out again."""
        return 0 < self.max_deliveries <= deliveries

    def pause(self, deliveries: int) -> int:
        """For how many ms a message that was handed out so often is left alone."""
        doubled = self.backoff // timedelta(milliseconds=1)
        for _ in range(deliveries - 1):
            doubled *= 2
        return min(doubled, 3_600_000) if deliveries else 0

    def most(self, delivery: int) -> int | None:
        """Most messages that may be handed out together then, if it is not the reader's choice."""
        near_the_end = self.max_deliveries and delivery >= max(2, self.max_deliveries - 1)
        return 1 if near_the_end else None
