"""The layout of a chunk's messages as bytes, and the checks that keep crafted bytes out.

A frame is a header of fixed length and a body: buffers one after the other, whose lengths follow
from the counts in the header. So a reader knows all lengths and refuses frames that are too large
before it allocates or decompresses anything, and before Arrow sees any of it. It checks, in order:

1. the header: its magic, codec and flags, and that it counts as many messages as the row does;
2. the lengths, against `MOST_DATA_BYTES` and `MOST_BYTES`;
3. the sum of all bytes;
4. the body, which must decompress into exactly as many bytes as the header asks for;
5. the arrays: offsets in order and inside the data, texts in UTF-8, headers with names.

The sum only detects accidents, as an attacker who crafts a chunk computes it as well. A frame that
passes the other checks is safe to read, even if an attacker has written it.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cassieq_spark.arrow import packing
from cassieq_spark.arrow.packing import CODECS, MODULUS, bit_bytes, checksum, ends_of
from cassieq_spark.errors import MessageError, UnreadableError

HEADERS = pa.map_(pa.string(), pa.string())
#: The columns of a chunk.
STORED = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])

#: Maximum number of messages of a chunk.
MOST_MESSAGES = 1 << 20
#: Maximum bytes of all values, keys and headers: twice what a writer may store, as a dead letter
#: has more headers than its original.
MOST_DATA_BYTES = 16 << 20
#: Maximum bytes of a decompressed body: 8 MiB of headers of one letter have 64 MiB of offsets.
MOST_BYTES = 100 << 20

_MAGIC = b"CQF1"
#: Magic, codec, flags; the counts of `_Counts`; the sum of all other bytes.
_HEADER = struct.Struct("<4sBBxx6IQ")
_KEYS, _HEADERS, _NULL_KEYS, _NULL_HEADERS, _NULL_ITEMS = (1 << bit for bit in range(5))
_ENTRY = pa.struct([HEADERS.key_field, HEADERS.item_field])
_NO_DATA = pa.py_buffer(b"")


class _Counts(NamedTuple):
    """The counts in a header: messages, entries of all their headers, and bytes of data."""

    messages: int
    entries: int
    value_bytes: int
    key_bytes: int
    name_bytes: int
    item_bytes: int


class _Buffers(NamedTuple):
    """The buffers of one array in a body, from its first element on."""

    offsets: bytes
    valid: bytes
    data: bytes | memoryview = b""


_NONE = _Buffers(b"", b"")


def encode(messages: pa.RecordBatch, compression: str) -> bytes:
    """Lay out messages as a frame.

    A column whose elements are all null is left out. A body that does not become smaller is not
    compressed.

    Args:
        messages: Columns of `STORED`, in their types; ``value`` is required, and never null.
        compression: ``lz4``, ``zstd`` or ``none``.

    Raises:
        MessageError: The messages are more than a frame takes.
    """
    flags = entries = 0
    values = _texts(messages.column("value"))
    keys = maps = names = items = _NONE
    if (column := used_column(messages, "key")) is not None:
        keys = _texts(column)
        flags |= _KEYS | (_NULL_KEYS if keys.valid else 0)
    if (headers := used_column(messages, "headers")) is not None:
        ends = ends_of(headers)
        first, entries = int(ends[0]), int(ends[-1] - ends[0])
        maps = _Buffers(_from_zero(ends), _valid(headers))
        names = _texts(headers.keys.slice(first, entries))
        items = _texts(headers.items.slice(first, entries))
        flags |= _HEADERS | (_NULL_HEADERS if maps.valid else 0)
        flags |= _NULL_ITEMS if items.valid else 0
    sizes = [len(each.data) for each in (values, keys, names, items)]
    counts = _Counts(messages.num_rows, entries, *sizes)
    if problem := _excess(counts, _sizes(flags, counts)):
        raise MessageError(
            f"messages are too large together: {problem}; give them smaller values, or fewer "
            "headers"
        )
    kinds = zip(values, keys, maps, names, items, strict=True)
    codec, body = packing.pack(b"".join([part for kind in kinds for part in kind]), compression)
    total = checksum(_HEADER.pack(_MAGIC, codec, flags, *counts, 0), body)
    return b"".join([_HEADER.pack(_MAGIC, codec, flags, *counts, total), body])


def decode(frame: bytes, count: int) -> dict[str, pa.Array]:
    """The columns of a frame, checked; no copy is made except by decompression.

    Allocates no more than `MOST_BYTES`, whatever the frame says.

    Args:
        frame: A frame, or any other bytes.
        count: How many messages the frame must have.

    Returns:
        The columns of `STORED` that the frame has.

    Raises:
        UnreadableError: The bytes are not a frame that `encode` makes.
    """
    if len(frame) < _HEADER.size:
        raise UnreadableError(f"it has {len(frame)} bytes, fewer than a header")
    magic, codec, flags, *rest, total = _HEADER.unpack_from(frame)
    counts = _Counts(*rest)
    if magic != _MAGIC or codec >= len(CODECS) or not _is_possible(flags, counts):
        raise UnreadableError("it does not begin with a header of this release")
    if counts.messages != count or not count:
        raise UnreadableError(f"it has {counts.messages} messages, and its row says {count}")
    sizes = _sizes(flags, counts)
    if problem := _excess(counts, sizes):
        raise UnreadableError(problem)
    if (checksum(frame) - total) % MODULUS != total:
        raise UnreadableError("its checksum does not match: it was damaged")
    try:
        body = packing.unpack(pa.py_buffer(frame).slice(_HEADER.size), codec, sum(sizes))
        return _arrays(body, sizes, counts)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableError(f"its body does not match its header: {error}") from error


def used_column(messages: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column; None if it is absent or all of its elements are null."""
    index = messages.schema.get_field_index(name)
    column = messages.column(index) if index >= 0 else None
    return column if column is not None and column.null_count < len(column) else None


