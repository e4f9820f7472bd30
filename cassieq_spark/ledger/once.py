"""What is published once under a name, and remembered for a time only.

Idempotency keys, burials and redrives leave a row each in the ledger that they publish to. Nobody
reads these rows but by their whole key, and nobody deletes them: they vanish by themselves. So
there may be any number of them, and what is left of them is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from cassieq_spark.errors import NotFoundError
from cassieq_spark.ledger.decide import Publication
from cassieq_spark.ledger.state import HEAD, LedgerHead, head_of, last_batch_of
from cassieq_spark.model import PendingBlock, QueueId, block_time
from cassieq_spark.store.protocol import Insert, RowKey, Slice, Store, partition_of_ledger

#: Who repeats a put does so within minutes, or after an outage within hours.
KEY_LIFETIME = timedelta(days=1)
#: A burial that broke off is taken up by any reader or sweep, within minutes where one runs.
BURIAL_LIFETIME = timedelta(days=30)
#: A redrive that broke off is only taken up by the next one, or a purge of dead letters.
REDRIVE_LIFETIME = timedelta(days=365)


class Mark(IntEnum):
    """What became of a name."""

    PUBLISHED = 0
    #: Nothing is published under it, nor will be.
    CLOSED = 1


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Once:
    """A name under which something is published once.

    Attributes:
        name: It.
        lifetime: How long it is remembered, in whole seconds.
        begun_at: When this attempt began, by this machine's clock: before it looked for the name,
            and before it wrote anything.
    """

    name: str
    lifetime: timedelta
    begun_at: datetime = field(default_factory=_now, compare=False)


@dataclass(frozen=True, slots=True)
class TooLate:
    """The attempt has taken so long that the name may have been used and forgotten meanwhile."""

    begun_at: datetime
    most: timedelta


def once_of_key(idempotency_key: str) -> Once:
    """The name of what a program puts under an idempotency key."""
    return Once(f"key:{idempotency_key}", KEY_LIFETIME)


def read_mark(store: Store, queue_id: QueueId, once: Once) -> Mark | None:
    """Read what became of a name; None if nothing did, or it is forgotten. One read."""
    which = Slice(row=once_key(once.name))
    rows = store.read_rows(partition_of_ledger(queue_id), which).rows
    return Mark(last_batch_of(rows[0])) if rows else None


def read_head_and_mark(
    store: Store, queue_id: QueueId, once: Once
) -> tuple[LedgerHead, Mark | None, datetime, datetime]:
    """Read the head, what became of a name, and the time, all of one moment. One read.

    The time is told by the server's clock, and then as `Rows.sure_now` has it.

    Raises:
        QueueStateError: There is no such queue.
    """
    which = Slice(rows=(HEAD, once_key(once.name)))
    found = store.read_rows(partition_of_ledger(queue_id), which)
    rows = {str(row["kind"]): row for row in found.rows}
    if found.now is None or found.sure_now is None or "head" not in rows:
        raise NotFoundError(f"there is no queue {queue_id}; create it: cassieq queue create")
    marked = Mark(last_batch_of(rows["once"])) if "once" in rows else None
    return head_of(rows["head"]), marked, found.now, found.sure_now


def mark(once: Once, mark: Mark) -> Insert:
    """Mark a name, unless it is marked."""
    values = {"batch_id": int(mark)}
    return Insert(once_key(once.name), values, if_absent=True, ttl=once.lifetime)


def claim(
    publication: Publication, once: Once, pending: Sequence[PendingBlock], now: datetime
) -> Publication | TooLate:
    """Let a publication mark its name, unless it comes too late. Pure.

    I4, I9: who has published under the name meanwhile has either done so after head and name were
    read, at one moment, and so moved `next`; or its mark was there at that moment; or the mark was
    forgotten by then. The latter takes a lifetime since this attempt began, which is refused: with
    half of it to spare, for clocks that differ. However long it is until the publication is
    carried out: that is refused if `next` has moved.

    Args:
        publication: What is to be carried out.
        once: The name; not marked at ``now``.
        pending: What is to be published.
        now: The server's clock when head and name were read.
    """
    begun_at = min(once.begun_at, *(block_time(each.block) for each in pending))
    if now - begun_at > once.lifetime / 2:
        return TooLate(begun_at, once.lifetime / 2)
    return replace(publication, ops=(*publication.ops, mark(once, Mark.PUBLISHED)))


def once_key(name: str) -> RowKey:
    """The row of a name."""
    return ("once", 0, name)
