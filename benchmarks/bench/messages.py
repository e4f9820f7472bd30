"""Contests of messages without columns: whole writes, and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from benchmarks.bench.contest import Contest, Measures
from benchmarks.bench.lab import Lab
from benchmarks.bench.measures import (
    Limit,
    Took,
    append_rows,
    read_stream,
    write_batch,
    write_stream,
)
from benchmarks.bench.names import (
    BATCH_WRITE,
    CPU,
    INSIDE,
    LIMIT,
    RATE,
    READ_20K,
    READ_100K,
    READ_ALL,
    STEADY,
    WRITE_20K,
    WRITE_100K,
)
from benchmarks.bench.payloads import FLIGHTS, ORDERS, RANDOM, READINGS, Payload, write_payload
from benchmarks.bench.progress import as_measures
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

#: A stream has the payload so often that the start of the query is a small part.
_TIMES = 3
#: Messages of a micro-batch, or no limit.
_READS = {READ_ALL: None, READ_100K: 100_000, READ_20K: 20_000}
_STREAM_WRITES = {WRITE_100K: (100_000, _TIMES), WRITE_20K: (20_000, 1)}
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


@cache
def _payload(folder: Path, name: str, messages: int) -> Payload:
    return write_payload(name, messages, folder / name)


def writes(lab: Lab, *, name: str, count: int, cases: Sequence[str]) -> Iterator[Contest]:
    """Contests of a batch write and of streams that write."""
    payload = _payload(lab.folder, name, count)
    limit = Limit(lab, payload)
    systems = systems_of(lab)

    def in_turn(write: Callable[..., Took]) -> dict[str, Callable[[], Measures]]:
        return {
            each: partial(anew, systems[each], partial(_write, lab, systems[each], payload, write))
            for each in _WRITERS[name]
        }

    for case in cases:
        if case == BATCH_WRITE:
            trials = in_turn(write_batch)
        else:
            batch, times = _STREAM_WRITES[case]
            trials = in_turn(partial(write_stream, batch=batch, times=times))
        if case != WRITE_20K:
            trials[LIMIT] = lambda: {RATE: limit.write().rate}
        if (case, name) == (BATCH_WRITE, RANDOM):
            trials[APPEND] = lambda: {RATE: append_rows(lab, payload).rate}
        yield Contest(case, name, trials)


def reads(lab: Lab, *, name: str, count: int, cases: Sequence[str]) -> Iterator[Contest]:
    """Contests of streams that read the same messages, which are written once."""
    payload = _payload(lab.folder, name, count)
    limit = Limit(lab, payload)
    limit.write()
    systems = systems_of(lab)
    places = {each: systems[each].new() for each in _READERS[name]}
    for each, place in places.items():
        for _ in range(_TIMES):
            write_batch(lab, systems[each], payload, place)
    for case in cases:
        trials: dict[str, Callable[[], Mapping[str, float]]] = {
            each: partial(_read, lab, systems[each], place, payload.count * _TIMES, _READS[case])
            for each, place in places.items()
        }
        if case == READ_ALL:
            trials[LIMIT] = lambda: {RATE: limit.read().rate}
        yield Contest(case, name, trials)
    for each, place in places.items():
        systems[each].drop(place)


def anew(system: System, write: Callable[[str], Measures]) -> Measures:
    """Write to a new queue or topic, which is deleted after that."""
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
    """Rates, the parts of a streaming query, and processor time of a message, by process."""
    phases = as_measures(took.phases, STEADY) | {INSIDE: took.rate_inside} if took.batches else {}
    cpu = took.by_process(CPU, per=took.messages / 1e6, server=system.server)
    return {RATE: took.rate, **phases, **cpu}
