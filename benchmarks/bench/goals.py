"""How large which ratio has to be, or which figure may be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.bench import cases
from benchmarks.bench.contest import Figure, find
from benchmarks.bench.payloads import FLIGHTS, ORDERS, RANDOM, READINGS
from benchmarks.bench.systems import (
    APPEND,
    CASSIEQ,
    KAFKA,
    KAFKA_LZ4,
    KAFKA_TUNED,
    KAFKA_ZSTD,
)

_JSON = (ORDERS, READINGS, FLIGHTS)
_COMPRESSED = (KAFKA, KAFKA_LZ4, KAFKA_ZSTD)
_TUNED = (KAFKA_TUNED, KAFKA_LZ4)


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio to reach, or, without peers, a figure.

    Attributes:
        of: The case that it is of.
        payload: With which messages.
        peers: Whom the queue is compared with; with the best of them, if there are several.
        wanted: How many times the peer it has to be, at least, or, for times and costs, at most.
        measure: What is compared.
        peer_measure: The peer's, where that is another one.
        at_most: Whether less is better.
    """

    of: str
    payload: str
    peers: tuple[str, ...]
    wanted: float
    measure: str = cases.RATE
    peer_measure: str = ""
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal, and how far it is.

    Attributes:
        goal: Which.
        peer: The best of its peers; empty if it has none.
        ratio: What was reached.
    """

    goal: Goal
    peer: str
    ratio: float

    @property
    def reached(self) -> bool:
        """Whether it is."""
        return self.ratio <= self.goal.wanted if self.goal.at_most else self.missing <= 0

    @property
    def missing(self) -> float:
        """By how many percent the ratio would have to change; 0 or less if by none.

        >>> goal = Goal("batch write", "", ("Kafka",), 1.2)
        >>> round(Judged(goal, "Kafka", 1.0).missing)
        20
        """
        return (self.goal.wanted / self.ratio - 1) * 100


def goals() -> Iterator[Goal]:
    """All of them."""
    for case in (cases.BATCH_WRITE, cases.WRITE_100K, cases.WRITE_20K):
        yield Goal(case, RANDOM, (KAFKA,), 1.2)
    for payload in _JSON:
        yield Goal(cases.BATCH_WRITE, payload, _COMPRESSED, 2.0)
        yield Goal(cases.WRITE_100K, payload, _COMPRESSED, 2.0)
    for case in (cases.READ_ALL, cases.READ_100K):
        yield Goal(case, RANDOM, (KAFKA,), 1.5)
        yield Goal(case, RANDOM, (KAFKA_TUNED,), 0.9)
        for payload in _JSON:
            yield Goal(case, payload, _TUNED, 1.2)
    for case in (cases.WRITE_20K, cases.READ_20K):
        yield Goal(case, RANDOM, (KAFKA_TUNED,), 1.0)
    limit = (cases.LIMIT,)
    yield Goal(cases.WRITE_100K, RANDOM, limit, 0.7, cases.INSIDE, cases.RATE)
    yield Goal(cases.READ_ALL, RANDOM, limit, 0.5, cases.INSIDE, cases.RATE)
    yield Goal(cases.BATCH_WRITE, RANDOM, (APPEND,), 1.3)
    tuned = (KAFKA_TUNED,)
    yield Goal(cases.SMALL_READ, "", tuned, 1.2, cases.MS, at_most=True)
    yield Goal(cases.LATENCY, "", tuned, 1.3, cases.MS, at_most=True)
    yield Goal(cases.IDLE, "", (), 0, cases.IDLE_LWTS, at_most=True)
    yield Goal(cases.IDLE, "", (), 5, cases.IDLE_READS, at_most=True)


def judge(goal: Goal, figures: Sequence[Figure]) -> Judged | None:
    """How far a goal is; None if what it is about was not measured."""
    ours = find(figures, case=goal.of, payload=goal.payload, measure=goal.measure).get(CASSIEQ)
    if ours is not None and not goal.peers:
        return Judged(goal, "", ours.median)
    theirs = find(
        figures,
        case=goal.of,
        payload=goal.payload,
        measure=goal.peer_measure or goal.measure,
    )
    present = [theirs[name] for name in goal.peers if name in theirs]
    if ours is None or not present:
        return None
    best = (min if goal.at_most else max)(present, key=lambda each: each.median)
    return Judged(goal, best.system, ours.ratio_to(best))
