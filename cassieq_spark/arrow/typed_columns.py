"""Columns of typed chunks as bytes, by their types, and back. Pure.

A column is a tree of nodes, one for each level of its type. Each node has three parts, and each is
left out where it says nothing:

- values: numbers, dates and instants as what they are above the smallest of them, in as few bytes
  as that needs, and texts and arrays by their lengths, laid out likewise;
- the smallest of them;
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
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from cassieq_spark.arrow import packing

#: How deep types may be nested.
MOST_DEPTH = 16

_Numbers = npt.NDArray[Any]
_Flags = npt.NDArray[np.bool_]

#: A directory's byte of a node: in how many bytes its values are, whether some are null, and what
#: they are multiples of.
_WIDTHS = (0, 1, 2, 4, 8, 16)
_CODE, _NULLS, _STEP_AT = 0x07, 0x08, 4
_STEPS = (1, 1_000, 1_000_000)
_NARROW: dict[int, np.dtype[Any]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}
_LONG: np.dtype[Any] = np.dtype("<i8")
_OFFSETS: np.dtype[Any] = np.dtype("<i4")
_OFFSET_BYTES = 4
_NOT_ASCII = 0x8080808080808080
_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((each - _EPOCH).days for each in (date.min, date.max))
_DAY = 86_400_000_000


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
        charge: The bytes of its arrays, as `Node.sizes` counts them.
        stored: The bytes of its buffers.
    """

    charge: int = 0
    stored: int = 0
    _nodes: list[tuple[int, ...]] = field(default_factory=list)
    _buffers: list[tuple[int, int]] = field(default_factory=list)

    def expect(self, width: int, size: int) -> None:
        """A buffer of so many bytes, whose numbers have ``width`` bytes."""
        self._buffers.append((width, size))
        self.stored += size

    def keep(self, *facts: int) -> None:
        """What a node needs to know once it is built."""
        self._nodes.append(facts)

    def open(self, body: pa.Buffer) -> Parts:
        """The parts of a body that has the right length."""
        order = sorted(range(len(self._buffers)), key=lambda each: -self._buffers[each][0])
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
    nulls: _Flags | None = None
    values: _Numbers | None = None
    low: int = 0
    high: int = 0
    data: bytes | memoryview = b""
    children: tuple[Loaded, ...] = ()


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

    def load(self, array: pa.Array, absent: _Flags | None = None) -> Loaded:
        """The elements of an array, checked.

        Args:
            array: Of the node's type; may be a slice, and have anything behind its nulls.
            absent: Which of them are those of a struct that is null.

        Raises:
            ValueError: What can't be stored: a null, a text that is not UTF-8, an instant that
                nobody can read.
        """
        own, blank = _nulls(array, absent)
        if own is not None and not self.nullable:
            raise ValueError("a null, which it may not have")
        loaded = Loaded(len(array), own)
        self._load(array, blank, loaded)
        return loaded

    def sizes(self, loaded: Loaded) -> _Numbers | int:  # noqa: ARG002 - not if all are the same
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

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
        raise NotImplementedError

    def _open(self, entries: Iterator[int], most_code: int) -> tuple[int, int, bool]:
        """The code, step and nulls of its entry."""
        entry = next(entries)
        code, step, has_nulls = entry & _CODE, entry >> _STEP_AT, bool(entry & _NULLS)
        if code > most_code or step >= len(_STEPS) or (has_nulls and not self.nullable):
            raise ValueError(f"a column has the impossible form {entry}")
        return code, step, has_nulls


