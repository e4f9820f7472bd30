"""Stores for trials: one lets its user die at some call, one loses requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Row, Rows, Slice, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore


class Abandoned(Exception):  # noqa: N818 (no error: the death of a process)
    """Ends an actor as if killed: the package does not catch it, so nothing is cleaned up."""


class MortalStore(WrappedStore):
    """Passes calls on until it dies; from then on, each call raises `Abandoned`.

    Args:
        store: The store that does the work.
        chance: Decides when it dies.
        lifetime: After about how many calls it dies; None: never.
    """

    def __init__(self, store: Store, chance: Random, lifetime: int | None) -> None:
        super().__init__(store)
        self._steps = None if lifetime is None else chance.randrange(1, 4 * lifetime)

    @property
    def is_dead(self) -> bool:
        return self._steps == 0

    def kill(self, after: int = 0) -> None:
        """Let it die now, or after so many steps; a call has several steps."""
        with self._lock:
            self._steps = after

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self._step()
        applied = super().cas(partition, ops)
        self._step()
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._step()
        return super().read_rows(partition, which, serial=serial)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        self._step()
        super().write_chunks(queue_id, block, self._each(chunks))
        self._step()

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        self._step()
        for each in super().read_chunks(queue_id, slices):
            self._step()
            yield each

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        self._step()
        for bucket in buckets:
            super().delete_buckets(queue_id, [bucket])
            self._step()

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        self._step()
        return super().scan(table, kinds)

    def _each(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self._step()
            yield chunk

    def _step(self) -> None:
        with self._lock:
            if self._steps is None:
                return
            self._steps = max(0, self._steps - 1)
            if self._steps:
                return
        raise Abandoned


_T = TypeVar("_T")


class LossyStore(WrappedStore):
    """Loses requests, or their answers, by chance, and tells its user at once.

    The store for Cassandra hides most losses, as it repeats reads and writes of messages for half
    a minute. Here each loss reaches the queue's code. For one thread.

    Args:
        store: The store that does the work.
        chance: Decides what is lost.
        lost: Share of calls of which the request, or as often the answer, is lost.
    """

    def __init__(self, store: Store, chance: Random, lost: float) -> None:
        super().__init__(store)
        self._chance = chance
        self._lost = lost

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        cas = super().cas
        return self._write(lambda: cas(partition, ops), f"compare-and-set on {partition}")

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._check_read(f"read of {partition}")
        return super().read_rows(partition, which, serial=serial)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        write = super().write_chunks
        self._write(
            lambda: write(queue_id, block, chunks), f"write of chunks of {queue_id}, block {block}"
        )

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
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
