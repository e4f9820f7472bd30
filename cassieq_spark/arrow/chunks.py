"""Arrow batches into chunks, and back.

A chunk of plain messages has the column ``value``, and ``key`` and ``headers`` if any of its
messages has a key or headers. `framing` lays the columns out as bytes, and `rows` adds what the
ledger knows about the messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import methodcaller
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cassieq_spark.arguments import REDRIVES, RESERVED, is_reserved, reserved, shown
from cassieq_spark.arrow import framing
from cassieq_spark.arrow.fingerprint import Fingerprint, fingerprint_of
from cassieq_spark.arrow.framing import STORED, used_column
from cassieq_spark.arrow.packing import ends_of
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.model import MOST_BUCKETS, Chunk, Range
from cassieq_spark.schemas.map_keys import has_key_twice, key_twice, with_last_keys

# The first cast of a process makes Arrow's table of casts, once. A child that is forked meanwhile
# would wait for its end for ever, so it is made here. (Another first array would import pandas.)
pa.nulls(1, pa.int32()).cast(pa.int64())

_AS_PY = methodcaller("as_py")


class ColumnNames(NamedTuple):
    """The names of the columns that a message has in addition to its value or values."""

    key: str
    headers: str
    delay: str
    visible_at: str
    unique_id: str


class Form(ABC):
    """The layout of a queue's messages in chunks."""

    names: ClassVar[ColumnNames]

    @abstractmethod
    def assigned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn a writer's batches into columns that `stored` takes, with those of `names`.

        Raises:
            SchemaError: The columns are not those of the queue.
            MessageError: A value does not fit its column.
        """

    @abstractmethod
    def fingerprint(self, batch: pa.RecordBatch) -> Fingerprint:
        """The fingerprint of rows that `assigned` returned."""

    @abstractmethod
    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of ``batch`` that a chunk has, in their order and types."""

    @abstractmethod
    def encode(self, messages: pa.RecordBatch, compression: str) -> bytes:
        """The frame of a chunk."""

    def check(
        self,
        messages: pa.RecordBatch,
        max_message_bytes: int,
        *,
        first_row: int,
        takes_reserved: bool = False,
    ) -> pa.Int64Array:
        """Check messages that `stored` returned.

        Args:
            messages: At least one.
            max_message_bytes: The largest size of a message, counting key, value and headers.
            first_row: The number of the first message in an error.
            takes_reserved: True if the messages may have reserved headers.

        Returns:
            The bytes of each message, with its key and headers.

        Raises:
            MessageError: A message can't be stored, or is too large; the error names the first
                one.
        """
        if (headers := used_column(messages, self.names.headers)) is not None:
            _check_headers(headers, first_row=first_row, takes_reserved=takes_reserved)
        sizes = self._sizes(messages, first_row)
        if pc.max(sizes).as_py() > max_message_bytes:
            index = pc.index(pc.greater(sizes, max_message_bytes), value=True).as_py()
            raise MessageError(
                f"{row_at(first_row + index)} is {sizes[index].as_py()} bytes with its key and "
                f"headers: the limit is {max_message_bytes} (option 'maxMessageBytes')"
            )
        return sizes

    @abstractmethod
    def _sizes(self, messages: pa.RecordBatch, first_row: int) -> pa.Int64Array:
        """The bytes of each message, after checking its values."""


