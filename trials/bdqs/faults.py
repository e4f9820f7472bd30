"""What goes wrong: requests and answers that are lost, and when nodes fail."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TypeVar
from uuid import UUID

from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Rows, Slice, Store
from cassieq_spark.testing.stores import WrappedStore

_T = TypeVar("_T")


class LossyStore(WrappedStore):
    """Loses requests, or their answers, by chance; its user hears of it at once.

    The store for Cassandra repeats reads and writes of messages by itself for half a minute, and
    so hides most of such losses; here each of them reaches the queue's code. For one thread.

    Args:
        store: The store that does the work.
        chance: Decides what is lost.
        lost: Chance of each request to be lost, or else its answer, as often.
    """

    def __init__(self, store: Store, chance: Random, lost: float) -> None:
        super().__init__(store)
        self._chance = chance
        self._lost = lost

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        """See `Store.cas`."""
        cas = super().cas
        return self._write(lambda: cas(partition, ops), f"compare-and-set on {partition}")

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        """See `Store.read_rows`."""
        self._check_read(f"read of {partition}")
        return super().read_rows(partition, which, serial=serial)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        """See `Store.write_chunks`."""
        write = super().write_chunks
        self._write(
            lambda: write(queue_id, block, chunks), f"write of chunks of {queue_id}, block {block}"
        )

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        """See `Store.read_chunks`."""
        self._check_read(f"read of chunks of {queue_id}")
        return super().read_chunks(queue_id, slices)

    def _check_read(self, doing: str) -> None:
        if self._strikes():
            raise NotAppliedError(f"{doing}: lost on the way")

    def _write(self, write: Callable[[], _T], doing: str) -> _T:
        if not self._strikes():
            return write()
        if self._chance.random() < 1 / 2:
            write()
        raise OutcomeUnknownError(f"{doing}: lost on the way")

    def _strikes(self) -> bool:
        return self._chance.random() < self._lost


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """A node fails, or is started again; seconds from the beginning."""

    at: float
    node: int
    fails: bool


def events(nodes: int, mttf: timedelta, repair: timedelta, chance: Random) -> Iterator[Event]:
    """When nodes fail, each by itself after an exponential time, and are started again; for ever.

    Args:
        nodes: How many.
        mttf: Mean time that a node runs.
        repair: How long it is down.
        chance: Decides how long each runs.
    """
    seeds = [chance.random() for _ in range(nodes)]
    return heapq.merge(
        *(_events_of(node, mttf, repair, Random(seed)) for node, seed in enumerate(seeds))
    )


def _events_of(node: int, mttf: timedelta, repair: timedelta, chance: Random) -> Iterator[Event]:
    now = 0.0
    while True:
        now += chance.expovariate(1 / mttf.total_seconds())
        yield Event(now, node, fails=True)
        now += repair.total_seconds()
        yield Event(now, node, fails=False)
