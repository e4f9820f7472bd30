"""The size that an Arrow IPC stream declares, read before any of it is decompressed.

A buffer may be compressed a million to one. It declares its decompressed length, and Arrow
allocates that much before it decompresses anything. So a program that reads streams from
strangers adds these lengths up first. Arrow verifies the metadata of a message when it opens the
message, so the offsets read here are those that Arrow will use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

_BATCH, _DICTIONARY = "record batch", "dictionary"
#: Maximum bytes of metadata of one message; a batch of three columns has about 500.
_MOST_METADATA = 1 << 20
#: Earlier versions of the metadata declare compression differently.
_VERSION_5 = 4
#: Fields of the tables Message, DictionaryBatch and RecordBatch, by their index.
_VERSION, _HEADER, _CUSTOM = 0, 2, 4
_DATA = 1
_LENGTH, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
#: The bytes of the decompressed length that a compressed buffer begins with; -1: not compressed.
_PREFIX, _NOT_COMPRESSED = 8, -1


@dataclass(frozen=True, slots=True)
class Declared:
    """The sizes that a stream declares.

    Attributes:
        schema: The columns of the stream.
        rows: The rows of all its batches.
        size: The bytes of all its buffers, decompressed, including those of dictionaries.
        values: The values of all columns, and of columns nested in them; some take no byte.
        messages: How many batches and dictionaries the stream has.
    """

    schema: pa.Schema
    rows: int
    size: int
    values: int
    messages: int


class _Table(NamedTuple):
    """A table of a flatbuffer, or a vector: its position in the metadata of a message."""

    metadata: memoryview
    at: int

    def read(self, kind: str, offset: int = 0) -> int:
        """The number at an offset from the beginning of the table."""
        if self.at + offset < 0:
            raise ValueError("its metadata points outside of it")
        (value,) = struct.unpack_from(kind, self.metadata, self.at + offset)
        return int(value)

    def field(self, place: int) -> _Table | None:
        """The field at an index; None if the field is left out."""
        fields = _Table(self.metadata, self.at - self.read("<i"))
        entry = 4 + 2 * place
        offset = fields.read("<H", entry) if entry < fields.read("<H") else 0
        return _Table(self.metadata, self.at + offset) if offset else None

    def number(self, kind: str, place: int) -> int:
        """The number in a field; 0 if the field is left out."""
        field = self.field(place)
        return 0 if field is None else field.read(kind)

    def table(self, place: int) -> _Table | None:
        """The table or vector to which a field points; None if the field is left out."""
        field = self.field(place)
        return None if field is None else _Table(self.metadata, field.at + field.read("<I"))


def declared(stream: pa.Buffer | bytes) -> Declared:
    """Read the sizes that an IPC stream declares; decompresses nothing.

    Raises:
        ValueError: The stream is no IPC stream, or its metadata is too large.
        pyarrow.ArrowException: The same, found by Arrow.
    """
    rows = size = values = count = 0
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
            batch_rows, batch_size, batch_values = _sizes(message)
        except struct.error as error:
            raise ValueError("its metadata points outside of it") from error
        size, values = size + batch_size, values + batch_values
        rows += batch_rows if message.type == _BATCH else 0
    return Declared(schema, rows, size, values, count)


def _messages(stream: pa.Buffer | bytes) -> Iterator[pa.ipc.Message]:
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)):
        if message.metadata.size > _MOST_METADATA:
            raise ValueError(f"a message has {message.metadata.size} bytes of metadata")
        yield message


def _sizes(message: pa.ipc.Message) -> tuple[int, int, int]:
    """The rows of a batch or dictionary, the decompressed bytes of its buffers, and its values."""
    start = _Table(memoryview(message.metadata), 0)
    root = _Table(start.metadata, start.read("<I"))
    if root.number("<h", _VERSION) < _VERSION_5 and root.field(_CUSTOM):
        raise ValueError("it was written by Arrow before 1.0, whose metadata differs")
    batch = root.table(_HEADER)
    if batch is not None and message.type == _DICTIONARY:
        batch = batch.table(_DATA)
    if batch is None:
        raise ValueError("a message has no content")
    rows = batch.number("<q", _LENGTH)
    if rows < 0:
        raise ValueError(f"a batch has {rows} rows")
    is_compressed = batch.field(_COMPRESSION) is not None
    body = memoryview(message.body)
    size = sum(
        _decompressed(body, offset, size) if is_compressed else size
        for offset, size in _pairs(batch, _BUFFERS)
    )
    return rows, size, sum(count for count, _ in _pairs(batch, _NODES))


def _pairs(batch: _Table, place: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each buffer in the body, before decompression.

    For the vector of columns: the numbers of values and of nulls of each column and nested column.
    """
    vector = batch.table(place)
    if vector is None:
        return
    for number in range(vector.read("<I")):
        one, other = struct.unpack_from("<qq", vector.metadata, vector.at + 4 + 16 * number)
        if one < 0 or other < 0:
            raise ValueError("a buffer or a column lies outside its batch")
        yield one, other


def _decompressed(body: memoryview, offset: int, size: int) -> int:
    if not size:
        return 0
    length = _Table(body, offset).read("<q")
    if length == _NOT_COMPRESSED:
        return max(0, size - _PREFIX)
    if length < 0:
        raise ValueError(f"a buffer has {length} bytes")
    return length
