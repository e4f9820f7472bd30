"""What a soak must come to: judged by what its actors noted, and by what is left in the tables.

Pure. Nothing here asks the code under test what happened: it compares notes, message by message.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from cassieq_spark.ledger.read import block_of
from cassieq_spark.ledger.state import LedgerHead, head_of
from cassieq_spark.model import LedgerBlock, QueueId, block_time
from cassieq_spark.queues import QueueRecord, Status
from cassieq_spark.store.protocol import Row

#: Clocks of the store tell whole milliseconds.
_TOLERANCE = timedelta(milliseconds=2)
#: What of each kind of trouble is told one by one.
_TOLD = 20
#: Rows that a group keeps of a version that is over.
_REMAINS = {"head", "registration"}
_LEDGER_KINDS = {"head", "block", "sink", "group"}
#: A disk that uses so much more at the end of the second half than at its start is still flat.
_DISK_NOISE = 0.2
_DISK_NOISE_BYTES = 4 << 20
_FEWEST_SAMPLES = 4


class Fate(StrEnum):
    """What a publisher was told."""

    VISIBLE = "visible"
    #: An error that promises that nothing is visible, nor ever will be.
    NEVER = "never"
    #: The publisher died, or the outcome was unknown.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Put:
    """A message that somebody tried to publish.

    Attributes:
        number: Its own, of all messages.
        fate: What became of it.
        queue_id: Where it went to; None where the queue changed meanwhile.
        monoton: Its position, if that was told.
        not_before: It must not be delivered earlier.
    """

    number: int
    fate: Fate
    queue_id: QueueId | None
    monoton: int | None
    not_before: datetime


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a consumer got, and processed.

    Attributes:
        queue_id, group, monoton: Which message, for whom.
        number: Of the message, as its body says.
        lease: Token under which it is held.
        count: How often it was delivered, as the queue says.
        begun, at: When the consumer asked, and when it had the message.
        until: Until when it is surely held, unless it is let go of.
    """

    queue_id: QueueId
    group: str
    monoton: int
    number: int
    lease: UUID
    count: int
    begun: datetime
    at: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class LetGo:
    """A consumer let go of messages of one lease.

    Attributes:
        lease: Token under which they were held.
        monotons: Which of them; None for all.
        begun, done: When that was asked for, and answered.
        settled: Whether the queue has confirmed that they are never to be delivered again.
    """

    lease: UUID
    monotons: frozenset[int] | None
    begun: datetime
    done: datetime
    settled: bool


