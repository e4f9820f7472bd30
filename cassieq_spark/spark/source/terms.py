"""How much a reader takes at a time, and of what. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms on which a reader leases; the options of the same names say more.

    Attributes:
        min_messages: Fewest messages of a batch, unless ``max_trigger_delay`` is over.
        max_trigger_delay: Longest time from batch to batch because of ``min_messages``.
        max_bytes: Most bytes of a batch, about; None for no limit.
        max_in_flight: Most messages that the group's readers hold together; None for no limit.
        skip_older_than: Older messages count as settled; None: none do.
        retry_backoff: How long messages that failed are left alone.
    """

    min_messages: int = 0
    max_trigger_delay: timedelta = timedelta(minutes=15)
    max_bytes: int | None = None
    max_in_flight: int | None = None
    skip_older_than: timedelta | None = None
    retry_backoff: timedelta = timedelta(0)
