"""The layout of a typed chunk as bytes, and the checks that keep crafted bytes out. Pure.

A frame is a header of fixed length, a directory, and a section for each column, compressed by
itself. So a reader decompresses only the columns that it wants. The directory has an entry for
each column: codec, stored length and sum of its section, and what `typed_columns` needs to know
the lengths of its buffers. How long the directory is follows from the schema, whose version the
header has; the frame has no schema.

A reader checks, in order:

1. the header: whether it is one, and has as many messages as the row says;
2. the sum of header and directory;
3. the lengths, of all columns together, against `MOST_DATA_BYTES`;
4. of each column that it wants, the sum of its section; the section, which is decompressed into
   exactly the bytes that the directory asks for; and its arrays.

As in `framing`, the sums detect accidents only, and all the rest is safe against attackers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cassieq_spark.arrow import packing
from cassieq_spark.arrow.framing import HEADERS, MOST_DATA_BYTES, MOST_MESSAGES
from cassieq_spark.arrow.packing import CODECS, MODULUS, checksum
from cassieq_spark.arrow.typed_columns import Node, headers_node, node_of
from cassieq_spark.arrow.typed_numbers import Body, Loaded, Plan
from cassieq_spark.errors import MessageError, UnreadableError

#: What a message has beside the columns of its queue.
KEY_COLUMN, HEADERS_COLUMN = "_key", "_headers"
EXTRA = pa.schema([(KEY_COLUMN, pa.binary()), (HEADERS_COLUMN, HEADERS)])
#: What frames of typed chunks begin with.
MAGIC = b"CQT1"

#: Magic, flags, the schema's version, messages; the sum of header and directory.
_HEADER = struct.Struct("<4sBxxxIIQ")
#: Of each section: codec, stored length, sum.
_SECTION = "BIQ"
_EXTRAS = {KEY_COLUMN: 1, HEADERS_COLUMN: 2}
_ALIGNED = 8


class Decoded(NamedTuple):
    """What a frame holds.

    Attributes:
        version: The version of the schema that it was written by.
        schema: That schema.
        columns: Columns by name: those of the schema that were asked for, and `KEY_COLUMN` and
            `HEADERS_COLUMN`, if the frame has them.
    """

    version: int
    schema: pa.Schema
    columns: dict[str, pa.Array]


class Layout:
    """How messages of one schema are laid out.

    Args:
        schema: Columns of the queue.

    Raises:
        TypeError: A column's type can't be stored.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        extras = {KEY_COLUMN: node_of(pa.binary(), nullable=True)}
        extras[HEADERS_COLUMN] = headers_node(HEADERS)
        columns = {each.name: node_of(each.type, nullable=each.nullable) for each in schema}
        if len(columns) < len(schema) or set(columns) & set(extras):
            raise TypeError("columns need different names, and none of those of key and headers")
        self._nodes = {
            flags: {
                **{name: node for name, node in extras.items() if flags & _EXTRAS[name]},
                **columns,
            }
            for flags in range(4)
        }
        self._directories = {
            flags: struct.Struct("<" + "".join(_SECTION + each.form for each in nodes.values()))
            for flags, nodes in self._nodes.items()
        }

    def nodes(self, flags: int) -> dict[str, Node]:
        """The nodes of a frame's columns, in their order."""
        return self._nodes[flags]

    def directory(self, flags: int) -> struct.Struct:
        """The layout of a frame's directory."""
        return self._directories[flags]

    def load(self, messages: pa.RecordBatch) -> dict[str, Loaded]:
        """Take messages apart, and check them.

        Args:
            messages: The columns of the schema, perhaps `KEY_COLUMN` and `HEADERS_COLUMN`, in
                any order; with the types of the schema.

        Raises:
            MessageError: A column is missing, or has a value that can't be stored.
        """
        found = dict(zip(messages.schema.names, messages.columns, strict=True))
        flags = sum(flag for name, flag in _EXTRAS.items() if name in found)
        loaded = {}
        for name, node in self._nodes[flags].items():
            if name not in found or found[name].type != node.type:
                kind = found[name].type if name in found else "missing"
                raise MessageError(f"the column {name!r} is {kind}, and must be {node.type}")
            try:
                loaded[name] = node.load(found[name])
            except ValueError as error:
                raise BadColumnError(name, str(error)) from error
        return loaded

    def sizes(self, loaded: dict[str, Loaded], count: int) -> npt.NDArray[np.int64]:
        """The bytes of each of ``count`` messages, as `Node.sizes` counts them."""
        sizes = np.zeros(count, np.int64)
        flags = sum(flag for name, flag in _EXTRAS.items() if name in loaded)
        for name, node in self._nodes[flags].items():
            sizes += node.sizes(loaded[name])
        return sizes


class BadColumnError(MessageError):
    """A column has a value that can't be stored.

    Attributes:
        column: The column.
        problem: What it has: "a null, which it may not have".
    """

    def __init__(self, column: str = "", problem: str = "") -> None:
        super().__init__(f"the column {column!r} has {problem}")
        self.column = column
        self.problem = problem


@lru_cache(maxsize=64)
def layout_of(schema: pa.Schema) -> Layout:
    """How messages of a schema are laid out; cached.

    Raises:
        TypeError: A column's type can't be stored.
    """
    return Layout(schema)


