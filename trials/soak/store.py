"""A store whose user dies at some call: before it is carried out, or after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from uuid import UUID

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Row, Rows, Slice, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore


class Abandoned(Exception):  # noqa: N818 (no error: the death of a process)
    """What ends an actor; nothing of the package knows it, so nothing is cleaned up."""


class MortalStore(WrappedStore):
    """Passes calls on until its time has come; from then on, none.

    Args:
        store: The store that does the work; it outlives this one.
        chance: Decides when.
        lifetime: About how many calls it lives; None: for ever.
    """

    def __init__(self, store: Store, chance: Random, lifetime: int | None) -> None:
        super().__init__(store)
        self._steps = None if lifetime is None else chance.randrange(1, 4 * lifetime)

    @property
    def is_dead(self) -> bool:
        """Whether its time has come."""
        return self._steps == 0

    def kill(self, after: int = 0) -> None:
        """Let its time come now, or with so many calls; each has two moments to die at."""
        with self._lock:
            self._steps = after

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        """See `Store.cas`."""
        self._step()
        applied = super().cas(partition, ops)
        self._step()
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        """See `Store.read_rows`."""
        self._step()
        return super().read_rows(partition, which, serial=serial)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        """See `Store.write_chunks`."""
        self._step()
        super().write_chunks(queue_id, block, self._each(chunks))
        self._step()

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        """See `Store.read_chunks`."""
        self._step()
        for each in super().read_chunks(queue_id, slices):
            self._step()
            yield each

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        """See `Store.delete_buckets`."""
        self._step()
        for bucket in buckets:
            super().delete_buckets(queue_id, [bucket])
            self._step()

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        """See `Store.scan`."""
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
