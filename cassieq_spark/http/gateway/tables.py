"""Rows of a queue with a schema as an Arrow IPC stream, read and written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.arrow.rows import METADATA
from cassieq_spark.arrow.typed_framing import HEADERS_COLUMN, KEY_COLUMN
from cassieq_spark.client import Message
from cassieq_spark.errors import OptionError
from cassieq_spark.http.gateway.formats import (
    METADATA_FIELDS,
    TEXTS,
    check_headers,
    is_bytes,
    is_headers,
    metadata_of,
    open_table,
    stream_of,
)
from cassieq_spark.http.gateway.pop_receipts import PopReceipts
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.schemas.canonical import all_nullable, canonical_type, parts, type_name
from cassieq_spark.schemas.from_rows import from_dicts

_DELAYS = {"_delay", "_visible_at"}


def read_table(
    body: bytes, columns: pa.Schema, most: int, most_bytes: int
) -> tuple[pa.Table, int]:
    """Read rows of an Arrow IPC stream: the columns, and ``_key`` and ``_headers`` if given.

    The client checks that the columns and their values fit. This function refuses data whose
    conversion would take more memory than was computed before: within lists, maps and structs,
    values must be of the queue's types, and neither dictionaries nor views; and the values of a
    dictionary must not be lists, maps or structs.

    Returns:
        The rows, and their approximate size in bytes.

    Raises:
        RefusedError: 400; the body is no such stream, a column has another type, or there are more
            than ``most`` rows. 413; the decoded body has more than ``most_bytes``.
    """
    table, size = open_table(body, most, most_bytes, partial(_check_columns, columns))
    if HEADERS_COLUMN in table.column_names:
        check_headers(table.column(HEADERS_COLUMN), most)
    return table, size


def write_table(messages: Sequence[Message], receipts: PopReceipts, columns: pa.Schema) -> bytes:
    """Write messages as an Arrow IPC stream: the queue's columns, and a struct ``_metadata``.

    Args:
        messages: The messages.
        receipts: Makes their pop receipts.
        columns: The version of the schema by which they were read.
    """
    schema = all_nullable(columns)
    rows = [message.value for message in messages if isinstance(message.value, dict)]
    batch = from_dicts(rows, schema)
    rows = [metadata_of(each, receipts) for each in messages]
    metadata = pa.array(rows, pa.struct(METADATA_FIELDS))
    return stream_of(batch.append_column(METADATA, metadata))


def _check_columns(columns: pa.Schema, given: pa.Schema) -> None:
    wanted = {field.name.lower(): field.type for field in columns}
    for field in given:
        name = field.name.lower()
        if name in _DELAYS:
            raise RefusedError(
                f"the rows of a batch become visible together: leave out {field.name!r}, and "
                "give initialInvisibilitySeconds or visibleAt"
            )
        if name == HEADERS_COLUMN:
            fits = is_headers(field.type)
        elif name == KEY_COLUMN or not of.is_nested(field.type):
            is_dictionary = of.is_dictionary(field.type)
            kind = field.type.value_type if is_dictionary else field.type
            fits = is_bytes(kind) or _is_atomic(kind) or of.is_null(field.type)
        else:
            fits = _is_plain(field.type) and _has_same_parts(field, wanted.get(name))
        if not fits:
            raise RefusedError(
                f"column {field.name[:100]!r} is {str(field.type)[:100]}: send it as "
                + (type_name(wanted[name])[:500] if name in wanted else "a plain type")
            )


def _is_plain(kind: pa.DataType) -> bool:
    """True if each value of a type has bytes of its own."""
    if of.is_list(kind) or of.is_large_list(kind):
        return _is_plain(kind.value_type)
    if of.is_map(kind):
        return _is_plain(kind.key_type) and _is_plain(kind.item_type)
    if of.is_struct(kind):
        return kind.num_fields > 0 and all(_is_plain(part.type) for part in kind)
    return _is_atomic(kind)


def _is_atomic(kind: pa.DataType) -> bool:
    return kind in TEXTS or of.is_primitive(kind) or of.is_decimal(kind)


def _has_same_parts(field: pa.Field, wanted: pa.DataType | None) -> bool:
    """True if all values within lists, maps and structs are of the queue's types.

    A column or a field that the queue does not have passes: it is not converted, but refused later
    by its name.
    """
    if wanted is None:
        return True
    try:
        return _is_same(canonical_type(field.type, field.name), wanted)
    except OptionError as error:
        raise RefusedError(str(error)) from error


def _is_same(given: pa.DataType, wanted: pa.DataType) -> bool:
    if not of.is_nested(given):
        return bool(given == wanted)
    if given.id != wanted.id:
        return False
    kinds = {part.name.lower(): part.type for part in parts(wanted)}
    return all(
        _is_same(part.type, kinds.get(part.name.lower(), part.type)) for part in parts(given)
    )
