"""Numbers of typed columns as bytes, and back: the parts of which `typed_columns` is made. Pure.

Numbers are stored as what they are above the smallest of them, in as few bytes as that needs;
instants often as multiples of a second or a millisecond, too. Offsets are stored by the lengths
between them, likewise. So they take half of Arrow's bytes before compression, no length that is
read back can lead outside, and less is to be decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cassieq_spark.arrow import packing

Numbers = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]

#: A directory's byte of a node: in how many bytes its values are, whether some are null, and what
#: they are multiples of.
WIDTHS = (0, 1, 2, 4, 8, 16)
CODE, NULLS, STEP_AT = 0x07, 0x08, 4
STEPS = (1, 1_000, 1_000_000)
LONG: np.dtype[Any] = np.dtype("<i8")
OFFSETS: np.dtype[Any] = np.dtype("<i4")
OFFSET_BYTES = 4
_NARROW: dict[int, np.dtype[Any]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}


class Body:
    """What is written of one column: entries of the directory, and buffers."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self._buffers: list[tuple[int, bytes | memoryview]] = []

    def add(self, width: int, data: bytes | memoryview) -> None:
        """Add a buffer whose numbers have so many bytes."""
        self._buffers.append((width, data))

    def join(self) -> bytes:
        """All of it; wide numbers come first, so that each buffer is aligned."""
        return b"".join(data for _, data in sorted(self._buffers, key=_by_width))


def _by_width(buffer: tuple[int, Any]) -> int:
    return -buffer[0]


@dataclass(slots=True)
class Plan:
    """What the directory says of one column.

    Attributes:
        charge: The bytes of its arrays, as `typed_columns.Node.sizes` counts them.
        stored: The bytes of its buffers.
    """

    charge: int = 0
    stored: int = 0
    _nodes: list[tuple[int, ...]] = field(default_factory=list)
    _buffers: list[tuple[int, int]] = field(default_factory=list)
    #: Whether they are stored as they come: so are those of all types that are not nested.
    _is_ordered: bool = True

    def expect(self, width: int, size: int) -> None:
        """A buffer of so many bytes, whose numbers have ``width`` bytes."""
        self._is_ordered &= not self._buffers or width <= self._buffers[-1][0]
        self._buffers.append((width, size))
        self.stored += size

    def keep(self, *facts: int) -> None:
        """What a node needs to know once it is built."""
        self._nodes.append(facts)

    def open(self, body: pa.Buffer) -> Parts:
        """The parts of a body that has the right length."""
        order: Sequence[int] = range(len(self._buffers))
        if not self._is_ordered:
            order = sorted(order, key=lambda each: -self._buffers[each][0])
        found: list[pa.Buffer] = [body] * len(order)
        at = 0
        for each in order:
            size = self._buffers[each][1]
            found[each] = body.slice(at, size)
            at += size
        return Parts(iter(self._nodes), iter(found))


@dataclass(frozen=True, slots=True)
class Parts:
    """What nodes are built from, one after the other."""

    nodes: Iterator[tuple[int, ...]]
    buffers: Iterator[pa.Buffer]


@dataclass(slots=True)
class Loaded:
    """The elements of an array, as they are laid out.

    Attributes:
        count: How many.
        values: Numbers; what is behind a null does not differ.
        low: The smallest of them.
        high: The largest.
        nulls: Which are null; None: none is. Elements of a struct that is null are not.
        data: Bytes of texts.
        children: Elements of arrays, fields of structs.
    """

    count: int
    nulls: Flags | None = None
    values: Numbers | None = None
    low: int = 0
    high: int = 0
    data: bytes | memoryview = b""
    children: tuple[Loaded, ...] = ()