class _Fixed(Node):
    """Numbers as they are: floats."""

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        self._width = type_.bit_width // 8
        self._dtype = np.dtype(f"<f{self._width}")

    def write(self, loaded: Loaded, body: Body) -> None:
        body.entries.append(_NULLS if loaded.nulls is not None else 0)
        body.add(self._width, _bytes(loaded.values))
        _write_nulls(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        _, step, has_nulls = self._open(entries, 0)
        _refuse(step)
        plan.charge += self._width * count
        plan.keep(count, has_nulls)
        plan.expect(self._width, self._width * count)
        _expect_nulls(count, plan, has_nulls=has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls = next(parts.nodes)
        values = next(parts.buffers)
        return _array(self.type, count, [values], parts, has_nulls)

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
        values = values_of(array, self._dtype)
        loaded.values = values if blank is None else np.where(blank, self._dtype.type(0), values)


class _Booleans(Node):
    """Bits."""

    def write(self, loaded: Loaded, body: Body) -> None:
        body.entries.append(_NULLS if loaded.nulls is not None else 0)
        if loaded.values is not None:
            body.add(1, packing.bits(loaded.values))
        _write_nulls(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        _, step, has_nulls = self._open(entries, 0)
        _refuse(step)
        plan.charge += count
        plan.keep(count, has_nulls)
        plan.expect(1, _bit_bytes(count))
        _expect_nulls(count, plan, has_nulls=has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls = next(parts.nodes)
        values = next(parts.buffers)
        return _array(self.type, count, [values], parts, has_nulls)

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
        values = bits_of(array.buffers()[1], array.offset, len(array))
        loaded.values = values if blank is None else values & ~blank


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
        _write_numbers(loaded, body, self._width, has_steps=self._has_steps)
        _write_nulls(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        code, step, has_nulls = self._open(entries, _WIDTHS.index(self._width))
        if not self._has_steps:
            _refuse(step)
        plan.charge += self._width * count
        plan.keep(count, has_nulls, code, step)
        _expect_numbers(count, plan, code, self._width)
        _expect_nulls(count, plan, has_nulls=has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, step = next(parts.nodes)
        values = _read_numbers(count, code, step, parts, self._dtype, self._bounds)
        return _array(self.type, count, [pa.py_buffer(values)], parts, has_nulls)

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
        loaded.values = values_of(array, self._dtype)
        _bound(loaded, blank, self._bounds)


class _Decimals(Node):
    """Decimals; as integers of eight bytes, if all fit into them."""

    _width = 16

    def __init__(self, type_: pa.Decimal128Type, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        most = 10**type_.precision - 1
        self._bounds = (max(-most, -(1 << 63)), min(most, (1 << 63) - 1))

    def write(self, loaded: Loaded, body: Body) -> None:
        if loaded.data:
            nulls = _NULLS if loaded.nulls is not None else 0
            body.entries.append(nulls | _WIDTHS.index(self._width))
            body.add(self._width, loaded.data)
        else:
            _write_numbers(loaded, body, _LONG.itemsize)
        _write_nulls(loaded, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        code, step, has_nulls = self._open(entries, _WIDTHS.index(self._width))
        _refuse(step)
        plan.charge += self._width * count
        plan.keep(count, has_nulls, code)
        if _WIDTHS[code] == self._width:
            plan.expect(self._width, self._width * count)
        else:
            _expect_numbers(count, plan, code, _LONG.itemsize)
        _expect_nulls(count, plan, has_nulls=has_nulls)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code = next(parts.nodes)
        if _WIDTHS[code] == self._width:
            array = _array(self.type, count, [next(parts.buffers)], parts, has_nulls)
            array.validate(full=True)
            return array
        low = _read_numbers(count, code, 0, parts, _LONG, self._bounds)
        words = np.empty((count, 2), _LONG)
        words[:, 0] = low
        np.right_shift(low, 63, out=words[:, 1])
        return _array(self.type, count, [pa.py_buffer(words)], parts, has_nulls)

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
        words = values_of(array, _LONG, 2).reshape(-1, 2)
        if blank is not None:
            words = np.where(blank[:, np.newaxis], words[np.argmin(blank)], words)
            if blank.all():
                words = np.zeros_like(words)
        low = np.ascontiguousarray(words[:, 0])
        if (words[:, 1] == low >> 63).all():
            loaded.values = low
            _bound(loaded, None, self._bounds)
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

    def sizes(self, loaded: Loaded) -> _Numbers | int:
        if loaded.low == loaded.high:
            return _OFFSET_BYTES + loaded.low
        return _lengths(loaded) + _OFFSET_BYTES

    def write(self, loaded: Loaded, body: Body) -> None:
        _write_numbers(loaded, body, _OFFSET_BYTES)
        body.entries.append(len(loaded.data))
        _write_nulls(loaded, body)
        body.add(1, loaded.data)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        size = _measure_lengths(self, count, entries, plan)
        plan.charge += size
        plan.expect(1, size)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, size = next(parts.nodes)
        offsets = _read_lengths(count, code, size, parts, self._least)
        nulls = next(parts.buffers) if has_nulls else None
        data = next(parts.buffers)
        if self._is_text and not is_ascii(data):
            check_utf8(offsets, data)
        buffers = [nulls, pa.py_buffer(offsets), data]
        return pa.Array.from_buffers(self.type, count, buffers, -1 if has_nulls else 0)

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
        ends, lengths = ends_of(array)
        _, _, data = array.buffers()
        kept = memoryview(data)[int(ends[0]) : int(ends[-1])] if data is not None else b""
        if blank is not None and lengths[blank].any():
            keep = np.repeat(~blank, lengths)
            kept = np.frombuffer(kept, np.uint8)[keep].tobytes()
            lengths = np.where(blank, _OFFSETS.type(0), lengths)
        loaded.values, loaded.data = lengths, kept
        _bound(loaded, None, (0, (1 << 31) - 1))
        if loaded.low < self._least and loaded.count:
            raise ValueError("an empty text, which it may not have")
        if self._is_text and not is_ascii(text := pa.py_buffer(kept)):
            check_utf8(_offsets_of(lengths), text)


class _Lists(Node):
    """Arrays; maps are arrays of pairs."""

    has_count = True

    def __init__(self, type_: pa.DataType, *, nullable: bool, children: tuple[Node, ...]) -> None:
        super().__init__(type_, nullable=nullable)
        self.children = children

    def sizes(self, loaded: Loaded) -> _Numbers:
        lengths = _lengths(loaded)
        sizes: _Numbers | int = 0
        for node, child in zip(self.children, loaded.children, strict=True):
            sizes = sizes + node.sizes(child)
        if isinstance(sizes, int):
            return lengths * sizes + _OFFSET_BYTES
        up_to = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=up_to[1:])
        ends = up_to[_offsets_of(lengths, np.int64)]
        return ends[1:] - ends[:-1] + _OFFSET_BYTES

    def write(self, loaded: Loaded, body: Body) -> None:
        _write_numbers(loaded, body, _OFFSET_BYTES)
        body.entries.append(loaded.children[0].count)
        _write_nulls(loaded, body)
        for node, child in zip(self.children, loaded.children, strict=True):
            node.write(child, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        elements = _measure_lengths(self, count, entries, plan)
        for node in self.children:
            node.measure(elements, entries, plan)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls, code, elements = next(parts.nodes)
        offsets = _read_lengths(count, code, elements, parts)
        nulls = next(parts.buffers) if has_nulls else None
        children = [node.build(parts) for node in self.children]
        buffers = [nulls, pa.py_buffer(offsets)]
        if pt.is_map(self.type):
            pair = pa.struct([self.type.key_field, self.type.item_field])
            children = [pa.Array.from_buffers(pair, elements, [None], 0, children=children)]
        nulls_known = -1 if has_nulls else 0
        return pa.Array.from_buffers(self.type, count, buffers, nulls_known, children=children)

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
        ends, lengths = ends_of(array)
        first, last = int(ends[0]), int(ends[-1])
        elements = [array.keys, array.items] if pt.is_map(self.type) else [array.values]
        elements = [each.slice(first, last - first) for each in elements]
        if blank is not None and lengths[blank].any():
            keep = pa.array(np.repeat(~blank, lengths))
            elements = [each.filter(keep) for each in elements]
            lengths = np.where(blank, _OFFSETS.type(0), lengths)
        loaded.values = lengths
        _bound(loaded, None, (0, (1 << 31) - 1))
        pairs = zip(self.children, elements, strict=True)
        loaded.children = tuple(node.load(each) for node, each in pairs)


class _Structs(Node):
    """Structs."""

    def __init__(
        self, type_: pa.StructType, *, nullable: bool, children: tuple[Node, ...]
    ) -> None:
        super().__init__(type_, nullable=nullable)
        self.children = children

    def sizes(self, loaded: Loaded) -> _Numbers | int:
        sizes: _Numbers | int = 0
        for node, child in zip(self.children, loaded.children, strict=True):
            sizes = sizes + node.sizes(child)
        return sizes

    def write(self, loaded: Loaded, body: Body) -> None:
        body.entries.append(_NULLS if loaded.nulls is not None else 0)
        _write_nulls(loaded, body)
        for node, child in zip(self.children, loaded.children, strict=True):
            node.write(child, body)

    def measure(self, count: int, entries: Iterator[int], plan: Plan) -> None:
        _, step, has_nulls = self._open(entries, 0)
        _refuse(step)
        plan.keep(count, has_nulls)
        _expect_nulls(count, plan, has_nulls=has_nulls)
        for node in self.children:
            node.measure(count, entries, plan)

    def build(self, parts: Parts) -> pa.Array:
        count, has_nulls = next(parts.nodes)
        buffers = [next(parts.buffers) if has_nulls else None]
        children = [node.build(parts) for node in self.children]
        nulls_known = -1 if has_nulls else 0
        return pa.Array.from_buffers(self.type, count, buffers, nulls_known, children=children)

    def _load(self, array: pa.Array, blank: _Flags | None, loaded: Loaded) -> None:
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


def check_utf8(offsets: _Numbers, data: pa.Buffer) -> None:
    """Check the texts of ``data`` that lie between ``offsets``, which are in order and inside it.

    Raises:
        ValueError: One of them is not UTF-8.
    """
    ends = pa.py_buffer(np.array([0, data.size], _OFFSETS))
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
    (pt.is_float32, _Fixed),
    (pt.is_float64, _Fixed),
    (pt.is_decimal128, _Decimals),
    (_is_date, _dates),
    (_is_instant, _instants),
    (_is_duration, _Integers),
)


# -- arrays as numbers ------------------------------------------------------------------------


def _nulls(array: pa.Array, absent: _Flags | None) -> tuple[_Flags | None, _Flags | None]:
    """Which elements are null though their parent is not, and which are null at all."""
    if not array.null_count:
        return None, absent
    nulls = ~bits_of(array.buffers()[0], array.offset, len(array))
    if absent is None:
        return nulls, nulls
    own = nulls & ~absent
    return own if own.any() else None, nulls | absent


def bits_of(bits: pa.Buffer | None, first: int, count: int) -> _Flags:
    """The bits of a buffer from the ``first`` on."""
    if bits is None or not count:
        return np.zeros(count, np.bool_)
    skipped = first // 8
    whole = np.frombuffer(bits, np.uint8, (first + count + 7) // 8 - skipped, skipped)
    found = np.unpackbits(whole, bitorder="little")[first % 8 : first % 8 + count]
    return found.view(np.bool_)


def values_of(array: pa.Array, dtype: np.dtype[Any], per_element: int = 1) -> _Numbers:
    """The numbers of a flat array, from its first element on; not a copy."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array) * per_element, dtype)
    first = array.offset * per_element * dtype.itemsize
    return np.frombuffer(data, dtype, len(array) * per_element, first)


def ends_of(array: pa.Array) -> tuple[_Numbers, _Numbers]:
    """The offsets of an array's elements, and their lengths."""
    offsets = array.buffers()[1]
    if offsets is None or not len(array):
        return np.zeros(1, _OFFSETS), np.zeros(0, _OFFSETS)
    first = array.offset * _OFFSETS.itemsize
    ends = np.frombuffer(offsets, _OFFSETS, len(array) + 1, first)
    return ends, ends[1:] - ends[:-1]


def _bound(loaded: Loaded, blank: _Flags | None, bounds: tuple[int, int]) -> None:
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


def _lengths(loaded: Loaded) -> _Numbers:
    if loaded.values is None:
        return np.zeros(loaded.count, np.int64)
    return loaded.values.astype(np.int64)


def _offsets_of(lengths: _Numbers, dtype: Any = _OFFSETS) -> _Numbers:
    offsets = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


# -- numbers as bytes, and back ---------------------------------------------------------------


def _write_numbers(loaded: Loaded, body: Body, width: int, *, has_steps: bool = False) -> None:
    """Add numbers and their entry: those above the least, in as few bytes as they need."""
    values = loaded.values
    nulls = _NULLS if loaded.nulls is not None else 0
    if values is None or not len(values):
        body.entries.append(nulls)
        return
    step, span = 0, loaded.high - loaded.low
    if has_steps and span:
        step = _step(values, loaded.low, span)
        span //= _STEPS[step]
    code = next(at for at, size in enumerate(_WIDTHS) if span < 1 << 8 * size)
    if _WIDTHS[code] >= width:
        body.entries.append(nulls | _WIDTHS.index(width))
        body.add(width, _bytes(values))
        return
    body.entries.append(nulls | code | step << _STEP_AT)
    if code:
        above = values - values.dtype.type(loaded.low)
        if step:
            above //= _STEPS[step]
        body.add(_WIDTHS[code], _bytes(above.astype(_NARROW[_WIDTHS[code]])))
    body.add(width, loaded.low.to_bytes(width, "little", signed=True))


def _step(values: _Numbers, low: int, span: int) -> int:
    """What all are multiples of, above the least; none if they need eight bytes anyway."""
    for step in range(len(_STEPS) - 1, 0, -1):
        size = _STEPS[step]
        if span % size == 0 and span // size < 1 << 32 and not ((values - low) % size).any():
            return step
    return 0


def _expect_numbers(count: int, plan: Plan, code: int, width: int) -> None:
    size = _WIDTHS[code]
    if size > width:
        raise ValueError(f"numbers of {width} bytes in {size}")
    plan.expect(size, size * count)
    plan.expect(width, width if size < width and count else 0)


def _read_numbers(  # noqa: PLR0913, PLR0917 - each is a fact of its own
    count: int,
    code: int,
    step: int,
    parts: Parts,
    dtype: np.dtype[Any],
    bounds: tuple[int, int],
) -> _Numbers:
    """Numbers, none of them outside of ``bounds``."""
    data, least = next(parts.buffers), next(parts.buffers)
    size = _WIDTHS[code]
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
        return _same(low, count, dtype)
    above = np.frombuffer(data, _NARROW[size], count)
    times = _STEPS[step]
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


def _same(value: int, count: int, dtype: np.dtype[Any]) -> _Numbers:
    return np.full(count, value, dtype)


def _check_bounds(low: int, high: int, bounds: tuple[int, int]) -> None:
    if low < bounds[0] or high > bounds[1]:
        raise ValueError(f"values from {low} to {high} where {bounds} are possible")


def _measure_lengths(node: Node, count: int, entries: Iterator[int], plan: Plan) -> int:
    """Take the entry of texts or lists; how many bytes or elements they have."""
    code, step, has_nulls = node._open(entries, _WIDTHS.index(_OFFSET_BYTES))  # noqa: SLF001
    _refuse(step)
    size = next(entries)
    if size and not count:
        raise ValueError(f"{size} bytes or elements of nothing")
    plan.charge += _OFFSET_BYTES * count
    plan.keep(count, has_nulls, code, size)
    _expect_numbers(count, plan, code, _OFFSET_BYTES)
    _expect_nulls(count, plan, has_nulls=has_nulls)
    return size


def _read_lengths(count: int, code: int, total: int, parts: Parts, least: int = 0) -> _Numbers:
    """Offsets in order, from 0 to ``total``."""
    data, base = next(parts.buffers), next(parts.buffers)
    size = _WIDTHS[code]
    low = int.from_bytes(base, "little") if size < _OFFSET_BYTES and count else 0
    if not size:
        if low * count != total or (count and low < least):
            raise ValueError(f"{count} lengths of {low} are not {total} together")
        return (
            np.arange(0, total + 1, low, dtype=np.int32) if low else np.zeros(count + 1, _OFFSETS)
        )
    lengths = np.frombuffer(data, _NARROW[size], count)
    # Exact: there are less than 2**28 of them, below 2**32 each.
    if int(lengths.sum(dtype=np.uint64)) + low * count != total:
        raise ValueError(f"{count} lengths are not {total} together")
    if least and count and int(lengths.min()) + low < least:
        raise ValueError("an empty text, which it may not have")
    return _offsets_of(lengths.astype(_OFFSETS) + _OFFSETS.type(low))


# -- nulls and buffers ------------------------------------------------------------------------


def _write_nulls(loaded: Loaded, body: Body) -> None:
    if loaded.nulls is not None:
        body.add(1, packing.bits(~loaded.nulls))


def _expect_nulls(count: int, plan: Plan, *, has_nulls: bool) -> None:
    if has_nulls:
        plan.expect(1, _bit_bytes(count))


def _array(
    type_: pa.DataType, count: int, buffers: list[pa.Buffer], parts: Parts, has_nulls: int
) -> pa.Array:
    nulls = next(parts.buffers) if has_nulls else None
    return pa.Array.from_buffers(type_, count, [nulls, *buffers], -1 if has_nulls else 0)


def _bit_bytes(count: int) -> int:
    return (count + 7) // 8


def _refuse(step: int) -> None:
    if step:
        raise ValueError("a column of multiples, which its type has not")


def _bytes(values: _Numbers | None) -> bytes:
    return b"" if values is None else values.tobytes()
