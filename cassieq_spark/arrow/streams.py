"""The size that an Arrow IPC stream declares, read before any of it is decompressed. Pure.

A buffer may be compressed a million to one. It declares its decompressed length, and Arrow
allocates that much before it decompresses anything. So a program that reads streams of strangers
adds these lengths up first. Arrow verifies the metadata of a message when it opens the message, so
the offsets read here are those that Arrow will use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

_BATCH, _DICTIONARY = "record batch", "dictionary"
#: Bytes of metadata of one message: a batch of three columns has some 500.
_MOST_METADATA = 1 << 20
#: Earlier versions of the metadata declare compression in another way.
_VERSION_5 = 4
#: Fields of the tables Message, DictionaryBatch and RecordBatch, by their place.
_VERSION, _HEADER, _CUSTOM = 0, 2, 4
_DATA = 1
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
#: Before the bytes of a compressed buffer.
_PREFIX = 8
_AS_IT_IS = -1


@dataclass(frozen=True, slots=True)
class Declared:
    """What a stream declares.

    Attributes:
        schema: Its columns.
        rows: Rows of all its batches.
        size: Bytes of all its buffers, decompressed; those of dictionaries included.
        messages: Batches and dictionaries.
    """

    schema: pa.Schema
    rows: int
    size: int
    messages: int


def declared(stream: pa.Buffer | bytes) -> Declared:
    """Read what an IPC stream declares; decompresses nothing.

    Raises:
        ValueError: It is no IPC stream, or its metadata is too large.
        pyarrow.ArrowException: The same, found by Arrow.
    """
    rows = size = count = 0
    messages = _messages(stream)
    first = next(messages, None)
    if first is None or first.type != "schema":
        raise ValueError("it does not begin with a schema")
    schema = pa.ipc.read_schema(first)
    for message in messages:
        count += 1
        if message.type not in {_BATCH, _DICTIONARY}:
            raise ValueError(f"it has a message of type {message.type}")
        try:
            batch_rows, batch_size = _sizes(message)
        except struct.error as error:
            raise ValueError("its metadata points outside of it") from error
        size += batch_size
        rows += batch_rows if message.type == _BATCH else 0
    return Declared(schema, rows, size, count)


def _messages(stream: pa.Buffer | bytes) -> Iterator[pa.ipc.Message]:
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
        if message.metadata.size > _MOST_METADATA:
            raise ValueError(f"a message has {message.metadata.size} bytes of metadata")
        yield message


def _sizes(message: pa.ipc.Message) -> tuple[int, int]:
    """Rows of a batch or dictionary, and bytes of its buffers, decompressed."""
    told = memoryview(message.metadata)
    root = _at("<I", told, 0)
    version = _field(told, root, _VERSION)
    if (_at("<h", told, version) if version else 0) < _VERSION_5 and _field(told, root, _CUSTOM):
        raise ValueError("it was written by Arrow before 1.0, whose metadata differs")
    batch = _table(told, root, _HEADER)
    if batch is not None and message.type == _DICTIONARY:
        batch = _table(told, batch, _DATA)
    if batch is None:
        raise ValueError("a message has no content")
    length = _field(told, batch, _LENGTH)
    rows = _at("<q", told, length) if length else 0
    if rows < 0:
        raise ValueError(f"a batch has {rows} rows")
    is_compressed = _field(told, batch, _COMPRESSION) is not None
    body = memoryview(message.body)
    return rows, sum(
        _decompressed(body, offset, size) if is_compressed else size
        for offset, size in _buffers(told, batch)
    )


def _decompressed(body: memoryview, offset: int, size: int) -> int:
    if not size:
        return 0
    length = _at("<q", body, offset)
    if length == _AS_IT_IS:
        return max(0, size - _PREFIX)
    if length < 0:
        raise ValueError(f"a buffer has {length} bytes")
    return length


def _buffers(told: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each buffer in the body, as it is there."""
    vector = _table(told, batch, _BUFFERS)
    if vector is None:
        return
    for number in range(_at("<I", told, vector)):
        offset, size = struct.unpack_from("<qq", told, vector + 4 + 16 * number)
        if offset < 0 or size < 0:
            raise ValueError("a buffer lies outside its batch")
        yield offset, size


def _table(told: memoryview, table: int, place: int) -> int | None:
    """Where the table or vector begins to which a field of a table leads."""
    field = _field(told, table, place)
    return None if field is None else field + _at("<I", told, field)


def _field(told: memoryview, table: int, place: int) -> int | None:
    """Where a field of a table is; None: it is left out."""
    fields = table - _at("<i", told, table)
    entry = 4 + 2 * place
    if entry >= _at("<H", told, fields):
        return None
    offset = _at("<H", told, fields + entry)
    return table + offset if offset else None


def _at(kind: str, told: memoryview, offset: int) -> int:
    if offset < 0:
        raise ValueError("its metadata points outside of it")
    (value,) = struct.unpack_from(kind, told, offset)
    return int(value)
