"""Numbers of typed columns as bytes, and back: the parts of which `typed_columns` is made.

Numbers are stored by how far they are above the smallest one, in as few bytes as that needs;
instants, where possible, in multiples of a millisecond or a second. Offsets are stored as the
lengths between them, in the same way. So numbers take half of Arrow's bytes before compression, no
length can lead a reader outside of the data, and there is less to decompress.
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
from cassieq_spark.arrow.packing import OFFSETS, bit_bytes

Numbers = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]

#: The parts of a node's byte in the directory: how many bytes each value takes (the index in
#: `WIDTHS`), whether there are nulls, and the step of which all values are multiples (in `STEPS`).
CODE, NULLS, STEP_AT = 0x07, 0x08, 4
WIDTHS = (0, 1, 2, 4, 8, 16)
STEPS = (1, 1_000, 1_000_000)
LONG: np.dtype[Any] = np.dtype("<i8")
OFFSET_BYTES = OFFSETS.itemsize
_UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}
_NO_NUMBERS: Numbers = np.zeros(0, LONG)


@dataclass(slots=True)
class Loaded:
    """The elements of an array, as they are laid out.

    Attributes:
        count: How many elements there are.
        nulls: True for each null element; None if no element is null. Elements of a struct that is
            null do not count as null.
        values: Numbers, or lengths; in the place of a null stands a value of another element.
        low: The smallest value.
        high: The largest value.
        data: The bytes of texts.
        children: The elements of arrays, or the fields of structs.
    """

    count: int
    nulls: Flags | None = None
    values: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    low: int = 0
    high: int = 0
    data: bytes | memoryview = b""
    children: tuple[Loaded, ...] = ()

    def bound(self, blank: Flags | None, bounds: tuple[int, int]) -> None:
        """Find the smallest and the largest value, after replacing values that are ``blank``.

        Raises:
            ValueError: A value is outside of ``bounds``.
        """
        values = self.values
        if not len(values):
            return
        if blank is not None:
            some = values[np.argmin(blank)] if not blank.all() else values.dtype.type(0)
            self.values = values = np.where(blank, some, values)
        self.low, self.high = int(values.min()), int(values.max())
        if self.low < bounds[0] or self.high > bounds[1]:
            raise ValueError(
                "a value outside of what its type has, such as a date of the year 10000"
            )


class EncodedColumn:
    """One encoded column: its directory entries and its buffers."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self._buffers: list[tuple[int, bytes | memoryview]] = []

    def add(self, width: int, data: bytes | memoryview) -> None:
        """Add a buffer of numbers that have ``width`` bytes each."""
        self._buffers.append((width, data))

    def add_numbers(self, loaded: Loaded, width: int, *, has_steps: bool = False) -> None:
        """Add numbers of ``width`` bytes and their entry, in as few bytes as they need.

        Args:
            loaded: The entry whose values to add.
            width: The bytes of a number in memory.
            has_steps: True to look for a step of which all numbers, above the smallest, are
                multiples.
        """
        values = loaded.values
        nulls = NULLS if loaded.nulls is not None else 0
        if not len(values):
            self.entries.append(nulls)
            return
        step, span = 0, loaded.high - loaded.low
        if has_steps and span:
            step = _step(values, loaded.low, span)
            span //= STEPS[step]
        code = next(at for at, size in enumerate(WIDTHS) if span < 1 << 8 * size)
        if WIDTHS[code] >= width:
            self.entries.append(nulls | WIDTHS.index(width))
            self.add(width, values.tobytes())
            return
        self.entries.append(nulls | code | step << STEP_AT)
        self.add(width, loaded.low.to_bytes(width, "little", signed=True))
        if code:
            above = values - values.dtype.type(loaded.low)
            if step:
                above //= STEPS[step]
            self.add(WIDTHS[code], above.astype(_UNSIGNED[WIDTHS[code]]).tobytes())

    def add_nulls(self, loaded: Loaded) -> None:
        """Add the validity bitmap; nothing if no element is null."""
        if loaded.nulls is not None:
            self.add(1, packing.bits(~loaded.nulls))

    def join(self) -> bytes:
        """All buffers, those of the widest numbers first, so that each buffer is aligned."""
        return b"".join(data for _, data in sorted(self._buffers, key=lambda each: -each[0]))


def _step(values: Numbers, low: int, span: int) -> int:
    """The index of the largest of `STEPS` that divides all values above ``low``, or 0."""
    for step in range(len(STEPS) - 1, 0, -1):
        size = STEPS[step]
        if span % size == 0 and span // size < 1 << 32 and not ((values - low) % size).any():
            return step
    return 0


