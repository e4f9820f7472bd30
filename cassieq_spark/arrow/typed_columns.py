"""Columns of typed chunks as bytes, by their types, and back.

A column is a tree of nodes, one per level of its type. A node is stored in three parts, each of
which is left out if it says nothing:

- the smallest value;
- the values: numbers, dates and instants by how far they are above the smallest one, in as few
  bytes as they need; for texts and arrays their lengths, laid out in the same way;
- the validity bitmap, if an element is null.

Texts add their bytes, arrays and maps their elements, structs their fields. What an array has in
the place of a null is not stored: the null gets the length 0, or the value of the first element
that is not null. So equal columns make equal bytes, whatever arrays they come in.

The number of bytes of a node follows from its entry in the directory of the frame: one byte, and
for texts and arrays how many bytes or elements they have. A reader adds the numbers up before it
reads anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from cassieq_spark.arrow import packing
from cassieq_spark.arrow.packing import OFFSETS, bit_bytes, ends_of
from cassieq_spark.arrow.typed_numbers import (
    CODE,
    LONG,
    NULLS,
    OFFSET_BYTES,
    STEP_AT,
    STEPS,
    WIDTHS,
    ColumnPlan,
    EncodedColumn,
    Flags,
    Loaded,
    Numbers,
    Parts,
    bits_of,
    bounds_of,
    nulls_of,
    offsets_of,
    values_of,
)
from cassieq_spark.schemas.canonical import (
    INTERVAL,
    MOST_LEVELS,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
)

_NOT_ASCII = 0x8080808080808080
_LENGTHS = (0, (1 << 31) - 1)
_FIRST_DAY, _LAST_DAY = ((each - date(1970, 1, 1)).days for each in (date.min, date.max))
_DAY = 86_400_000_000
_INSTANTS = (_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)
_BOUNDS = {
    pa.date32(): (_FIRST_DAY, _LAST_DAY),
    TIMESTAMP: _INSTANTS,
    TIMESTAMP_NTZ: _INSTANTS,
    # In nanoseconds, though times are whole microseconds.
    TIME: (0, 1000 * _DAY - 1),
}


class TypeNode:
    """One level of a type.

    Args:
        type_: The type.
        nullable: True if elements may be null.
        children: The nodes of the type's elements, keys and values, or fields.
    """

    #: True if the node's entry has a count behind the byte.
    has_count = False
    #: The bytes of an element in memory, if all elements have the same; a boolean counts as one.
    _width = 1

    def __init__(
        self, type_: pa.DataType, *, nullable: bool, children: tuple[TypeNode, ...] = ()
    ) -> None:
        self.type = type_
        self.nullable = nullable
        self.children = children

    @property
    def form(self) -> str:
        """The format of the directory entries of the node and its children."""
        own = "BI" if self.has_count else "B"
        return own + "".join(each.form for each in self.children)

    def load(self, array: pa.Array, absent: Flags | None = None) -> Loaded:
        """The elements of an array, checked.

        Args:
            array: Values of the node's type; may be a slice, with anything in the place of nulls.
            absent: True for elements that belong to a struct that is null.

        Raises:
            ValueError: An element can't be stored: a null, a text that is not UTF-8, an instant
                that no reader accepts.
        """
        own, blank = nulls_of(array, absent)
        if own is not None and not self.nullable:
            raise ValueError("a null, which it may not have")
        loaded = Loaded(len(array), own)
        self._load(array, blank, loaded)
        return loaded

    def sizes(self, loaded: Loaded) -> Numbers | int:  # noqa: ARG002 - not if all are the same
        """The bytes of each element in a reader's memory; one number if all have the same.

        Nulls count as other values do, and a boolean as one byte; the validity bitmap does not
        count.
        """
        return self._width

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        """Add the encoded form of some elements."""
        raise NotImplementedError

    def measure(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> None:
        """Read the entries of a node and its children, and add up the bytes of ``count`` elements.

        Raises:
            ValueError: No writer makes such an entry.
        """
        raise NotImplementedError

    def build(self, parts: Parts) -> pa.Array:
        """The array of a node, checked in full.

        Raises:
            ValueError, pa.ArrowException: The parts are not what `write` makes.
        """
        raise NotImplementedError

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        """Complete ``loaded``, ignoring the array's content for elements that are ``blank``."""
        raise NotImplementedError

    def _open(
        self, entries: Iterator[int], width: int = 0, *, has_steps: bool = False
    ) -> tuple[int, int, bool]:
        """The code, step and nulls of the node's entry, if values have at most ``width`` bytes."""
        entry = next(entries)
        code, step, has_nulls = entry & CODE, entry >> STEP_AT, bool(entry & NULLS)
        most = WIDTHS.index(width)
        if code > most or step >= len(STEPS) or (has_nulls and not self.nullable):
            raise ValueError(f"a column has the impossible form {entry}")
        if step and not has_steps:
            raise ValueError("a column of multiples, which its type has not")
        return code, step, has_nulls

    def _measure_lengths(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> int:
        """Read the entry of texts or lists; return how many bytes or elements they have."""
        code, _, has_nulls = self._open(entries, OFFSET_BYTES)
        size = next(entries)
        if size and not count:
            raise ValueError(f"{size} bytes or elements of nothing")
        plan.count(count, OFFSET_BYTES)
        plan.keep(count, has_nulls, code, size)
        plan.expect_numbers(count, code, OFFSET_BYTES)
        plan.expect_nulls(count, has_nulls)
        return size

    def _array(
        self,
        count: int,
        nulls: pa.Buffer | None,
        *buffers: pa.Buffer,
        children: list[pa.Array] | None = None,
    ) -> pa.Array:
        null_count = 0 if nulls is None else -1  # Arrow counts them itself
        given = [nulls, *buffers]
        return pa.Array.from_buffers(self.type, count, given, null_count, children=children)


class _Plain(TypeNode):
    """Floating-point numbers and booleans, in one buffer, as they are."""

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        self._is_bits = pt.is_boolean(type_)
        if not self._is_bits:
            self._width = type_.bit_width // 8
            self._dtype = np.dtype(f"<f{self._width}")

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        body.entries.append(NULLS if loaded.nulls is not None else 0)
        values = loaded.values
        body.add(self._width, packing.bits(values) if self._is_bits else values.tobytes())
        body.add_nulls(loaded)

    def measure(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> None:
        _, _, has_nulls = self._open(entries)
        plan.count(count, self._width)
        plan.keep(count, has_nulls)
        plan.expect(self._width, bit_bytes(count) if self._is_bits else self._width * count)
        plan.expect_nulls(count, has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls = next(parts.nodes)
        values = next(parts.buffers)
        return self._array(count, parts.nulls(has_nulls), values)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        if self._is_bits:
            values: Numbers = bits_of(array.buffers()[1], array.offset, len(array))
        else:
            values = values_of(array, self._dtype)
        loaded.values = values if blank is None else np.where(blank, values.dtype.type(0), values)


class _Integers(TypeNode):
    """Integers, dates, instants, times and durations.

    Args:
        type_: The type.
        nullable: True if elements may be null.
        bounds: The smallest and the largest number that readers take; None for all of the type.
        has_steps: True if all numbers are often multiples of a thousand or a million.
    """

    def __init__(
        self,
        type_: pa.DataType,
        *,
        nullable: bool,
        bounds: tuple[int, int] | None = None,
        has_steps: bool = False,
    ) -> None:
        super().__init__(type_, nullable=nullable)
        self._width = type_.bit_width // 8
        self._dtype = np.dtype(f"<i{self._width}")
        self._bounds = bounds or bounds_of(self._dtype)
        self._has_steps = has_steps

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        body.add_numbers(loaded, self._width, has_steps=self._has_steps)
        body.add_nulls(loaded)

    def measure(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> None:
        code, step, has_nulls = self._open(entries, self._width, has_steps=self._has_steps)
        plan.count(count, self._width)
        plan.keep(count, has_nulls, code, step)
        plan.expect_numbers(count, code, self._width)
        plan.expect_nulls(count, has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, step = next(parts.nodes)
        values = parts.numbers(count, code, step, self._dtype, self._bounds)
        return self._array(count, parts.nulls(has_nulls), pa.py_buffer(values))

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        loaded.values = values_of(array, self._dtype)
        loaded.bound(blank, self._bounds)


class _Decimals(TypeNode):
    """Decimals, stored as integers of eight bytes if all fit into them."""

    _width = 16

    def __init__(self, type_: pa.Decimal128Type, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        most = 10**type_.precision - 1
        least_long, most_long = bounds_of(LONG)
        self._bounds = (max(-most, least_long), min(most, most_long))

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        if loaded.data:
            nulls = NULLS if loaded.nulls is not None else 0
            body.entries.append(nulls | WIDTHS.index(self._width))
            body.add(self._width, loaded.data)
        else:
            body.add_numbers(loaded, LONG.itemsize)
        body.add_nulls(loaded)

    def measure(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> None:
        code, _, has_nulls = self._open(entries, self._width)
        plan.count(count, self._width)
        plan.keep(count, has_nulls, code)
        if WIDTHS[code] == self._width:
            plan.expect(self._width, self._width * count)
        else:
            plan.expect_numbers(count, code, LONG.itemsize)
        plan.expect_nulls(count, has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code = next(parts.nodes)
        if WIDTHS[code] == self._width:
            values = next(parts.buffers)
            array = self._array(count, parts.nulls(has_nulls), values)
            array.validate(full=True)
            return array
        low = parts.numbers(count, code, 0, LONG, self._bounds)
        words = np.empty((count, 2), LONG)
        words[:, 0] = low
        np.right_shift(low, 63, out=words[:, 1])
        return self._array(count, parts.nulls(has_nulls), pa.py_buffer(words))

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        words = values_of(array, LONG, 2).reshape(-1, 2)
        if blank is not None:
            words = np.where(blank[:, np.newaxis], words[np.argmin(blank)], words)
            if blank.all():
                words = np.zeros_like(words)
        low = np.ascontiguousarray(words[:, 0])
        if (words[:, 1] == low >> 63).all():
            loaded.values = low
            loaded.bound(None, self._bounds)
            return
        words = np.ascontiguousarray(words)
        try:
            self._array(len(words), None, pa.py_buffer(words)).validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueError(f"a decimal of more than {self.type.precision} digits") from error
        loaded.data = words.tobytes()


class _Texts(TypeNode):
    """Strings and bytes.

    Args:
        type_: The type.
        nullable: True if elements may be null.
        has_empty: True if elements may be empty.
    """

    has_count = True

    def __init__(self, type_: pa.DataType, *, nullable: bool, has_empty: bool = True) -> None:
        super().__init__(type_, nullable=nullable)
        self._is_text = pt.is_string(type_)
        self._least = 0 if has_empty else 1

    def sizes(self, loaded: Loaded) -> Numbers | int:
        if loaded.low == loaded.high:
            return OFFSET_BYTES + loaded.low
        return loaded.values.astype(np.int64) + OFFSET_BYTES

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        body.add_numbers(loaded, OFFSET_BYTES)
        body.entries.append(len(loaded.data))
        body.add_nulls(loaded)
        body.add(1, loaded.data)

    def measure(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> None:
        size = self._measure_lengths(count, entries, plan)
        plan.array_bytes += size
        plan.expect(1, size)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, size = next(parts.nodes)
        offsets = parts.offsets(count, code, size, self._least)
        nulls, data = parts.nulls(has_nulls), next(parts.buffers)
        if self._is_text and not _is_ascii(data):
            _check_utf8(offsets, data)
        return self._array(count, nulls, pa.py_buffer(offsets), data)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        ends, data = packing.texts_of(array)
        lengths = ends[1:] - ends[:-1]
        if blank is not None and lengths[blank].any():
            keep = np.repeat(~blank, lengths)
            data = np.frombuffer(data, np.uint8)[keep].tobytes()
            lengths = np.where(blank, OFFSETS.type(0), lengths)
        loaded.values, loaded.data = lengths, data
        loaded.bound(None, _LENGTHS)
        if loaded.low < self._least and loaded.count:
            raise ValueError("an empty text, which it may not have")
        if self._is_text and not _is_ascii(text := pa.py_buffer(data)):
            _check_utf8(offsets_of(lengths), text)


class _Nested(TypeNode):
    """Base of lists and structs, which have children."""

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        body.add_nulls(loaded)
        for node, child in zip(self.children, loaded.children, strict=True):
            node.write(child, body)

    def _sizes_of_children(self, loaded: Loaded) -> Numbers | int:
        total: Numbers | int = 0
        for node, child in zip(self.children, loaded.children, strict=True):
            total = total + node.sizes(child)
        return total


class _Lists(_Nested):
    """Arrays; maps are arrays of pairs."""

    has_count = True

    def sizes(self, loaded: Loaded) -> Numbers:
        sizes, lengths = self._sizes_of_children(loaded), loaded.values.astype(np.int64)
        if isinstance(sizes, int):
            return lengths * sizes + OFFSET_BYTES
        ends = offsets_of(sizes, np.int64)[offsets_of(lengths, np.int64)]
        return ends[1:] - ends[:-1] + OFFSET_BYTES

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        body.add_numbers(loaded, OFFSET_BYTES)
        body.entries.append(loaded.children[0].count)
        super().write(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> None:
        elements = self._measure_lengths(count, entries, plan)
        for node in self.children:
            node.measure(elements, entries, plan)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, elements = next(parts.nodes)
        offsets, nulls = parts.offsets(count, code, elements), parts.nulls(has_nulls)
        children = [node.build(parts) for node in self.children]
        if pt.is_map(self.type):
            pair = pa.struct([self.type.key_field, self.type.item_field])
            children = [pa.Array.from_buffers(pair, elements, [None], 0, children=children)]
        return self._array(count, nulls, pa.py_buffer(offsets), children=children)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        ends = ends_of(array)
        lengths, first = ends[1:] - ends[:-1], int(ends[0])
        elements = [array.keys, array.items] if pt.is_map(self.type) else [array.values]
        elements = [each.slice(first, int(ends[-1]) - first) for each in elements]
        if blank is not None and lengths[blank].any():
            keep = pa.array(np.repeat(~blank, lengths))
            elements = [each.filter(keep) for each in elements]
            lengths = np.where(blank, OFFSETS.type(0), lengths)
        loaded.values = lengths
        loaded.bound(None, _LENGTHS)
        pairs = zip(self.children, elements, strict=True)
        loaded.children = tuple(node.load(each) for node, each in pairs)


class _Structs(_Nested):
    def sizes(self, loaded: Loaded) -> Numbers | int:
        return self._sizes_of_children(loaded)

    def write(self, loaded: Loaded, body: EncodedColumn) -> None:
        body.entries.append(NULLS if loaded.nulls is not None else 0)
        super().write(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: ColumnPlan) -> None:
        _, _, has_nulls = self._open(entries)
        plan.keep(count, has_nulls)
        plan.expect_nulls(count, has_nulls)
        for node in self.children:
            node.measure(count, entries, plan)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls = next(parts.nodes)
        nulls = parts.nulls(has_nulls)
        children = [node.build(parts) for node in self.children]
        return self._array(count, nulls, children=children)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        loaded.children = tuple(
            node.load(array.field(place), blank) for place, node in enumerate(self.children)
        )


def node_of(type_: pa.DataType, *, nullable: bool, depth: int = 1) -> TypeNode:
    """The node of a type.

    Raises:
        TypeError: The type can't be stored, or is nested too deep.
    """
    if depth > MOST_LEVELS:
        raise TypeError(f"a type is nested deeper than {MOST_LEVELS} levels")
    if pt.is_list(type_):
        return _Lists(type_, nullable=nullable, children=_nodes([type_.value_field], depth))
    if pt.is_map(type_):
        key = type_.key_field.with_nullable(False)
        return _Lists(type_, nullable=nullable, children=_nodes([key, type_.item_field], depth))
    if pt.is_struct(type_) and type_.num_fields:
        return _Structs(type_, nullable=nullable, children=_nodes(type_.fields, depth))
    return _flat_node(type_, nullable=nullable)


def _nodes(fields: list[pa.Field], depth: int) -> tuple[TypeNode, ...]:
    return tuple(node_of(each.type, nullable=each.nullable, depth=depth + 1) for each in fields)


def _flat_node(type_: pa.DataType, *, nullable: bool) -> TypeNode:
    if pt.is_string(type_) or pt.is_binary(type_):
        return _Texts(type_, nullable=nullable)
    if pt.is_boolean(type_) or pt.is_float32(type_) or pt.is_float64(type_):
        return _Plain(type_, nullable=nullable)
    if pt.is_signed_integer(type_) or type_ == INTERVAL:
        return _Integers(type_, nullable=nullable)
    if (bounds := _BOUNDS.get(type_)) is not None:
        has_steps = type_ != pa.date32()
        return _Integers(type_, nullable=nullable, bounds=bounds, has_steps=has_steps)
    if pt.is_decimal128(type_):
        return _Decimals(type_, nullable=nullable)
    raise TypeError(f"the type {type_} can't be stored")


def headers_node(type_: pa.MapType) -> TypeNode:
    """The node of a message's headers: a map of strings, whose names are never empty."""
    children = (
        _Texts(pa.string(), nullable=False, has_empty=False),
        _Texts(pa.string(), nullable=True),
    )
    return _Lists(type_, nullable=True, children=children)


def _check_utf8(offsets: Numbers, data: pa.Buffer) -> None:
    """Check the texts of ``data`` that lie between ``offsets``, which are in order and inside it.

    Raises:
        ValueError: A text is not UTF-8.
    """
    ends = pa.py_buffer(np.array([0, data.size], OFFSETS))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, ends, data]).validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError("a text that is not UTF-8") from error
    starts = offsets[:-1]
    first_bytes = np.frombuffer(data, np.uint8)[starts[starts < data.size]]
    if ((first_bytes & 0xC0) == 0x80).any():  # noqa: PLR2004 - the second byte of a character
        raise ValueError("a text that is not UTF-8")


def _is_ascii(data: pa.Buffer) -> bool:
    """True if all characters have one byte, so that texts may begin anywhere."""
    words = data.size // 8
    whole = int(np.bitwise_or.reduce(np.frombuffer(data, "<u8", words))) if words else 0
    rest = int.from_bytes(data.slice(words * 8).to_pybytes(), "little")
    return not (whole | rest) & _NOT_ASCII