def nulls_of(array: pa.Array, absent: Flags | None) -> tuple[Flags | None, Flags | None]:
    """Which elements are null though their parent is not, and which are null at all."""
    if not array.null_count:
        return None, absent
    nulls = ~bits_of(array.buffers()[0], array.offset, len(array))
    if absent is None:
        return nulls, nulls
    own = nulls & ~absent
    return own if own.any() else None, nulls | absent


def bits_of(bits: pa.Buffer | None, first: int, count: int) -> Flags:
    """The bits of a buffer from the ``first`` on."""
    if bits is None or not count:
        return np.zeros(count, np.bool_)
    skipped = first // 8
    whole = np.frombuffer(bits, np.uint8, (first + count + 7) // 8 - skipped, skipped)
    found = np.unpackbits(whole, bitorder="little")[first % 8 : first % 8 + count]
    return found.view(np.bool_)


def values_of(array: pa.Array, dtype: np.dtype[Any], per_element: int = 1) -> Numbers:
    """The numbers of a flat array, from its first element on; not a copy."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array) * per_element, dtype)
    first = array.offset * per_element * dtype.itemsize
    return np.frombuffer(data, dtype, len(array) * per_element, first)


def ends_of(array: pa.Array) -> tuple[Numbers, Numbers]:
    """The offsets of an array's elements, and their lengths."""
    offsets = array.buffers()[1]
    if offsets is None or not len(array):
        return np.zeros(1, OFFSETS), np.zeros(0, OFFSETS)
    first = array.offset * OFFSETS.itemsize
    ends = np.frombuffer(offsets, OFFSETS, len(array) + 1, first)
    return ends, ends[1:] - ends[:-1]


def bound(loaded: Loaded, blank: Flags | None, bounds: tuple[int, int]) -> None:
    """Find the least and the largest of the numbers, and make those behind nulls one of them."""
    values = loaded.values
    if values is None or not len(values):
        return
    if blank is not None:
        some = values[np.argmin(blank)] if not blank.all() else values.dtype.type(0)
        loaded.values = values = np.where(blank, some, values)
    loaded.low, loaded.high = int(values.min()), int(values.max())
    if loaded.low < bounds[0] or loaded.high > bounds[1]:
        raise ValueError("a value outside of what its type has, such as a date of the year 10000")


def lengths_of(loaded: Loaded) -> Numbers:
    """The lengths of texts or arrays, wide enough to be added up."""
    if loaded.values is None:
        return np.zeros(loaded.count, np.int64)
    return loaded.values.astype(np.int64)


def offsets_of(lengths: Numbers, dtype: Any = OFFSETS) -> Numbers:
    """Where elements of these lengths begin, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def write_numbers(loaded: Loaded, body: Body, width: int, *, has_steps: bool = False) -> None:
    """Add numbers and their entry: those above the least, in as few bytes as they need."""
    values = loaded.values
    nulls = NULLS if loaded.nulls is not None else 0
    if values is None or not len(values):
        body.entries.append(nulls)
        return
    step, span = 0, loaded.high - loaded.low
    if has_steps and span:
        step = _step(values, loaded.low, span)
        span //= STEPS[step]
    code = next(at for at, size in enumerate(WIDTHS) if span < 1 << 8 * size)
    if WIDTHS[code] >= width:
        body.entries.append(nulls | WIDTHS.index(width))
        body.add(width, bytes_of(values))
        return
    body.entries.append(nulls | code | step << STEP_AT)
    body.add(width, loaded.low.to_bytes(width, "little", signed=True))
    if code:
        above = values - values.dtype.type(loaded.low)
        if step:
            above //= STEPS[step]
        body.add(WIDTHS[code], bytes_of(above.astype(_NARROW[WIDTHS[code]])))


def _step(values: Numbers, low: int, span: int) -> int:
    """What all are multiples of, above the least; none if they need eight bytes anyway."""
    for step in range(len(STEPS) - 1, 0, -1):
        size = STEPS[step]
        if span % size == 0 and span // size < 1 << 32 and not ((values - low) % size).any():
            return step
    return 0


def expect_numbers(count: int, plan: Plan, code: int, width: int) -> None:
    """Plan what `write_numbers` adds.

    Raises:
        ValueError: It would not add such.
    """
    size = WIDTHS[code]
    if size > width:
        raise ValueError(f"numbers of {width} bytes in {size}")
    plan.expect(width, width if size < width and count else 0)
    plan.expect(size, size * count)


def read_numbers(  # noqa: PLR0913, PLR0917 - each is a fact of its own
    count: int,
    code: int,
    step: int,
    parts: Parts,
    dtype: np.dtype[Any],
    bounds: tuple[int, int],
) -> Numbers:
    """Numbers, none of them outside of ``bounds``.

    Raises:
        ValueError: Some are.
    """
    least, data = next(parts.buffers), next(parts.buffers)
    size = WIDTHS[code]
    if not count:
        return np.zeros(0, dtype)
    if size == dtype.itemsize:
        if step:
            raise ValueError("numbers that are no multiples")
        values = np.frombuffer(data, dtype, count)
        if bounds != _all_of(dtype):
            _check_bounds(int(values.min()), int(values.max()), bounds)
        return values
    low = int.from_bytes(least, "little", signed=True)
    if not size:
        _check_bounds(low, low, bounds)
        return np.full(count, low, dtype)
    above = np.frombuffer(data, _NARROW[size], count)
    times = STEPS[step]
    _check_bounds(low, low + int(above.max()) * times, bounds)
    # All of them fit, so what overflows on the way comes back.
    wide = _NARROW[dtype.itemsize]
    values = above.astype(wide)
    if step:
        values *= wide.type(times)
    values += wide.type(low % (1 << 8 * dtype.itemsize))
    return values.view(dtype)


@lru_cache(maxsize=8)
def _all_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    half = 1 << (8 * dtype.itemsize - 1)
    return -half, half - 1


def _check_bounds(low: int, high: int, bounds: tuple[int, int]) -> None:
    if low < bounds[0] or high > bounds[1]:
        raise ValueError(f"values from {low} to {high} where {bounds} are possible")


def read_lengths(count: int, code: int, total: int, parts: Parts, least: int = 0) -> Numbers:
    """Offsets in order, from 0 to ``total``; at least ``least`` apart.

    Raises:
        ValueError: The lengths are others.
    """
    base, data = next(parts.buffers), next(parts.buffers)
    size = WIDTHS[code]
    low = int.from_bytes(base, "little") if size < OFFSET_BYTES and count else 0
    if not size:
        if low * count != total or (count and low < least):
            raise ValueError(f"{count} lengths of {low} are not {total} together")
        return (
            np.arange(0, total + 1, low, dtype=np.int32) if low else np.zeros(count + 1, OFFSETS)
        )
    lengths = np.frombuffer(data, _NARROW[size], count)
    # Exact: there are less than 2**28 of them, below 2**32 each.
    if int(lengths.sum(dtype=np.uint64)) + low * count != total:
        raise ValueError(f"{count} lengths are not {total} together")
    if least and count and int(lengths.min()) + low < least:
        raise ValueError("an empty text, which it may not have")
    return offsets_of(lengths.astype(OFFSETS) + OFFSETS.type(low))


def write_nulls(loaded: Loaded, body: Body) -> None:
    """Add a bit for each element that is not null, if one is null."""
    if loaded.nulls is not None:
        body.add(1, packing.bits(~loaded.nulls))


def expect_nulls(count: int, plan: Plan, *, has_nulls: bool) -> None:
    """Plan what `write_nulls` adds."""
    if has_nulls:
        plan.expect(1, bit_bytes(count))


def bit_bytes(count: int) -> int:
    """The bytes of so many bits."""
    return (count + 7) // 8


def bytes_of(values: Numbers | None) -> bytes:
    """Numbers as they are in memory."""
    return b"" if values is None else values.tobytes()
