"""Fingerprints: they identify the content of a batch, whatever the order of its rows and tasks.

Spark replays a batch with the same rows, but after a shuffle in another order, in other tasks. So
a fingerprint is a sum over rows. It covers every byte of value, key and headers; the time of
delivery is left out, as programs compute it from their clock.

A row's bytes are folded into one word by exclusive or, eight at a time. Arrow stores the rows of a
column one behind the other, so numpy folds the aligned words of all rows at once. The first and
the last word of a row may hold bytes of its neighbours, which are masked. The result is rotated
by the distance of the row's start from a word boundary. That takes about a nanosecond for eight
bytes.

The fold alone would not notice two words that change places, or a field that occurs twice, a
multiple of eight bytes apart. So eight words spread evenly over the row count too, each by its
place. They cover a row of up to 64 bytes wholly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: A hash of each row.
Words = npt.NDArray[np.uint64]

WORD = 8
#: Masks of the lowest bytes of a word, by their number.
LOWEST = np.array([(1 << 8 * count) - 1 for count in range(WORD + 1)], np.uint64)
#: By how much words are shifted before they are multiplied. An odd factor leaves the highest bit
#: where it is, so two words that differ in that bit alone could change places unnoticed.
SHIFT = np.uint64(29)

#: The version of the method: fingerprints made by different methods are not compared.
_WAY = 3
_MOST = 2**64
#: Odd numbers without a pattern.
_FOLDED, _LENGTH, _MIXED = (
    np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9)
)
#: Factors by which equal bytes count differently in each column.
_COLUMNS = {"value": 0xA0761D6478BD642F, "key": 0xE7037ED1A0B428DB}
_NAMES, _ITEMS, _ENTRY = 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3, 0x1D8E4E27C47D124F
#: The factors of the words that `_spread` takes from a row, by their place.
_PLACES = np.array(
    [
        0x9FB21C651E98DF25,
        0xA24BAED4963EE407,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xE9846AF9B1A615D5,
        0x27BB2EE687B0B0FD,
        0x94D049BB133111EB,
        0xFF51AFD7ED558CCD,
    ],
    np.uint64,
)
_HALF, _WHOLE = np.uint64(32), np.uint64(64)
_OFFSETS: dict[pa.DataType, type[np.signedinteger]] = {
    pa.binary(): np.int32,
    pa.string(): np.int32,
    pa.large_binary(): np.int64,
    pa.large_string(): np.int64,
}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of some rows. The fingerprints of two sets of rows add up to that of both.

    Attributes:
        rows: How many rows there are.
        size: Bytes of the values, keys and headers of the rows.
        hashes: The sum of the hashes of the rows, modulo 2**64.
    """

    rows: int = 0
    size: int = 0
    hashes: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(
            self.rows + other.rows, self.size + other.size, (self.hashes + other.hashes) % _MOST
        )

    def __str__(self) -> str:
        return f"{_WAY}:{self.rows}:{self.size}:{self.hashes:016x}"


def fingerprint_of(batch: pa.RecordBatch) -> Fingerprint:
    """The fingerprint of the rows of one batch: ``value``, ``key`` and ``headers``."""
    rows = np.zeros(batch.num_rows, np.uint64)
    size = 0
    for name, factor in _COLUMNS.items():
        if name in batch.schema.names:
            hashes, lengths = hashes_of_texts(batch.column(name))
            hashes *= np.uint64(factor)
            rows += hashes
            size += sum_of(lengths)
    if "headers" in batch.schema.names:
        hashes, header_bytes = hashes_of_headers(batch.column("headers"))
        rows += hashes
        size += header_bytes
    return Fingerprint(batch.num_rows, size, sum_of(mixed(rows)))


def hashes_of_headers(headers: pa.MapArray) -> tuple[Words, int]:
    """A hash of each row's headers, 0 for a row without headers, and the bytes of all headers."""
    hashes = np.zeros(len(headers), np.uint64)
    if headers.null_count == len(headers):
        return hashes, 0
    if headers.null_count:
        is_there = headers.is_valid()
        some, size = hashes_of_headers(headers.filter(is_there))
        hashes[is_there.to_numpy(zero_copy_only=False)] = some
        return hashes, size
    at = headers.offsets.to_numpy()
    first, last = int(at[0]), int(at[-1])
    names, name_lengths = hashes_of_texts(headers.keys.slice(first, last - first))
    items, item_lengths = hashes_of_texts(headers.items.slice(first, last - first))
    names *= np.uint64(_NAMES)
    items *= np.uint64(_ITEMS)
    names += items
    names += np.uint64(_ENTRY)
    return sums_between(mixed(names), at - first), sum_of(name_lengths) + sum_of(item_lengths)


