"""The names of measures and cases, and the selection of cases by their short names."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from benchmarks.bench.payloads import FLIGHTS, ORDERS, RANDOM, READINGS
from benchmarks.bench.systems import KAFKA_LZ4

#: Measures of messages, and of micro-batches.
RATE, INSIDE, MS = "messages/s", "messages/s inside the batches", "ms"
STEADY = "messages/s in the steady state"
CPU, CPU_BATCH = "us of processor time a message", "ms of processor time a batch"
SECONDS, CPU_QUERY = "s", "s of processor time"
LOADING = "s to load, before the query"
IDLE_LWTS, IDLE_READS = "LWTs a second", "reads a second"
#: Measures of rows.
ROW_RATE, ROW_STEADY = "rows/s", "rows/s in the steady state"
STORED = "bytes a row, as stored"
ROW_CPU = "us of processor time a row"

#: Systems that take part in some cases only.
LIMIT = "driver alone"
ROWS = "driver, single rows"
JSON, AVRO = f"{KAFKA_LZ4}, JSON", f"{KAFKA_LZ4}, Avro"

BATCH_WRITE = "batch write"
WRITE_20K, WRITE_100K = "stream write, 20,000 a batch", "stream write, 100,000 a batch"
READ_20K, READ_100K = "AvailableNow read, 20,000 a batch", "AvailableNow read, 100,000 a batch"
READ_ALL = "AvailableNow read, no limit"
SMALL_READ = "micro-batch of 10 messages, read"
SMALL_WRITE = "micro-batch of 10 messages, write"
START = "a query with one batch of 10 messages, read"
LATENCY = "end-to-end latency, p50"
IDLE = "idle stream"
REST = "a batch of 10 messages after two minutes of rest"
PUTS = "single puts, {} threads"
THREADS = (1, 8, 64)
TYPED_WRITE = "typed batch write"
TYPED_READ_ALL = "typed read, no limit, all columns"
TYPED_READ_ALL_SOME = "typed read, no limit, 3 columns"
TYPED_READ_100K = "typed read, 100,000 a batch, all columns"
TYPED_READ_100K_SOME = "typed read, 100,000 a batch, 3 columns"

_CASES = {
    SMALL_READ: "small-read",
    SMALL_WRITE: "small-write",
    START: "start",
    LATENCY: "latency",
    IDLE: "idle",
    **{PUTS.format(threads): f"puts-{threads}" for threads in THREADS},
    REST: "rest",
    BATCH_WRITE: "write",
    WRITE_100K: "stream-write-100k",
    WRITE_20K: "stream-write-20k",
    READ_ALL: "read-all",
    READ_100K: "read-100k",
    READ_20K: "read-20k",
    TYPED_WRITE: "typed-write",
    TYPED_READ_ALL: "typed-read-all",
    TYPED_READ_ALL_SOME: "typed-read-all-3",
    TYPED_READ_100K: "typed-read-100k",
    TYPED_READ_100K_SOME: "typed-read-100k-3",
}
_PAYLOADS = {RANDOM: "random", ORDERS: "orders", READINGS: "readings", FLIGHTS: "flights"}

#: Case and payload.
Title = tuple[str, str]


def name_of(title: Title) -> str:
    """The short name of a contest.

    >>> name_of((READ_100K, FLIGHTS)), name_of((REST, ""))
    ('read-100k:flights', 'rest')
    """
    case, payload = title
    return f"{_CASES[case]}:{_PAYLOADS[payload]}" if payload else _CASES[case]


def select(only: Sequence[str], titles: Collection[Title]) -> list[Title]:
    """The contests of some names; without names, all.

    The name of a case without a payload means all of its payloads.

    Raises:
        ValueError: There is no contest of a name.

    >>> found = select(["read-100k"], [(READ_100K, FLIGHTS), (REST, ""), (READ_100K, ORDERS)])
    >>> [name_of(each) for each in found]
    ['read-100k:flights', 'read-100k:orders']
    """
    known = {known for title in titles for known in _names(title)}
    for each in only:
        if each not in known:
            near = "".join(f"; near: {name}" for name in difflib.get_close_matches(each, known, 1))
            raise ValueError(f"no case is named {each!r}{near}")
    return [title for title in titles if not only or _names(title) & set(only)]


def _names(title: Title) -> set[str]:
    return {name_of(title), _CASES[title[0]]}
