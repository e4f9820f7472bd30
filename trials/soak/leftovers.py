"""What a soak leaves in the tables and on disk, and whether that is correct."""

from __future__ import annotations

import logging
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self
from uuid import UUID

from cassieq_spark import Client
from cassieq_spark.errors import QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead, block_of, head_of
from cassieq_spark.model import LedgerBlock, QueueId, Range, block_time
from cassieq_spark.queues import QueueRecord, Status, list_queues, list_records
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair import expire
from cassieq_spark.repair.actions import EXPIRED
from cassieq_spark.store.protocol import Row, Store, Value
from cassieq_spark.store.tables import Table
from trials.environment import Report
from trials.soak.actors import MAX_DELIVERIES, QUEUE_KINDS, World, alarmed
from trials.soak.checker import DeadLetter, Owed, judge

#: Rows of a group that remain after its version is deleted.
_REMAINS = {"head", "registration"}
_LEDGER_KINDS = {"head", "block", "sink", "once", "group"}


@dataclass(frozen=True, slots=True)
class Tables:
    """All rows of the tables, after everything was drained and repaired."""

    queues: Sequence[QueueRecord]
    ledger: Sequence[Row]
    group_state: Sequence[Row]
    chunks: Sequence[Row]


def find_leftovers(tables: Tables, *, now: datetime, write_timeout: timedelta) -> list[str]:
    """Find rows that belong to nothing, are settled and not deleted, or lack others.

    Args:
        tables: The tables, read while nobody wrote.
        now: The time of reading.
        write_timeout: Younger blocks may still be published.
    """
    records = {record.name: record for record in tables.queues}
    leftovers = [
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
        leftovers += _leftovers_of_ledger(
            queue_id, rows, _known(records, queue_id), queue_id in living
        )
    leftovers += [f"queue {queue_id} has no ledger" for queue_id in living - set(ledgers)]
    groups = {
        (queue_id, row["name"])
        for queue_id in living
        for row in ledgers[queue_id]
        if row["kind"] == "group"
    }
    for row in tables.group_state:
        leftovers += _leftovers_of_group_state(row, records, living, groups)
    oldest = now - write_timeout
    leftovers += _leftovers_of_chunks(
        tables.chunks, {queue_id: ledgers[queue_id] for queue_id in living}, oldest
    )
    return leftovers


def _leftovers_of_ledger(
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
    """I1; and if all groups have settled everything, nothing is left."""
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


def _leftovers_of_group_state(
    row: Row,
    records: Mapping[str, QueueRecord],
    living: set[QueueId],
    groups: AbstractSet[tuple[QueueId, Value]],
) -> Iterator[str]:
    queue_id = _queue_id(row)
    where = f"group_state {queue_id}/{row['consumer_group']}"
    if not _known(records, queue_id):
        yield f"{where} is of no queue"
    elif queue_id not in living:
        if row["kind"] not in _REMAINS:
            yield f"{where} is over, and has a row of kind {row['kind']}"
    elif (queue_id, row["consumer_group"]) not in groups:
        yield f"{where} is of no group"
    elif row["kind"] == "waiting" or row["ranges"]:
        yield f"{where} was drained, and still has {row['kind']} {row['ranges']}"


def _leftovers_of_chunks(
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


#: Growth in the second half of the run that still counts as flat.
_DISK_NOISE = 0.2
_DISK_NOISE_BYTES = 4 << 20
_FEWEST_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """The bytes of the tables on disk, and the bytes of published messages among them."""

    seconds: float
    disk_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Trend:
    """Disk use in the second half of a run; growth by linear regression."""

    disk_growth: int
    live_growth: int
    allowed: int
    mean: int

    @property
    def is_flat(self) -> bool:
        """Whether the disk grew by no more than the messages, and some noise."""
        return self.disk_growth <= self.allowed


def trend_of(samples: Sequence[Sample]) -> Trend | None:
    """The trend of the second half; None if there are too few samples."""
    if not samples:
        return None
    middle = (samples[0].seconds + samples[-1].seconds) / 2
    half = [sample for sample in samples if sample.seconds >= middle]
    if len(half) < _FEWEST_SAMPLES:
        return None
    disk = _growth(half, [sample.disk_bytes for sample in half])
    live = _growth(half, [sample.live_bytes for sample in half])
    mean = int(statistics.fmean(sample.disk_bytes for sample in half))
    noise = _DISK_NOISE_BYTES + int(_DISK_NOISE * mean)
    return Trend(disk, live, max(0, live) + noise, mean)


def _growth(samples: Sequence[Sample], values: Sequence[int]) -> int:
    seconds = [sample.seconds for sample in samples]
    line = statistics.linear_regression(seconds, values)
    return int(line.slope * (seconds[-1] - seconds[0]))


_MOST_DEAD_LETTERS = 1_000_000
#: Far more than a group has leases at once, far fewer than it makes in a minute.
_MOST_SLOTS = 300


class ExpiryCount(logging.Handler):
    """Counts expired messages in the log of repair runs, in a ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()
        self._logger = logging.getLogger(expire.__name__)

    def emit(self, record: logging.LogRecord) -> None:
        told = record.__dict__
        if told.get("action") == EXPIRED:
            self.counts[told["queue"], told["group"]] += told["count"]

    def __enter__(self) -> Self:
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def sample(store: Store, folder: Path, seconds: float) -> Sample:
    """Measure the files of the tables, and the published blocks."""
    disk = 0
    for file in folder.glob("*/storage/data/cassieq/*/**/*"):
        with suppress(FileNotFoundError):  # compacted meanwhile
            disk += file.stat().st_size if file.is_file() else 0
    live = 0
    for queue in list_queues(store):
        with suppress(QueueStateError):
            live += sum(block.size for block in Ledger(store, queue.queue_id).stream_blocks())
    return Sample(round(seconds, 1), disk, live)


def report_of(
    world: World,
    samples: Sequence[Sample],
    expired: Counter[tuple[str, str]],
    *,
    drained: bool,
) -> Report:
    """Judge the records, the remains in the tables, and disk use."""
    store, now = world.store, datetime.now(UTC)
    owed: list[Owed] = []
    letters: list[DeadLetter] = []
    with alarmed(world):
        owed = debts(store, expired)
        letters = read_dead_letters(store)
    verdict = judge(world.journal, owed, letters, max_deliveries=MAX_DELIVERIES)
    tables = Tables(
        list_records(store),
        list(store.scan(Table.LEDGER)),
        list(store.scan(Table.GROUP_STATE)),
        list(store.scan(Table.CHUNK)),
    )
    for leftover in find_leftovers(tables, now=now, write_timeout=timedelta(seconds=1)):
        verdict.accuse("leftover", leftover)
    slots = Counter(
        f"{row['queue_id']}/{row['consumer_group']}"
        for row in tables.group_state
        if row["kind"] == "slot"
    )
    verdict.figures["most_slots"] = max(slots.values(), default=0)
    for group, count in slots.items():
        if count > _MOST_SLOTS:
            verdict.accuse("slots", f"{group} has {count}, and nobody held so many leases at once")
    trend = trend_of(samples)
    if trend is not None and not trend.is_flat:
        verdict.accuse("disk", trend)
    return verdict.to_json() | {
        "drained": drained,
        "rows_left": {
            "queue": len(tables.queues),
            "ledger": len(tables.ledger),
            "group_state": len(tables.group_state),
            "chunk": len(tables.chunks),
        },
        "disk": None if trend is None else asdict(trend) | {"flat": trend.is_flat},
        "disk_samples": [asdict(each) for each in samples],
        "events": dict(sorted(world.events.items())),
    }


def debts(store: Store, expired: Counter[tuple[str, str]]) -> list[Owed]:
    """All groups of all active queues, with what they should have got."""
    found = []
    for queue in list_queues(store):
        queue_id = queue.queue_id
        starts = {group.name: group.starts_at for group in Ledger(store, queue_id).read_groups()}
        stats = queue_stats(Ledger(store, queue_id))
        found += [
            Owed(
                queue_id,
                group.group,
                starts[group.group],
                stats.next,
                group.depth,
                expired[queue_id, group.group],
            )
            for group in stats.groups
        ]
    return found


def read_dead_letters(store: Store) -> list[DeadLetter]:
    client = Client.from_store(store)
    letters = []
    for kind in QUEUE_KINDS:
        for each in client.peek(f"{kind.name}.dead", max=_MOST_DEAD_LETTERS):
            headers = each.headers
            letters.append(
                DeadLetter(
                    int(each.value.partition(b":")[0]),
                    str(headers["cassieq.origin-queue"]),
                    str(headers["cassieq.origin-group"]),
                    int(headers["cassieq.origin-monoton"] or -1),
                )
            )
    return letters
