"""What publishing a batch comes to, given what the ledger shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cassieq_spark.ledger.state import HEAD, LedgerHead, block_key, sink_key
from cassieq_spark.model import Draft, Range, SinkBatch, block_time
from cassieq_spark.store.protocol import Insert, Op, ServerNow, Update, Values, When


@dataclass(frozen=True, slots=True)
class Publication:
    """Make the blocks visible by these operations; their messages get these monotons."""

    monotons: Range
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class AlreadyPublished:
    """The sink has published this batch, or a later one."""

    last_batch: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The write took too long: its oldest block may have been swept already."""

    oldest: datetime
    fence: datetime


def decide_publish(
    head: LedgerHead,
    drafts: Sequence[Draft],
    *,
    batch: SinkBatch | None,
    last: int | None,
) -> Publication | AlreadyPublished | Fenced:
    """Decide how to give every draft its monotons, all at once.

    Args:
        head: The ledger's head, read after the drafts were written.
        drafts: In the order that their messages are to have; at least one, none empty.
        batch: Sink and batch id; None for a write that nobody will repeat.
        last: What the sink's row shows; None if there is none.
    """
    if batch is not None and last is not None and last >= batch.batch_id:
        return AlreadyPublished(last)
    oldest = min(block_time(draft.block) for draft in drafts)
    if oldest <= head.fence:
        return Fenced(oldest, head.fence)
    blocks = _block_rows(head.next, drafts)
    stop = head.next + sum(draft.count for draft in drafts)
    advance = Update(
        HEAD, {"next": stop}, when=(When("next", "=", head.next), When("fence", "<", oldest))
    )
    claim = [] if batch is None else [_claim(batch, last)]
    return Publication(Range(head.next, stop), (advance, *claim, *blocks))


def _claim(batch: SinkBatch, last: int | None) -> Op:
    values: Values = {"batch_id": batch.batch_id}
    if last is None:
        return Insert(sink_key(batch.sink), values, if_absent=True)
    return Update(sink_key(batch.sink), values, when=(When("batch_id", "=", last),))


def _block_rows(first: int, drafts: Sequence[Draft]) -> list[Op]:
    rows: list[Op] = []
    for draft in drafts:
        stop = first + draft.count
        values: Values = {"stop": stop, "block": draft.block, "published_at": ServerNow()}
        rows.append(Insert(block_key(first), values))
        first = stop
    return rows
