"""Columns of typed chunks as bytes, by their types, and back. Pure.

A column is a tree of nodes, one for each level of its type. Each node has three parts, and each is
left out where it says nothing:

- the smallest of its values;
- values: numbers, dates and instants as what they are above that, in as few bytes as they need,
  and texts and arrays by their lengths, laid out likewise;
- a bit for each element that is not null, if one is null.

Texts add their bytes, arrays and maps their elements, structs their fields. What is behind a null
does not count: it has the length 0, or is as the first element that is not null. So equal columns
make equal bytes, whatever arrays they come in.

What a node takes follows from an entry that it has in the directory of its frame: a byte, and for
texts and arrays how many bytes or elements they have. A reader adds that up before it reads
anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from cassieq_spark.arrow import packing
from cassieq_spark.arrow.typed_numbers import (
    CODE,
    LONG,
    NULLS,
    OFFSET_BYTES,
    OFFSETS,
    STEP_AT,
    STEPS,
    WIDTHS,
    Body,
    Flags,
    Loaded,
    Numbers,
    Parts,
    Plan,
    bit_bytes,
    bits_of,
    bound,
    bytes_of,
    ends_of,
    expect_nulls,
    expect_numbers,
    lengths_of,
    nulls_of,
    offsets_of,
    read_lengths,
    read_numbers,
    values_of,
    write_nulls,
    write_numbers,
)

#: How deep types may be nested.
MOST_DEPTH = 16

_NOT_ASCII = 0x8080808080808080
_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((each - _EPOCH).days for each in (date.min, date.max))
_DAY = 86_400_000_000


class Node:
    """One level of a type.

    Args:
        type_: The type.
        nullable: Whether elements may be null.
    """

    #: Whether its entry has a count behind its byte.
    has_count = False
    #: The bytes of an element in memory, if all have the same; a boolean counts as one.
    _width = 1

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        self.type = type_
        self.nullable = nullable
        self.children: tuple[Node, ...] = ()

    @property
    def form(self) -> str:
        """The format of its entry in the directory, and of those of its children."""
        own = "BI" if self.has_count else "B"
        return own + "".join(each.form for each in self.children)

    def load(self, array: pa.Array, absent: Flags | None = None) -> Loaded:
        """The elements of an array, checked.

        Args:
            array: Of the node's type; may be a slice, and have anything behind its nulls.
            absent: Which of them are those of a struct that is null.

        Raises:
            ValueError: What can't be stored: a null, a text that is not UTF-8, an instant that
                nobody can read.
        """
        own, blank = nulls_of(array, absent)
        if own is not None and not self.nullable:
            raise ValueError("a null, which it may not have")
        loaded = Loaded(len(array), own)
        self._load(array, blank, loaded)
        return loaded

    def sizes(self, loaded: Loaded) -> Numbers | int:  # noqa: ARG002 - not if all are the same
        """The bytes of each element, as a reader has them in memory; one number if all the same.

        Nulls count as other values do, and a boolean as one byte; the bits that say what is null
        don't count.
        """
        return self._width

    def write(self, loaded: Loaded, body: Body) -> None:
        """Add what is stored of some elements."""
        raise NotImplementedError

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        """Take its entries of a directory, and add up what ``count`` elements of it take.

        Raises:
            ValueError: An entry that nobody writes.
        """
        raise NotImplementedError

    def build(self, parts: Parts) -> pa.Array:
        """Its array, checked in full.

        Raises:
            ValueError, pa.ArrowException: Its parts are not what `write` makes.
        """
        raise NotImplementedError

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        raise NotImplementedError

    def _open(self, entries: Iterator[int], most_code: int) -> tuple[int, int, bool]:
        """The code, step and nulls of its entry."""
        entry = next(entries)
        code, step, has_nulls = entry & CODE, entry >> STEP_AT, bool(entry & NULLS)
        if code > most_code or step >= len(STEPS) or (has_nulls and not self.nullable):
            raise ValueError(f"a column has the impossible form {entry}")
        return code, step, has_nulls


class _Plain(Node):
    """Values as they are, in one buffer: what floats and booleans share."""

    def write(self, loaded: Loaded, body: Body) -> None:
        body.entries.append(NULLS if loaded.nulls is not None else 0)
        body.add(self._width, self._pack(loaded.values))
        write_nulls(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        _, step, has_nulls = self._open(entries, 0)
        _refuse(step)
        plan.charge += self._width * count
        plan.keep(count, has_nulls)
        plan.expect(self._width, self._packed_bytes(count))
        expect_nulls(count, plan, has_nulls=has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls = next(parts.nodes)
        values = next(parts.buffers)
        return _array(self.type, count, [values], parts, has_nulls)

    def _pack(self, values: Numbers | None) -> bytes:
        """The buffer of some values."""
        raise NotImplementedError

    def _packed_bytes(self, count: int) -> int:
        """The size of the buffer of a number of values."""
        raise NotImplementedError


class _Floats(_Plain):
    """Floating-point numbers."""

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        self._width = type_.bit_width // 8
        self._dtype = np.dtype(f"<f{self._width}")

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        values = values_of(array, self._dtype)
        loaded.values = values if blank is None else np.where(blank, self._dtype.type(0), values)

    def _pack(self, values: Numbers | None) -> bytes:
        return bytes_of(values)

    def _packed_bytes(self, count: int) -> int:
        return self._width * count


class _Booleans(_Plain):
    """Bits."""

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        values = bits_of(array.buffers()[1], array.offset, len(array))
        loaded.values = values if blank is None else values & ~blank

    def _pack(self, values: Numbers | None) -> bytes:
        return b"" if values is None else packing.bits(values)

    def _packed_bytes(self, count: int) -> int:
        return bit_bytes(count)


class _Integers(Node):
    """Integers, dates, instants and durations.

    Args:
        type_: The type.
        nullable: Whether elements may be null.
        bounds: The least and the largest number that readers take; None: all of the type.
        has_steps: Whether all of them are often multiples of a thousand or a million.
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
        half = 1 << (type_.bit_width - 1)
        self._bounds = bounds or (-half, half - 1)
        self._has_steps = has_steps

    def write(self, loaded: Loaded, body: Body) -> None:
        write_numbers(loaded, body, self._width, has_steps=self._has_steps)
        write_nulls(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        code, step, has_nulls = self._open(entries, WIDTHS.index(self._width))
        if not self._has_steps:
            _refuse(step)
        plan.charge += self._width * count
        plan.keep(count, has_nulls, code, step)
        expect_numbers(count, plan, code, self._width)
        expect_nulls(count, plan, has_nulls=has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, step = next(parts.nodes)
        values = read_numbers(count, code, step, parts, self._dtype, self._bounds)
        return _array(self.type, count, [pa.py_buffer(values)], parts, has_nulls)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        loaded.values = values_of(array, self._dtype)
        bound(loaded, blank, self._bounds)


class _Decimals(Node):
    """Decimals; as integers of eight bytes, if all fit into them."""

    _width = 16

    def __init__(self, type_: pa.Decimal128Type, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        most = 10**type_.precision - 1
        self._bounds = (max(-most, -(1 << 63)), min(most, (1 << 63) - 1))

    def write(self, loaded: Loaded, body: Body) -> None:
        if loaded.data:
            nulls = NULLS if loaded.nulls is not None else 0
            body.entries.append(nulls | WIDTHS.index(self._width))
            body.add(self._width, loaded.data)
        else:
            write_numbers(loaded, body, LONG.itemsize)
        write_nulls(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        code, step, has_nulls = self._open(entries, WIDTHS.index(self._width))
        _refuse(step)
        plan.charge += self._width * count
        plan.keep(count, has_nulls, code)
        if WIDTHS[code] == self._width:
            plan.expect(self._width, self._width * count)
        else:
            expect_numbers(count, plan, code, LONG.itemsize)
        expect_nulls(count, plan, has_nulls=has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code = next(parts.nodes)
        if WIDTHS[code] == self._width:
            array = _array(self.type, count, [next(parts.buffers)], parts, has_nulls)
            array.validate(full=True)
            return array
        low = read_numbers(count, code, 0, parts, LONG, self._bounds)
        words = np.empty((count, 2), LONG)
        words[:, 0] = low
        np.right_shift(low, 63, out=words[:, 1])
        return _array(self.type, count, [pa.py_buffer(words)], parts, has_nulls)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        words = values_of(array, LONG, 2).reshape(-1, 2)
        if blank is not None:
            words = np.where(blank[:, np.newaxis], words[np.argmin(blank)], words)
            if blank.all():
                words = np.zeros_like(words)
        low = np.ascontiguousarray(words[:, 0])
        if (words[:, 1] == low >> 63).all():
            loaded.values = low
            bound(loaded, None, self._bounds)
            return
        words = np.ascontiguousarray(words)
        buffers = [None, pa.py_buffer(words)]
        try:
            pa.Array.from_buffers(self.type, len(words), buffers).validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueError(f"a decimal of more than {self.type.precision} digits") from error
        loaded.data = words.tobytes()


class _Texts(Node):
    """Strings and bytes.

    Args:
        type_: The type.
        nullable: Whether elements may be null.
        has_empty: Whether elements may be empty.
    """

    has_count = True

    def __init__(self, type_: pa.DataType, *, nullable: bool, has_empty: bool = True) -> None:
        super().__init__(type_, nullable=nullable)
        self._is_text = pt.is_string(type_)
        self._least = 0 if has_empty else 1

    def sizes(self, loaded: Loaded) -> Numbers | int:
        if loaded.low == loaded.high:
            return OFFSET_BYTES + loaded.low
        return lengths_of(loaded) + OFFSET_BYTES

    def write(self, loaded: Loaded, body: Body) -> None:
        write_numbers(loaded, body, OFFSET_BYTES)
        body.entries.append(len(loaded.data))
        write_nulls(loaded, body)
        body.add(1, loaded.data)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        size = _measure_lengths(self, count, entries, plan)
        plan.charge += size
        plan.expect(1, size)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, size = next(parts.nodes)
        offsets = read_lengths(count, code, size, parts, self._least)
        nulls = next(parts.buffers) if has_nulls else None
        data = next(parts.buffers)
        if self._is_text and not is_ascii(data):
            check_utf8(offsets, data)
        buffers = [nulls, pa.py_buffer(offsets), data]
        return pa.Array.from_buffers(self.type, count, buffers, -1 if has_nulls else 0)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        ends, lengths = ends_of(array)
        _, _, data = array.buffers()
        kept = memoryview(data)[int(ends[0]) : int(ends[-1])] if data is not None else b""
        if blank is not None and lengths[blank].any():
            keep = np.repeat(~blank, lengths)
            kept = np.frombuffer(kept, np.uint8)[keep].tobytes()
            lengths = np.where(blank, OFFSETS.type(0), lengths)
        loaded.values, loaded.data = lengths, kept
        bound(loaded, None, (0, (1 << 31) - 1))
        if loaded.low < self._least and loaded.count:
            raise ValueError("an empty text, which it may not have")
        if self._is_text and not is_ascii(text := pa.py_buffer(kept)):
            check_utf8(offsets_of(lengths), text)


class _Lists(Node):
    """Arrays; maps are arrays of pairs."""

    has_count = True

    def __init__(self, type_: pa.DataType, *, nullable: bool, children: tuple[Node, ...]) -> None:
        super().__init__(type_, nullable=nullable)
        self.children = children

    def sizes(self, loaded: Loaded) -> Numbers:
        lengths = lengths_of(loaded)
        sizes: Numbers | int = 0
        for node, child in zip(self.children, loaded.children, strict=True):
            sizes = sizes + node.sizes(child)
        if isinstance(sizes, int):
            return lengths * sizes + OFFSET_BYTES
        up_to = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=up_to[1:])
        ends = up_to[offsets_of(lengths, np.int64)]
        return ends[1:] - ends[:-1] + OFFSET_BYTES

    def write(self, loaded: Loaded, body: Body) -> None:
        write_numbers(loaded, body, OFFSET_BYTES)
        body.entries.append(loaded.children[0].count)
        write_nulls(loaded, body)
        for node, child in zip(self.children, loaded.children, strict=True):
            node.write(child, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        elements = _measure_lengths(self, count, entries, plan)
        for node in self.children:
            node.measure(elements, entries, plan)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, elements = next(parts.nodes)
        offsets = read_lengths(count, code, elements, parts)
        nulls = next(parts.buffers) if has_nulls else None
        children = [node.build(parts) for node in self.children]
        buffers = [nulls, pa.py_buffer(offsets)]
        if pt.is_map(self.type):
            pair = pa.struct([self.type.key_field, self.type.item_field])
            children = [pa.Array.from_buffers(pair, elements, [None], 0, children=children)]
        nulls_known = -1 if has_nulls else 0
        return pa.Array.from_buffers(self.type, count, buffers, nulls_known, children=children)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        ends, lengths = ends_of(array)
        first, last = int(ends[0]), int(ends[-1])
        elements = [array.keys, array.items] if pt.is_map(self.type) else [array.values]
        elements = [each.slice(first, last - first) for each in elements]
        if blank is not None and lengths[blank].any():
            keep = pa.array(np.repeat(~blank, lengths))
            elements = [each.filter(keep) for each in elements]
            lengths = np.where(blank, OFFSETS.type(0), lengths)
        loaded.values = lengths
        bound(loaded, None, (0, (1 << 31) - 1))
        pairs = zip(self.children, elements, strict=True)
        loaded.children = tuple(node.load(each) for node, each in pairs)


class _Structs(Node):
    """Structs."""

    def __init__(
        self, type_: pa.StructType, *, nullable: bool, children: tuple[Node, ...]
    ) -> None:
        super().__init__(type_, nullable=nullable)
        self.children = children

    def sizes(self, loaded: Loaded) -> Numbers | int:
        sizes: Numbers | int = 0
        for node, child in zip(self.children, loaded.children, strict=True):
            sizes = sizes + node.sizes(child)
        return sizes

    def write(self, loaded: Loaded, body: Body) -> None:
        body.entries.append(NULLS if loaded.nulls is not None else 0)
        write_nulls(loaded, body)
        for node, child in zip(self.children, loaded.children, strict=True):
            node.write(child, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        _, step, has_nulls = self._open(entries, 0)
        _refuse(step)
        plan.keep(count, has_nulls)
        expect_nulls(count, plan, has_nulls=has_nulls)
        for node in self.children:
            node.measure(count, entries, plan)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls = next(parts.nodes)
        buffers = [next(parts.buffers) if has_nulls else None]
        children = [node.build(parts) for node in self.children]
        nulls_known = -1 if has_nulls else 0
        return pa.Array.from_buffers(self.type, count, buffers, nulls_known, children=children)

    def _load(self, array: pa.Array, blank: Flags | None, loaded: Loaded) -> None:
        loaded.children = tuple(
            node.load(array.field(place), blank) for place, node in enumerate(self.children)
        )


def node_of(type_: pa.DataType, *, nullable: bool, depth: int = 1) -> Node:
    """The node of a type.

    Raises:
        TypeError: The type can't be stored, or is nested too deep.
    """
    if depth > MOST_DEPTH:
        raise TypeError(f"a type is nested deeper than {MOST_DEPTH} levels")
    if pt.is_list(type_):
        inner = type_.value_field
        element = node_of(inner.type, nullable=inner.nullable, depth=depth + 1)
        return _Lists(type_, nullable=nullable, children=(element,))
    if pt.is_map(type_):
        item = type_.item_field
        pair = (
            node_of(type_.key_type, nullable=False, depth=depth + 1),
            node_of(item.type, nullable=item.nullable, depth=depth + 1),
        )
        return _Lists(type_, nullable=nullable, children=pair)
    if pt.is_struct(type_) and type_.num_fields:
        children = tuple(
            node_of(each.type, nullable=each.nullable, depth=depth + 1) for each in type_.fields
        )
        return _Structs(type_, nullable=nullable, children=children)
    for is_kind, node in _FLAT:
        if is_kind(type_):
            return node(type_, nullable=nullable)
    raise TypeError(f"the type {type_} can't be stored")


def headers_node(type_: pa.MapType) -> Node:
    """The node of a message's headers: a map of strings, whose names are never empty."""
    children = (
        _Texts(pa.string(), nullable=False, has_empty=False),
        _Texts(pa.string(), nullable=True),
    )
    return _Lists(type_, nullable=True, children=children)


def check_utf8(offsets: Numbers, data: pa.Buffer) -> None:
    """Check the texts of ``data`` that lie between ``offsets``, which are in order and inside it.

    Raises:
        ValueError: One of them is not UTF-8.
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


def is_ascii(data: pa.Buffer) -> bool:
    """Whether there are only characters of one byte, so that texts may begin anywhere."""
    words = data.size // 8
    whole = int(np.bitwise_or.reduce(np.frombuffer(data, "<u8", words))) if words else 0
    rest = int.from_bytes(data.slice(words * 8).to_pybytes(), "little")
    return not (whole | rest) & _NOT_ASCII


def _is_date(type_: pa.DataType) -> bool:
    return bool(type_ == pa.date32())


def _is_instant(type_: pa.DataType) -> bool:
    return type_ in {pa.timestamp("us"), pa.timestamp("us", "UTC")}


def _is_duration(type_: pa.DataType) -> bool:
    return bool(type_ == pa.duration("us"))


def _dates(type_: pa.DataType, *, nullable: bool) -> Node:
    return _Integers(type_, nullable=nullable, bounds=(_FIRST_DAY, _LAST_DAY))


def _instants(type_: pa.DataType, *, nullable: bool) -> Node:
    bounds = (_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)
    return _Integers(type_, nullable=nullable, bounds=bounds, has_steps=True)


_FLAT: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Node]], ...] = (
    (pt.is_signed_integer, _Integers),
    (pt.is_string, _Texts),
    (pt.is_binary, _Texts),
    (pt.is_boolean, _Booleans),
    (pt.is_float32, _Floats),
    (pt.is_float64, _Floats),
    (pt.is_decimal128, _Decimals),
    (_is_date, _dates),
    (_is_instant, _instants),
    (_is_duration, _Integers),
)


def _measure_lengths(node: Node, count: int, entries: Iterator[int], plan: Plan) -> int:
    """Take the entry of texts or lists; how many bytes or elements they have."""
    code, step, has_nulls = node._open(entries, WIDTHS.index(OFFSET_BYTES))  # noqa: SLF001
    _refuse(step)
    size = next(entries)
    if size and not count:
        raise ValueError(f"{size} bytes or elements of nothing")
    plan.charge += OFFSET_BYTES * count
    plan.keep(count, has_nulls, code, size)
    expect_numbers(count, plan, code, OFFSET_BYTES)
    expect_nulls(count, plan, has_nulls=has_nulls)
    return size


def _array(
    type_: pa.DataType, count: int, buffers: list[pa.Buffer], parts: Parts, has_nulls: int
) -> pa.Array:
    nulls = next(parts.buffers) if has_nulls else None
    return pa.Array.from_buffers(type_, count, [nulls, *buffers], -1 if has_nulls else 0)


def _refuse(step: int) -> None:
    if step:
        raise ValueError("a column of multiples, which its type has not")
