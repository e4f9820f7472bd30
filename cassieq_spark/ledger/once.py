"""Names: under a name something is published once, and the ledger remembers it for a limited time.

Each idempotency key, dead-lettering and redrive leaves a row in the ledger to which it publishes.
These rows expire, and are only read by their whole key. So there may be any number of them, and no
scan crosses them or their tombstones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import partial
from typing import Any

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.decide import Publication
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import PendingBlock, block_time
from cassieq_spark.store.decoded import decoded, demand
from cassieq_spark.store.protocol import (
    CLOCKS_APART,
    Insert,
    Row,
    RowKey,
    ServerNow,
    Slice,
    Update,
    Value,
    When,
)

#: Programs repeat a put within minutes, or after an outage within hours.
KEY_LIFETIME = timedelta(days=1)
#: If a dead-lettering breaks off, the next reader or repair run completes it.
DEAD_LETTER_LIFETIME = timedelta(days=30)
#: If a redrive breaks off, only the next redrive or purge of dead letters takes it up.
REDRIVE_LIFETIME = timedelta(days=365)

#: Cassandra accepts no time to live above 20 years.
_MOST_BEHIND = timedelta(days=3650)
_SECOND = timedelta(seconds=1)


class Mark(IntEnum):
    """The use of a name, as the ledger remembers it."""

    PUBLISHED = 0
    #: Nothing was published under the name, nor ever will be.
    CLOSED = 1


@dataclass(frozen=True, slots=True)
class Once:
    """A name under which something is published once.

    Attributes:
        name: The name; unique within the queue.
        lifetime: How long the ledger remembers the name, in whole seconds.
        begun_at: When this attempt began, by this machine's clock: before it read the name, and
            before it wrote anything.
        fingerprint: The fingerprint of all that is published under the name, in all partitions;
            None if the content is always the same.
    """

    name: str
    lifetime: timedelta
    begun_at: datetime = field(default_factory=partial(datetime.now, UTC), compare=False)
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """A used name, as the ledger remembers it.

    Attributes:
        mark: What became of the name.
        fingerprint: The fingerprint of what was published under the name; None if unknown, as for
            a put that an earlier release has published.
    """

    mark: Mark
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class TooLate:
    """The attempt took so long that the name may have been used and forgotten meanwhile."""

    begun_at: datetime
    most: timedelta


def once_of_key(idempotency_key: str) -> Once:
    """The name of a put with an idempotency key."""
    return Once(f"key:{idempotency_key}", KEY_LIFETIME)


def read_used(ledger: Ledger, once: Once) -> Used | None:
    """Read what the ledger remembers of a name; None if it remembers nothing. One read."""
    rows = ledger.read(Slice(row=once_key(once.name))).rows
    return used_of(rows[0]) if rows else None


def read_mark(ledger: Ledger, once: Once) -> Mark | None:
    """Read how a name is marked; None if it is not marked. One read."""
    used = read_used(ledger, once)
    return used.mark if used else None


@decoded
def used_of(row: Row) -> Used:
    """Decode the row of a name."""
    values: Any = row
    demand(row, "batch_id")
    return Used(Mark(values["batch_id"]), values["fingerprint"])


def mark(once: Once, mark: Mark, *, longer: timedelta = timedelta(0)) -> Insert:
    """Mark a name, unless it is marked already.

    Args:
        longer: How much longer than its lifetime the mark lives by the server's clock.
    """
    values: dict[str, Value] = {"batch_id": int(mark)}
    if once.fingerprint is not None:
        values["fingerprint"] = once.fingerprint
    return Insert(once_key(once.name), values, if_absent=True, ttl=once.lifetime + longer)


def claim(
    publication: Publication,
    once: Once,
    pending: Sequence[PendingBlock],
    now: datetime,
    fence: datetime,
) -> Publication | TooLate:
    """Add the mark of its name to a publication, unless the attempt is too old.

    I4, I9: suppose that another attempt has published under the name meanwhile. If it published
    after head and name were read, it has moved `next`, and this publication is refused. If it
    published before, its mark was there, or had expired. A mark expires a whole lifetime after it
    was made, and an attempt that began half a lifetime ago is refused here; the other half is for
    clocks that differ. This publication may be applied however late: `next` must not have moved.

    A mark expires by the clock of the server that coordinates the LWT. If that clock is behind,
    the mark lives longer by the difference. The LWT is conditioned on that clock, because another
    server than the one that was read may coordinate it, and because the clock may have been set
    back since the server was started.

    Args:
        once: The name, which was not marked at ``now``.
        pending: The blocks of the publication.
        now: The server's clock when head and name were read.
        fence: The fence of the head.
    """
    began = [once.begun_at, *(block_time(each.block) for each in pending)]
    if now - min(began) > once.lifetime / 2:
        return TooLate(min(began), once.lifetime / 2)
    behind = max(began) - now
    longer = timedelta(0)
    if behind > CLOCKS_APART:
        longer = timedelta(seconds=-(-min(behind, _MOST_BEHIND) // _SECOND))
    no_further = When("fence", "<", ServerNow(fence - (now - CLOCKS_APART), wall=True))
    head, *others = publication.ops
    if not isinstance(head, Update):
        raise InvariantError(f"a publication begins with {head}, not with the head")
    head = replace(head, when=(*head.when, no_further))
    marked = mark(once, Mark.PUBLISHED, longer=longer)
    return replace(publication, ops=(head, *others, marked))


def once_key(name: str) -> RowKey:
    """The key of the row of a name."""
    return ("once", 0, name)
