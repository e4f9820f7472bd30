"""The goals, and which of them are reached."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.bench import names
from benchmarks.bench.contest import Figure, find
from benchmarks.bench.payloads import FLIGHTS, ORDERS, RANDOM, READINGS
from benchmarks.bench.systems import CASSIEQ, KAFKA_LZ4, KAFKA_TUNED

_JSON = (ORDERS, READINGS, FLIGHTS)
_TUNED = (KAFKA_TUNED, KAFKA_LZ4)


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio to reach or, without peers, a figure.

    Attributes:
        of: The case.
        payload: The payload.
        peers: The systems to compare with; the best of them counts.
        wanted: The ratio to the peer: at least this or, for times and costs, at most.
        measure: The measure.
        at_most: Whether less is better.
        difference: Whether the difference to the peer counts instead of the ratio.
    """

    of: str
    payload: str
    peers: tuple[str, ...]
    wanted: float
    measure: str = names.RATE
    at_most: bool = False
    difference: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal with the best of its peers, if any, and the ratios or differences of the rounds."""

    goal: Goal
    peer: str
    ratios: Sequence[float]

    @property
    def ratio(self) -> float:
        """The median of ``ratios``, by which the goal is judged."""
        return statistics.median(self.ratios)

    @property
    def reached(self) -> bool:
        return self.ratio <= self.goal.wanted if self.goal.at_most else self.missing <= 0

    @property
    def missing(self) -> float:
        """By how many percent the ratio must change to reach the goal; 0 or less if it has.

        >>> goal = Goal("batch write", "", ("Kafka",), 1.2)
        >>> round(Judged(goal, "Kafka", [1.0]).missing)
        20
        """
        return (self.goal.wanted / self.ratio - 1) * 100


#: Ratios to tuned Kafka, inside the batches, that a run of 2026-11-23 had.
_BEFORE = {
    names.READ_ALL: {RANDOM: 0.79, ORDERS: 0.78, READINGS: 0.63, FLIGHTS: 0.71},
    names.READ_100K: {RANDOM: 0.69, ORDERS: 0.54, READINGS: 0.79, FLIGHTS: 0.66},
    names.WRITE_100K: {RANDOM: 0.43, ORDERS: 0.44, READINGS: 0.61, FLIGHTS: 0.63},
}
_KEPT = 0.9
#: The least ratios to Kafka with Avro, and with JSON.
_TYPED = {
    names.TYPED_READ_100K: (1.2, 3.0),
    names.TYPED_READ_ALL: (2.0, 5.0),
    names.TYPED_READ_100K_SOME: (2.0, 5.0),
    names.TYPED_READ_ALL_SOME: (3.0, 8.0),
}


def goals() -> Iterator[Goal]:
    """The goals that users decide by: for queries in steady state, and a batch after a rest."""
    for case, (avro, json) in _TYPED.items():
        yield Goal(case, FLIGHTS, (names.AVRO,), avro, names.ROW_STEADY)
        yield Goal(case, FLIGHTS, (names.JSON,), json, names.ROW_STEADY)
    yield Goal(names.TYPED_WRITE, FLIGHTS, (names.AVRO,), 1.2, names.ROW_RATE)
    yield Goal(names.REST, "", (KAFKA_TUNED,), 1.2, names.MS, at_most=True)
    yield Goal(names.REST, "", (KAFKA_TUNED,), 2.0, names.CPU_BATCH, at_most=True)
    for case, ratios in _BEFORE.items():
        for payload, ratio in ratios.items():
            yield Goal(case, payload, _TUNED, round(_KEPT * ratio, 2), names.INSIDE)
    for payload in _JSON:
        yield Goal(names.READ_ALL, payload, _TUNED, 0.9, names.STEADY)


def earlier_goals() -> Iterator[Goal]:
    """The goals that were set before."""
    for payload in (RANDOM, *_JSON):
        for case in (names.READ_ALL, names.READ_100K):
            yield Goal(case, payload, _TUNED, 1.2, names.INSIDE)
            yield Goal(case, payload, _TUNED, 0.9, names.CPU, at_most=True)
    for case, rate in ((names.BATCH_WRITE, names.RATE), (names.WRITE_100K, names.INSIDE)):
        for payload in _JSON:
            yield Goal(case, payload, (KAFKA_LZ4,), 1.0, rate)
            yield Goal(case, payload, (KAFKA_LZ4,), 1.1, names.CPU, at_most=True)
        yield Goal(case, RANDOM, (KAFKA_TUNED,), 0.8, rate)
        yield Goal(case, RANDOM, (KAFKA_TUNED,), 1.4, names.CPU, at_most=True)
    for payload in (RANDOM, FLIGHTS):
        for case in (names.WRITE_20K, names.READ_20K):
            yield Goal(case, payload, _TUNED, 1.0, names.INSIDE)
    json, avro = (names.JSON,), (names.AVRO,)
    for payload in (ORDERS, FLIGHTS):
        yield Goal(names.TYPED_WRITE, payload, json, 1.2, names.ROW_RATE)
        yield Goal(names.TYPED_WRITE, payload, json, 0.8, names.STORED, at_most=True)
    yield Goal(names.TYPED_READ_100K, ORDERS, json, 3.5, names.ROW_STEADY)
    yield Goal(names.TYPED_READ_100K, ORDERS, avro, 2.5, names.ROW_STEADY)
    yield Goal(names.TYPED_READ_100K_SOME, ORDERS, json, 7.0, names.ROW_STEADY)
    tuned = (KAFKA_TUNED,)
    yield Goal(names.SMALL_WRITE, "", tuned, 1.1, names.MS, at_most=True)
    yield Goal(names.SMALL_READ, "", tuned, 1.1, names.MS, at_most=True)
    yield Goal(names.START, "", tuned, 0.25, names.SECONDS, at_most=True, difference=True)
    yield Goal(names.LATENCY, "", tuned, 1.1, names.MS, at_most=True)
    yield Goal(names.PUTS.format(64), "", (names.ROWS,), 1.0)
    yield Goal(names.IDLE, "", (), 0, names.IDLE_LWTS, at_most=True)
    yield Goal(names.IDLE, "", (), 5, names.IDLE_READS, at_most=True)


def judge(goal: Goal, figures: Sequence[Figure]) -> Judged | None:
    """Judge a goal; None if it was not measured."""
    ours = find(figures, case=goal.of, payload=goal.payload, measure=goal.measure).get(CASSIEQ)
    if ours is not None and not goal.peers:
        return Judged(goal, "", ours.values)
    theirs = find(figures, case=goal.of, payload=goal.payload, measure=goal.measure)
    present = [theirs[name] for name in goal.peers if name in theirs]
    if ours is None or not present:
        return None
    best = (min if goal.at_most else max)(present, key=lambda each: each.median)
    compare = ours.differences_to if goal.difference else ours.ratios_to
    return Judged(goal, best.system, compare(best))