@dataclass(slots=True)
class Journal:
    """What all actors have noted; each list only grows, so any thread may append."""

    puts: list[Put] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    let_go: list[LetGo] = field(default_factory=list)
    #: What no actor may meet: invariants broken, errors that the package does not have.
    alarms: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, as its headers say."""

    number: int
    origin: str
    group: str
    monoton: int


@dataclass(frozen=True, slots=True)
class Owed:
    """What a group of a living queue was owed in the end.

    Attributes:
        queue_id, group: Of whom.
        start, stop: The monotons that were to be delivered.
        depth: Of those, how many still are.
        expired: How many the sweep let expire, as it says.
    """

    queue_id: QueueId
    group: str
    start: int
    stop: int
    depth: int
    expired: int


@dataclass(slots=True)
class Verdict:
    """What was found: figures, and what is wrong, by kind."""

    figures: dict[str, int] = field(default_factory=dict)
    wrong: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def accuse(self, kind: str, what: object) -> None:
        """Note that something is wrong."""
        self.wrong[kind].append(str(what))

    @property
    def is_fine(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.wrong.values())

    def to_json(self) -> dict[str, object]:
        """For the report; of each kind the first ones."""
        told = {kind: {"count": len(all_), "first": all_[:_TOLD]} for kind, all_ in self.wrong.items()}
        return {"fine": self.is_fine, **self.figures, "wrong": told}


def judge(
    journal: Journal,
    owed: Sequence[Owed],
    letters: Sequence[Letter],
    *,
    max_deliveries: int,
) -> Verdict:
    """Compare what was published with what was delivered, message by message.

    Args:
        journal: What all actors have noted.
        owed: Every group of every queue that still lives, after all was drained.
        letters: All dead letters of all queues.
        max_deliveries: The limit that all queues have.
    """
    verdict = Verdict()
    for alarm in journal.alarms:
        verdict.accuse("alarm", alarm)
    _judge_publishing(verdict, journal)
    _judge_deliveries(verdict, journal, max_deliveries)
    _judge_letters(verdict, letters)
    _judge_debts(verdict, journal, owed, letters)
    fates = Counter(put.fate for put in journal.puts)
    verdict.figures |= {f"put_{fate}": fates[fate] for fate in Fate}
    verdict.figures["dead_letters"] = len(letters)
    return verdict


def _judge_publishing(verdict: Verdict, journal: Journal) -> None:
    """Each message is what was put, where it was put, in one place of its queue, not too early."""
    puts = {put.number: put for put in journal.puts}
    place: dict[tuple[QueueId, int], int] = {}
    tenant: dict[tuple[QueueId, int], int] = {}
    for each in journal.deliveries:
        put = puts.get(each.number)
        if put is None:
            verdict.accuse("delivered, but never put", each)
            continue
        if put.fate is Fate.NEVER:
            verdict.accuse("delivered, but said to be never visible", each)
        if put.queue_id == each.queue_id and put.monoton not in (None, each.monoton):
            verdict.accuse("delivered elsewhere than it was put", (put, each))
        if each.at < put.not_before - _TOLERANCE:
            verdict.accuse("delivered too early", (put, each))
        if place.setdefault((each.queue_id, each.number), each.monoton) != each.monoton:
            verdict.accuse("published twice", each)
        if tenant.setdefault((each.queue_id, each.monoton), each.number) != each.number:
            verdict.accuse("two messages with one monoton", each)


def _judge_deliveries(verdict: Verdict, journal: Journal, max_deliveries: int) -> None:
    """I6, I8: one holder at a time, none after it was settled, none too often."""
    let_go: defaultdict[UUID, list[LetGo]] = defaultdict(list)
    for act in journal.let_go:
        let_go[act.lease].append(act)
    by_message: defaultdict[tuple[QueueId, str, int], list[Delivery]] = defaultdict(list)
    for each in journal.deliveries:
        by_message[each.queue_id, each.group, each.monoton].append(each)
    again = 0
    for every in by_message.values():
        every.sort(key=lambda each: each.at)
        again += len(every) - 1
        acts = {
            lease: [
                act
                for act in let_go[lease]
                if act.monotons is None or every[0].monoton in act.monotons
            ]
            for lease in {each.lease for each in every}
        }
        for problem, each in _wrong_with(every, acts, max_deliveries):
            verdict.accuse(problem, each)
    verdict.figures |= {
        "deliveries": len(journal.deliveries),
        "messages_processed": len(by_message),
        # None of them without a lease that was lost, given back or abandoned: else it is wrong.
        "processed_again": again,
    }


def _wrong_with(
    every: Sequence[Delivery], acts: Mapping[UUID, Sequence[LetGo]], max_deliveries: int
) -> Iterator[tuple[str, object]]:
    """What is wrong with the deliveries of one message to one group, in the order of time."""
    settled = {
        lease: min(done) for lease, all_ in acts.items() if (done := [a.done for a in all_ if a.settled])
    }
    if len(settled) > 1:
        yield "settled twice", (every[0], settled)
    for number, each in enumerate(every):
        if each.count > max_deliveries:
            yield "delivered too often", each
        if any(each.begun > done for done in settled.values()):
            yield "delivered after it was settled", each
        for before in every[:number]:
            if before.lease == each.lease:
                continue
            if before.count == each.count:
                yield "two deliveries with one count", (before, each)
            free = any(act.begun <= each.at for act in acts[before.lease])
            if each.at < before.until and not free:
                yield "held by two", (before, each)


def _judge_letters(verdict: Verdict, letters: Sequence[Letter]) -> None:
    """I9: once for each group."""
    copies = Counter((letter.group, letter.number) for letter in letters)
    for which, count in copies.items():
        if count > 1:
            verdict.accuse("dead-lettered twice", which)


def _judge_debts(
    verdict: Verdict, journal: Journal, owed: Sequence[Owed], letters: Sequence[Letter]
) -> None:
    """Everything in a living queue was processed, is a dead letter, or has expired."""
    processed: defaultdict[tuple[QueueId, str], set[int]] = defaultdict(set)
    for each in journal.deliveries:
        processed[each.queue_id, each.group].add(each.monoton)
    homes = {put.number: put.queue_id for put in journal.puts}
    visible: defaultdict[QueueId, set[int]] = defaultdict(set)
    for put in journal.puts:
        if put.fate is Fate.VISIBLE and put.queue_id is not None and put.monoton is not None:
            visible[put.queue_id].add(put.monoton)
    expired = 0
    for debt in owed:
        name = debt.queue_id.rpartition("@")[0]
        dead = {
            letter.monoton
            for letter in letters
            if (letter.origin, letter.group) == (name, debt.group)
            and homes.get(letter.number) in (None, debt.queue_id)
        }
        if debt.depth:
            verdict.accuse("not drained", debt)
        if beyond := {at for at in visible[debt.queue_id] if at >= debt.stop}:
            verdict.accuse("lost", f"{debt.queue_id} ends before {sorted(beyond)[:5]}")
        missing = set(range(debt.start, debt.stop)) - processed[debt.queue_id, debt.group] - dead
        if len(missing) > debt.expired:
            verdict.accuse("lost", f"{len(missing)} of {debt}: {sorted(missing)[:5]}")
        else:
            expired += len(missing)
    verdict.figures["expired"] = expired


@dataclass(frozen=True, slots=True)
class Tables:
    """All rows of all tables, after everything was drained and swept."""

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
        f"queue {name} is {record.status}, and all was swept"
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
            yield f"ledger {queue_id} was drained, and {head.next - head.finalised} message(s) stay"
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
            yield f"{key[0]}: {stored[key]} of {len(block.monotons)} message(s) of a block are there"


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


@dataclass(frozen=True, slots=True)
class Sample:
    """What the tables took on disk at some time, and what of it still belongs to somebody."""

    seconds: float
    disk_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Trend:
    """How the disk was used in the second half of a run; growth by the line through it."""

    disk_growth: int
    live_growth: int
    allowed: int
    mean: int

    @property
    def is_flat(self) -> bool:
        """Whether the disk did not grow by more than what lives, and some noise."""
        return self.disk_growth <= self.allowed


def trend_of(samples: Sequence[Sample]) -> Trend | None:
    """How disk use went on in the second half; None if there are too few samples to tell."""
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
