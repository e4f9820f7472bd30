"""The contests: which systems take part, with how many messages, and how often."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from benchmarks.bench import rows
from benchmarks.bench.contest import Contest, Measures
from benchmarks.bench.lab import Lab
from benchmarks.bench.measures import (
    Counts,
    Limit,
    Took,
    append_rows,
    insert_rows,
    measure_idle,
    measure_latency,
    put_through_producer,
    read_stream,
    write_batch,
    write_stream,
)
from benchmarks.bench.payloads import FLIGHTS, ORDERS, RANDOM, READINGS, Payload, write_payload
from benchmarks.bench.systems import (
    APPEND,
    CASSIEQ,
    KAFKA,
    KAFKA_LZ4,
    KAFKA_TUNED,
    KAFKA_ZSTD,
    System,
    systems_of,
)

RATE, INSIDE, MS = "messages/s", "messages/s inside the batches", "ms"
CPU, CPU_BATCH = "us of processor time a message", "ms of processor time a batch"
SECONDS, CPU_QUERY = "s", "s of processor time"
IDLE_LWTS, IDLE_READS = "LWTs a second", "reads a second"
LIMIT = "driver alone"
ROWS = "driver, single rows"

BATCH_WRITE = "batch write"
WRITE_20K, WRITE_100K = "stream write, 20,000 a batch", "stream write, 100,000 a batch"
READ_20K, READ_100K = "AvailableNow read, 20,000 a batch", "AvailableNow read, 100,000 a batch"
READ_ALL = "AvailableNow read, no limit"
SMALL_READ = "micro-batch of 10 messages, read"
SMALL_WRITE = "micro-batch of 10 messages, write"
START = "a query with one batch of 10 messages, read"
LATENCY = "end-to-end latency, p50"
IDLE = "idle stream"
PUTS = "single puts, {} threads"

_WRITERS = {
    RANDOM: (CASSIEQ, KAFKA, KAFKA_TUNED),
    ORDERS: (CASSIEQ, KAFKA, KAFKA_LZ4, KAFKA_ZSTD),
    READINGS: (CASSIEQ, KAFKA, KAFKA_LZ4, KAFKA_ZSTD),
    FLIGHTS: (CASSIEQ, KAFKA, KAFKA_LZ4, KAFKA_ZSTD),
}
_READERS = {
    RANDOM: (CASSIEQ, KAFKA, KAFKA_TUNED),
    ORDERS: (CASSIEQ, KAFKA, KAFKA_TUNED, KAFKA_LZ4),
    READINGS: (CASSIEQ, KAFKA, KAFKA_TUNED, KAFKA_LZ4),
    FLIGHTS: (CASSIEQ, KAFKA, KAFKA_TUNED, KAFKA_LZ4),
}
#: Spark takes many seconds for batches of 20,000, so only these payloads have them.
_SMALL_BATCHES = (RANDOM, FLIGHTS)
#: Payloads of JSON, which are also used as rows.
_OF_COLUMNS = (ORDERS, FLIGHTS)
_THREADS = (1, 8, 64)
_TEN = 10
#: A read has the payload so often that the start of the query is a small part.
_TIMES_READ = 3
#: Messages of a warm-up round.
_WARM = 200_000
#: Enough for millions of messages through both servers.
_WARM_ROUNDS = 5
#: Micro-batches at the start of a query, which are not counted.
_FIRST = 3


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a run.

    Attributes:
        messages: Most messages of each payload.
        rounds: Rounds of each contest.
        batches: Micro-batches of ten messages.
        singles: Messages in a round of the latency.
        seconds: Seconds of single puts, and of idle streams.
    """

    messages: Mapping[str, int]
    rounds: int
    batches: int
    singles: int
    seconds: float


FULL = Scale(
    {RANDOM: 200_000, ORDERS: 200_000, READINGS: 400_000, FLIGHTS: 400_000},
    rounds=3,
    batches=40,
    singles=15,
    seconds=3,
)
QUICK = Scale({RANDOM: 200_000, FLIGHTS: 200_000}, rounds=1, batches=20, singles=10, seconds=2)


def titles(scale: Scale) -> list[tuple[str, str]]:
    """Case and payload of each contest, in order."""
    return [(case, payload) for payload in ("", *scale.messages) for case in _cases_of(payload)]


