"""Reads messages: their chunks as Arrow batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from cassieq_spark.arrow import chunks, typed_chunks
from cassieq_spark.arrow.rows import Rows, rows_of
from cassieq_spark.arrow.typed_framing import EXTRA
from cassieq_spark.errors import LeaseLostError, MessageError, SchemaChangedError, UnreadableError
from cassieq_spark.fetch.find import Piece, bucket_slices
from cassieq_spark.model import BucketSlice, Chunk, Kept, QueueDefinition, Range, Ranges
from cassieq_spark.queues import read_record
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.evolution import present, without_place
from cassieq_spark.store.protocol import Store

#: Batches of fewer messages and fewer bytes are joined, as each batch costs Spark about 0.1 ms, as
#: much as copying twice as many messages of a kilobyte.
SMALL_COUNT, SMALL_BYTES = 200, 1 << 20

#: Called with messages that can't be read: their monotons, and the reason.
OnUnreadable = Callable[[Range, str], None]


@dataclass(frozen=True, slots=True)
class Destination:
    """The columns into which messages are decoded, to be copied to a queue with a schema.

    Attributes:
        columns: The columns of the queue that gets the copies.
        misfit: What to do about a value that does not fit its column, for errors.
        no_column: What to do about a value that has no column in that queue, for errors; None:
            such values are left out.
    """

    columns: pa.Schema
    misfit: str
    no_column: str | None


class Unreadable:
    """Collects messages that can't be read; its `add` is an `OnUnreadable`."""

    def __init__(self) -> None:
        self._found: defaultdict[str, list[Range]] = defaultdict(list)

    def add(self, monotons: Range, reason: str) -> None:
        """Add messages that can't be read."""
        self._found[reason].append(monotons)

    def by_reason(self) -> dict[str, Ranges]:
        """All messages that can't be read, by reason."""
        return {reason: Ranges.of(*ranges) for reason, ranges in self._found.items()}


@dataclass(frozen=True, slots=True)
class Damage:
    """A row of the table of chunks that is not a valid chunk, and the reason."""

    chunk: Chunk
    reason: str