@dataclass(slots=True)
class ColumnPlan:
    """The directory's information about one column.

    Attributes:
        array_bytes: The bytes of the column's arrays, as `typed_columns.Node.sizes` counts them.
        values: How many values the column has, including those in arrays and maps.
        stored: The bytes of the column's buffers.
    """

    array_bytes: int = 0
    values: int = 0
    stored: int = 0
    _nodes: list[tuple[int, ...]] = field(default_factory=list)
    _buffers: list[tuple[int, int]] = field(default_factory=list)
    #: True if no buffer is wider than the one before, as in types that are not nested. Then the
    #: buffers are stored in the order in which nodes take them.
    _is_ordered: bool = True

    def count(self, values: int, width: int) -> None:
        """Count values of ``width`` bytes each."""
        self.values += values
        self.array_bytes += values * width

    def keep(self, *facts: int) -> None:
        """Keep facts that a node needs when it builds its array."""
        self._nodes.append(facts)

    def expect(self, width: int, size: int) -> None:
        """Expect a buffer of ``size`` bytes, of numbers that have ``width`` bytes each."""
        self._is_ordered &= not self._buffers or width <= self._buffers[-1][0]
        self._buffers.append((width, size))
        self.stored += size

    def expect_numbers(self, count: int, code: int, width: int) -> None:
        """Expect the buffer that `EncodedColumn.add_numbers` adds.

        Raises:
            ValueError: `add_numbers` never adds numbers of this code.
        """
        size = WIDTHS[code]
        if size > width:
            raise ValueError(f"numbers of {width} bytes in {size}")
        self.expect(width, width if size < width and count else 0)
        self.expect(size, size * count)

    def expect_nulls(self, count: int, has_nulls: bool) -> None:
        """Expect the bitmap that `EncodedColumn.add_nulls` adds."""
        if has_nulls:
            self.expect(1, bit_bytes(count))

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
    """The facts and buffers from which nodes build their arrays, in the order of the nodes."""

    nodes: Iterator[tuple[int, ...]]
    buffers: Iterator[pa.Buffer]

    def numbers(
        self, count: int, code: int, step: int, dtype: np.dtype[Any], bounds: tuple[int, int]
    ) -> Numbers:
        """Take numbers, all of them within ``bounds``.

        Raises:
            ValueError: A number is outside ``bounds``.
        """
        least, data = next(self.buffers), next(self.buffers)
        size = WIDTHS[code]
        if not count:
            return np.zeros(0, dtype)
        if size == dtype.itemsize:
            if step:
                raise ValueError("numbers that are no multiples")
            values = np.frombuffer(data, dtype, count)
            if bounds != bounds_of(dtype):
                _check_bounds(int(values.min()), int(values.max()), bounds)
            return values
        low = int.from_bytes(least, "little", signed=True)
        if not size:
            _check_bounds(low, low, bounds)
            return np.full(count, low, dtype)
        above = np.frombuffer(data, _UNSIGNED[size], count)
        times = STEPS[step]
        _check_bounds(low, low + int(above.max()) * times, bounds)
        # The results fit, so an overflow on the way to them is undone by the last addition.
        wide = _UNSIGNED[dtype.itemsize]
        values = above.astype(wide)
        if step:
            values *= wide.type(times)
        values += wide.type(low % (1 << 8 * dtype.itemsize))
        return values.view(dtype)

    def offsets(self, count: int, code: int, total: int, least: int = 0) -> Numbers:
        """Take offsets that begin at 0, end at ``total``, and are at least ``least`` apart.

        Raises:
            ValueError: The lengths between the offsets are wrong.
        """
        base, data = next(self.buffers), next(self.buffers)
        size = WIDTHS[code]
        low = int.from_bytes(base, "little") if size < OFFSET_BYTES and count else 0
        if not size:
            if low * count != total or (count and low < least):
                raise ValueError(f"{count} lengths of {low} are not {total} together")
            if not low:
                return np.zeros(count + 1, OFFSETS)
            return np.arange(0, total + 1, low, dtype=np.int32)
        lengths = np.frombuffer(data, _UNSIGNED[size], count)
        # The sum is exact: there are less than 2**28 lengths, each below 2**32.
        if int(lengths.sum(dtype=np.uint64)) + low * count != total:
            raise ValueError(f"{count} lengths are not {total} together")
        if least and count and int(lengths.min()) + low < least:
            raise ValueError("an empty text, which it may not have")
        return offsets_of(lengths.astype(OFFSETS) + OFFSETS.type(low))

    def nulls(self, has_nulls: int) -> pa.Buffer | None:
        """Take the validity bitmap, if there is one."""
        return next(self.buffers) if has_nulls else None


@lru_cache(maxsize=8)
def bounds_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    half = 1 << (8 * dtype.itemsize - 1)
    return -half, half - 1


def _check_bounds(low: int, high: int, bounds: tuple[int, int]) -> None:
    if low < bounds[0] or high > bounds[1]:
        raise ValueError(f"values from {low} to {high} where {bounds} are possible")


def nulls_of(array: pa.Array, absent: Flags | None) -> tuple[Flags | None, Flags | None]:
    """Flags of elements that are null though their parent is not, and of all null elements."""
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
    whole = np.frombuffer(bits, np.uint8, bit_bytes(first + count) - skipped, skipped)
    found = np.unpackbits(whole, bitorder="little")[first % 8 : first % 8 + count]
    return found.view(np.bool_)


def values_of(array: pa.Array, dtype: np.dtype[Any], per_element: int = 1) -> Numbers:
    """The numbers of a flat array, from its first element on; not a copy."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array) * per_element, dtype)
    first = array.offset * per_element * dtype.itemsize
    return np.frombuffer(data, dtype, len(array) * per_element, first)


def offsets_of(lengths: Numbers, dtype: Any = OFFSETS) -> Numbers:
    """The offsets at which elements of these lengths begin, and at which the last one ends."""
    offsets = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
