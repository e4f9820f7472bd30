"""Reads messages before they are leased: many of them by one read of a chunk."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from cassieq_spark.consumer.message import StoredMessage, stored_messages
from cassieq_spark.errors import InvariantError, LeaseLostError
from cassieq_spark.fetch.find import Finder, Piece, find_pieces
from cassieq_spark.fetch.read import OnUnreadable, fetch
from cassieq_spark.groups.lease import LeasedSlot, LeaseRequest
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.store.protocol import Store

#: About how many messages and bytes are read ahead.
_AHEAD_COUNT, _AHEAD_BYTES = 256, 256 << 10
#: Bytes, decompressed, that are read ahead in a partition at most.
_AHEAD_DECODED = 8 << 20
#: Bytes of a budget, if nobody says otherwise.
DEFAULT_BUDGET = 64 << 20


class PrefetchBudget:
    """Bytes of messages, decompressed, that may be read ahead, by all that share the budget.

    Where nothing is left of it, nothing is read ahead, and each lease reads for itself. For any
    thread.

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

    They can't change (I2), and no program deletes them (I7). They have the columns of the queue's
    definition as it was given last. For one thread at a time.
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
        """Use this definition of the queue; what was read by another one is read again."""
        if queue != self._queue:
            self._queue = queue
            self.forget()

    def forget(self) -> None:
        """Forget what was read ahead: it is read again if somebody asks for it."""
        self._messages.clear()
        self._unreadable.clear()
        self._give_back()

    def fit(self, request: LeaseRequest, offered: Range) -> LeaseRequest:
        """Turn a limit of bytes into one of messages, for a lease of the first of ``offered``.

        Raises:
            InvariantError: The ledger has a hole there (I1).
        """
        most, max_bytes = request.max_messages, request.max_bytes
        if max_bytes is None or most is None:
            return request
        fresh = Range(offered.start, min(offered.stop, offered.start + most))
        fitting = self.fitting(fresh, max_bytes)
        return replace(request, max_messages=min(most, fitting), max_bytes=None)

    def fitting(self, fresh: Range, max_bytes: int) -> int:
        """How many of the first messages have about this many bytes, as stored; one at least.

        Two reads, or none if their blocks are known.
        """
        count, left = 0, float(max_bytes)
        for block in self._finder.covering(fresh):
            part = block.monotons & fresh
            each = max(1, block.size) / len(block.monotons)
            taken = min(len(part), int(left / each))
            count, left = count + taken, left - taken * each
            if taken < len(part):
                break
        return max(1, count)

    def take(
        self,
        leased: LeasedSlot,
        stop: int,
        on_unreadable: OnUnreadable,
        most_bytes: int | None = None,
    ) -> list[StoredMessage]:
        """The messages of a lease, in order. Some reads, unless all were read ahead.

        Args:
            stop: The ledger's ``next``, or lower; no message from there on is read ahead.
            on_unreadable: Is told of messages that can't be read, which are left out.
            most_bytes: If the messages have more bytes, only the first ones; one at least.

        Raises:
            LeaseLostError: Messages are not in the store any more.
            InvariantError: The ledger has a hole there (I1).
            SchemaChangedError: A newer version of the schema wrote messages than this definition
                of the queue has.
        """
        try:
            return self._take(leased, stop, on_unreadable, most_bytes)
        finally:
            self._give_back()

    def _take(
        self,
        leased: LeasedSlot,
        stop: int,
        on_unreadable: OnUnreadable,
        most_bytes: int | None,
    ) -> list[StoredMessage]:
        monotons = [each for part in leased.monotons for each in range(part.start, part.stop)]
        missing = [each for each in monotons if not self._has(each)]
        if missing:
            wanted = set(monotons)
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
        """Give back what was taken of the budget for more than the messages that are kept."""
        kept = sum(each.size for each in self._messages.values())
        self._budget.give(self._taken - kept)
        self._taken = kept

    def _has(self, monoton: int) -> bool:
        return monoton in self._messages or monoton in self._unreadable

    def _note(self, monotons: Range, reason: str) -> None:
        self._unreadable |= dict.fromkeys(range(monotons.start, monotons.stop), reason)

    def _read_more(
        self, leased: LeasedSlot, first: int, stop: int, most_bytes: int | None
    ) -> None:
        """Read messages from the first missing one on, and further ahead as the budget allows."""
        granted = self._budget.take(_AHEAD_DECODED - self._taken)
        self._taken += granted
        # Between delayed messages, or those that were given back, may lie any number of others.
        if leased.deliveries == 1 and leased.monotons.count == len(leased.monotons.hull):
            try:
                least = Range(first, leased.monotons.hull.stop)
                most = Range(first, max(least.stop, min(stop, first + _AHEAD_COUNT)))
                # Without a budget, what is read ahead would be read again by the next lease.
                count = max(len(least), self.fitting(most, _AHEAD_BYTES) if granted else 0)
                ahead = Range(first, first + count)
                pieces = self._finder.pieces(Ranges.of(ahead), deliveries=None)
                self._put(self._read(pieces), most_bytes, least.stop)
            except (InvariantError, LeaseLostError):
                # The queue ends beyond the lease, or is damaged there.
                self._finder.forget()
            else:
                return
        pieces = find_pieces(self._ledger, leased.monotons, deliveries=None)
        self._put(self._read(pieces), most_bytes, leased.monotons.hull.stop)

    def _read(self, pieces: Iterable[Piece]) -> Iterator[StoredMessage]:
        batches = fetch(self._store, self._queue, pieces, on_unreadable=self._note, whole=True)
        return stored_messages(batches)

    def _put(self, messages: Iterable[StoredMessage], most_bytes: int | None, stop: int) -> None:
        """Keep messages; those from ``stop`` on only as far as the budget goes."""
        size, most = 0, float("inf") if most_bytes is None else float(most_bytes)
        ahead = sum(it.size for it in self._messages.values())
        for each in messages:
            if each.monoton >= stop:
                ahead += each.size
                if ahead > self._taken or size + each.size > most:
                    return
            elif size and size + each.size > most:
                return
            size += each.size
            self._messages[each.monoton] = each
