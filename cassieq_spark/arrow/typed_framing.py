"""The layout of a typed chunk as bytes, and the checks that keep crafted bytes out.

A frame is a header of fixed length, a directory, and one section per column, compressed
separately. So a reader decompresses only the columns that it wants. The directory has one entry
per column: codec, stored length and sum of its section, and what `typed_columns` needs to know
about the lengths of its buffers. The length of the directory follows from the schema. The frame
does not contain the schema, only its version, in the header.

A reader checks, in order:

1. the header: its magic and flags, and that it counts as many messages as the row does;
2. the sum of header and directory;
3. the lengths, of all columns together, against `MOST_DATA_BYTES`, or `MOST_ALONE_BYTES` if there
   is one message;
4. of each wanted column: the sum of the section; that the section decompresses into exactly
   as many bytes as the directory asks for; and the arrays.

As in `framing`, the sums detect accidents only, and the other checks keep attackers out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Container, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cassieq_spark.arrow import packing
from cassieq_spark.arrow.framing import HEADERS, MOST_DATA_BYTES, MOST_MESSAGES
from cassieq_spark.arrow.packing import CODECS, checksum
from cassieq_spark.arrow.typed_columns import TypeNode, headers_node, node_of
from cassieq_spark.arrow.typed_numbers import ColumnPlan, EncodedColumn, Loaded
from cassieq_spark.errors import MessageError, UnreadableError

#: The additional columns of a message.
KEY_COLUMN, HEADERS_COLUMN = "_key", "_headers"
EXTRA = pa.schema([(KEY_COLUMN, pa.binary()), (HEADERS_COLUMN, HEADERS)])
#: Maximum bytes of the columns of a message that has a chunk of its own. A writer stores at most
#: 8 MiB. A copy as a dead letter may have wider types: sixteen bytes for each byte, if they
#: are decimals instead of a tinyint.
MOST_ALONE_BYTES = MOST_DATA_BYTES + 16 * (8 << 20)
#: Maximum number of values of a chunk: one per byte. A message with a chunk of its own does not
#: have more, as only its types have become wider; each value may cost a reader a Python object.
_MOST_VALUES = MOST_DATA_BYTES
#: The first bytes of the frame of a typed chunk.
MAGIC = b"CQT1"

#: Magic, flags, the schema's version, messages; the sum of header and directory.
_HEADER = struct.Struct("<4sBxxxIIQ")
#: The directory's part about one section: codec, stored length, sum.
_SECTION = "BIQ"
#: The flags of a frame say which of these columns it has.
_EXTRAS = {KEY_COLUMN: 1, HEADERS_COLUMN: 2}
_ALIGNED = 8


class Decoded(NamedTuple):
    """The content of a frame.

    Attributes:
        version: The version of the schema that wrote the frame.
        schema: The schema of that version.
        columns: Columns by name: the requested columns of the schema, and `KEY_COLUMN` and
            `HEADERS_COLUMN`, if the frame has them.
    """

    version: int
    schema: pa.Schema
    columns: dict[str, pa.Array]


class Layout:
    """The layout of messages of one schema.

    Args:
        schema: Columns of the queue.

    Attributes:
        nodes: For each combination of a frame's flags, the nodes of its columns, in their order.
        directories: For each combination of flags, the layout of the directory.

    Raises:
        TypeError: A column's type can't be stored.
    """

    def __init__(self, schema: pa.Schema) -> None:
        extras = {
            KEY_COLUMN: node_of(pa.binary(), nullable=True),
            HEADERS_COLUMN: headers_node(HEADERS),
        }
        columns = {each.name: node_of(each.type, nullable=each.nullable) for each in schema}
        if len(columns) < len(schema) or set(columns) & set(extras):
            raise TypeError("columns need different names, and none of those of key and headers")
        self.nodes = [
            {name: node for name, node in extras.items() if flags & _EXTRAS[name]} | columns
            for flags in range(4)
        ]
        self.directories = [
            struct.Struct("<" + "".join(_SECTION + each.form for each in nodes.values()))
            for nodes in self.nodes
        ]

    def load(self, messages: pa.RecordBatch) -> dict[str, Loaded]:
        """Split the messages into column arrays, and validate them.

        Args:
            messages: The columns of the schema, `KEY_COLUMN` and `HEADERS_COLUMN` if given, in
                any order; with the types of the schema.

        Raises:
            MessageError: A column is missing, or has a value that can't be stored.
        """
        found = dict(zip(messages.schema.names, messages.columns, strict=True))
        loaded = {}
        for name, node in self.nodes[_flags(found)].items():
            if name not in found or found[name].type != node.type:
                kind = found[name].type if name in found else "missing"
                raise MessageError(f"the column {name!r} is {kind}, and must be {node.type}")
            try:
                loaded[name] = node.load(found[name])
            except ValueError as error:
                raise BadColumnError(name, str(error)) from error
        return loaded

    def sizes(self, loaded: dict[str, Loaded], count: int) -> npt.NDArray[np.int64]:
        """The bytes of each of ``count`` messages, as `TypeNode.sizes` counts them."""
        sizes = np.zeros(count, np.int64)
        for name, node in self.nodes[_flags(loaded)].items():
            sizes += node.sizes(loaded[name])
        return sizes


def _flags(names: Container[str]) -> int:
    return sum(flag for name, flag in _EXTRAS.items() if name in names)


class BadColumnError(MessageError):
    """A column has a value that can't be stored.

    Attributes:
        column: The name of the column.
        problem: What is wrong with the value, such as "a null, which it may not have".
    """

    def __init__(self, column: str = "", problem: str = "") -> None:
        super().__init__(f"the column {column!r} has {problem}")
        self.column = column
        self.problem = problem


@lru_cache(maxsize=64)
def layout_of(schema: pa.Schema) -> Layout:
    """The layout of messages of a schema; cached.

    Raises:
        TypeError: A column's type can't be stored.
    """
    return Layout(schema)


def encode(messages: pa.RecordBatch, schema: pa.Schema, version: int, compression: str) -> bytes:
    """Lay out messages as a frame; equal messages make equal bytes.

    A section that does not become smaller is not compressed.

    Args:
        messages: The messages, as `Layout.load` takes them; at least one.
        schema: Columns of the queue.
        version: The version of the schema.
        compression: ``lz4``, ``zstd`` or ``none``.

    Raises:
        MessageError: A value can't be stored, or the messages are more than a frame takes.
    """
    layout = layout_of(schema)
    loaded = layout.load(messages)
    flags, count = _flags(loaded), messages.num_rows
    entries: list[int] = []
    sections = []
    for name, node in layout.nodes[flags].items():
        body = EncodedColumn()
        node.write(loaded[name], body)
        codec, section = packing.pack(body.join(), compression)
        entries += [codec, len(section), checksum(section), *body.entries]
        sections.append(section)
    if problem := _excess(count, list(_sections(layout, flags, count, iter(entries)))):
        raise MessageError(f"messages are too large together: {problem}; give them smaller values")
    directory = layout.directories[flags].pack(*entries)
    total = checksum(_HEADER.pack(MAGIC, flags, version, count, 0), directory)
    return b"".join([_HEADER.pack(MAGIC, flags, version, count, total), directory, *sections])


def decode(
    frame: bytes,
    count: int,
    schemas: Callable[[int], pa.Schema | None],
    columns: Collection[str] | None = None,
) -> Decoded:
    """The columns of a frame, checked.

    Columns that are not wanted are neither summed nor decompressed. The arrays take at most
    `MOST_DATA_BYTES`, or `MOST_ALONE_BYTES`, whatever the frame says.

    Args:
        frame: A frame, or any other bytes.
        count: How many messages the frame must have.
        schemas: The schema of a version; None if there is no such version.
        columns: The wanted columns; None for all.

    Raises:
        UnreadableError: The bytes are not a frame that `encode` makes.
    """
    flags, version, messages, total = _header(frame)
    if messages != count or not count:
        raise UnreadableError(f"it has {messages} messages, and its row says {count}")
    schema = schemas(version)
    if schema is None:
        raise UnreadableError(f"its schema has version {version}, which the queue never had")
    layout = layout_of(schema)
    stop = _HEADER.size + layout.directories[flags].size
    directory = frame[_HEADER.size : stop]
    start = _HEADER.pack(MAGIC, flags, version, messages, 0)
    if checksum(start, directory) != total or stop > len(frame):
        raise UnreadableError("the checksum of its directory does not match: it was damaged")
    try:
        entries = iter(layout.directories[flags].unpack(directory))
        sections = list(_sections(layout, flags, count, entries))
    except ValueError as error:
        raise UnreadableError(str(error)) from error
    if problem := _excess(count, sections):
        raise UnreadableError(problem)
    if len(frame) != stop + sum(section.length for section in sections):
        raise UnreadableError(f"it has {len(frame)} bytes, which its directory does not say")
    whole = pa.py_buffer(frame)
    found = {}
    for section in sections:
        body = whole.slice(stop, section.length)
        stop += section.length
        if columns is None or section.name in columns:
            found[section.name] = _column(section, body)
    return Decoded(version, schema, found)


class _Section(NamedTuple):
    """The directory entry of a column."""

    name: str
    node: TypeNode
    codec: int
    length: int
    total: int
    plan: ColumnPlan


def _header(frame: bytes) -> tuple[int, int, int, int]:
    """The flags, version, messages and sum of a header."""
    if len(frame) < _HEADER.size:
        raise UnreadableError(f"it has {len(frame)} bytes, fewer than a header")
    magic, flags, version, messages, total = _HEADER.unpack_from(frame)
    if magic != MAGIC or flags > sum(_EXTRAS.values()):
        raise UnreadableError("it does not begin with a header of this release")
    return flags, version, messages, total


def _sections(
    layout: Layout, flags: int, count: int, entries: Iterator[int]
) -> Iterator[_Section]:
    """The entries of a directory, column by column.

    Raises:
        ValueError: `encode` makes no such entry.
    """
    for name, node in layout.nodes[flags].items():
        codec, length, total = next(entries), next(entries), next(entries)
        if codec >= len(CODECS):
            raise ValueError(f"the column {name!r} is compressed in an unknown way")
        plan = ColumnPlan()
        node.measure(count, entries, plan)
        yield _Section(name, node, codec, length, total, plan)


def _excess(messages: int, sections: list[_Section]) -> str | None:
    """The limit that is exceeded, in words; None if none is."""
    size = sum(section.plan.array_bytes for section in sections)
    if messages > MOST_MESSAGES:
        return f"{messages} messages, and {MOST_MESSAGES} is the most"
    most = MOST_DATA_BYTES if messages > 1 else MOST_ALONE_BYTES
    if size > most:
        return f"{size} bytes of columns, and {most} is the most"
    values = sum(section.plan.values for section in sections)
    if values > _MOST_VALUES:
        return f"{values} values, and {_MOST_VALUES} is the most"
    return None


def _column(section: _Section, body: pa.Buffer) -> pa.Array:
    if checksum(body) != section.total:
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
