"""A store for looking only: it changes nothing, sends no serial read, and keeps to a pace."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from cassieq_spark.errors import OptionError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Partition,
    Row,
    Rows,
    Slice,
    Store,
)
from cassieq_spark.store.tables import Table

#: How many rows of a scan come with one request.
_PAGE = 1000
#: The reported load is the mean of this many seconds.
_SECONDS = 30
#: The longest pause, in seconds, so that an end is noticed soon.
_LONGEST_PAUSE = 0.5


class Pace:
    """Counts reads, and delays reads that come too fast. Safe to call from several threads.

    Args:
        per_second: Maximum number of reads per second, as the mean of any half minute; None for
            no limit.
        at_once: This many reads may come at once after a quiet time.
        clock: Seconds that never decrease.
    """

    def __init__(
        self,
        per_second: float | None = None,
        *,
        at_once: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.per_second = per_second
        self._clock = clock
        self._at_once = at_once
        self._free = at_once
        self._free_at = clock()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._counted: deque[tuple[int, int]] = deque(maxlen=_SECONDS + 1)

    def take(self) -> None:
        """Wait for a read's turn, and count it."""
        while (pause := self._try()) > 0:
            if self._ended.wait(min(pause, _LONGEST_PAUSE)):
                return

    def end(self) -> None:
        """Let all callers continue at once."""
        self._ended.set()

    @property
    def load(self) -> float:
        """Reads per second, the mean of the last half minute."""
        now = int(self._clock())
        with self._lock:
            return self._count(now - _SECONDS, now) / _SECONDS

    def _try(self) -> float:
        with self._lock:
            now = self._clock()
            second = int(now)
            if self.per_second is not None:
                earned = (now - self._free_at) * self.per_second
                self._free, self._free_at = min(self._at_once, self._free + earned), now
                if self._free < 1 and not self._ended.is_set():
                    return (1 - self._free) / self.per_second
                # Otherwise what comes at once would come on top of a full half minute.
                counted = self._count(second - _SECONDS + 1, second + 1)
                if counted + 1 > self.per_second * _SECONDS and not self._ended.is_set():
                    return second + 1 - now
                self._free -= 1
            if self._counted and self._counted[-1][0] == second:
                self._counted[-1] = (second, self._counted[-1][1] + 1)
            else:
                self._counted.append((second, 1))
            return 0.0

    def _count(self, start: int, stop: int) -> int:
        """How many reads were counted in the seconds ``[start, stop)``."""
        return sum(count for second, count in self._counted if start <= second < stop)


class LookingStore:
    """Passes reads on to another store, one by one at a pace, and refuses all changes.

    A serial read is sent as a plain read: it would be a round of the protocol by which readers
    lease, and delay them. So an operation in flight at that very moment may be missed. Only blocks
    are read serially if asked for: that happens where a plain read has missed one, and rarely.

    Args:
        store: Where the queues are kept; it is not closed with this store.
        pace: Counts the reads.
    """

    def __init__(self, store: Store, pace: Pace) -> None:
        self._store = store
        self.pace = pace

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        """Read rows at the pace, plainly except for blocks; see `Store.read_rows`."""
        self.pace.take()
        return self._store.read_rows(partition, which, serial=serial and which.kinds == ("block",))

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        """Read chunks at the pace; see `Store.read_chunks`."""
        return self._store.read_chunks(queue_id, self._paced(slices))

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        """Scan a table at the pace; see `Store.scan`."""
        self.pace.take()
        for number, row in enumerate(self._store.scan(table, kinds), 1):
            if number % _PAGE == 0:
                self.pace.take()
            yield row

    def cas(self, *_: object) -> NoReturn:
        """Refuse to change a row."""
        raise _refusal()

    def write_row(self, *_: object, **__: object) -> NoReturn:
        """Refuse to write a row."""
        raise _refusal()

    def delete_row(self, *_: object, **__: object) -> NoReturn:
        """Refuse to delete a row."""
        raise _refusal()

    def write_chunks(self, *_: object) -> NoReturn:
        """Refuse to write chunks."""
        raise _refusal()

    def delete_buckets(self, *_: object) -> NoReturn:
        """Refuse to delete buckets."""
        raise _refusal()

    def close(self) -> None:
        """Do nothing: the other store stays open."""

    def _paced(self, slices: Iterable[BucketSlice]) -> Iterator[BucketSlice]:
        for each in slices:
            self.pace.take()
            yield each


def _refusal() -> OptionError:
    return OptionError(
        "this console only looks, and was about to change something: start it with "
        "--allow-changes, or use the command line"
    )