def hashes_of_texts(column: pa.Array) -> tuple[Words, Words]:
    """A hash of each text, 0 where it is null, and its length."""
    if column.type not in _OFFSETS:
        column = column.cast(pa.large_binary())
    _, ends, data = column.buffers()
    kind = np.dtype(_OFFSETS[column.type])
    if not len(column) or ends is None:
        return np.zeros(len(column), np.uint64), np.zeros(len(column), np.uint64)
    at = np.frombuffer(ends, kind, len(column) + 1, column.offset * kind.itemsize)
    lengths = np.diff(at).astype(np.uint64)
    hashes = np.zeros_like(lengths)
    if data is not None and data.size:
        hashes = _folded(at, data)
        hashes *= _FOLDED
        hashes += _spread(at, data)
    lengths_hashed = lengths + np.uint64(1)
    lengths_hashed *= _LENGTH
    hashes += lengths_hashed
    hashes = mixed(hashes)
    if column.null_count:
        is_null = pc.is_null(column).to_numpy(zero_copy_only=False)
        hashes[is_null] = 0
        lengths[is_null] = 0
    return hashes, lengths


def _folded(at: npt.NDArray[np.signedinteger], data: pa.Buffer) -> Words:
    """The exclusive or of each row's words, counted from where the row begins."""
    count = data.size // WORD
    words = np.frombuffer(data, "<u8", count)
    word, behind = at >> 3, at & 7
    # For each boundary of rows: the bytes before it, in the word that it divides.
    before = np.zeros(len(at), np.uint64)
    is_whole = word < count
    before[is_whole] = words[word[is_whole]]
    if not is_whole.all():
        rest = data.slice(count * WORD).to_pybytes()
        before[~is_whole] = int.from_bytes(rest, "little")
    before &= LOWEST[behind]
    folded = np.zeros(len(at) - 1, np.uint64)
    # For each row: its words up to the first one of the next row; the last rows may have none.
    last = int(word[-1])
    if begun := int(np.searchsorted(word[:-1], last)):
        folded[:begun] = np.bitwise_xor.reduceat(words[:last], word[:begun])
        folded[word[:-1] == word[1:]] = 0
    folded ^= before[:-1]
    folded ^= before[1:]
    turn = behind[:-1].astype(np.uint64) << np.uint64(3)
    turned_over = folded << ((_WHOLE - turn) & np.uint64(63))
    folded >>= turn
    folded |= turned_over
    return folded


def _spread(at: npt.NDArray[np.signedinteger], data: pa.Buffer) -> Words:
    """The sum of eight words of each row, from first to last, each with its place's factor.

    The sum is 0 for a row of less than eight bytes, which `_folded` covers wholly.
    """
    spread = np.zeros(len(at) - 1, np.uint64)
    count = data.size - WORD + 1
    if count <= 0:
        return spread
    words = np.ndarray(count, "<u8", data, strides=(1,))
    starts = at[:-1].astype(np.int64)
    beyond = at[1:] - starts - WORD
    is_short = beyond < 0
    has_short = bool(is_short.any())
    if has_short:
        beyond[is_short] = 0
        starts[is_short] = 0
    steps = len(_PLACES) - 1
    for place, factor in enumerate(_PLACES):
        found = words[starts + beyond * place // steps]
        found ^= found >> SHIFT
        found *= factor
        spread += found
    if has_short:
        spread[is_short] = 0
    return spread


def mixed(words: Words) -> Words:
    """Mix the bits of words in place, so that sums show which words were added."""
    words ^= words >> _HALF
    words *= _MIXED
    words ^= words >> SHIFT
    words *= _FOLDED
    words ^= words >> _HALF
    return words


def sum_of(words: Words) -> int:
    """The sum of words, modulo 2**64."""
    return int(words.sum(dtype=np.uint64))


def sums_between(words: Words, ends: npt.NDArray[Any]) -> Words:
    """The sums of the words between neighbouring ``ends``."""
    up_to = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(words, out=up_to[1:])
    sums: Words = up_to[ends]
    return sums[1:] - sums[:-1]
