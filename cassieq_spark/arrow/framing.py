"""The layout of a chunk's messages as bytes, and the checks that keep crafted bytes out. Pure.

A frame is a header of fixed length and a body: buffers one after the other, whose lengths follow
from the counts in the header. So a reader knows all lengths and refuses frames that are too large
before it allocates or decompresses anything, and before Arrow sees any of it. It checks, in order:

1. the header: whether it is one, and has as many messages as the row says;
2. the lengths, against `MOST_DATA_BYTES` and `MOST_BYTES`;
3. the sum of all bytes;
4. the body, which is decompressed into exactly the bytes that the header asks for;
5. the arrays: offsets in order and inside the data, texts in UTF-8, headers with names.

The sum only detects accidents, as an attacker who crafts a chunk computes it as well. A frame that
passes the other checks is safe to read, also if an attacker has written it.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cassieq_spark.arrow import packing
from cassieq_spark.arrow.packing import CODECS, MODULUS, checksum
from cassieq_spark.errors import MessageError, UnreadableError

HEADERS = pa.map_(pa.string(), pa.string())
#: The columns of a chunk.
STORED = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])

#: The most messages of a chunk.
MOST_MESSAGES = 1 << 20
#: The most bytes of all values, keys and headers: twice what a writer may store, as a dead letter
#: has more headers than its original.
MOST_DATA_BYTES = 16 << 20
#: The most bytes of a body, decompressed: 8 MiB of headers of one letter have 64 MiB of offsets.
MOST_BYTES = 100 << 20

_MAGIC = b"CQF1"
#: Magic, codec, flags; the counts of `_Counts`; the sum of all the other bytes.
_HEADER = struct.Struct("<4sBBxx6IQ")
_KEYS, _HEADERS, _NULL_KEYS, _NULL_HEADERS, _NULL_ITEMS = (1 << bit for bit in range(5))
#: Flags that do not contradict each other: only a column that is there has nulls.
_POSSIBLE = frozenset(
    of_keys | of_headers
    for of_keys in (0, _KEYS, _KEYS | _NULL_KEYS)
    for of_headers in (
        0,
        *(_HEADERS | null | other for null in (0, _NULL_HEADERS) for other in (0, _NULL_ITEMS)),
    )
)
_OFFSETS = np.dtype("<i4")
_ENTRY = pa.struct([HEADERS.key_field, HEADERS.item_field])
_Bytes = bytes | memoryview


class _Counts(NamedTuple):
    """What a header counts: messages, entries of all their headers, and bytes of data."""

    messages: int
    entries: int
    value_bytes: int
    key_bytes: int
    name_bytes: int
    item_bytes: int


def encode(messages: pa.RecordBatch, compression: str) -> bytes:
    """Lay out messages as a frame.

    A body that does not become smaller is not compressed.

    Args:
        messages: Columns of `STORED`, in their types; ``value`` is there, and never null.
        compression: ``lz4``, ``zstd`` or ``none``.

    Raises:
        MessageError: They are more than a frame takes.
    """
    columns = dict(zip(messages.schema.names, messages.columns, strict=True))
    values = _Texts(columns["value"])
    flags, keys, headers = 0, None, None
    offsets, nulls, data = [values.offsets], [], [values.data]
    if "key" in columns:
        keys = _Texts(columns["key"])
        flags |= _KEYS | (_NULL_KEYS if keys.nulls else 0)
        offsets.append(keys.offsets)
        nulls.append(keys.nulls)
        data.append(keys.data)
    if "headers" in columns:
        headers = _Maps(columns["headers"])
        flags |= _HEADERS | (_NULL_HEADERS if headers.nulls else 0)
        flags |= _NULL_ITEMS if headers.items.nulls else 0
        offsets += [headers.offsets, headers.names.offsets, headers.items.offsets]
        nulls += [headers.nulls, headers.items.nulls]
        data += [headers.names.data, headers.items.data]
    counts = _Counts(
        messages.num_rows,
        headers.entries if headers else 0,
        len(values.data),
        len(keys.data) if keys else 0,
        len(headers.names.data) if headers else 0,
        len(headers.items.data) if headers else 0,
    )
    if problem := _excess(counts, _sizes(flags, counts)):
        raise MessageError(
            f"messages are too large together: {problem}; give them smaller values, or fewer "
            "headers"
        )
    codec, body = packing.pack(b"".join([*offsets, *nulls, *data]), compression)
    start = _HEADER.pack(_MAGIC, codec, flags, *counts, 0)
    total = (checksum(start) + checksum(body)) % MODULUS
    return b"".join([_HEADER.pack(_MAGIC, codec, flags, *counts, total), body])


def decode(frame: bytes, count: int) -> dict[str, pa.Array]:
    """The columns of a frame, checked; not a copy, beyond decompression.

    Allocates no more than `MOST_BYTES`, whatever the frame says.

    Args:
        frame: A frame, or any other bytes.
        count: How many messages the frame must have.

    Returns:
        The columns of `STORED` that the frame has.

    Raises:
        UnreadableError: It is not what `encode` makes.
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
        return _arrays(_Cursor(body, iter(sizes)), flags, counts)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableError(f"its body does not match its header: {error}") from error