class Decoder:
    """Decodes the chunks of one queue.

    If a chunk has a newer version of the schema than the queue's definition, the row of the queue
    is read again: one serial read.

    Args:
        columns: The wanted columns of a queue with a schema, in their wanted types; None: those of
            its schema. Other columns are not decompressed.
        with_extras: True if the keys and headers of messages are wanted, too.
        whole: True if a version newer than the definition is an error, so that no column
            is left out unnoticed: for a copy, or for a reader that can take the new definition.
        into: The columns of a copy, instead of ``columns``, whichever version wrote them.
    """

    def __init__(  # noqa: PLR0913 (as `fetch`)
        self,
        store: Store,
        queue: QueueDefinition,
        *,
        columns: pa.Schema | None = None,
        with_extras: bool = True,
        whole: bool = False,
        into: Destination | None = None,
    ) -> None:
        self.store = store
        self._into = into
        self._whole = whole
        self.queue = queue
        self._schemas = queue.schemas
        if queue.schema is None:
            self._columns = None
            return
        if into is not None:
            columns = into.columns
        self._columns = schema_of(queue.schema) if columns is None else columns
        self._extras = list(EXTRA) if with_extras else []
        self._schema = pa.schema([*self._columns, *self._extras])
        self._wanted = frozenset(self._schema.names)

    def decode(self, chunk: Chunk, offsets: Range) -> pa.RecordBatch:
        """The messages of a chunk at these offsets of its block, as far as the chunk has them.

        Returns:
            Columns as `chunks.decode` returns them; if the queue has a schema, the wanted columns,
            and then ``_key`` and ``_headers`` if they are wanted.

        Raises:
            UnreadableError: The chunk is no frame, or does not match its row.
            MessageError: A newer version of the schema wrote a value that does not fit the type
                of its column in this program; or a value has no column in a copy.
            SchemaChangedError: A newer version wrote the chunk, and ``whole`` is set.
        """
        if self._columns is None:
            return chunks.decode(chunk, offsets)
        if self._into is not None:
            return self._copied(chunk, offsets, self._into)
        version, found = typed_chunks.decode(chunk, offsets, self._schema_of, self._wanted)
        rows = present(found, schema_of(self._schemas[version - 1]), self._columns)
        return self._with_extras(rows, found)

    def _copied(self, chunk: Chunk, offsets: Range, into: Destination) -> pa.RecordBatch:
        # All columns that were written, also those that the queue has dropped since.
        version, found = typed_chunks.decode(chunk, offsets, self._schema_of)
        written = schema_of(self._schemas[version - 1])
        if into.no_column is not None and (lost := without_place(found, written, into.columns)):
            names = ", ".join(map(repr, lost))[:300]
            raise MessageError(
                f"queue {self.queue.name!r}: messages have values of {names}; {into.no_column}"
            )
        rows = present(found, written, into.columns, advice=into.misfit)
        return self._with_extras(rows, found)

    def _with_extras(self, rows: pa.RecordBatch, found: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [*rows.columns, *(found.column(field.name) for field in self._extras)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _schema_of(self, version: int) -> pa.Schema | None:
        if version > len(self._schemas):
            # Serially: a plain read may miss a change that the writer has seen.
            record = read_record(self.store, self.queue.name, serial=True)
            # The version: of a partition, the row has no id.
            if record is not None and record.definition.version == self.queue.version:
                schemas = record.definition.schemas
                if self._whole and version <= len(schemas):
                    raise SchemaChangedError(
                        f"the schema of queue {self.queue.name!r} has changed meanwhile, and a "
                        "message may have columns that this program does not know yet: try again"
                    )
                self._schemas = schemas
        if not 0 < version <= len(self._schemas):
            return None
        return schema_of(self._schemas[version - 1])


def fetch(  # noqa: PLR0913 (which messages, how their rows look, and what is an error)
    store: Store,
    queue: QueueDefinition,
    pieces: Iterable[Piece],
    rows: Rows | None = None,
    *,
    on_unreadable: OnUnreadable | None = None,
    whole: bool = False,
    into: Destination | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read messages, piece after piece, a bounded amount ahead. One read per bucket.

    The call has no side effect. A chunk that can't be read is read once more, as another replica
    may have it whole.

    Args:
        rows: The columns of the rows; None for all.
        on_unreadable: Called with messages that can't be read, which are left out. None: raise.
        whole: See `Decoder`.
        into: See `Decoder`; the rows have these columns.

    Raises:
        LeaseLostError: Messages are no longer in the store.
        UnreadableError: Messages can't be read, and there is no ``on_unreadable``.
        MessageError, SchemaChangedError: See `Decoder.decode`.
    """
    if rows is None:
        rows = rows_of(queue, columns=None if into is None else into.columns)
    decoder = Decoder(
        store,
        queue,
        columns=rows.columns,
        with_extras=rows.with_metadata,
        whole=whole,
        into=into,
    )
    batches = (
        batch
        for piece, found in read_pieces(decoder, tuple(pieces))
        for batch in _rows_of_piece(queue, piece, found, rows, on_unreadable)
    )
    return _joined(batches)


#: Offsets in the block, one run after the other without a gap, and the published messages among
#: them.
Found = Iterator[tuple[Range, pa.RecordBatch | Damage]]


def read_pieces(decoder: Decoder, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Found]]:
    """Read the messages of each piece, in order, up to the first one that is not in the store.

    The next pieces are read ahead, as far as `Store.read_chunks` does, because many writers leave
    small pieces. A row whose columns do not fit its key and its data is damaged. Its messages end
    where the next chunk begins, or at the next multiple of the chunk size, which no chunk crosses.

    Returns:
        Each piece with its messages, which must be consumed before the next piece.
    """
    queue = decoder.queue
    numbers: dict[BucketSlice, int] = {}

    def slices() -> Iterator[BucketSlice]:
        for number, piece in enumerate(pieces):
            for each in bucket_slices(piece, queue):
                numbers[each] = number
                yield each

    rows = decoder.store.read_chunks(queue.queue_id, slices())
    by_piece = groupby(rows, key=lambda row: numbers[row[0]])
    number, of_piece = next(by_piece, _NO_PIECE)
    for at, piece in enumerate(pieces):
        if number == at:
            yield piece, _published(piece, _decoded(decoder, piece, of_piece))
            number, of_piece = next(by_piece, _NO_PIECE)
        else:
            yield piece, iter(())


_NO_PIECE: tuple[int, Iterator[tuple[BucketSlice, Chunk]]] = (-1, iter(()))


def _published(piece: Piece, messages: Found) -> Found:
    """Leave out messages of the block that were not published."""
    if piece.kept is None:
        return messages
    return _without_repeats(piece.kept, messages)


def _without_repeats(kept: Kept, messages: Found) -> Found:
    for offsets, found in messages:
        if isinstance(found, Damage):
            yield offsets, found
            continue
        parts = (kept.offsets & Ranges.of(offsets)).parts
        runs = [found.slice(part.start - offsets.start, len(part)) for part in parts]
        if not found.num_columns:
            # Joined, batches without columns would lose their rows.
            runs = [found.slice(0, sum(map(len, parts)))]
        # Empty where none was published: the next offsets follow.
        yield offsets, pa.concat_batches(runs) if runs else found.slice(0, 0)


def _decoded(
    decoder: Decoder, piece: Piece, rows: Iterator[tuple[BucketSlice, Chunk]]
) -> Iterator[tuple[Range, pa.RecordBatch | Damage]]:
    queue, at, damage = decoder.queue, piece.offsets.start, None
    for where, row in rows:
        if damage is not None:
            ends = min(_end_of(damage, queue), row.start)
            if at < ends:
                yield Range(at, ends), damage
                at = ends
            damage = None
        if row.start < row.stop <= at:
            continue
        wanted = Range(at, piece.offsets.stop)
        found = _look(decoder, where, row, wanted)
        if isinstance(found, Damage):
            damage = found
        elif row.start > at or not found.num_rows:
            return
        else:
            yield Range(at, at + found.num_rows), found
            at += found.num_rows
    if damage is not None:
        ends = min(_end_of(damage, queue), piece.offsets.stop)
        if at < ends:
            yield Range(at, ends), damage


def _look(
    decoder: Decoder, where: BucketSlice, row: Chunk, wanted: Range
) -> pa.RecordBatch | Damage:
    try:
        return decoder.decode(row, wanted)
    except UnreadableError:
        row_alone = BucketSlice(where.block, where.bucket, row.start, row.start + 1)
        found = decoder.store.read_chunks(decoder.queue.queue_id, [row_alone])
        row = next((chunk for _, chunk in found), row)
    try:
        return decoder.decode(row, wanted)
    except UnreadableError as error:
        return Damage(row, f"unreadable: {error}")


def _end_of(damage: Damage, queue: QueueDefinition) -> int:
    """The latest possible end of a damaged chunk, given its start."""
    start = damage.chunk.start
    return start - start % queue.chunk_size + queue.chunk_size


def _rows_of_piece(
    queue: QueueDefinition,
    piece: Piece,
    messages: Found,
    rows: Rows,
    on_unreadable: OnUnreadable | None,
) -> Iterator[pa.RecordBatch]:
    at = piece.offsets.start
    for offsets, found in messages:
        at, monotons = offsets.stop, piece.monotons_at(offsets)
        if isinstance(found, Damage):
            if not monotons:
                continue
            if on_unreadable is None:
                raise UnreadableError(
                    f"queue {queue.queue_id}: messages {monotons} are {found.reason} (block "
                    f"{piece.block}, offset {found.chunk.start}); a consumer sends them to the "
                    "dead-letter queue and continues; the repair's audit finds all of them"
                )
            on_unreadable(monotons, found.reason)
            continue
        if not found.num_rows:
            continue
        yield rows.of(
            found,
            first_monoton=monotons.start,
            published_at=piece.published_at,
            delivery_count=piece.deliveries,
        )
    if at < piece.offsets.stop:
        why = (
            "every group has settled it meanwhile"
            if piece.deliveries is None
            else "the lease of this batch ran out, other readers finished it"
        )
        first = piece.monotons_at(Range(at, at)).start
        raise LeaseLostError(
            f"queue {queue.queue_id}: message {first} is not in the store (block "
            f"{piece.block}, offset {at}): either {why} and the repair deleted it, or data was "
            "lost; the repair's audit shows which"
        )


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    small: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        small.append(batch)
        count, size = count + batch.num_rows, size + batch.get_total_buffer_size()
        if count >= SMALL_COUNT or size >= SMALL_BYTES:
            yield small[0] if len(small) == 1 else pa.concat_batches(small)
            small, count, size = [], 0, 0
    if small:
        yield pa.concat_batches(small)