def _texts(array: pa.Array) -> _Buffers:
    ends, data = packing.texts_of(array)
    return _Buffers(_from_zero(ends), _valid(array), data)


def _from_zero(ends: np.ndarray[Any, Any]) -> bytes:
    return (ends - ends[0] if ends[0] else ends).tobytes()


def _valid(array: pa.Array) -> bytes:
    """One bit per element, set unless the element is null; empty if no element is null."""
    if not array.null_count:
        return b""
    return packing.bits(array.is_valid().to_numpy(zero_copy_only=False))


def _is_possible(flags: int, counts: _Counts) -> bool:
    """True if all flags are known, and only columns that exist have nulls and data."""
    if not flags & _KEYS and (flags & _NULL_KEYS or counts.key_bytes):
        return False
    of_headers = counts.entries or counts.name_bytes or counts.item_bytes
    if not flags & _HEADERS and (flags & (_NULL_HEADERS | _NULL_ITEMS) or of_headers):
        return False
    return flags < 1 << 5


def _excess(counts: _Counts, sizes: list[int]) -> str | None:
    """The limit that is exceeded, in words; None if none is."""
    data = sum(counts[2:])
    if counts.messages > MOST_MESSAGES:
        return f"{counts.messages} messages, and {MOST_MESSAGES} is the most"
    if data > MOST_DATA_BYTES:
        return f"{data} bytes of values, keys and headers, and {MOST_DATA_BYTES} is the most"
    size = sum(sizes)
    return f"{size} bytes, and {MOST_BYTES} is the most" if size > MOST_BYTES else None


def _sizes(flags: int, counts: _Counts) -> list[int]:
    """The bytes of each buffer of a body; 0 for a buffer that is left out.

    First come the offsets of values, keys, headers, names and items, so that they are aligned;
    then the validity bitmaps of keys, headers and items; then the data of values, keys, names and
    items.
    """
    of_messages, of_entries = 4 * (counts.messages + 1), 4 * (counts.entries + 1)
    message_bits, entry_bits = bit_bytes(counts.messages), bit_bytes(counts.entries)
    return [
        of_messages,
        of_messages if flags & _KEYS else 0,
        of_messages if flags & _HEADERS else 0,
        of_entries if flags & _HEADERS else 0,
        of_entries if flags & _HEADERS else 0,
        message_bits if flags & _NULL_KEYS else 0,
        message_bits if flags & _NULL_HEADERS else 0,
        entry_bits if flags & _NULL_ITEMS else 0,
        *counts[2:],
    ]


def _arrays(body: pa.Buffer, sizes: list[int], counts: _Counts) -> dict[str, pa.Array]:
    """The columns of a body that has the right length.

    Raises:
        pa.ArrowException, ValueError: The offsets or texts are wrong.
    """
    messages, entries = counts.messages, counts.entries
    buffers: list[pa.Buffer] = []
    at = 0
    for size in sizes:
        buffers.append(body.slice(at, size) if size else None)
        at += size
    ends, key_ends, header_ends, name_ends, item_ends = buffers[:5]
    valid_keys, valid_headers, valid_items, values, keys, names, items = buffers[5:]
    parts = [None, ends, values or _NO_DATA]
    columns = {"value": pa.Array.from_buffers(pa.binary(), messages, parts)}
    if key_ends:
        parts = [valid_keys, key_ends, keys or _NO_DATA]
        columns["key"] = pa.Array.from_buffers(pa.binary(), messages, parts)
    if header_ends:
        starts = np.frombuffer(name_ends, "<i4")
        if not (starts[:-1] < starts[1:]).all():
            raise ValueError("a header without a name")
        texts = [
            pa.Array.from_buffers(pa.string(), entries, [valid, ends, data or _NO_DATA])
            for valid, ends, data in ((None, name_ends, names), (valid_items, item_ends, items))
        ]
        pairs = pa.Array.from_buffers(_ENTRY, entries, [None], children=texts)
        parts = [valid_headers, header_ends]
        columns["headers"] = pa.Array.from_buffers(HEADERS, messages, parts, children=[pairs])
    for column in columns.values():
        column.validate(full=True)
    return columns