class _Texts:
    """The buffers of a binary or string array, from its first element on."""

    def __init__(self, array: pa.Array) -> None:
        _, offsets, data = array.buffers()
        ends = _ends(offsets, array.offset, len(array))
        first, last = (int(ends[0]), int(ends[-1])) if len(array) else (0, 0)
        self.offsets = _from_zero(ends)
        self.nulls = _nulls(array)
        self.data: _Bytes = memoryview(data)[first:last] if data is not None else b""


class _Maps:
    """The buffers of an array of headers, from its first element on."""

    def __init__(self, array: pa.MapArray) -> None:
        ends = _ends(array.buffers()[1], array.offset, len(array))
        first, self.entries = int(ends[0]), int(ends[-1] - ends[0])
        self.offsets = _from_zero(ends)
        self.nulls = _nulls(array)
        self.names = _Texts(array.keys.slice(first, self.entries))
        self.items = _Texts(array.items.slice(first, self.entries))


def _ends(offsets: pa.Buffer | None, first: int, length: int) -> np.ndarray[Any, Any]:
    if offsets is None or not length:
        return np.zeros(1, _OFFSETS)
    return np.frombuffer(offsets, _OFFSETS, length + 1, first * _OFFSETS.itemsize)


def _from_zero(ends: np.ndarray[Any, Any]) -> bytes:
    return (ends - ends[0] if ends[0] else ends).tobytes()


def _nulls(array: pa.Array) -> bytes:
    """A bit for each element that is not null; nothing if none is."""
    if not array.null_count:
        return b""
    return packing.bits(array.is_valid().to_numpy(zero_copy_only=False))


def _is_possible(flags: int, counts: _Counts) -> bool:
    """Whether a header does not contradict itself."""
    if flags not in _POSSIBLE or (counts.key_bytes and not flags & _KEYS):
        return False
    return bool(flags & _HEADERS) or not (counts.entries or counts.name_bytes or counts.item_bytes)


def _excess(counts: _Counts, sizes: list[int]) -> str | None:
    """What is too large, in words; None if nothing is."""
    data = sum(counts[2:])
    if counts.messages > MOST_MESSAGES:
        return f"{counts.messages} messages, and {MOST_MESSAGES} is the most"
    if data > MOST_DATA_BYTES:
        return f"{data} bytes of values, keys and headers, and {MOST_DATA_BYTES} is the most"
    size = sum(sizes)
    return f"{size} bytes, and {MOST_BYTES} is the most" if size > MOST_BYTES else None


def _sizes(flags: int, counts: _Counts) -> list[int]:
    """The bytes of each buffer. Offsets come first, so that they are aligned."""
    of_messages, of_entries = 4 * (counts.messages + 1), 4 * (counts.entries + 1)
    sizes = [of_messages]
    if flags & _KEYS:
        sizes.append(of_messages)
    if flags & _HEADERS:
        sizes += [of_messages, of_entries, of_entries]
    if flags & _NULL_KEYS:
        sizes.append((counts.messages + 7) // 8)
    if flags & _NULL_HEADERS:
        sizes.append((counts.messages + 7) // 8)
    if flags & _NULL_ITEMS:
        sizes.append((counts.entries + 7) // 8)
    sizes.append(counts.value_bytes)
    if flags & _KEYS:
        sizes.append(counts.key_bytes)
    if flags & _HEADERS:
        sizes += [counts.name_bytes, counts.item_bytes]
    return sizes


class _Cursor:
    """Takes one buffer of a body after the other."""

    def __init__(self, body: pa.Buffer, sizes: Any) -> None:
        self._body = body
        self._sizes = sizes
        self._at = 0

    def take(self) -> pa.Buffer:
        size = next(self._sizes)
        found = self._body.slice(self._at, size)
        self._at += size
        return found

    def take_if(self, is_there: int) -> pa.Buffer | None:
        return self.take() if is_there else None


def _arrays(body: _Cursor, flags: int, counts: _Counts) -> dict[str, pa.Array]:
    """The columns of a body that has the right length.

    Raises:
        pa.ArrowException, ValueError: Its offsets or texts are wrong.
    """
    messages, entries = counts.messages, counts.entries
    value_ends = body.take()
    key_ends = body.take_if(flags & _KEYS)
    header_ends, name_ends, item_ends = (body.take_if(flags & _HEADERS) for _ in range(3))
    null_keys = body.take_if(flags & _NULL_KEYS)
    null_headers = body.take_if(flags & _NULL_HEADERS)
    null_items = body.take_if(flags & _NULL_ITEMS)
    columns = {
        "value": pa.Array.from_buffers(pa.binary(), messages, [None, value_ends, body.take()])
    }
    if key_ends is not None:
        buffers = [null_keys, key_ends, body.take()]
        columns["key"] = pa.Array.from_buffers(pa.binary(), messages, buffers)
    if header_ends is not None and name_ends is not None:
        ends = np.frombuffer(name_ends, _OFFSETS)
        if not (ends[:-1] < ends[1:]).all():
            raise ValueError("a header without a name")
        names = pa.Array.from_buffers(pa.string(), entries, [None, name_ends, body.take()])
        items = pa.Array.from_buffers(pa.string(), entries, [null_items, item_ends, body.take()])
        pairs = pa.Array.from_buffers(_ENTRY, entries, [None], children=[names, items])
        buffers = [null_headers, header_ends]
        columns["headers"] = pa.Array.from_buffers(HEADERS, messages, buffers, children=[pairs])
    for column in columns.values():
        column.validate(full=True)
    return columns
