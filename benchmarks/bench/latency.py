"""How long a message takes from its sender to the program that a query feeds, one at a time."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.bench.counters import Counts
from benchmarks.bench.lab import Lab
from benchmarks.bench.systems import CASSIEQ, System
from cassieq_spark import Client

Send = Callable[[bytes], object]

#: Not counted: the query has just begun.
_FIRST = 3
#: From the arrival of one message to the sending of the next.
_PAUSE_SECONDS = (0.05, 0.35)
_LONGEST_SECONDS = 60.0
_SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer"


class Arrivals:
    """When each message was in the hands of the query's program."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at: dict[int, float] = {}

    def take(self, frame: DataFrame, _: int) -> None:
        """For ``foreachBatch``."""
        numbers = [int(row.value) for row in frame.select("value").collect()]
        with self._changed:
            self._at.update(dict.fromkeys(numbers, time.perf_counter()))
            self._changed.notify_all()

    def wait_for(self, number: int) -> float:
        """When it arrived."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._at, _LONGEST_SECONDS):
                raise AssertionError(f"message {number} did not arrive in {_LONGEST_SECONDS} s")
            return self._at[number]


def measure_latency(lab: Lab, system: System, *, messages: int, seed: int) -> float:
    """Send messages one by one to a query with the default trigger; the median in ms."""
    chance = random.Random(seed)
    place = system.new()
    took = []
    with sender_to(lab, system, place) as send, _running(lab, system, place) as arrivals:
        for number in range(messages + _FIRST):
            began = time.perf_counter()
            send(str(number).encode())
            took.append(arrivals.wait_for(number) - began)
            # So that it does not come at always the same moment of the query's loop.
            time.sleep(chance.uniform(*_PAUSE_SECONDS))
    system.drop(place)
    return statistics.median(took[_FIRST:]) * 1000


def measure_idle(lab: Lab, system: System, *, seconds: float) -> dict[str, float]:
    """What a query asks of Cassandra in a second in which nothing comes."""
    place = system.new()
    with sender_to(lab, system, place) as send, _running(lab, system, place) as arrivals:
        send(b"0")
        arrivals.wait_for(0)
        # Until it has acked that, and has settled down.
        time.sleep(seconds)
        before, began = Counts.read(lab.cql), time.perf_counter()
        time.sleep(seconds)
        return Counts.read(lab.cql).since(before, per=time.perf_counter() - began)


@contextmanager
def sender_to(lab: Lab, system: System, place: str) -> Iterator[Send]:
    """What publishes one message and returns when it is safe."""
    if system.name == CASSIEQ:
        with Client.from_store(lab.store) as client:
            yield lambda value: client.put(place, value)
        return
    jvm: Any = lab.spark._jvm  # noqa: SLF001 (its client is there already)
    settings = jvm.java.util.Properties()
    settings.setProperty("bootstrap.servers", lab.broker)
    for side in ("key", "value"):
        settings.setProperty(f"{side}.serializer", _SERIALIZER)
    clients = jvm.org.apache.kafka.clients.producer
    producer = clients.KafkaProducer(settings)
    try:
        yield lambda value: producer.send(clients.ProducerRecord(place, bytearray(value))).get()
    finally:
        producer.close()


@contextmanager
def _running(lab: Lab, system: System, place: str) -> Iterator[Arrivals]:
    arrivals = Arrivals()
    source = lab.spark.readStream.format(system.form)
    frame = source.options(**system.read_options(place, None)).load()
    writer = frame.writeStream.foreachBatch(arrivals.take)
    query = writer.option("checkpointLocation", lab.new_folder()).start()
    try:
        yield arrivals
    finally:
        query.stop()
