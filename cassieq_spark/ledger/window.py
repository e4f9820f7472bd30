"""Which unique ids were published within a queue's window, as a process remembers them."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count, pairwise
from typing import NamedTuple

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead, UniqueRow, unique_row_of
from cassieq_spark.ledger.unique import split_ids
from cassieq_spark.model import QueueId
from cassieq_spark.processes import lock_across_forks
from cassieq_spark.store.protocol import Slice

#: Once this many rows are older than the window, the next publish deletes them.
_EXPIRED_ROWS = 128
#: How long publishers compete, in seconds, once one has found what another has published.
_COMPETE_SECONDS = 1.0
#: How many ids a process remembers, of all windows, unless one window has more; how many windows.
_MOST_REMEMBERED, _MOST_WINDOWS = 2_000_000, 1_000

_Monotons = Mapping[bytes, int] | Iterable[tuple[bytes, int]]


class UniqueIds:
    """The unique ids that were published to a ledger within its window.

    Safe to use from several threads. Memory: about 150 bytes per id.

    Args:
        clock: This process's clock, in seconds, which measures how long a publish took; None for
            the system's clock.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or time.monotonic
        self._lock = lock_across_forks()
        self._rows: deque[UniqueRow] = deque()
        self._monotons: dict[bytes, int] = {}
        # The position of the last row that is known; and how many are over that are not deleted.
        self._last: int | None = None
        self._expired = 0
        # By the clock: until when other processes are taken to publish at the same time.
        self._competes_until = 0.0

    def __len__(self) -> int:
        return len(self._monotons)

    @property
    def monotons(self) -> Mapping[bytes, int]:
        """The monoton of the published message that has an id.

        `NO_ID` may have one, too, which nobody asks for.
        """
        return self._monotons

    def look_ahead(self, ledger: Ledger) -> None:
        """Learn what others have published, before the head is read, if they do so right now.

        One read then, and none otherwise. `catch_up` would find the same, but its read comes
        between that of the head and the LWT: while it runs, another one publishes, and the race is
        lost. A plain read may see a row before the head is seen that belongs to it. Its publish is
        decided, so the row is true, and an LWT that is conditioned on the earlier head is refused.
        """
        if self._last is None or self.clock() >= self._competes_until:
            return
        found = ledger.read(Slice(kinds=("unique",), start=self._last + 1)).rows
        with self._lock:
            for row in map(unique_row_of, found):
                if row.before == self._last:
                    self._learn_of_others(row)

    def catch_up(self, ledger: Ledger, head: LedgerHead, now: datetime, lasts: timedelta) -> None:
        """Learn what was published up to ``head``, and forget what is older than the window.

        No read if no other process has published unique ids since the last call; else one read,
        the first time of the whole window.

        Args:
            now: The time when ``head`` was read; see `Rows.sure_now`.
            lasts: The window.

        Raises:
            InvariantError: Rows are missing.
        """
        start = head.ids_from if self._last is None else max(head.ids_from, self._last + 1)
        if head.last_ids is not None and start <= head.last_ids:
            rows = _read(ledger, start, head)
            with self._lock:
                for row in rows:
                    if self._last is None or row.position > self._last:
                        self._learn_of_others(row)
        with self._lock:
            self._forget(now, lasts)

    def forget_below(self) -> int | None:
        """The position below which the ledger's rows must be deleted; None if not yet."""
        with self._lock:
            if self._expired < _EXPIRED_ROWS or self._last is None:
                return None
            return self._rows[0].position if self._rows else self._last + 1

    def add(
        self, row: UniqueRow | None, monotons: Mapping[bytes, int], *, has_deleted: bool
    ) -> None:
        """Remember what this process has published.

        Args:
            row: The row of unique ids; None if no message had one.
            monotons: The monoton of each of these messages with an id, by its digest.
            has_deleted: True if the publish has deleted the expired rows.
        """
        with self._lock:
            if has_deleted:
                self._expired = 0
            # Otherwise the next call of `catch_up` reads it.
            if row is not None and self._last == row.before:
                self._learn(row, monotons)

    def _learn_of_others(self, row: UniqueRow) -> None:
        self._competes_until = self.clock() + _COMPETE_SECONDS
        self._learn(row, _ids_of(row))

    def _learn(self, row: UniqueRow, monotons: _Monotons) -> None:
        self._rows.append(row)
        self._last = row.position
        self._monotons.update(monotons)

    def _forget(self, now: datetime, lasts: timedelta) -> None:
        while self._rows and self._rows[0].known_since(now) <= now - lasts:
            row = self._rows.popleft()
            self._expired += 1
            for digest, monoton in _ids_of(row):
                # Another message may have had the id since.
                if self._monotons.get(digest) == monoton:
                    del self._monotons[digest]


class UniqueWindow(NamedTuple):
    """How long unique ids are remembered, and which ids are.

    Attributes:
        lasts: How long ids are remembered.
        ids: The remembered ids.
    """

    lasts: timedelta
    ids: UniqueIds


class UniqueWindows:
    """The unique ids of all ledgers to which a process publishes, within a bound of memory."""

    def __init__(self) -> None:
        self._lock = lock_across_forks()
        self._known: OrderedDict[tuple[QueueId, datetime | None], UniqueIds] = OrderedDict()

    def of(self, queue_id: QueueId, created_at: datetime | None = None) -> UniqueIds:
        """The unique ids of a ledger. The ids of ledgers that were unused for longest are dropped.

        Args:
            queue_id: The queue id of the ledger.
            created_at: When its queue was created: in a keyspace that was made anew, another queue
                may have the same id.
        """
        with self._lock:
            key = (queue_id, created_at)
            found = self._known.setdefault(key, UniqueIds())
            self._known.move_to_end(key)
            left = sum(map(len, self._known.values()))
            while len(self._known) > 1 and (
                left > _MOST_REMEMBERED or len(self._known) > _MOST_WINDOWS
            ):
                left -= len(self._known.popitem(last=False)[1])
            return found


def _ids_of(row: UniqueRow) -> Iterable[tuple[bytes, int]]:
    """The ids of a row, with the monotons of their messages."""
    return zip(split_ids(row.ids), count(row.position), strict=False)


def _read(ledger: Ledger, start: int, head: LedgerHead) -> Sequence[UniqueRow]:
    """Read the rows from ``start`` on that ``head`` knows.

    A plain read may miss what ``head`` has shown. Each row names the one before it, so a gap is
    seen, and all rows are read once more, serially.
    """
    stop = (head.last_ids or 0) + 1
    which = Slice(kinds=("unique",), start=start, stop=stop)
    for serial in (False, True):
        rows = [unique_row_of(row) for row in ledger.read(which, serial=serial).rows]
        if _is_whole(rows, start, stop):
            return rows
    if ledger.read_head(serial=True).ids_from > start:
        # Deleted since, by a publish that makes this one lose the race: it decides anew.
        return ()
    raise InvariantError(
        f"queue {ledger.queue_id}: rows of unique ids are missing in [{start}, {stop}) (I12)"
    )


def _is_whole(rows: Sequence[UniqueRow], start: int, stop: int) -> bool:
    """True if each row names the row before it, from ``start`` to the last one below ``stop``."""
    if not rows or rows[-1].position != stop - 1:
        return False
    first = rows[0].before
    follow = all(row.before == before.position for before, row in pairwise(rows))
    return follow and (first is None or first < start)