def _cases_of(payload: str) -> tuple[str, ...]:
    if not payload:
        puts = (PUTS.format(threads) for threads in _THREADS)
        return SMALL_READ, SMALL_WRITE, START, LATENCY, IDLE, *puts
    small = payload in _SMALL_BATCHES
    writes = (BATCH_WRITE, WRITE_100K, *((WRITE_20K,) if small else ()))
    reads = (READ_ALL, READ_100K, *((READ_20K,) if small else ()))
    return *writes, *reads, *(rows.CASES if payload in _OF_COLUMNS else ())


def contests(lab: Lab, scale: Scale, *, wanted: Callable[[str, str], bool]) -> Iterator[Contest]:
    """The contests, each prepared when the one before is over.

    ``wanted`` tells by case and payload which are held.
    """
    systems = systems_of(lab)
    for payload in ("", *scale.messages):
        if not any(wanted(case, payload) for case in _cases_of(payload)):
            continue
        found = (
            _of_payload(lab, systems, payload, scale.messages[payload])
            if payload
            else _of_small_things(lab, systems, scale)
        )
        for contest in found:
            if wanted(contest.case, contest.payload):
                yield contest


def _of_payload(
    lab: Lab, systems: Mapping[str, System], name: str, messages: int
) -> Iterator[Contest]:
    payload = write_payload(name, messages, lab.folder / name)
    limit = Limit(lab, payload)
    yield from _writes(lab, systems, payload, limit)
    lab.clear()
    yield from _reads(lab, systems, payload, limit)
    lab.clear()
    if payload.name in _OF_COLUMNS:
        yield from rows.contests(lab, payload)
        lab.clear()


def warm_up(lab: Lab) -> None:
    """Let all connectors write and read until the servers' Java has compiled its hot code.

    Before that, a server takes several times as long, and each a different number of times.
    """
    payload = write_payload(RANDOM, _WARM, lab.folder / "warm-up")
    systems = systems_of(lab)
    for system in (systems[CASSIEQ], systems[KAFKA_TUNED]):
        for _ in range(_WARM_ROUNDS):
            place = system.new()
            write_batch(lab, system, payload, place)
            write_stream(lab, system, payload, place, batch=20_000)
            read_stream(lab, system, place, messages=2 * payload.count, batch=100_000)
            system.drop(place)
            lab.clear()
    append_rows(lab, payload)
    Limit(lab, payload).read()
    lab.clear()


def _writes(
    lab: Lab, systems: Mapping[str, System], payload: Payload, limit: Limit
) -> Iterator[Contest]:
    writers = [systems[name] for name in _WRITERS[payload.name]]

    def in_turn(write: Callable[..., Took], **how: int) -> dict[str, Callable[[], Measures]]:
        return {
            each.name: partial(
                _anew, each, partial(_write, lab, each, payload, partial(write, **how))
            )
            for each in writers
        }

    trials = in_turn(write_batch) | {LIMIT: lambda: {RATE: limit.write().rate}}
    if payload.name == RANDOM:
        trials[APPEND] = lambda: {RATE: append_rows(lab, payload).rate}
    yield Contest(BATCH_WRITE, payload.name, trials)
    streams = in_turn(write_stream, batch=100_000) | {LIMIT: lambda: {RATE: limit.write().rate}}
    yield Contest(WRITE_100K, payload.name, streams)
    if payload.name in _SMALL_BATCHES:
        yield Contest(WRITE_20K, payload.name, in_turn(write_stream, batch=20_000))


def _reads(
    lab: Lab, systems: Mapping[str, System], payload: Payload, limit: Limit
) -> Iterator[Contest]:
    limit.write()
    readers = {name: systems[name] for name in _READERS[payload.name]}
    places = {name: each.new() for name, each in readers.items()}
    for name, each in readers.items():
        for _ in range(_TIMES_READ):
            write_batch(lab, each, payload, places[name])
    for case, batch in ((READ_ALL, None), (READ_100K, 100_000), (READ_20K, 20_000)):
        if case == READ_20K and payload.name not in _SMALL_BATCHES:
            continue
        trials: dict[str, Callable[[], Mapping[str, float]]] = {
            name: partial(_read, lab, each, places[name], payload.count * _TIMES_READ, batch)
            for name, each in readers.items()
        }
        if batch is None:
            trials[LIMIT] = lambda: {RATE: limit.read().rate}
        yield Contest(case, payload.name, trials)
    for name, each in readers.items():
        each.drop(places[name])


