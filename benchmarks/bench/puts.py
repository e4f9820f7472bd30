"""Single messages from many threads: through the client's producer, and as bare rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from uuid import uuid4

from benchmarks.bench.lab import Lab
from cassieq_spark import Client

_VALUE = bytes(range(256)) * 4
_INSERT = "INSERT INTO bench.rows (part, seq, value) VALUES (?, ?, ?)"


def put_through_producer(lab: Lab, *, threads: int, seconds: float) -> float:
    """Messages a second that threads put one by one, each waiting until its message is safe."""
    queue = lab.new_queue()
    with (
        Client.from_store(lab.store) as client,
        client.producer(queue) as producer,
    ):
        return _repeat(lambda: producer.put(_VALUE).result(), threads=threads, seconds=seconds)


def insert_rows(lab: Lab, *, threads: int, seconds: float) -> float:
    """Rows a second that threads insert one by one, each waiting: what the driver can do."""
    statement = lab.cql.prepare(_INSERT)
    part, numbers = uuid4().int >> 66, count()
    return _repeat(
        lambda: lab.cql.execute(statement, (part, next(numbers), _VALUE)),
        threads=threads,
        seconds=seconds,
    )


def _repeat(call: Callable[[], object], *, threads: int, seconds: float) -> float:
    """Calls a second."""

    def repeat(_: int) -> int:
        done = 0
        while time.perf_counter() < until:
            call()
            done += 1
        return done

    call()
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        until = began + seconds
        done = sum(pool.map(repeat, range(threads)))
        return done / (time.perf_counter() - began)
