"""Reads the lanes of messages before they are leased."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from cassieq_spark.arrow.rows import metadata_of, metadata_rows
from cassieq_spark.fetch.find import Finder
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.lanes import ANY_LANE, Window, decode_lane_of_each
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.lookahead import first_delayed
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.processes import lock_across_forks
from cassieq_spark.producer.partitioner import lanes_of_keys
from cassieq_spark.store.protocol import Store

#: How many messages are read for their lanes: twice as many as wanted, within these bounds.
LEAST_AHEAD, MOST_AHEAD = 512, 16_384
#: How many bytes, as stored, of these messages are read; at least one message.
_AHEAD_BYTES = 4 << 20
#: How many partitions and groups a client remembers lanes of: those that it used last.
_MOST_READERS = 256


class LaneReader:
    """The lanes of the messages beyond the pointer of a group, in one partition of a queue.

    Lanes never change (I2), so the reader remembers them while the pointer moves through them. The
    ledger tells those of small blocks. For those of other blocks the messages are read: one that
    can't be read may be of any lane, and holds up all messages behind it until its receiver has
    rejected it. Not thread-safe.
    """

    def __init__(self, store: Store, queue: QueueDefinition) -> None:
        self._store, self._queue = store, queue
        self._finder = Finder(Ledger(store, queue.queue_id))
        self._known = Window(0, ())

    def window(self, state: GroupState, request: LeaseRequest) -> Window:
        """The lanes of the first messages from the pointer on, up to the first delayed message.

        No read while half of the lanes are known; else one or two reads, and one per bucket of the
        blocks whose lanes the ledger does not tell.

        Args:
            state: The group.
            request: The request, with the wanted messages and bytes, and the end of what is
                offered.

        Raises:
            InvariantError: The ledger has a hole there (I1), or the messages are trimmed.
            LeaseLostError: The messages are no longer in the store.
        """
        pointer = state.head.pointer
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
        if pointer < request.delayed_stop and fresh:
            blocks = self._finder.covering(fresh)
            # Whatever is behind a delayed message comes after it.
            end = first_delayed(blocks, state.now, otherwise=fresh.stop)
            fresh = Range(pointer, max(pointer, end))
            known = known[: len(fresh)]
        if request.max_bytes is None or not fresh:
            return Window(pointer, known)
        return Window(pointer, known, self._finder.fitting(fresh, request.max_bytes))

    def renew(self, queue: QueueDefinition) -> None:
        """Read by a later definition of the partition."""
        self._queue = queue

    def forget(self) -> None:
        """Forget the lanes that were read."""
        self._known = Window(0, ())

    def _read(self, monotons: Range) -> list[int]:
        lanes = dict.fromkeys(range(monotons.start, monotons.stop), ANY_LANE)
        not_told: list[Range] = []
        for block in self._finder.covering(monotons):
            part = block.monotons & monotons
            if told := _told(block, part):
                lanes.update(zip(range(part.start, part.stop), told, strict=True))
            else:
                not_told.append(part)
        if not_told:
            lanes.update(self._lanes_of_messages(Ranges.of(*not_told)))
        return list(lanes.values())

    def _lanes_of_messages(self, monotons: Ranges) -> Iterator[tuple[int, int]]:
        """The lane of each message that can be read."""
        pieces = self._finder.pieces(monotons, deliveries=None)
        rows = metadata_rows(self._queue)
        for batch in fetch(self._store, self._queue, pieces, rows, on_unreadable=_pass_over):
            found = metadata_of(batch, "monoton").to_pylist()
            keys = lanes_of_keys(metadata_of(batch, "key"), self._queue.partitions)
            yield from zip(found, keys, strict=True)


class LaneReaders:
    """The lane readers of a client, one per partition and group, which its leases share.

    The leases of a group come one after the other, whichever threads ask for them; see `Rounds`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = lock_across_forks()
        self._readers: OrderedDict[tuple[QueueId, str], LaneReader] = OrderedDict()

    def of(self, queue: QueueDefinition, group: str) -> LaneReader:
        """The lane reader for a partition and a group."""
        with self._lock:
            key = (queue.queue_id, group)
            reader = self._readers.setdefault(key, LaneReader(self._store, queue))
            reader.renew(queue)
            self._readers.move_to_end(key)
            while len(self._readers) > _MOST_READERS:
                self._readers.popitem(last=False)
            return reader


def _told(block: LedgerBlock, part: Range) -> list[int]:
    """The lanes of these messages of a block, as the ledger tells them; empty if it does not."""
    lanes = decode_lane_of_each(block.lanes, block.count)
    if not lanes:
        return []
    numbers = range(part.start - block.monotons.start, part.stop - block.monotons.start)
    if block.kept is None:
        return lanes[numbers.start : numbers.stop]
    return [lanes[block.kept.offset_of(number)] for number in numbers]


def _pass_over(monotons: Range, reason: str) -> None:
    """Skip messages that can't be read: their receiver reports and rejects them."""
    del monotons, reason