def _of_small_things(lab: Lab, systems: Mapping[str, System], scale: Scale) -> Iterator[Contest]:
    two = {name: systems[name] for name in (CASSIEQ, KAFKA_TUNED)}
    messages = scale.batches * _TEN
    places = {name: _fill(lab, each, messages) for name, each in two.items()}
    reads = {
        name: partial(_small_reads, lab, each, places[name], messages)
        for name, each in two.items()
    }
    yield Contest(SMALL_READ, "", reads)
    small = write_payload(RANDOM, messages, lab.folder / "small", batches=(_TEN,))
    writes = {
        name: partial(_anew, each, partial(_small_writes, lab, each, small))
        for name, each in two.items()
    }
    yield Contest(SMALL_WRITE, "", writes)
    ten = {name: _fill(lab, each, _TEN) for name, each in two.items()}
    starts = {name: partial(_start, lab, each, ten[name]) for name, each in two.items()}
    yield Contest(START, "", starts)
    seeds = count()
    singles = {
        name: partial(_latency, lab, systems[name], scale, seeds)
        for name in (CASSIEQ, KAFKA, KAFKA_TUNED)
    }
    yield Contest(LATENCY, "", singles)
    yield Contest(IDLE, "", {CASSIEQ: partial(_idle, lab, systems[CASSIEQ], scale)})
    for threads in _THREADS:
        how = {"threads": threads, "seconds": scale.seconds}
        putters = {
            CASSIEQ: partial(_put, put_through_producer, lab, how),
            ROWS: partial(_put, insert_rows, lab, how),
        }
        yield Contest(PUTS.format(threads), "", putters)


def _anew(system: System, write: Callable[[str], Measures]) -> Measures:
    place = system.new()
    measures = write(place)
    system.drop(place)
    return measures


def _write(
    lab: Lab, system: System, payload: Payload, write: Callable[..., Took], place: str
) -> Measures:
    return _measures(write(lab, system, payload, place), system)


def _read(lab: Lab, system: System, place: str, messages: int, batch: int | None) -> Measures:
    return _measures(read_stream(lab, system, place, messages=messages, batch=batch), system)


def _measures(took: Took, system: System) -> Measures:
    """Rates, and processor time of a message, by process."""
    inside = {INSIDE: took.rate_inside} if took.batches_ms else {}
    cpu = took.by_process(CPU, per=took.messages / 1e6, server=system.server)
    return {RATE: took.rate, **inside, **cpu}


def _fill(lab: Lab, system: System, messages: int) -> str:
    place = system.new()
    frame = lab.spark.range(messages).selectExpr("cast(id as string) as value")
    writer = frame.write.format(system.form).options(**system.write_options(place))
    writer.mode("append").save()
    return place


def _small_reads(lab: Lab, system: System, place: str, messages: int) -> Measures:
    read = partial(read_stream, lab, system, place, messages=messages, batch=_TEN)
    return _small(lab, system, read)


def _small_writes(lab: Lab, system: System, payload: Payload, place: str) -> Measures:
    return _small(lab, system, partial(write_stream, lab, system, payload, place, batch=_TEN))


def _small(lab: Lab, system: System, run: Callable[[], Took]) -> Measures:
    """The cost of a small batch."""
    before = Counts.read(lab.cql)
    took = run()
    each = Counts.read(lab.cql).since(before, per=len(took.batches_ms))
    costs = {"LWTs a batch": each["lwts"], "reads a batch": each["reads"]}
    return {
        MS: statistics.median(took.batches_ms[_FIRST:]),
        **took.by_process(CPU_BATCH, per=len(took.batches_ms) / 1e3, server=system.server),
        **(costs if system.name == CASSIEQ else {}),
    }


def _start(lab: Lab, system: System, place: str) -> Measures:
    took = read_stream(lab, system, place, messages=_TEN, batch=_TEN)
    return {SECONDS: took.seconds, **took.by_process(CPU_QUERY, per=1, server=system.server)}


def _latency(lab: Lab, system: System, scale: Scale, seeds: Iterator[int]) -> Measures:
    return {MS: measure_latency(lab, system, messages=scale.singles, seed=next(seeds))}


def _idle(lab: Lab, system: System, scale: Scale) -> Measures:
    asked = measure_idle(lab, system, seconds=scale.seconds)
    return {IDLE_LWTS: asked["lwts"], IDLE_READS: asked["reads"]}


def _put(put: Callable[..., float], lab: Lab, how: Mapping[str, float]) -> Measures:
    return {RATE: put(lab, **how)}
