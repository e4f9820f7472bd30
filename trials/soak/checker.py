"""The verdict on a soak, from the records of its actors. Pure.

It compares records message by message, and does not ask the code under test what happened.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from cassieq_spark.model import QueueId

#: The store's clock has whole milliseconds.
_TOLERANCE = timedelta(milliseconds=2)
#: How many problems of each kind are in the report.
_TOLD = 20


class Outcome(StrEnum):
    VISIBLE = "visible"
    #: An error says that nothing is visible or ever will be.
    NEVER = "never"
    #: The publisher died, or the outcome is unknown.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Put:
    """An attempt to publish a message.

    Attributes:
        number: The number of the message, unique in the run.
        outcome: The outcome.
        queue_id: The version of the queue; None if that changed meanwhile.
        monoton: The monoton, if one was returned.
        not_before: The earliest time of a delivery.
    """

    number: int
    outcome: Outcome
    queue_id: QueueId | None
    monoton: int | None
    not_before: datetime


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of a message to a consumer, which has processed it.

    Attributes:
        queue_id, group, monoton: Which message, and which group.
        number: The number in the body of the message.
        lease: The token of the lease.
        count: The delivery count that the queue has told.
        begun, at: When the consumer asked, and when it got the message.
        until: Until when it certainly holds the message, unless it settles it.
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
class Settle:
    """A settlement of messages of one lease.

    Attributes:
        lease: The token of the lease.
        monotons: Which messages; None for all.
        begun, done: When it was asked for, and answered.
        settled: Whether the queue has confirmed that it never delivers them again.
    """

    lease: UUID
    monotons: frozenset[int] | None
    begun: datetime
    done: datetime
    settled: bool


@dataclass(slots=True)
class Journal:
    """The records of all actors; lists only grow, so any thread may append."""

    puts: list[Put] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    #: Broken invariants, and errors that are not of the package.
    alarms: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, by its headers."""

    number: int
    origin: str
    group: str
    monoton: int


@dataclass(frozen=True, slots=True)
class Owed:
    """A group of an active queue at the end.

    Attributes:
        queue_id, group: Which group.
        start, stop: The monotons that it should have got.
        depth: How many of these it has not settled.
        expired: How many of them the repair says that it let expire.
    """

    queue_id: QueueId
    group: str
    start: int
    stop: int
    depth: int
    expired: int


@dataclass(slots=True)
class Verdict:
    """Figures, and problems by kind."""

    figures: dict[str, int] = field(default_factory=dict)
    wrong: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def accuse(self, kind: str, what: object) -> None:
        self.wrong[kind].append(str(what))

    @property
    def is_fine(self) -> bool:
        return not any(self.wrong.values())

    def to_json(self) -> dict[str, object]:
        """For the report, with the first problems of each kind."""
        told = {
            kind: {"count": len(all_), "first": all_[:_TOLD]} for kind, all_ in self.wrong.items()
        }
        return {"fine": self.is_fine, **self.figures, "wrong": told}


def judge(
    journal: Journal,
    owed: Sequence[Owed],
    letters: Sequence[DeadLetter],
    *,
    max_deliveries: int,
) -> Verdict:
    """Compare published messages with deliveries, message by message.

    Args:
        journal: The records of all actors.
        owed: All groups of all active queues, after they were drained.
        letters: The dead letters of all queues.
        max_deliveries: The limit of all queues.
    """
    verdict = Verdict()
    for alarm in journal.alarms:
        verdict.accuse("alarm", alarm)
    _judge_publishing(verdict, journal)
    _judge_deliveries(verdict, journal, max_deliveries)
    _judge_letters(verdict, letters)
    _judge_debts(verdict, journal, owed, letters)
    outcomes = Counter(put.outcome for put in {put.number: put for put in journal.puts}.values())
    verdict.figures |= {f"put_{outcome}": outcomes[outcome] for outcome in Outcome}
    verdict.figures["dead_letters"] = len(letters)
    return verdict


def _judge_publishing(verdict: Verdict, journal: Journal) -> None:
    """Each message is the one that was put, at one place of its queue, and not too early."""
    puts = {put.number: put for put in journal.puts}
    place: dict[tuple[QueueId, int], int] = {}
    tenant: dict[tuple[QueueId, int], int] = {}
    for each in journal.deliveries:
        put = puts.get(each.number)
        if put is None:
            verdict.accuse("delivered, but never put", each)
            continue
        if put.outcome is Outcome.NEVER:
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
    """I6, I8: one holder at a time, no delivery after a settlement, none too often."""
    settles: defaultdict[UUID, list[Settle]] = defaultdict(list)
    for act in journal.settles:
        settles[act.lease].append(act)
    by_message: defaultdict[tuple[QueueId, str, int], list[Delivery]] = defaultdict(list)
    for each in journal.deliveries:
        by_message[each.queue_id, each.group, each.monoton].append(each)
    again = 0
    for every in by_message.values():
        # In the order of the leases: an answer may arrive after its lease has run out.
        every.sort(key=lambda each: (each.count, each.at))
        again += len(every) - 1
        acts = {
            lease: [
                act
                for act in settles[lease]
                if act.monotons is None or every[0].monoton in act.monotons
            ]
            for lease in {each.lease for each in every}
        }
        for problem, wrong in _wrong_with(every, acts, max_deliveries):
            verdict.accuse(problem, wrong)
    verdict.figures |= {
        "deliveries": len(journal.deliveries),
        "messages_processed": len(by_message),
        # Each after a lease was lost, given back or abandoned; others are problems.
        "processed_again": again,
    }


def _wrong_with(
    every: Sequence[Delivery], acts: Mapping[UUID, Sequence[Settle]], max_deliveries: int
) -> Iterator[tuple[str, object]]:
    """Problems with the deliveries of one message to one group, in the order of time."""
    settled = {
        lease: min(done)
        for lease, all_ in acts.items()
        if (done := [a.done for a in all_ if a.settled])
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


def _judge_letters(verdict: Verdict, letters: Sequence[DeadLetter]) -> None:
    """I9: a message is dead-lettered once for each group."""
    copies = Counter((letter.group, letter.number) for letter in letters)
    for which, count in copies.items():
        if count > 1:
            verdict.accuse("dead-lettered twice", which)


def _judge_debts(
    verdict: Verdict, journal: Journal, owed: Sequence[Owed], letters: Sequence[DeadLetter]
) -> None:
    """Each message of an active queue was processed, dead-lettered, or has expired."""
    processed: defaultdict[tuple[QueueId, str], set[int]] = defaultdict(set)
    for each in journal.deliveries:
        processed[each.queue_id, each.group].add(each.monoton)
    homes = {put.number: put.queue_id for put in journal.puts}
    visible: defaultdict[QueueId, set[int]] = defaultdict(set)
    for put in journal.puts:
        if put.outcome is Outcome.VISIBLE and put.queue_id is not None and put.monoton is not None:
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
