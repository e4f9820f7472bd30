"""What a reader asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from cassieq_spark.groups.acks import Acks


@dataclass(frozen=True, slots=True)
class Wish:
    """What a reader wants.

    Attributes:
        held: Token of the batch that it has finished; its slots are acked.
        held_as: How often the messages of each slot of ``held`` were handed out when this process
            got them; if it is more by now, another process has taken the batch up, and nothing is
            acked. None: another process got them, and this one goes on after it.
        lease: Fresh token for what it gets.
        length: How long the lease lasts.
        limit: Most messages to get; None for all there are.
        stop: Monoton from which on nothing is offered: the ledger's ``next``, or a target below.
        prefer_fresh: Whether fresh messages go before those that are due again. Readers alternate,
            so that neither kind starves.
        max_deliveries: After so many, messages are not handed out any more; 0 for no limit.
        delayed_stop: No message from here on is delayed; see `LedgerHead`.
        least: With fewer messages than that to be had, get none.
        max_bytes: How many bytes of fresh messages to get, about; None for no limit.
        skip_older: Fresh messages that have been visible for longer count as settled; None: none.
        max_in_flight: Most messages that the group's readers hold together; None for no limit.
        retry_backoff: How long messages that failed once are left alone; see `isolation.backoff`.
        strict: Nothing is offered before all earlier messages are settled.
        by_receipts: Whether what it gets is settled one by one only, as clients do, and never as
            the batch of ``held``: the slot is free as soon as all of it is settled.
        acks: Messages that are done, of other leases than ``held``.
    """

    held: UUID | None
    lease: UUID
    length: timedelta
    limit: int | None
    stop: int
    prefer_fresh: bool = False
    max_deliveries: int = 0
    delayed_stop: int = 0
    least: int = 0
    max_bytes: int | None = None
    skip_older: timedelta | None = None
    max_in_flight: int | None = None
    retry_backoff: timedelta = timedelta(0)
    strict: bool = False
    held_as: Mapping[int, int] | None = None
    by_receipts: bool = False
    acks: Acks = field(default_factory=dict)

    @property
    def is_exclusive(self) -> bool:
        """Whether what it may get depends on all that others hold."""
        return self.strict or self.max_in_flight is not None

    def needs_blocks(self, pointer: int) -> bool:
        """Whether what is offered from the pointer on depends on the blocks there."""
        depends = pointer < self.delayed_stop or self.max_bytes or self.skip_older is not None
        return bool(depends) and pointer < self.stop
