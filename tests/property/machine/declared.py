"""What readers have declared: the only reasons for which a message may leave its place."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

from tests.property.machine.rows import Outcome

#: A message under a lease, as a receipt names it.
Named = tuple[UUID, int]
#: The same, for the how many-th time; None: a client's, whose lease is handed out once.
Recorded = tuple[UUID, int, int | None]
#: A lease as one process holds it: its token, and how often its messages were handed out.
Delivered = tuple[UUID, int]


def beyond(lease: UUID) -> UUID:
    """Names what of a lease is held beyond its batch, by itself; in `Declared` only."""
    return UUID(int=lease.int ^ 1 << 64)


@dataclass(slots=True)
class Declared:
    """Grows only: a request that is under way may be carried out at any time.

    Attributes:
        finished: Leases whose batch is done.
        retaken: Leases that are taken up again.
        beaten: Leases that are held on, each by a process to which it was handed out.
        given_back: Leases that are given back, likewise.
        acked: Messages that are done.
        rejected: Messages that are dead, by reason.
        released: Messages to be offered again: since when it is wanted, and after how long, in ms.
        extended: Messages to be held on, for how many ms.
        published: Leases whose batch a sink has published.
        told: Leases that a replay was told that it has: each was told to one process only.
        by_receipts: Leases of clients, which settle message by message.
        skipped: Messages older than so many ms need not be offered.
        recorded: What is to become of messages once their batch is acked, by receipts of one
            delivery; nothing, if that is to be taken back.
    """

    finished: set[UUID] = field(default_factory=set)
    retaken: set[UUID] = field(default_factory=set)
    beaten: set[Delivered] = field(default_factory=set)
    given_back: set[Delivered] = field(default_factory=set)
    acked: set[Named] = field(default_factory=set)
    rejected: defaultdict[Named, set[str]] = field(default_factory=lambda: defaultdict(set))
    released: defaultdict[Named, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    extended: defaultdict[Named, set[int]] = field(default_factory=lambda: defaultdict(set))
    published: set[UUID] = field(default_factory=set)
    told: set[Delivered] = field(default_factory=set)
    by_receipts: set[UUID] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)
    recorded: defaultdict[Recorded, set[Outcome | None]] = field(
        default_factory=lambda: defaultdict(set)
    )
