"""Fingerprints of rows that have a schema: see `fingerprint`, whose promises hold here, too.

Each column and each field of a struct counts by its name, each element of an array by its place.
The order of a map's pairs does not count. A null counts as an absent column, and a
number by its value: 5, 5.00 and the double 5.0 are the same. So rows keep their fingerprint if the
schema is widened in any way that `evolution.is_wider` allows, or gets a column that they do not
have; except if a column of floats had rounded what was written, and the wider column does not.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from cassieq_spark.arrow.fingerprint import (
    LOWEST,
    SHIFT,
    WORD,
    Fingerprint,
    Words,
    hashes_of_headers,
    hashes_of_texts,
    mixed,
    sum_of,
    sums_between,
)
from cassieq_spark.arrow.packing import ends_of, texts_of
from cassieq_spark.arrow.typed_framing import HEADERS_COLUMN, KEY_COLUMN
from cassieq_spark.arrow.typed_numbers import LONG, Numbers, bits_of, values_of
from cassieq_spark.schemas.canonical import MOST_PRECISION

#: Odd numbers without a pattern. The first one distinguishes the number 0 from a null.
_NUMBER, _HIGH, _SCALE, _PLACE, _LENGTH, _STRUCT, _KEY, _ITEM, _PAIR = (
    np.uint64(each)
    for each in (
        0x8CB92BA72F3D8DD7,
        0xC4CEB9FE1A85EC53,
        0xD6E8FEB86659FD93,
        0x9FB21C651E98DF25,
        0xA24BAED4963EE407,
        0x165667B19E3779F9,
        0x8EBC6AF09C88C6E3,
        0x589965CC75374CC3,
        0x1D8E4E27C47D124F,
    )
)
#: The factors of the first words of a text, by their place.
_WORDS = np.array(
    [0xE9846AF9B1A615D5, 0x27BB2EE687B0B0FD, 0x94D049BB133111EB, 0xFF51AFD7ED558CCD], np.uint64
)
#: Numbers of zeros to strip from the end of decimals, in turn: any number up to 38 is the sum of
#: some of these.
_ZEROS = (16, 16, 8, 4, 2, 1)
_FRACTION = pa.decimal128(MOST_PRECISION, MOST_PRECISION)


def fingerprint_of_rows(batch: pa.RecordBatch, schema: pa.Schema) -> Fingerprint:
    """The fingerprint of the rows of one batch; its size is the bytes of their texts.

    Args:
        batch: The columns of the schema, in its types, and ``_key`` and ``_headers`` if given;
            other columns do not count.
        schema: Columns of the queue.
    """
    rows = np.zeros(batch.num_rows, np.uint64)
    size = 0
    present = set(batch.schema.names)
    for name in (KEY_COLUMN, *schema.names):
        if name in present:
            hashes, lengths = _hashes(batch.column(name))
            hashes *= _factor(name)
            rows += hashes
            size += sum_of(lengths) if lengths is not None else 0
    if HEADERS_COLUMN in present:
        hashes, header_bytes = hashes_of_headers(batch.column(HEADERS_COLUMN))
        rows += hashes
        size += header_bytes
    return Fingerprint(batch.num_rows, size, sum_of(mixed(rows)))


@lru_cache(maxsize=4096)
def _factor(name: str) -> np.uint64:
    """A factor by which the same value counts differently in each column."""
    digest = blake2b(name.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little") | 1)


def _hashes(column: pa.Array) -> tuple[Words, Words | None]:
    """A hash of each element, 0 for a null, and the bytes of its texts, if any."""
    kind = column.type
    if pt.is_struct(kind):
        hashes, lengths = _hashes_of_structs(column)
    elif pt.is_list(kind) or pt.is_map(kind):
        hashes, lengths = _hashes_of_elements(column)
    elif pt.is_string(kind) or pt.is_binary(kind):
        hashes, lengths = _hashes_of_short_texts(column)
    else:
        hashes, lengths = _hashes_of_numbers(column), None
    if column.null_count:
        is_null = ~bits_of(column.buffers()[0], column.offset, len(column))
        hashes[is_null] = 0
        if lengths is not None:
            lengths[is_null] = 0
    return hashes, lengths


def _hashes_of_numbers(column: pa.Array) -> Words:
    """A hash of each number, by its value: integers of 64 bits are hashed as they are."""
    kind = column.type
    if pt.is_boolean(kind):
        words = bits_of(column.buffers()[1], column.offset, len(column)).astype(np.uint64)
    elif pt.is_decimal128(kind):
        words = _words_of_decimals(column)
    elif pt.is_floating(kind):
        numbers = values_of(column, np.dtype(f"<f{kind.bit_width // 8}"))
        words = _words_of_floats(numbers.astype(np.float64))
    else:
        numbers = values_of(column, np.dtype(f"<i{kind.bit_width // 8}"))
        words = numbers.astype(np.int64).view(np.uint64)
    words ^= _NUMBER
    words ^= words >> SHIFT
    return words


def _words_of_floats(numbers: npt.NDArray[np.float64]) -> Words:
    """The bits of each number; for an integer of 32 bits, the integer.

    Larger integers are never widened to floats. The number -0.0 is not such an integer.
    """
    words = numbers.view(np.uint64)
    with np.errstate(invalid="ignore"):  # Where there is no such integer, any one comes out.
        integers = numbers.astype(np.int32)
    is_integer = integers.astype(np.float64).view(np.uint64) == words
    # All bit patterns of NaN count as the same value.
    words[np.isnan(numbers)] = _HIGH
    return np.where(is_integer, integers.astype(np.int64).view(np.uint64), words)


def _words_of_decimals(column: pa.Array) -> Words:
    """A word of each decimal, independent of how many zeros its type has at the end.

    The word of an integer of 64 bits is the integer.
    """
    low, high = values_of(column, LONG, 2).reshape(-1, 2).T.copy()
    scales = np.full(len(low), column.type.scale, np.uint64)
    if column.type.scale:
        fewer_low, _ = _divided(low, high, 1)
        ends = np.flatnonzero(fewer_low * 10 == low)
        low[ends], high[ends], scales[ends] = _without_zeros(low[ends], high[ends], scales[ends])
    words = low.view(np.uint64)
    words += (high - (low >> 63)).view(np.uint64) * _HIGH
    words += scales * _SCALE
    return words


def _without_zeros(low: Numbers, high: Numbers, scales: Words) -> tuple[Numbers, Numbers, Words]:
    """Decimals of the same values, with as few digits behind the point as the values need."""
    most = int(scales.max(initial=0))
    for zeros in _ZEROS:
        if zeros <= most:
            fewer_low, fewer_high = _divided(low, high, zeros)
            # The remainder is below 2**64: the low words show whether there is one.
            is_multiple = (fewer_low * 10**zeros == low) & (scales >= zeros)
            low = np.where(is_multiple, fewer_low, low)
            high = np.where(is_multiple, fewer_high, high)
            scales = scales - is_multiple * np.uint64(zeros)
    return low, high, scales


def _divided(low: Numbers, high: Numbers, zeros: int) -> tuple[Numbers, Numbers]:
    """Integers of 128 bits, divided by a power of ten."""
    if (high == low >> 63).all():
        low = low // 10**zeros
        return low, low >> 63
    # All of them count as numbers below 1, of which the last digits are cut off.
    data = pa.py_buffer(np.stack([low, high], axis=1))
    whole = pa.Array.from_buffers(_FRACTION, len(low), [None, data])
    divided = whole.cast(pa.decimal128(MOST_PRECISION, MOST_PRECISION - zeros), safe=False)
    low, high = values_of(divided, LONG, 2).reshape(-1, 2).T.copy()
    return low, high


def _hashes_of_short_texts(column: pa.Array) -> tuple[Words, Words]:
    """A hash of each text, and its length.

    The first four words count, each by its place. That covers short texts, in a fifth of the time
    of `hashes_of_texts`, whose hash is added for longer texts.
    """
    ends, data = texts_of(column)
    counts = ends[1:] - ends[:-1]
    lengths = counts.astype(np.uint64)
    hashes = lengths + np.uint64(1)
    hashes *= _LENGTH
    size = len(data)
    if not size:
        return mixed(hashes), lengths
    words = np.ndarray(size + 1, "<u8", bytes(data) + bytes(WORD), strides=(1,))
    starts = ends[:-1] - ends[0]
    most = int(counts.max())
    for place, factor in enumerate(_WORDS[: -(-most // WORD)]):
        found = words[np.minimum(starts + place * WORD, size)]
        found &= LOWEST[np.clip(counts - place * WORD, 0, WORD)]
        found ^= found >> SHIFT
        found *= factor
        hashes += found
    if most > WORD * len(_WORDS):
        is_long = counts > WORD * len(_WORDS)
        of_long, _ = hashes_of_texts(column.filter(pa.array(is_long)))
        hashes[is_long] += of_long
    return mixed(hashes), lengths


def _hashes_of_structs(column: pa.StructArray) -> tuple[Words, Words | None]:
    hashes = np.full(len(column), _STRUCT)
    total: Words | None = None
    for place, field in enumerate(column.type.fields):
        of_field, lengths = _hashes(column.field(place))
        of_field *= _factor(field.name)
        hashes += of_field
        total = _added(total, lengths)
    return mixed(hashes), total


def _hashes_of_elements(column: pa.ListArray | pa.MapArray) -> tuple[Words, Words | None]:
    ends = ends_of(column)
    first, last = int(ends[0]), int(ends[-1])
    at, counts = ends - first, ends[1:] - ends[:-1]
    if pt.is_map(column.type):
        hashes, lengths = _hashes(column.keys.slice(first, last - first))
        hashes *= _KEY
        items, item_lengths = _hashes(column.items.slice(first, last - first))
        items *= _ITEM
        hashes += items
        hashes += _PAIR
        lengths = _added(lengths, item_lengths)
    else:
        hashes, lengths = _hashes(column.values.slice(first, last - first))
        places = np.arange(last - first, dtype=np.uint64)
        places -= np.repeat(at[:-1], counts).astype(np.uint64)
        places *= _PLACE
        hashes += places
    found = sums_between(mixed(hashes), at)
    of_counts = counts.astype(np.uint64) + np.uint64(1)
    of_counts *= _LENGTH
    found += of_counts
    return mixed(found), None if lengths is None else sums_between(lengths, at)


def _added(one: Words | None, other: Words | None) -> Words | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
