"""Processes that go on call by call, when they are told: threads around a store.

One goes on at a time, from one stop to the next, so an order of turns is all that a run depends
on; repeated, it is the same run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Op,
    Partition,
    Row,
    RowKey,
    Rows,
    Slice,
    Store,
    Value,
)
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore

_HANGS_AFTER_SECONDS = 60


class Crash(BaseException):
    """The process ends: nothing may catch it."""


class Turns:
    """A thread that stops wherever it calls `stop_here`, and goes on by `step`.

    It begins at a stop, before anything of ``run`` is done.

    Args:
        run: What it does; an error of it is raised by `step`.

    Attributes:
        ended: Whether it has come to its end.
        steps: How often it was told to go on.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        self.ended = False
        self.steps = 0
        self._run = run
        self._error: BaseException | None = None
        self._crashes = False
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        threading.Thread(target=self._go_through, daemon=True).start()
        self._await_stop()

    def step(self) -> None:
        """Go on to the next stop."""
        if self.ended:
            return
        self.steps += 1
        self._go.release()
        self._await_stop()

    def crash(self) -> None:
        """Never go on; every call of a store that is under way ends with `Crash`."""
        self._crashes = True
        while not self.ended:
            self.step()

    def stop_here(self) -> None:
        """Wait until told to go on."""
        self._stopped.release()
        self._go.acquire()
        if self._crashes:
            raise Crash

    def _await_stop(self) -> None:
        assert self._stopped.acquire(timeout=_HANGS_AFTER_SECONDS), "it hangs"
        if self._error is not None:
            raise self._error

    def _go_through(self) -> None:
        try:
            self.stop_here()
            self._run()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 (raised again by the next step)
            self._error = error
        self.ended = True
        self._stopped.release()


class SteppedStore(WrappedStore):
    """Stops before each call.

    Args:
        store: The store that does the work.
        stop: Called at each stop.
        after: Whether to stop after each call as well: for those whose time may be over then.
    """

    def __init__(self, store: Store, stop: Callable[[], None], *, after: bool = False) -> None:
        super().__init__(store)
        self._stop = stop
        self._stop_after = stop if after else _go_on

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self._stop()
        applied = super().cas(partition, ops)
        self._stop_after()
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._stop()
        rows = super().read_rows(partition, which, serial=serial)
        self._stop_after()
        return rows

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        self._stop()
        super().write_row(partition, row, values, timestamp=timestamp, ttl=ttl)
        self._stop_after()

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        self._stop()
        super().delete_row(partition, row, timestamp=timestamp)
        self._stop_after()

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._stop()
            super().write_chunks(queue_id, block, [chunk])

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        for piece in slices:
            self._stop()
            yield from super().read_chunks(queue_id, [piece])

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        for bucket in buckets:
            self._stop()
            super().delete_buckets(queue_id, [bucket])

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        self._stop()
        yield from super().scan(table, kinds)


def _go_on() -> None:
    """Do not stop."""
