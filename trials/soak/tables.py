"""What a soak may leave in the tables: nothing that belongs to nobody. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.ledger.read import block_of
from cassieq_spark.ledger.state import LedgerHead, head_of
from cassieq_spark.model import LedgerBlock, QueueId, Range, block_time
from cassieq_spark.queues import QueueRecord, Status
from cassieq_spark.store.protocol import Row

#: Rows that a group keeps of a version that is over.
_REMAINS = {"head", "registration"}
_LEDGER_KINDS = {"head", "block", "sink", "once", "group"}


@dataclass(frozen=True, slots=True)
class Tables:
    """All rows of all tables, after everything was drained and repaired."""

    queues: Sequence[QueueRecord]
    ledger: Sequence[Row]
    delivery: Sequence[Row]
    chunks: Sequence[Row]


def find_strays(tables: Tables, *, now: datetime, write_timeout: timedelta) -> list[str]:
    """Find what belongs to nobody, is settled and still there, or is not all there.

    Args:
        tables: Read while nobody wrote.
        now: When.
        write_timeout: Younger blocks may still be published.
    """
    records = {record.name: record for record in tables.queues}
    strays = [
        f"queue {name} is {record.status}, and all was repaired"
        for name, record in records.items()
        if record.status not in (Status.ACTIVE, Status.DELETED) or record.to_retire
    ]
    living = {
        record.definition.queue_id for record in records.values() if record.status is Status.ACTIVE
    }
    ledgers: defaultdict[QueueId, list[Row]] = defaultdict(list)
    for row in tables.ledger:
        ledgers[_queue_id(row)].append(row)
    for queue_id, rows in ledgers.items():
        strays += _strays_of_ledger(queue_id, rows, _known(records, queue_id), queue_id in living)
    strays += [f"queue {queue_id} has no ledger" for queue_id in living - set(ledgers)]
    groups = {
        (queue_id, row["name"])
        for queue_id in living
        for row in ledgers[queue_id]
        if row["kind"] == "group"
    }
    for row in tables.delivery:
        strays += _strays_of_delivery(row, records, living, groups)
    oldest = now - write_timeout
    strays += _strays_of_chunks(
        tables.chunks, {queue_id: ledgers[queue_id] for queue_id in living}, oldest
    )
    return strays


def _strays_of_ledger(
    queue_id: QueueId, rows: Sequence[Row], is_known: bool, is_living: bool
) -> Iterator[str]:
    kinds = Counter(str(row["kind"]) for row in rows)
    if not is_known:
        yield f"ledger {queue_id} is of no queue"
    elif not is_living:
        head = _head(rows)
        if head is None or not head.is_closed or len(rows) > 1:
            yield f"ledger {queue_id} is over, and more than a closed head is left: {dict(kinds)}"
    else:
        for kind in set(kinds) - _LEDGER_KINDS:
            yield f"ledger {queue_id} has {kinds[kind]} row(s) of kind {kind}"
        yield from _holes_of_ledger(queue_id, rows)


def _holes_of_ledger(queue_id: QueueId, rows: Sequence[Row]) -> Iterator[str]:
    """I1; and with groups that are owed nothing, nothing is left."""
    head = _head(rows)
    if head is None:
        yield f"ledger {queue_id} has no head"
        return
    blocks = _blocks(rows)
    if any(row["kind"] == "group" for row in rows):
        if head.finalised != head.next:
            yield f"ledger {queue_id} keeps {Range(head.finalised, head.next)}, which is settled"
        yield from (
            f"ledger {queue_id} keeps {block.monotons}, which is settled" for block in blocks
        )
        return
    at = head.finalised
    for block in blocks:
        if block.monotons.start != at:
            yield f"ledger {queue_id} has no row for [{at}, {block.monotons.start})"
        at = block.monotons.stop
    if at != head.next:
        yield f"ledger {queue_id} has no row for [{at}, {head.next})"


def _strays_of_delivery(
    row: Row,
    records: Mapping[str, QueueRecord],
    living: set[QueueId],
    groups: set[tuple[QueueId, object]],
) -> Iterator[str]:
    queue_id = _queue_id(row)
    where = f"delivery {queue_id}/{row['consumer_group']}"
    if not _known(records, queue_id):
        yield f"{where} is of no queue"
    elif queue_id not in living:
        if row["kind"] not in _REMAINS:
            yield f"{where} is over, and has a row of kind {row['kind']}"
    elif (queue_id, row["consumer_group"]) not in groups:
        yield f"{where} is of no group"
    elif row["kind"] == "waiting" or row["ranges"]:
        yield f"{where} was drained, and still has {row['kind']} {row['ranges']}"


def _strays_of_chunks(
    rows: Iterable[Row], living: Mapping[QueueId, Sequence[Row]], oldest: datetime
) -> Iterator[str]:
    stored: Counter[tuple[QueueId, UUID]] = Counter()
    for row in rows:
        values: Mapping[str, object] = row
        start, stop, block = values["start"], values["stop"], values["block"]
        if isinstance(start, int) and isinstance(stop, int) and isinstance(block, UUID):
            stored[_queue_id(row), block] += stop - start
    published = {
        (queue_id, block.block): block
        for queue_id, ledger in living.items()
        for block in _blocks(ledger)
    }
    for (queue_id, block), count in stored.items():
        if (queue_id, block) not in published and block_time(block) <= oldest:
            yield f"{count} message(s) of block {block} of {queue_id} are in no ledger"
    for key, block in published.items():
        if stored[key] != len(block.monotons):
            yield f"{key[0]}: {stored[key]} message(s) are stored of {block}"


def _known(records: Mapping[str, QueueRecord], queue_id: QueueId) -> bool:
    name, _, version = queue_id.rpartition("@")
    return name in records and int(version) <= records[name].version


def _queue_id(row: Row) -> QueueId:
    return QueueId(str(row["queue_id"]))


def _head(rows: Sequence[Row]) -> LedgerHead | None:
    return next((head_of(row) for row in rows if row["kind"] == "head"), None)


def _blocks(rows: Sequence[Row]) -> list[LedgerBlock]:
    blocks = (block_of(row) for row in rows if row["kind"] == "block")
    return sorted(blocks, key=lambda block: block.monotons.start)
