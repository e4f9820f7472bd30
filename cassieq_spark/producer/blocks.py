"""Writes blocks: Arrow batches become chunks, under new block ids."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from time import time_ns
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from cassieq_spark.arguments import A_YEAR, FIRST_INSTANT, LAST_INSTANT
from cassieq_spark.arrow.chunks import Cutter, check_messages, cut, row_at
from cassieq_spark.arrow.framing import used_column
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.errors import MessageError, OptionError, SchemaError
from cassieq_spark.groups.lanes import NO_LANE, encode_lane_of_each
from cassieq_spark.ledger.unique import NO_ID
from cassieq_spark.model import Chunk, PendingBlock, QueueDefinition
from cassieq_spark.producer.partitioner import lanes_of_keys
from cassieq_spark.producer.unique_ids import check_deduplicates, digests_of
from cassieq_spark.queues import check_delayable
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

#: How many times of delivery, at most, a task of a write has an open block for at a time.
MOST_TIMES = 100
#: Tasks with higher numbers have fewer: the blocks of all tasks go into one publish.
_TASKS_OF_MOST_TIMES = 60
#: "At once", and two more: two instants may lie on either side of a step, however large it is.
_FEWEST_TIMES = 3
#: Times of delivery are rounded up to multiples of this, or of more if there are too many times.
FINEST = timedelta(seconds=1)
#: Default bytes of messages per chunk, before compression.
_CHUNK_BYTES, _TYPED_CHUNK_BYTES = 256 << 10, 1 << 20
#: The ledger has the lanes of a block with this number of messages or fewer. A reader of a larger
#: block reads its messages, many at once.
MOST_LANES = 128
#: How many bytes of delayed messages are collected before they are written.
_HELD_BYTES = 8 << 20
#: Messages whose time passed longer ago than this are visible at once, whatever the clocks say.
_CERTAINLY_PAST = timedelta(hours=1)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = FIRST_INSTANT
_LAST_INSTANT = (LAST_INSTANT - FIRST_INSTANT) // _MICROSECOND
#: How many of each unit of duration make a second.
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: The number of 100 ns between the epoch of uuids, 1582-10-15, and that of Unix.
_GREGORIAN = 0x01B21DD213814000
#: The time of delivery of messages without one.
_AT_ONCE = 0


def new_block_id() -> UUID:
    """A time-based uuid that no other process makes, whatever its host's address (I10).

    Not made by `uuid.uuid1`: after a clock was ahead, `uuid1` continues from there until the
    process ends.
    """
    ticks = time_ns() // 100 + _GREGORIAN
    multicast = 1 << 40  # as RFC 9562 asks of a random node
    node = secrets.randbits(48) | multicast
    low, middle, high = ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    return UUID(
        fields=(low, middle, high, secrets.randbits(6), secrets.randbits(8), node), version=1
    )


def times_of_task(partition: int) -> int:
    """The number of delivery times for which a task may have an open block at a time.

    A task does not know how many tasks there are, so each has fewer than the one before. Ten
    thousand tasks have 59,000 together. A task may write more blocks than this number.

    Args:
        partition: The number of the task within its write, from 0.
    """
    fair = MOST_TIMES * _TASKS_OF_MOST_TIMES // (partition + 1)
    return max(_FEWEST_TIMES, min(MOST_TIMES, fair))


def checked_rows(
    queue: QueueDefinition,
    batches: Iterable[pa.RecordBatch],
    visible: datetime | timedelta | None,
) -> Iterator[pa.RecordBatch]:
    """Turn a writer's batches into rows of the queue, and check their times of delivery.

    All writers of messages pass here. A column of time counts as one, whatever values it has: the
    first batch decides, before anything is written.

    Args:
        queue: The queue, or a partition of it.
        batches: The messages, as `write_blocks` takes them.
        visible: When all messages are delivered, if no column has the times.

    Raises:
        MessageError: A value does not fit its column.
        OptionError: The messages are delayed, in a queue with an order; or both ``visible``
            and a column say when they are delivered; or there is a column of unique ids, and the
            queue does not deduplicate.
        SchemaError: The columns are not those of the queue, or two of them say when a message is
            delivered.
    """
    if visible is not None:
        check_delayable(queue)
    for rows in form_of(queue).assigned(batches):
        column = _column_of_time(queue, rows)
        if column is not None:
            try:
                check_delayable(queue)
            except OptionError as error:
                error.add_note(f"the rows have the column {column!r}: leave it out")
                raise
            if visible is not None:
                given = "delay" if isinstance(visible, timedelta) else "visible_at"
                raise OptionError(
                    f"the rows have the column {column!r}, which says when each of them is "
                    f"delivered, and {given!r} says it of all: leave out one of them"
                )
        if form_of(queue).names.unique_id in rows.schema.names:
            check_deduplicates(queue)
        yield rows


def write_block(
    store: Store,
    queue: QueueDefinition,
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    *,
    takes_reserved: bool = False,
) -> PendingBlock:
    """Write messages as a new block, which no reader sees until it is published.

    No LWT, no read: one write per chunk, several in parallel.

    Args:
        batches: The messages, as `chunks.Cutter.feed` takes them.
        takes_reserved: True if the messages may have reserved headers, as dead letters do.

    Raises:
        MessageError: A null value, a reserved header, or a message over the limit.
        StoreError: Cassandra did not take the messages within the time allowed.
    """
    notes = _Notes(queue)
    cutter = _cutter(queue, options, takes_reserved=takes_reserved)
    chunks = _Counted(cut(notes.noted(batches), cutter))
    block = new_block_id()
    store.write_chunks(queue.queue_id, block, chunks)
    ids, lanes = notes.digests(), notes.lanes()
    return PendingBlock(block, chunks.messages, chunks.size, queue.delay, ids, lanes)


def write_blocks(
    store: Store,
    queue: QueueDefinition,
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    *,
    most_times: int = MOST_TIMES,
) -> list[PendingBlock]:
    """Write messages, one block per time of delivery.

    Times are rounded up to whole seconds. If that makes more than ``most_times`` blocks, times are
    rounded up to two seconds, then four, and so on. So a message is never early, and up to one
    second late, or (with the default) 2 % of the time between the first and the last message of
    this call, whichever is longer.

    Args:
        batches: As `chunks.Cutter.feed` takes them; optionally with a column ``delay`` (duration,
            or a number of seconds), counted from publication, or ``visible_at`` (timestamp), or
            with the names that the queue's form has for these. Null means at once.
        most_times: Maximum number of times of delivery, each with an open block; at least three.

    Returns:
        The blocks, in the order of their times.

    Raises:
        MessageError: A null value, a reserved header, a message over the limit, or see `times_of`.
        SchemaError: The rows have both columns of time.
        StoreError: Cassandra did not take the messages within the time allowed.
    """
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        return []
    batches = chain([first], iterator)
    if _column_of_time(queue, first) is None:
        return [write_block(store, queue, batches, options)]
    writer = BlockWriter(store, queue, options, most_times=most_times)
    for batch in batches:
        writer.add(batch)
        if writer.held_bytes >= _HELD_BYTES:
            writer.flush()
    return writer.finish()


def times_of(
    queue: QueueDefinition, rows: pa.RecordBatch, *, first_row: int
) -> pa.Int64Array | None:
    """The time of delivery of each message, in microseconds; 0 for at once.

    Args:
        rows: The messages, as `write_blocks` takes them.
        first_row: The number of the first row in an error.

    Returns:
        Delays, or times since 1970; None if no column has the times.

    Raises:
        MessageError: A delay is negative or more than a year, or an instant is beyond the year
            9998; the error names the first such message.
        SchemaError: The rows have both columns of time.
    """
    column = _column_of_time(queue, rows)
    if column is None:
        return None
    is_instant = column == form_of(queue).names.visible_at
    times = (_instants if is_instant else _delays)(rows.column(column), first_row)
    return pc.fill_null(times, _AT_ONCE)


def _column_of_time(queue: QueueDefinition, rows: pa.RecordBatch) -> str | None:
    names = form_of(queue).names
    found = [name for name in (names.delay, names.visible_at) if name in rows.schema.names]
    if len(found) > 1:
        raise SchemaError(
            f"the rows have the columns {found[0]!r} and {found[1]!r}, and both say when a "
            "message is delivered: keep one of them"
        )
    return found[0] if found else None


def _instants(column: pa.Array, first_row: int) -> pa.Int64Array:
    instants = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    _refuse(
        pc.greater_equal(instants, _LAST_INSTANT),
        first_row,
        "is to be visible after the year 9998: give an earlier time",
    )
    past = (datetime.now(UTC) - _CERTAINLY_PAST - _EPOCH) // _MICROSECOND
    return pc.if_else(pc.less(instants, past), _AT_ONCE, instants)


def _delays(column: pa.Array, first_row: int) -> pa.Int64Array:
    # They are judged in their own unit: in another one a wrong delay may have no room.
    is_duration = pa.types.is_duration(column.type)
    per_second = _PER_SECOND[column.type.unit] if is_duration else 1
    delays = column.cast(pa.int64()) if is_duration else column.cast(pa.float64(), safe=False)
    _refuse(
        pc.less(delays, 0),
        first_row,
        "has a negative delay: a message can't be delivered before it is published; give 0, or "
        "null, for at once",
    )
    # Not `greater`: this refuses NaN as well.
    _refuse(
        pc.invert(pc.less_equal(delays, A_YEAR // timedelta(seconds=1) * per_second)),
        first_row,
        f"has a delay that is no number, or more than {A_YEAR.days} days: give a shorter one",
    )
    if not is_duration:
        return pc.ceil(pc.multiply(delays, 1e6)).cast(pa.int64())
    if per_second > _PER_SECOND["us"]:
        step = per_second // _PER_SECOND["us"]
        return pc.divide(pc.add(delays, step - 1), step)
    return pc.multiply(delays, _PER_SECOND["us"] // per_second)


def _refuse(rows: pa.Array, first_row: int, what: str) -> None:
    """Refuse the first of these rows, if there is one."""
    marked = pc.fill_null(rows, fill_value=False)
    if pc.any(marked).as_py():
        raise MessageError(f"{row_at(first_row + pc.index(marked, value=True).as_py())} {what}")


def _cutter(
    queue: QueueDefinition, options: SinkOptions, *, takes_reserved: bool = False
) -> Cutter:
    # Each chunk of a queue with a schema costs some time for each column, so they are larger.
    chunk_bytes = _CHUNK_BYTES if queue.schema is None else _TYPED_CHUNK_BYTES
    return Cutter(
        chunk_size=queue.chunk_size,
        bucket_size=queue.bucket_size,
        chunk_bytes=options.chunk_bytes or chunk_bytes,
        compression=options.compression,
        max_message_bytes=options.max_message_bytes,
        takes_reserved=takes_reserved,
        form=form_of(queue),
    )


class _Counted:
    """Passes chunks on, and counts their messages and bytes."""

    def __init__(self, chunks: Iterable[Chunk] = ()) -> None:
        self._chunks = chunks
        self.messages = 0
        self.size = 0

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self._chunks:
            self.messages = chunk.stop
            self.size += len(chunk.data)
            yield chunk


class _Notes:
    """The unique ids and the lanes of the messages of a block, for the ledger."""

    def __init__(self, queue: QueueDefinition) -> None:
        self._queue = queue
        self._rows = 0
        self._found: list[tuple[int, bytes | None]] = []
        self._lanes: list[int] | None = [] if queue.has_lanes else None

    def note(self, rows: pa.RecordBatch) -> None:
        """Add more messages."""
        digests = digests_of(self._queue, rows, first_row=self._rows)
        self._found.append((rows.num_rows, digests))
        self._rows += rows.num_rows
        if self._rows > MOST_LANES:
            self._lanes = None
        if self._lanes is not None:
            self._lanes += _lanes_of(self._queue, rows)

    def noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield these batches, and `note` each."""
        for rows in batches:
            self.note(rows)
            yield rows

    def join(self, other: _Notes) -> None:
        """Add the messages that follow, in a queue without an order, and so without lanes."""
        self._found += other._found
        self._rows += other._rows

    def digests(self) -> bytes:
        """One digest per message; empty if no message has an id."""
        if all(digests is None for _, digests in self._found):
            return b""
        return b"".join(NO_ID * count if it is None else it for count, it in self._found)

    def lanes(self) -> str:
        """The lane of each message as text; empty if there are too many, or none."""
        return encode_lane_of_each(self._lanes or ())


