"""The contests: which systems take part, with how many messages, and how often.

A *group* is one or more contests that are prepared together, such as all reads of a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.bench import messages, names, rows, small
from benchmarks.bench.contest import Contest
from benchmarks.bench.lab import Lab
from benchmarks.bench.measures import (
    Limit,
    append_rows,
    read_stream,
    write_batch,
    write_stream,
)
from benchmarks.bench.names import Title
from benchmarks.bench.payloads import FLIGHTS, ORDERS, RANDOM, READINGS, write_payload
from benchmarks.bench.systems import CASSIEQ, KAFKA_TUNED, systems_of

#: Spark takes many seconds for batches of 20,000, so only these payloads have them.
_SMALL_BATCHES = (RANDOM, FLIGHTS)
#: Messages of a warm-up round.
_WARM = 200_000
#: Enough for millions of messages through both servers.
_WARM_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a run.

    Attributes:
        messages: Most messages of each payload.
        rows: Rows of each payload that has columns.
        rounds: Rounds of each contest.
        batches: Micro-batches of ten messages.
        singles: Messages in a round of the latency.
        seconds: Seconds of single puts, and of idle streams.
        has_rest: True if there is a case that takes two minutes a round.
    """

    messages: Mapping[str, int]
    rows: Mapping[str, int]
    rounds: int
    batches: int
    singles: int
    seconds: float
    has_rest: bool


FULL = Scale(
    {RANDOM: 200_000, ORDERS: 200_000, READINGS: 400_000, FLIGHTS: 400_000},
    {ORDERS: 600_000, FLIGHTS: 2_000_000},
    rounds=3,
    batches=40,
    singles=15,
    seconds=3,
    has_rest=True,
)
QUICK = Scale(
    {RANDOM: 200_000, FLIGHTS: 200_000},
    {FLIGHTS: 500_000},
    rounds=1,
    batches=20,
    singles=10,
    seconds=2,
    has_rest=False,
)


@dataclass(frozen=True, slots=True)
class Group:
    """Contests that are prepared together, when the group before is over.

    Attributes:
        payload: Their payload, or nothing.
        cases: Their cases, in order.
        hold: Prepares one after the other.
    """

    payload: str
    cases: Sequence[str]
    hold: Callable[[Lab], Iterator[Contest]]


def groups(scale: Scale) -> Iterator[Group]:
    """All contests, in order."""
    few = scale.batches * small.TEN
    yield Group("", (names.SMALL_READ,), partial(small.reads, messages=few))
    yield Group("", (names.SMALL_WRITE,), partial(small.writes, messages=few))
    yield Group("", (names.START,), small.starts)
    yield Group("", (names.LATENCY,), partial(small.latencies, messages=scale.singles))
    yield Group("", (names.IDLE,), partial(small.idle_streams, seconds=scale.seconds))
    for threads in names.THREADS:
        hold = partial(small.puts, threads=threads, seconds=scale.seconds)
        yield Group("", (names.PUTS.format(threads),), hold)
    if scale.has_rest:
        yield Group("", (names.REST,), small.rests)
    for payload, count in scale.messages.items():
        yield from _of_messages(payload, count)
        if payload in scale.rows:
            yield from _of_rows(payload, scale.rows[payload])


def _of_messages(payload: str, count: int) -> Iterator[Group]:
    writes: tuple[str, ...] = (names.BATCH_WRITE, names.WRITE_100K)
    reads: tuple[str, ...] = (names.READ_ALL, names.READ_100K)
    if payload in _SMALL_BATCHES:
        writes, reads = (*writes, names.WRITE_20K), (*reads, names.READ_20K)
    for cases, hold in ((writes, messages.writes), (reads, messages.reads)):
        yield Group(payload, cases, partial(hold, name=payload, count=count, cases=cases))


def _of_rows(payload: str, count: int) -> Iterator[Group]:
    for cases, hold in (((names.TYPED_WRITE,), rows.writes), (tuple(rows.READS), rows.reads)):
        yield Group(payload, cases, partial(hold, name=payload, count=count))


def titles(scale: Scale) -> list[Title]:
    """Case and payload of each contest, in order."""
    return [(case, group.payload) for group in groups(scale) for case in group.cases]


def contests(lab: Lab, scale: Scale, *, wanted: Collection[Title]) -> Iterator[Contest]:
    """The contests that are wanted, each prepared when the one before is over."""
    for group in groups(scale):
        if any((case, group.payload) in wanted for case in group.cases):
            for contest in group.hold(lab):
                if (contest.case, contest.payload) in wanted:
                    yield contest
            lab.clear()


def warm_up(lab: Lab, is_over: Callable[[], bool]) -> None:
    """Let all connectors write and read until the servers' Java has compiled its hot code.

    Before that, a server takes several times as long, and each a different number of times.
    ``is_over`` is called after each round, and tells if there is no time for another.
    """
    payload = write_payload(RANDOM, _WARM, lab.folder / "warm-up")
    systems = systems_of(lab)
    for _ in range(_WARM_ROUNDS):
        for system in (systems[CASSIEQ], systems[KAFKA_TUNED]):
            place = system.new()
            write_batch(lab, system, payload, place)
            write_stream(lab, system, payload, place, batch=20_000)
            read_stream(lab, system, place, messages=2 * payload.count, batch=100_000)
            system.drop(place)
            lab.clear()
        if is_over():
            break
    append_rows(lab, payload)
    Limit(lab, payload).read()
    lab.clear()