def encode(messages: pa.RecordBatch, schema: pa.Schema, version: int, compression: str) -> bytes:
    """Lay out messages as a frame; equal messages make equal bytes.

    A section that does not become smaller is not compressed.

    Args:
        messages: As `Layout.load` takes them; at least one.
        schema: Columns of the queue.
        version: The version of the schema.
        compression: ``lz4``, ``zstd`` or ``none``.

    Raises:
        MessageError: A value can't be stored, or they are more than a frame takes.
    """
    layout = layout_of(schema)
    loaded = layout.load(messages)
    flags = sum(flag for name, flag in _EXTRAS.items() if name in loaded)
    directory: list[int] = []
    sections = []
    for name, node in layout.nodes(flags).items():
        body = Body()
        node.write(loaded[name], body)
        codec, section = packing.pack(body.join(), compression)
        directory += [codec, len(section), checksum(section) % MODULUS, *body.entries]
        sections.append(section)
    charge = sum(plan.charge for plan in _plans(layout, flags, messages.num_rows, iter(directory)))
    if problem := _excess(messages.num_rows, charge):
        raise MessageError(f"messages are too large together: {problem}; give them smaller values")
    told = layout.directory(flags).pack(*directory)
    start = _HEADER.pack(MAGIC, flags, version, messages.num_rows, 0)
    total = (checksum(start) + checksum(told)) % MODULUS
    start = _HEADER.pack(MAGIC, flags, version, messages.num_rows, total)
    return b"".join([start, told, *sections])


def version_of(frame: bytes) -> int:
    """The version of the schema that a frame was written by, if it is one; not checked further.

    Raises:
        UnreadableError: It does not begin with a header of a typed chunk.
    """
    return _header(frame)[2]


def decode(
    frame: bytes,
    count: int,
    schemas: Callable[[int], pa.Schema | None],
    columns: Collection[str] | None = None,
) -> Decoded:
    """The columns of a frame, checked.

    Columns that nobody asked for are neither summed nor decompressed. Allocates no more than
    `framing.MOST_BYTES`, whatever the frame says.

    Args:
        frame: A frame, or any other bytes.
        count: How many messages the frame must have.
        schemas: The schema of a version; None if there is no such version.
        columns: The columns that are wanted; None: all.

    Raises:
        UnreadableError: It is not what `encode` makes.
    """
    _, flags, version, messages, total = _header(frame)
    if messages != count or not count:
        raise UnreadableError(f"it has {messages} messages, and its row says {count}")
    schema = schemas(version)
    if schema is None:
        raise UnreadableError(f"its schema has version {version}, which the queue never had")
    layout = layout_of(schema)
    begin = _HEADER.size
    stop = begin + layout.directory(flags).size
    told = frame[begin:stop]
    start = _HEADER.pack(MAGIC, flags, version, messages, 0)
    if (checksum(start) + checksum(told)) % MODULUS != total or stop > len(frame):
        raise UnreadableError("the checksum of its directory does not match: it was damaged")
    directory = layout.directory(flags).unpack(told)
    try:
        plans = list(_plans(layout, flags, count, iter(directory)))
    except ValueError as error:
        raise UnreadableError(str(error)) from error
    if problem := _excess(count, sum(plan.charge for plan in plans)):
        raise UnreadableError(problem)
    if len(frame) != stop + sum(plan.length for plan in plans):
        raise UnreadableError(f"it has {len(frame)} bytes, which its directory does not say")
    whole = pa.py_buffer(frame)
    found = {}
    for plan in plans:
        section = whole.slice(stop, plan.length)
        stop += plan.length
        if columns is None or plan.name in columns:
            found[plan.name] = _column(plan, section)
    return Decoded(version, schema, found)


class _Section(NamedTuple):
    """What a directory says of a column."""

    name: str
    node: Node
    codec: int
    length: int
    total: int
    plan: Plan

    @property
    def charge(self) -> int:
        return self.plan.charge


def _header(frame: bytes) -> tuple[bytes, int, int, int, int]:
    if len(frame) < _HEADER.size:
        raise UnreadableError(f"it has {len(frame)} bytes, fewer than a header")
    header = _HEADER.unpack_from(frame)
    magic, flags, *_ = header
    if magic != MAGIC or flags > sum(_EXTRAS.values()):
        raise UnreadableError("it does not begin with a header of this release")
    return header


def _plans(layout: Layout, flags: int, count: int, entries: Iterator[int]) -> Iterator[_Section]:
    """What a directory says of each column.

    Raises:
        ValueError: Something that `encode` does not say.
    """
    for name, node in layout.nodes(flags).items():
        codec, length, total = next(entries), next(entries), next(entries)
        if codec >= len(CODECS):
            raise ValueError(f"the column {name!r} is compressed in an unknown way")
        plan = Plan()
        node.measure(count, entries, plan)
        yield _Section(name, node, codec, length, total, plan)


def _excess(messages: int, charge: int) -> str | None:
    """What is too large, in words; None if nothing is."""
    if messages > MOST_MESSAGES:
        return f"{messages} messages, and {MOST_MESSAGES} is the most"
    if charge > MOST_DATA_BYTES:
        return f"{charge} bytes of columns, and {MOST_DATA_BYTES} is the most"
    return None


def _column(section: _Section, body: pa.Buffer) -> pa.Array:
    if checksum(body) % MODULUS != section.total:
        raise UnreadableError(
            f"the checksum of its column {section.name!r} does not match: it was damaged"
        )
    try:
        unpacked = packing.unpack(body, section.codec, section.plan.stored)
        if unpacked.address % _ALIGNED:
            unpacked = pa.py_buffer(unpacked.to_pybytes())
        return section.node.build(section.plan.open(unpacked))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableError(
            f"its column {section.name!r} does not match its directory: {error}"
        ) from error
