"""A queue with several partitions, its client, and readers of streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.client import Message
from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.message import StoredMessage, stored_messages
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups import presence
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.model import QueueDefinition
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.queues import read_queue
from cassieq_spark.spark.source import queue_reader
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.spark.source.tasks import TaskPart
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store

PARTITIONS = 4
FIRST = initial_offset("orders", "billing")
#: Two keys of each partition.
KEYS: Mapping[int, Sequence[str]] = {
    partition: [
        key for key in map(str, range(1000)) if partition_of_key(key, PARTITIONS) == partition
    ][:2]
    for partition in range(PARTITIONS)
}


class PartitionedQueue:
    """The queue ``orders`` of four partitions."""

    def __init__(self, order: str = "none", **settings: Any) -> None:
        self.memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(self.memory)
        self.store = CountingStore(self.trouble)
        self.client = Client.from_store(self.store)
        self.client.create_queue("orders", order=order, partitions=PARTITIONS, **settings)
        self.readers: list[QueueReader] = []

    @property
    def definition(self) -> QueueDefinition:
        return read_queue(self.memory, "orders")

    def put(self, *keys: str, of: str = "") -> None:
        """Put a message for each key, numbered by key."""
        counts: defaultdict[str, int] = defaultdict(int)
        messages = []
        for key in keys:
            messages.append(NewMessage(f"{key}:{of}{counts[key]}", key))
            counts[key] += 1
        self.client.put_many("orders", messages)

    def reader(self, **changes: Any) -> QueueReader:
        request = LeaseRequest(lease=LEASE, **changes)
        reader = QueueReader(
            self.store, self.definition, "billing", starting="earliest", request=request
        )
        self.readers.append(reader)
        return reader

    def batch(
        self, reader: QueueReader, end: Mapping[str, Any], *, messages_per_task: int = 100
    ) -> list[list[str]]:
        """The values of each task of a batch."""
        return [
            [text(each) for part in parts for each in self.messages_of(part)]
            for parts in reader.tasks(end, messages_per_task=messages_per_task)
        ]

    def messages_of(self, part: TaskPart) -> Iterable[StoredMessage]:
        return stored_messages(fetch(self.store, part.queue, part.pieces))

    def peek(self) -> list[str]:
        return [text(each) for each in self.client.peek("orders", max=1000)]

    def receive(self, most: int = 1000, group: str = "billing") -> list[Message]:
        return self.client.receive("orders", group, max=most, lease=timedelta(seconds=60))


class Time:
    """The clocks of readers, which go with that of the server; nobody sleeps.

    Attributes:
        ahead: How far the clock of this process is ahead of the server's.
        tick: How long each look at the clock takes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, queue: PartitionedQueue) -> None:
        self._queue = queue
        self._began = queue.clock.now
        self.ahead = self.tick = timedelta(0)
        for module in (idle_backoff, queue_reader, presence):
            monkeypatch.setattr(module, "time", self)

    def sleep(self, seconds: float) -> None:
        self._queue.clock.advance(timedelta(seconds=seconds))

    def monotonic(self) -> float:
        self._queue.clock.advance(self.tick)
        return (self._queue.clock.now - self._began).total_seconds()

    def time(self) -> float:
        return (self._queue.clock.now + self.ahead).timestamp()


def text(message: StoredMessage) -> str:
    return bytes(message.value).decode()


def by_key(values: Iterable[str]) -> dict[str, list[str]]:
    """Values by the key that they begin with, in order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for value in values:
        found[value.partition(":")[0]].append(value)
    return dict(found)
