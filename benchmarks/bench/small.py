"""Contests of small things: micro-batches of ten messages, latency, rest, idle streams, puts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from benchmarks.bench.contest import Contest, Measures
from benchmarks.bench.lab import Lab
from benchmarks.bench.measures import (
    Counts,
    Took,
    insert_rows,
    load_stream,
    measure_idle,
    measure_latency,
    put_through_producer,
    read_stream,
    run_stream,
    write_stream,
)
from benchmarks.bench.messages import anew
from benchmarks.bench.names import (
    CPU_BATCH,
    CPU_QUERY,
    IDLE,
    IDLE_LWTS,
    IDLE_READS,
    LATENCY,
    LOADING,
    MS,
    PUTS,
    RATE,
    REST,
    ROWS,
    SECONDS,
    SMALL_READ,
    SMALL_WRITE,
    START,
)
from benchmarks.bench.payloads import RANDOM, Payload, write_payload
from benchmarks.bench.progress import FIRST, TO_TASKS
from benchmarks.bench.resting import Resting, resting
from benchmarks.bench.systems import CASSIEQ, KAFKA, KAFKA_TUNED, System, systems_of

#: Messages of a micro-batch.
TEN = 10


def _two(lab: Lab) -> dict[str, System]:
    systems = systems_of(lab)
    return {name: systems[name] for name in (CASSIEQ, KAFKA_TUNED)}


def reads(lab: Lab, *, messages: int) -> Iterator[Contest]:
    """Micro-batches of ten messages that are read."""
    trials = {}
    for name, system in _two(lab).items():
        place = _fill(lab, system, messages)
        read = partial(read_stream, lab, system, place, messages=messages, batch=TEN)
        trials[name] = partial(_batches, lab, system, read)
    yield Contest(SMALL_READ, "", trials)


def writes(lab: Lab, *, messages: int) -> Iterator[Contest]:
    """Micro-batches of ten messages that are written."""
    payload = write_payload(RANDOM, messages, lab.folder / "small", batches=(TEN,))
    trials = {
        name: partial(anew, each, partial(_write, lab, each, payload))
        for name, each in _two(lab).items()
    }
    yield Contest(SMALL_WRITE, "", trials)


def starts(lab: Lab) -> Iterator[Contest]:
    """Queries that end after ten messages."""
    trials = {
        name: partial(_start, lab, each, _fill(lab, each, TEN)) for name, each in _two(lab).items()
    }
    yield Contest(START, "", trials)


def latencies(lab: Lab, *, messages: int) -> Iterator[Contest]:
    """Messages that are sent one by one to a query that waits."""
    systems, seeds = systems_of(lab), count()
    trials = {
        name: partial(_latency, lab, systems[name], messages, seeds)
        for name in (CASSIEQ, KAFKA, KAFKA_TUNED)
    }
    yield Contest(LATENCY, "", trials)


def idle_streams(lab: Lab, *, seconds: float) -> Iterator[Contest]:
    """A query without messages."""
    ours = systems_of(lab)[CASSIEQ]
    yield Contest(IDLE, "", {CASSIEQ: partial(_idle, lab, ours, seconds)})


def puts(lab: Lab, *, threads: int, seconds: float) -> Iterator[Contest]:
    """Threads of a client that put one message at a time."""
    trials = {
        name: partial(_put, partial(put, lab, threads=threads, seconds=seconds))
        for name, put in ((CASSIEQ, put_through_producer), (ROWS, insert_rows))
    }
    yield Contest(PUTS.format(threads), "", trials)


def rests(lab: Lab) -> Iterator[Contest]:
    """Queries that are triggered every two minutes, not at the same time."""
    with resting(lab, list(_two(lab).values())) as queries:
        trials = {each.system.name: partial(_rest, each) for each in queries}
        yield Contest(REST, "", trials, is_shuffled=False)


def _fill(lab: Lab, system: System, messages: int) -> str:
    place = system.new()
    frame = lab.spark.range(messages).selectExpr("cast(id as string) as value")
    writer = frame.write.format(system.form).options(**system.write_options(place))
    writer.mode("append").save()
    return place


def _write(lab: Lab, system: System, payload: Payload, place: str) -> Measures:
    return _batches(lab, system, partial(write_stream, lab, system, payload, place, batch=TEN))


def _batches(lab: Lab, system: System, run: Callable[[], Took]) -> Measures:
    """The cost of a small batch."""
    before = Counts.read(lab.cql)
    took = run()
    each = Counts.read(lab.cql).since(before, per=len(took.batches))
    costs = {"LWTs a batch": each["lwts"], "reads a batch": each["reads"]}
    return {
        MS: statistics.median([each.ms for each in took.batches[FIRST:]]),
        **took.by_process(CPU_BATCH, per=len(took.batches) / 1e3, server=system.server),
        **(costs if system.name == CASSIEQ else {}),
    }


def _start(lab: Lab, system: System, place: str) -> Measures:
    options = system.read_options(place, TEN)
    began = time.perf_counter()
    frame = load_stream(lab, system, options)
    loading = time.perf_counter() - began
    took = run_stream(lab, frame, TEN, "noop", {})
    parts = {LOADING: loading, SECONDS: took.seconds, TO_TASKS: took.phases.start}
    return {**parts, **took.by_process(CPU_QUERY, per=1, server=system.server)}


def _rest(query: Resting) -> Measures:
    took = query.batch()
    cpu = took.by_process(CPU_BATCH, per=1e-3, server=query.system.server)
    return {MS: took.batches[0].ms, **cpu}


def _latency(lab: Lab, system: System, messages: int, seeds: Iterator[int]) -> Measures:
    return {MS: measure_latency(lab, system, messages=messages, seed=next(seeds))}


def _idle(lab: Lab, system: System, seconds: float) -> Measures:
    asked = measure_idle(lab, system, seconds=seconds)
    return {IDLE_LWTS: asked["lwts"], IDLE_READS: asked["reads"]}


def _put(put: Callable[[], float]) -> Measures:
    return {RATE: put()}