def _lanes_of(queue: QueueDefinition, rows: pa.RecordBatch) -> list[int]:
    keys = used_column(rows, form_of(queue).names.key)
    if keys is None:
        return [NO_LANE] * rows.num_rows
    return lanes_of_keys(keys, queue.partitions)


class _TimedBlock:
    """An open block, for one time of delivery."""

    def __init__(self, store: Store, queue: QueueDefinition, options: SinkOptions) -> None:
        self._notes = _Notes(queue)
        self._delay = queue.delay
        self._store = store
        self._queue_id = queue.queue_id
        self._block = new_block_id()
        self._cutter = _cutter(queue, options)
        self._held: list[pa.RecordBatch] = []
        self._is_begun = False
        self._messages = 0
        self._size = 0

    def add(self, messages: pa.RecordBatch) -> None:
        self._held.append(messages)
        self._notes.note(messages)

    def join(self, other: _TimedBlock) -> bool:
        """Take over the messages of another block, unless some are written already."""
        if other._is_begun:
            return False
        self._held += other._held
        self._notes.join(other._notes)
        return True

    def write(self) -> None:
        self._is_begun = self._is_begun or bool(self._held)
        self._write(self._cutter.feed(self._held))
        self._held = []

    def finish(self, visible: datetime | timedelta | None) -> PendingBlock:
        self.write()
        self._write(self._cutter.finish())
        notes, visible = self._notes, visible or self._delay
        told = (notes.digests(), notes.lanes())
        return PendingBlock(self._block, self._messages, self._size, visible, *told)

    def _write(self, chunks: Iterable[Chunk]) -> None:
        counted = _Counted(chunks)
        self._store.write_chunks(self._queue_id, self._block, counted)
        self._messages = max(self._messages, counted.messages)
        self._size += counted.size


