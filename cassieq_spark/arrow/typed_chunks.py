"""Messages of a queue with a schema into chunks, and back.

As in `chunks`; beside the columns of the queue a message has a key and headers, which are the
columns ``_key`` and ``_headers``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pt

from cassieq_spark.arrow import typed_framing
from cassieq_spark.arrow.chunks import ColumnNames, check_headers, check_sizes, has_any, row_at
from cassieq_spark.arrow.fingerprint import Fingerprint
from cassieq_spark.arrow.framing import HEADERS
from cassieq_spark.arrow.typed_fingerprint import fingerprint_of_rows
from cassieq_spark.arrow.typed_framing import (
    EXTRA,
    HEADERS_COLUMN,
    KEY_COLUMN,
    BadColumnError,
)
from cassieq_spark.errors import MessageError, SchemaError
from cassieq_spark.model import Chunk, Range
from cassieq_spark.schemas.assign import assign

NAMES = ColumnNames(KEY_COLUMN, HEADERS_COLUMN, "_delay", "_visible_at")


class TypedForm:
    """Messages that are rows of a schema: a `chunks.Form`.

    The size of a message is that of its values in memory: 8 bytes for a ``bigint``, 16 for a
    decimal, 1 for a boolean, null or not; 4 and its bytes for a text, 4 and its elements for an
    array, a map and the headers. So how much a chunk takes follows from what it has room for.

    Args:
        schema: Columns of the queue.
        version: The version of the schema.

    Raises:
        TypeError: A column's type can't be stored.
    """

    names = NAMES

    def __init__(self, schema: pa.Schema, version: int) -> None:
        self.schema = schema
        self.version = version
        self._layout = typed_framing.layout_of(schema)

    def assigned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See `chunks.Form.assigned`; the columns of the queue go by name, in any case."""
        first_row = 0
        for batch in batches:
            yield self._assigned(batch, first_row)
            first_row += batch.num_rows

    def fingerprint(self, batch: pa.RecordBatch) -> Fingerprint:
        """See `chunks.Form.fingerprint`."""
        return fingerprint_of_rows(batch, self.schema)

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Key and headers, if they are there, and the columns of the schema, in its types.

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

    def check(
        self,
        messages: pa.RecordBatch,
        max_message_bytes: int,
        *,
        first_row: int,
        takes_reserved: bool = False,
    ) -> pa.Int64Array:
        """See `chunks.Form.check`."""
        if HEADERS_COLUMN in messages.schema.names:
            headers = messages.column(HEADERS_COLUMN)
            check_headers(headers, first_row=first_row, takes_reserved=takes_reserved)
        try:
            loaded = self._layout.load(messages)
        except BadColumnError as error:
            row = first_row + self._first_bad(messages)
            raise MessageError(
                f"{row_at(row)} has {error.problem}, in the column {error.column!r}"
            ) from error
        sizes = pa.array(self._layout.sizes(loaded, messages.num_rows))
        check_sizes(sizes, max_message_bytes, first_row=first_row)
        return sizes

    def encode(self, messages: pa.RecordBatch, compression: str) -> bytes:
        """See `chunks.Form.encode`; key and headers are left out if no message has any."""
        extra = [name for name in EXTRA.names if has_any(messages, name)]
        messages = messages.select([*extra, *self.schema.names])
        return typed_framing.encode(messages, self.schema, self.version, compression)

    def _assigned(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        special = [name for name in batch.schema.names if name.lower() in NAMES]
        others = [name for name in batch.schema.names if name not in special]
        if others:
            rows = assign(batch.select(others), self.schema, first_row=first_row)
        else:
            # Arrow forgets how many rows a batch without columns has.
            nothing = pa.record_batch([pa.nulls(batch.num_rows)], names=[self.schema.names[0]])
            rows = assign(nothing, self.schema, first_row=first_row)
        if len({name.lower() for name in special}) < len(special):
            raise SchemaError(f"a column is there twice: {', '.join(special)}")
        for name in special:
            rows = rows.append_column(name.lower(), _special(name.lower(), batch.column(name)))
        return rows

    def _first_bad(self, messages: pa.RecordBatch) -> int:
        """The first row that can't be stored; there is one."""
        first, count = 0, messages.num_rows
        while count > 1:
            half = count // 2
            try:
                self._layout.load(messages.slice(first, half))
            except BadColumnError:
                count = half
            else:
                first, count = first + half, count - half
        return first


def _special(name: str, column: pa.Array) -> pa.Array:
    """A column that a message has beside those of the queue, in its type."""
    given = column.type
    if pt.is_null(given):
        return pa.nulls(len(column), _SPECIAL[name][0])
    wanted, expected, fits = _SPECIAL[name]
    try:
        if fits(given):
            # A number of seconds is a delay as it is.
            return column if name == NAMES.delay else column.cast(wanted)
    except pa.ArrowException as error:
        raise MessageError(f"column {name!r} has a value that does not fit: {error}") from error
    raise SchemaError(f"column {name!r} is {given}, expected {expected}")


def _is_text(given: pa.DataType) -> bool:
    kinds = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)
    views = (pt.is_string_view, pt.is_binary_view)
    return any(is_one(given) for is_one in (*kinds, *views))


#: The type of each column that a message has beside those of the queue, what writers may give
#: instead, and whether a type is that.
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
}


def decode(
    chunk: Chunk,
    offsets: Range,
    schemas: Callable[[int], pa.Schema | None],
    columns: Collection[str] | None = None,
) -> tuple[int, pa.RecordBatch]:
    """The messages of ``chunk`` at the given ``offsets`` of its block, as far as it has them.

    Args:
        chunk: As it is stored.
        offsets: Those that are wanted.
        schemas: The schema of a version; None if there is no such version.
        columns: The columns that are wanted; None: all. Others are not decompressed.

    Returns:
        The version of the schema that the chunk was written by; its columns that are wanted, in
        the order of that schema, then ``_key`` and ``_headers``, null if the chunk has none.

    Raises:
        UnreadableError: The chunk is no frame, or not the one that its row describes.
    """
    count = chunk.stop - chunk.start
    version, schema, found = typed_framing.decode(chunk.data, count, schemas, columns)
    shared = Range(chunk.start, chunk.stop) & offsets
    start = shared.start - chunk.start
    fields = [field for field in (*schema, *EXTRA) if columns is None or field.name in columns]
    arrays = [
        found[field.name].slice(start, len(shared))
        if field.name in found
        else _nulls(field.name, len(shared))
        for field in fields
    ]
    if not fields:
        # A batch without columns has no rows.
        empty = pa.struct([])
        return version, pa.RecordBatch.from_struct_array(pa.array([{}] * len(shared), empty))
    return version, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@lru_cache(maxsize=64)
def _nulls(name: str, count: int) -> pa.Array:
    return pa.nulls(count, EXTRA.field(name).type)