class PlainForm(Form):
    """Messages that are bytes: ``key``, ``value`` and ``headers``."""

    names = ColumnNames("key", "headers", "delay", "visible_at", "unique_id")

    def assigned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches as they are; see `Form.assigned`."""
        return iter(batches)

    def fingerprint(self, batch: pa.RecordBatch) -> Fingerprint:
        """The fingerprint of values, keys and headers; see `Form.fingerprint`."""
        return fingerprint_of(batch)

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a plain chunk, without all others; see `Form.stored`."""
        present = set(batch.schema.names)
        schema = pa.schema([column for column in STORED if column.name in present])
        columns = [batch.column(column.name).cast(column.type) for column in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def encode(self, messages: pa.RecordBatch, compression: str) -> bytes:
        """The frame of a plain chunk; see `framing` and `Form.encode`."""
        return framing.encode(messages, compression)

    def _sizes(self, messages: pa.RecordBatch, first_row: int) -> pa.Int64Array:
        value = messages.column("value")
        if value.null_count:
            row = pc.index(value.is_null(), value=True).as_py()
            raise MessageError(
                f"{row_at(first_row + row)} has no value: the column 'value' must not be null"
            )
        total = _bytes(value)
        if (key := used_column(messages, "key")) is not None:
            total = pc.add(total, _bytes(key))
        if (headers := used_column(messages, "headers")) is not None:
            total = pc.add(total, _header_bytes(headers))
        return total


PLAIN = PlainForm()


class Cutter:
    """Cuts messages into the chunks of one block, as they come.

    A chunk starts at a multiple of ``chunk_size`` unless ``chunk_bytes`` cut the chunk before it
    short, and never crosses such a multiple. The cuts depend on the messages only, not on
    the batches they come in. Memory: about one incoming batch and one chunk.

    Args:
        chunk_size: Maximum number of messages per chunk.
        bucket_size: Messages per Cassandra partition; a multiple of ``chunk_size``.
        chunk_bytes: Maximum bytes per chunk before compression; only a chunk that consists of a
            single message may be larger.
        compression: ``lz4``, ``zstd`` or ``none``.
        max_message_bytes: The largest size of a message, counting key, value and headers.
        takes_reserved: True if messages may have reserved headers, as copies of dead messages do.
        form: The layout of the messages.

    Raises:
        OptionError: The sizes do not fit each other; or, as messages are fed, they need more
            buckets than a block may have.
    """

    def __init__(  # noqa: PLR0913 (each is a setting of its own, by name)
        self,
        *,
        chunk_size: int,
        bucket_size: int,
        chunk_bytes: int,
        compression: str,
        max_message_bytes: int,
        takes_reserved: bool = False,
        form: Form = PLAIN,
    ) -> None:
        if min(chunk_size, chunk_bytes) < 1 or bucket_size < 1 or bucket_size % chunk_size:
            raise OptionError(
                "chunks need sizes above 0 and a bucket size that is a multiple of the chunk "
                f"size, not {chunk_size=}, {bucket_size=}, {chunk_bytes=}"
            )
        self._chunk_size = chunk_size
        self._bucket_size = bucket_size
        self._chunk_bytes = chunk_bytes
        self._max_message_bytes = max_message_bytes
        self._takes_reserved = takes_reserved
        self._compression = compression
        self._form = form
        # The chunk that is being gathered, as pieces of the batches in which it came.
        self._start = 0
        self._pieces: list[pa.RecordBatch] = []
        self._held_count = 0
        self._held_bytes = 0

    def feed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Add messages, and yield the chunks that they fill, in order.

        Args:
            batches: ``value`` (binary or string), and optionally ``key`` (binary or string) and
                ``headers`` (map of strings, values may be null); all with the same columns.
                Other columns are ignored. Other forms take other columns.

        Raises:
            MessageError: A value is null; a header has no name, a reserved one or one that is not
                UTF-8; or a message is too large. Then no message of its batch is in a chunk.
        """
        for batch in batches:
            if batch.num_rows == 0:
                continue
            messages = self._form.stored(batch)
            sizes = self._form.check(
                messages,
                self._max_message_bytes,
                first_row=self._start + self._held_count,
                takes_reserved=self._takes_reserved,
            )
            yield from self._add(messages, pc.cumulative_sum(sizes))
            if self._pieces and self._pieces[-1].num_rows < messages.num_rows:
                # A slice would keep the whole batch in memory until the next one comes.
                rest = self._pieces[-1]
                self._pieces[-1] = rest.take(pa.array(range(rest.num_rows)))

    def finish(self) -> Iterator[Chunk]:
        """Yield the last chunk, if there is one; its ``stop`` is the number of all messages."""
        if self._pieces:
            yield self._take()

    def _room(self) -> int:
        """How many messages still fit below the next multiple of the chunk size."""
        room = self._chunk_size - self._start % self._chunk_size
        return min(room, framing.MOST_MESSAGES) - self._held_count

    def _add(self, messages: pa.RecordBatch, ends: pa.Int64Array) -> Iterator[Chunk]:
        """Add messages, and yield each chunk that they fill.

        Args:
            messages: At least one.
            ends: For each message, the bytes of all messages up to and including it.
        """
        row, row_bytes = 0, 0
        while row < messages.num_rows:
            most = min(messages.num_rows, row + self._room())
            limit = row_bytes + self._chunk_bytes - self._held_bytes
            stop = bisect_right(ends, limit, row, most, key=_AS_PY)
            if stop == row and not self._pieces:
                stop = row + 1
            if stop > row:
                stop_bytes = ends[stop - 1].as_py()
                self._pieces.append(messages.slice(row, stop - row))
                self._held_count += stop - row
                self._held_bytes += stop_bytes - row_bytes
                row, row_bytes = stop, stop_bytes
            if row < messages.num_rows or self._room() == 0:
                yield self._take()

    def _take(self) -> Chunk:
        """The chunk gathered so far; the next chunk begins where it stops."""
        if self._start >= MOST_BUCKETS * self._bucket_size:
            raise OptionError(
                f"a task writes at most {MOST_BUCKETS * self._bucket_size} messages into one "
                f"block of this queue, {MOST_BUCKETS} buckets of {self._bucket_size}: write fewer "
                "at a time, in more tasks, or to a queue with a larger bucket size"
            )
        messages = self._pieces[0]
        if len(self._pieces) > 1:
            columns = [pa.concat_arrays(arrays) for arrays in zip(*self._pieces, strict=True)]
            messages = pa.RecordBatch.from_arrays(columns, schema=messages.schema)
        data = self._form.encode(messages, self._compression)
        chunk = Chunk(
            self._start // self._bucket_size, self._start, self._start + self._held_count, data
        )
        self._start, self._pieces = chunk.stop, []
        self._held_count, self._held_bytes = 0, 0
        return chunk


def cut(batches: Iterable[pa.RecordBatch], cutter: Cutter) -> Iterator[Chunk]:
    """All chunks of a block whose messages come from one iterable; see `Cutter`."""
    yield from cutter.feed(batches)
    yield from cutter.finish()


def decode(chunk: Chunk, offsets: Range) -> pa.RecordBatch:
    """Decode the messages of ``chunk`` whose offsets are in ``offsets``.

    Copies nothing, except by decompression. The whole chunk is checked; see `framing`.

    Args:
        chunk: The chunk as it is stored.
        offsets: Offsets in the block of the chunk.

    Returns:
        Columns ``key``, ``value`` and ``headers``; null where the chunk does not have them.

    Raises:
        UnreadableError: The chunk is no frame, or not the frame that its row describes.
    """
    stored = framing.decode(chunk.data, chunk.stop - chunk.start)
    shared = Range(chunk.start, chunk.stop) & offsets
    start, count = shared.start - chunk.start, len(shared)
    columns = [
        with_last_keys(stored[name].slice(start, count)) if name in stored else _nulls(name, count)
        for name in STORED.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STORED)


@lru_cache(maxsize=64)
def _nulls(name: str, count: int) -> pa.Array:
    """An array of nulls for a column; cached, as most chunks have one of a few sizes."""
    return pa.nulls(count, STORED.field(name).type)


def check_messages(
    batch: pa.RecordBatch, max_message_bytes: int, *, first_row: int, form: Form = PLAIN
) -> None:
    """Check messages without cutting them.

    Args:
        batch: The messages, as `Cutter.feed` takes them.
        max_message_bytes: The largest size of a message, counting key, value and headers.
        first_row: The number of the first row in an error.
        form: The layout of the messages.

    Raises:
        MessageError: See `Cutter.feed`.
    """
    if batch.num_rows:
        form.check(form.stored(batch), max_message_bytes, first_row=first_row)


def _bytes(column: pa.Array) -> pa.Int64Array:
    return pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0)


def _header_bytes(headers: pa.MapArray) -> pa.Int64Array:
    """Bytes of all names and values of each row's headers."""
    # By numpy: most batches of a gateway are small, and each function of Arrow takes 10 µs.
    ends = ends_of(headers)
    return pa.array(np.diff(_sums(headers.keys)[ends] + _sums(headers.items)[ends]))


def _sums(texts: pa.StringArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bytes of the texts before each text, and of all of them."""
    if not texts.null_count:
        return ends_of(texts).astype(np.int64)
    # The data of a null need not be empty.
    return np.cumsum(np.append(0, _bytes(texts)))


def _check_headers(headers: pa.MapArray, *, first_row: int, takes_reserved: bool) -> None:
    """Check names and texts, because Spark may give texts that are not UTF-8.

    Raises:
        MessageError: A header has no name, a reserved one, one that is not UTF-8, or one that
            another header of the message has.
    """
    try:
        headers.validate(full=True)
        ends = ends_of(headers)
        first, count = int(ends[0]), int(ends[-1] - ends[0])
        names = headers.keys.slice(first, count)
        has_names = np.diff(ends_of(names)).all()
        twice = count > 1 and np.diff(ends).max() > 1 and has_key_twice(headers)
        if has_names and (takes_reserved or not _any_reserved(names)) and not twice:
            return
    except pa.ArrowInvalid:
        pass
    for row in range(len(headers)):
        try:
            found = headers[row].as_py() or ()
        except UnicodeDecodeError:
            problem = "that is not UTF-8"
        else:
            forged = [name for name, _ in found if not takes_reserved and is_reserved(name)]
            again = key_twice(name for name, _ in found)
            if forged:
                problem = reserved(forged[0])
            elif not all(name for name, _ in found):
                problem = "without a name"
            elif again is not None:
                problem = f"twice: {shown(again)}"
            else:
                continue
        raise MessageError(f"{row_at(first_row + row)} has a header {problem}")


def _any_reserved(names: pa.StringArray) -> bool:
    begins_so = pc.starts_with(names, pattern=RESERVED)
    if not pc.any(begins_so).as_py():
        return False
    return bool(pc.any(pc.and_(begins_so, pc.not_equal(names, REDRIVES))).as_py())


def row_at(row: int) -> str:
    """The name of a row in an error."""
    return f"row {row} of this task, counted from 0,"