class BlockWriter:
    """Distributes messages of one task to blocks by their time of delivery.

    Args:
        queue: The queue, or a partition of it.

    Attributes:
        held_bytes: About how many bytes were added since the last `flush`.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueDefinition,
        options: SinkOptions,
        *,
        most_times: int = MOST_TIMES,
    ) -> None:
        self._store = store
        self._queue = queue
        self._options = options
        self._form = form_of(queue)
        self._is_instant = False
        self._most_times = most_times
        self._open: dict[int, _TimedBlock] = {}
        self._closed: list[tuple[int, _TimedBlock]] = []
        self._step = FINEST // _MICROSECOND
        self._rows = 0
        self.held_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add messages, at least one, as `write_blocks` takes them."""
        most = self._options.max_message_bytes
        check_messages(batch, most, first_row=self._rows, form=self._form)
        self.held_bytes += batch.nbytes
        self._is_instant = self._form.names.visible_at in batch.schema.names
        wanted = times_of(self._queue, batch, first_row=self._rows)
        self._rows += batch.num_rows
        if wanted is None:
            self._block_of(_AT_ONCE).add(batch)
            return
        self._make_room(wanted)
        times = _rounded(wanted, self._step)
        for time in pc.unique(times).to_pylist():
            self._block_of(time).add(batch.filter(pc.equal(times, time)))

    def flush(self) -> None:
        """Write all full chunks. Returns when they are acknowledged."""
        for block in self._open.values():
            block.write()
        self.held_bytes = 0

    def finish(self, visible: datetime | timedelta | None = None) -> list[PendingBlock]:
        """Write the rest, and return the blocks, in the order of their times.

        Args:
            visible: When all messages are delivered, if no column has the times.
        """
        every = sorted([*self._open.items(), *self._closed], key=lambda each: each[0])
        return [block.finish(visible or self._visible(time)) for time, block in every]

    def _block_of(self, time: int) -> _TimedBlock:
        if time not in self._open:
            self._open[time] = _TimedBlock(self._store, self._queue, self._options)
        return self._open[time]

    def _make_room(self, wanted: pa.Array) -> None:
        """Round times to larger steps until there are few enough of them."""
        wanted = pc.unique(wanted)
        while len({*self._open, *_rounded(wanted, self._step).to_pylist()}) > self._most_times:
            self._step *= 2
            merged: dict[int, _TimedBlock] = {}
            for time, block in self._open.items():
                later = -(-time // self._step) * self._step
                kept = merged.setdefault(later, block)
                if kept is block or kept.join(block):
                    continue
                if not block.join(kept):
                    self._closed.append((later, kept))
                merged[later] = block
            self._open = merged

    def _visible(self, time: int) -> datetime | timedelta | None:
        if not time:
            return None
        if not self._is_instant:
            return timedelta(microseconds=time)
        # If it was rounded up by centuries, it may be beyond the calendar.
        return _EPOCH + timedelta(microseconds=min(time, _LAST_INSTANT))


def _rounded(wanted: pa.Array, step: int) -> pa.Array:
    return pc.multiply(pc.divide(pc.add(wanted, step - 1), step), step)
