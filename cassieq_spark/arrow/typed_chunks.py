"""Messages of a queue with a schema into chunks, and back; and the form of each queue.

In addition to the columns of the queue, a message has a key and headers, in the columns ``_key``
and ``_headers``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pt

from cassieq_spark.arrow import typed_framing
from cassieq_spark.arrow.chunks import PLAIN, ColumnNames, Form, row_at
from cassieq_spark.arrow.fingerprint import Fingerprint
from cassieq_spark.arrow.framing import HEADERS, used_column
from cassieq_spark.arrow.typed_fingerprint import fingerprint_of_rows
from cassieq_spark.arrow.typed_framing import EXTRA, HEADERS_COLUMN, KEY_COLUMN, BadColumnError
from cassieq_spark.errors import MessageError, SchemaError
from cassieq_spark.model import Chunk, QueueDefinition, Range
from cassieq_spark.schemas.assign import assign
from cassieq_spark.schemas.convert import first_failing, without_dictionary
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.map_keys import with_last_keys
from cassieq_spark.settings.writing import LARGEST_MESSAGE

NAMES = ColumnNames(KEY_COLUMN, HEADERS_COLUMN, "_delay", "_visible_at", "_unique_id")


class TypedForm(Form):
    """Messages that are rows of a schema.

    The size of a message is that of its values in memory: 8 bytes for a ``bigint``, 16 for a
    decimal, 1 for a boolean, null or not; 4 and its bytes for a text; 4 and its elements for an
    array, a map and the headers.

    Args:
        schema: Columns of the queue.
        version: The version of the schema.
        before: The earlier versions, the first one first, as `ddl.to_ddl` writes them.

    Raises:
        TypeError: A column's type can't be stored.
    """

    names = NAMES

    def __init__(self, schema: pa.Schema, version: int, before: Sequence[str] = ()) -> None:
        self.schema = schema
        self.version = version
        self._before = before
        self._layout = typed_framing.layout_of(schema)

    def assigned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with the queue's columns, matched by name in any case; see `Form.assigned`."""
        first_row = 0
        for batch in batches:
            yield self._assigned(batch, first_row)
            first_row += batch.num_rows

    def fingerprint(self, batch: pa.RecordBatch) -> Fingerprint:
        """The fingerprint of all columns; see `Form.fingerprint`."""
        return fingerprint_of_rows(batch, self.schema)

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Key and headers, if present, and the columns of the schema, in its types.

        Raises:
            MessageError: A column is missing.
        """
        present = set(batch.schema.names)
        missing = [name for name in self.schema.names if name not in present]
        if missing:
            raise MessageError(f"the column {missing[0]!r} is missing")
        columns = [column for column in EXTRA if column.name in present]
        arrays = [batch.column(each.name).cast(each.type) for each in columns]
        arrays += [batch.column(name) for name in self.schema.names]
        names = [each.name for each in columns] + self.schema.names
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def encode(self, messages: pa.RecordBatch, compression: str) -> bytes:
        """The frame of a chunk, without key or headers if all are null; see `Form.encode`."""
        extra = [name for name in EXTRA.names if used_column(messages, name) is not None]
        messages = messages.select([*extra, *self.schema.names])
        schema, version = self.schema, self.version
        if self._before and messages.num_rows == 1 and messages.nbytes > LARGEST_MESSAGE:
            messages, schema, version = self._as_before(messages, extra)
        return typed_framing.encode(messages, schema, version, compression)

    def _as_before(
        self, message: pa.RecordBatch, extra: list[str]
    ) -> tuple[pa.RecordBatch, pa.Schema, int]:
        """A message by the oldest version that has all of it, with that version.

        Writers store no message as large as this one. It is a copy of a message that was written
        before the schema was widened: by this version it may be many times as large, more than
        Cassandra takes.
        """
        from cassieq_spark.schemas.evolution import present  # noqa: PLC0415 (a query begins without it)

        found = (message, self.schema, self.version)
        content = fingerprint_of_rows(message, self.schema)
        for version in range(len(self._before), 0, -1):
            schema = schema_of(self._before[version - 1])
            try:
                older = present(message, self.schema, schema)
            except MessageError:
                break  # Earlier types are narrower still.
            for name in extra:
                older = older.append_column(name, message.column(name))
            # It is another one if the version lacks a column or a field of the message.
            if fingerprint_of_rows(older, schema) == content:
                found = (older, schema, version)
        return found

    def _assigned(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        special = [name for name in batch.schema.names if name.lower() in NAMES]
        others = [name for name in batch.schema.names if name not in special]
        given = batch.select(others)
        if not others:  # Arrow forgets how many rows a batch without columns has.
            given = pa.record_batch([pa.nulls(batch.num_rows)], names=[self.schema.names[0]])
        rows = assign(given, self.schema, first_row=first_row)
        if len({name.lower() for name in special}) < len(special):
            raise SchemaError(f"a column appears twice: {', '.join(special)}")
        for name in special:
            rows = rows.append_column(name.lower(), _special(name.lower(), batch.column(name)))
        return rows

    def _sizes(self, messages: pa.RecordBatch, first_row: int) -> pa.Int64Array:
        try:
            loaded = self._layout.load(messages)
        except BadColumnError as error:
            row = first_row + first_failing(messages, self._is_bad)
            raise MessageError(
                f"{row_at(row)} has {error.problem}, in the column {error.column!r}"
            ) from error
        return pa.array(self._layout.sizes(loaded, messages.num_rows))

    def _is_bad(self, messages: pa.RecordBatch) -> bool:
        try:
            self._layout.load(messages)
        except BadColumnError:
            return True
        return False


def form_of(queue: QueueDefinition) -> Form:
    """The form in which messages are written to a queue; cached."""
    return PLAIN if queue.schema is None else _typed_form(queue.schemas)


@lru_cache(maxsize=256)
def _typed_form(versions: tuple[str, ...]) -> TypedForm:
    *before, last = versions
    return TypedForm(schema_of(last), len(versions), before)


def _special(name: str, column: pa.Array) -> pa.Array:
    """An additional column of a message, such as its key, in its type."""
    column = without_dictionary(column, name)
    given = column.type
    wanted, expected, fits = _SPECIAL[name]
    if pt.is_null(given):
        return pa.nulls(len(column), wanted)
    try:
        if fits(given):
            # A delay may also be a number of seconds, so it keeps its type.
            return column if name == NAMES.delay else column.cast(wanted)
    except pa.ArrowException as error:
        raise MessageError(f"column {name!r} has a value that does not fit: {error}") from error
    raise SchemaError(f"column {name!r} is {given}, expected {expected}")


def _is_text(given: pa.DataType) -> bool:
    kinds = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)
    views = (pt.is_string_view, pt.is_binary_view)
    return any(is_one(given) for is_one in (*kinds, *views))


#: For each additional column of a message: its type, the types that a writer may give, in words,
#: and a function that returns True for these types.
_SPECIAL: dict[str, tuple[pa.DataType, str, Callable[[pa.DataType], bool]]] = {
    NAMES.key: (pa.binary(), "string or binary", _is_text),
    NAMES.headers: (
        HEADERS,
        "map<string,string>",
        lambda given: pt.is_map(given) and _is_text(given.key_type) and _is_text(given.item_type),
    ),
    NAMES.delay: (
        pa.duration("us"),
        "a duration, or a number of seconds",
        lambda given: pt.is_duration(given) or pt.is_integer(given) or pt.is_floating(given),
    ),
    NAMES.visible_at: (
        pa.timestamp("us", "UTC"),
        "a timestamp with a time zone",
        lambda given: pt.is_timestamp(given) and given.tz is not None,
    ),
    NAMES.unique_id: (pa.binary(), "string or binary", _is_text),
}


def decode(
    chunk: Chunk,
    offsets: Range,
    schemas: Callable[[int], pa.Schema | None],
    columns: Collection[str] | None = None,
) -> tuple[int, pa.RecordBatch]:
    """Decode the messages of ``chunk`` whose offsets are in ``offsets``.

    Args:
        chunk: The chunk as it is stored.
        offsets: Offsets in the block of the chunk.
        schemas: The schema of a version; None if there is no such version.
        columns: The wanted columns; None for all. Other columns are not decompressed.

    Returns:
        The version of the schema that wrote the chunk, and the wanted columns: those of the schema
        in its order, then ``_key`` and ``_headers``, null if the chunk has none.

    Raises:
        UnreadableError: The chunk is no frame, or not the frame that its row describes.
    """
    count = chunk.stop - chunk.start
    version, schema, found = typed_framing.decode(chunk.data, count, schemas, columns)
    shared = Range(chunk.start, chunk.stop) & offsets
    start = shared.start - chunk.start
    fields = [field for field in (*schema, *EXTRA) if columns is None or field.name in columns]
    if not fields:
        # Only a batch made in this way has rows without columns.
        empty = pa.array([{}] * len(shared), pa.struct([]))
        return version, pa.RecordBatch.from_struct_array(empty)
    arrays = [
        with_last_keys(found[field.name].slice(start, len(shared)))
        if field.name in found
        else _nulls(field.name, len(shared))
        for field in fields
    ]
    return version, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@lru_cache(maxsize=64)
def _nulls(name: str, count: int) -> pa.Array:
    return pa.nulls(count, EXTRA.field(name).type)
