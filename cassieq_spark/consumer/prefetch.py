"""Reads messages before they are leased: many messages by one read of a chunk."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from cassieq_spark.consumer.message import StoredMessage, stored_messages
from cassieq_spark.errors import InvariantError, LeaseLostError
from cassieq_spark.fetch.find import Finder, Piece, find_pieces
from cassieq_spark.fetch.read import OnUnreadable, fetch
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.store.protocol import Store

#: About how many messages and bytes are read ahead.
_AHEAD_COUNT, _AHEAD_BYTES = 256, 256 << 10
#: Maximum number of decompressed bytes that are read ahead in a partition.
_AHEAD_DECODED = 8 << 20
#: The default number of bytes of a budget.
DEFAULT_BUDGET = 64 << 20


class PrefetchBudget:
    """Decompressed bytes of messages that may be read ahead, by all users of the budget together.

    Where the budget is used up, nothing is read ahead, and each lease reads for itself.
    Thread-safe.

    Args:
        most: Bytes that may be read ahead.
        within: A larger budget, of which these bytes are a part.
    """

    def __init__(self, most: int = DEFAULT_BUDGET, within: PrefetchBudget | None = None) -> None:
        self._left, self._within = most, within
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        """Take up to ``wanted`` bytes, as far as any are left; return how many were taken."""
        with self._lock:
            taken = max(0, min(wanted, self._left))
            if self._within is not None:
                taken = self._within.take(taken)
            self._left -= taken
            return taken

    def give(self, count: int) -> None:
        """Give back bytes that were taken."""
        with self._lock:
            self._left += count
            if self._within is not None:
                self._within.give(count)


class Prefetch:
    """Messages of one version of a queue, read ahead of the pointer of a group.

    The messages can't change (I2), and no program deletes them (I7). They have the columns of the
    queue's latest given definition. Not thread-safe.
    """

    def __init__(self, store: Store, queue: QueueDefinition, budget: PrefetchBudget) -> None:
        self._store = store
        self._queue = queue
        self._ledger = Ledger(store, queue.queue_id)
        self._finder = Finder(self._ledger)
        self._budget = budget
        # Bytes taken of the budget: those of the messages below, between two calls.
        self._taken = 0
        self._messages: dict[int, StoredMessage] = {}
        # Why a message can't be read: it is rejected once it is leased.
        self._unreadable: dict[int, str] = {}

    def renew(self, queue: QueueDefinition) -> None:
        """Use this definition of the queue; messages read by another definition are read again."""
        if queue != self._queue:
            self._queue = queue
            self.forget()

    def forget(self) -> None:
        """Forget what was read ahead; a later request reads it again."""
        self._messages.clear()
        self._unreadable.clear()
        self._give_back()

    def fit(self, request: LeaseRequest, offered: Range) -> LeaseRequest:
        """Turn a limit of bytes into a limit of messages, for a lease of the first of ``offered``.

        Raises:
            InvariantError: The ledger has a hole among these messages (I1).
        """
        most, max_bytes = request.max_messages, request.max_bytes
        if max_bytes is None or most is None:
            return request
        fresh = Range(offered.start, min(offered.stop, offered.start + most))
        fitting = self._finder.fitting(fresh, max_bytes)
        return replace(request, max_messages=min(most, fitting), max_bytes=None)

    def take(
        self,
        leased: Ranges,
        stop: int,
        on_unreadable: OnUnreadable,
        most_bytes: int | None = None,
    ) -> list[StoredMessage]:
        """The messages of a lease, in order. Some reads, unless all were read ahead.

        Args:
            leased: The messages; at least one.
            stop: The ledger's ``next``, or lower; no message from this monoton on is read ahead. 0
                if ``leased`` are not the next messages of the group.
            on_unreadable: Called with messages that can't be read, which are left out.
            most_bytes: If the messages have more bytes, only the first ones are returned; at least
                one.

        Raises:
            LeaseLostError: Messages are no longer in the store.
            InvariantError: The ledger has a hole among these messages (I1).
            SchemaChangedError: A version of the schema that is newer than this definition of the
                queue wrote some messages.
        """
        try:
            return self._take(leased, stop, on_unreadable, most_bytes)
        finally:
            self._give_back()

    def _take(
        self,
        leased: Ranges,
        stop: int,
        on_unreadable: OnUnreadable,
        most_bytes: int | None,
    ) -> list[StoredMessage]:
        monotons = [each for part in leased for each in range(part.start, part.stop)]
        missing = [each for each in monotons if not self._has(each)]
        if missing:
            wanted = set(monotons)
            # With lanes, what was stepped over is leased soon.
            if not self._queue.has_lanes or self._taken > _AHEAD_DECODED // 2:
                self._messages = {at: it for at, it in self._messages.items() if at in wanted}
            self._unreadable = {at: why for at, why in self._unreadable.items() if at in wanted}
            self._read_more(leased, missing[0], stop, most_bytes)
        if most_bytes is not None:
            monotons = list(takewhile(self._has, monotons))
        for each in [each for each in monotons if each in self._unreadable]:
            on_unreadable(Range(each, each + 1), self._unreadable.pop(each))
            monotons.remove(each)
        return [self._messages.pop(each) for each in monotons]

    def _give_back(self) -> None:
        """Give back the part of the budget that exceeds the messages that are kept."""
        kept = sum(each.size for each in self._messages.values())
        self._budget.give(self._taken - kept)
        self._taken = kept

    def _has(self, monoton: int) -> bool:
        return monoton in self._messages or monoton in self._unreadable

    def _note(self, monotons: Range, reason: str) -> None:
        self._unreadable |= dict.fromkeys(range(monotons.start, monotons.stop), reason)

    def _read_more(self, leased: Ranges, first: int, stop: int, most_bytes: int | None) -> None:
        """Read messages from the first missing one on, and further ahead as the budget allows."""
        granted = self._budget.take(_AHEAD_DECODED - self._taken)
        self._taken += granted
        # Between delayed messages, or those that were given back, may lie any number of others.
        if stop and self._is_compact(leased):
            try:
                least = Range(first, leased.hull.stop)
                most = Range(first, max(least.stop, min(stop, first + _AHEAD_COUNT)))
                # Without a budget, what is read ahead would be read again by the next lease.
                more = self._finder.fitting(most, _AHEAD_BYTES) if granted else 0
                ahead = Range(first, first + max(len(least), more))
                pieces = self._finder.pieces(Ranges.of(ahead), deliveries=None)
                self._put(self._read(pieces), most_bytes, leased)
            except (InvariantError, LeaseLostError):
                # The queue ends beyond the lease, or is damaged there.
                self._finder.forget()
            else:
                return
        pieces = find_pieces(self._ledger, leased, deliveries=None)
        self._put(self._read(pieces), most_bytes, leased)

    def _is_compact(self, leased: Ranges) -> bool:
        """True if messages are one range, or, with lanes, the gaps between them are small."""
        if leased.count == len(leased.hull):
            return True
        if not self._queue.has_lanes or len(leased.hull) > _AHEAD_COUNT:
            return False
        return self._finder.fitting(leased.hull, _AHEAD_BYTES) >= len(leased.hull)

    def _read(self, pieces: Iterable[Piece]) -> Iterator[StoredMessage]:
        batches = fetch(self._store, self._queue, pieces, on_unreadable=self._note, whole=True)
        return stored_messages(batches)

    def _put(
        self, messages: Iterable[StoredMessage], most_bytes: int | None, leased: Ranges
    ) -> None:
        """Keep messages; messages that are not leased only as far as the budget goes."""
        size, most = 0, float("inf") if most_bytes is None else float(most_bytes)
        ahead = sum(it.size for it in self._messages.values())
        wanted = {at for part in leased for at in range(part.start, part.stop)}
        for each in messages:
            is_wanted = each.monoton in wanted
            if size + each.size > most and (size or not is_wanted):
                return
            if not is_wanted:
                ahead += each.size
                if ahead > self._taken:
                    if each.monoton >= leased.hull.stop:
                        return
                    ahead -= each.size
                    continue
            size += each.size
            self._messages[each.monoton] = each
