"""Reads in which lanes messages are, before they are leased."""

from __future__ import annotations

from cassieq_spark.arrow.rows import metadata_of, metadata_rows
from cassieq_spark.fetch.find import Finder
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.lanes import NO_LANE, Window
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.producer.partitioner import lanes_of_keys
from cassieq_spark.store.protocol import Store

#: Messages at whose lanes a lease looks: twice as many as it wants, but no fewer and no more.
LEAST_AHEAD, MOST_AHEAD = 64, 16_384
#: Bytes, as stored, of the messages that are read for that; one message at least.
_AHEAD_BYTES = 4 << 20


class LaneReader:
    """The lanes of the messages beyond the pointer of a group, in one partition of a queue.

    They never change (I2), so what was read is remembered while the pointer moves through it. A
    message that cannot be read is in no lane: whoever leases it rejects it. For one thread at a
    time.
    """

    def __init__(self, store: Store, queue: QueueDefinition) -> None:
        self._store, self._queue = store, queue
        self._finder = Finder(Ledger(store, queue.queue_id))
        self._known = Window(0, ())

    def window(
        self, pointer: int, request: LeaseRequest, *, max_bytes: int | None = None
    ) -> Window:
        """The lanes of the first messages from the pointer on.

        No read while half of them are known; else one or two, and one for each bucket.

        Args:
            pointer: The first message that the group was never offered.
            request: How many messages are wanted, and up to where there are any.
            max_bytes: About how many bytes of messages are wanted, as stored; None for no limit.

        Raises:
            InvariantError: The ledger has a hole there (I1), or the messages are trimmed.
            LeaseLostError: The messages are not in the store any more.
        """
        wanted = MOST_AHEAD if request.max_messages is None else 2 * request.max_messages
        ahead = min(MOST_AHEAD, max(LEAST_AHEAD, wanted))
        known = self._known.lanes[max(0, pointer - self._known.start) :]
        if not self._known.start <= pointer <= self._known.stop:
            known = ()
        fresh = Range(pointer, max(pointer, min(request.stop, pointer + ahead)))
        if len(known) < len(fresh) and len(known) <= ahead // 2:
            more = Range(pointer + len(known), fresh.stop)
            count = self._finder.fitting(more, _AHEAD_BYTES)
            known = (*known, *self._read(Range(more.start, more.start + count)))
        self._known = Window(pointer, known)
        fitting = None
        if max_bytes is not None and fresh:
            fitting = self._finder.fitting(fresh, max_bytes)
        return Window(pointer, known, fitting)

    def _read(self, monotons: Range) -> list[int]:
        lanes = dict.fromkeys(range(monotons.start, monotons.stop), NO_LANE)
        pieces = self._finder.pieces(Ranges.of(monotons), deliveries=None)
        rows = metadata_rows(self._queue)
        for batch in fetch(self._store, self._queue, pieces, rows, on_unreadable=_pass_over):
            found = metadata_of(batch, "monoton").to_pylist()
            keys = lanes_of_keys(metadata_of(batch, "key"), self._queue.partitions)
            lanes.update(zip(found, keys, strict=True))
        return list(lanes.values())


def _pass_over(monotons: Range, reason: str) -> None:
    """Say nothing of messages that can't be read: whoever leases them does."""
    del monotons, reason
