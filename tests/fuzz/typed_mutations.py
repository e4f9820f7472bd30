"""Typed chunks, and what becomes of them if somebody who knows their layout changes them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from cassieq_spark.arrow import packing, typed_framing
from cassieq_spark.arrow.packing import CODECS, MODULUS, checksum
from cassieq_spark.arrow.typed_framing import EXTRA, encode, layout_of
from tests.fuzz.mutations import EDGES

HEADER = typed_framing._HEADER
VERSION = 2
_FLAT = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(9, 2),
    pa.decimal128(38, 10),
    pa.string(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.duration("us"),
)


@dataclass(frozen=True)
class Frame:
    """A frame, taken apart."""

    schema: pa.Schema
    flags: int
    version: int
    count: int
    directory: tuple[int, ...]
    sections: tuple[bytes, ...]

    def join(self, rng: random.Random) -> bytes:
        """Its bytes; as a rule with the sums and lengths that they have."""
        layout = layout_of(self.schema)
        directory = list(self.directory)
        at = 0
        tells = rng.random() < 0.97
        for node, section in zip(layout.nodes[self.flags].values(), self.sections, strict=True):
            if tells:
                directory[at + 1 : at + 3] = [len(section), checksum(section) % MODULUS]
            at += 3 + len(node.form)
        forms = layout.directories[self.flags].format[1:]
        packed = struct.pack(
            "<" + forms,
            *(
                each % (1 << 8 * struct.calcsize(form))
                for each, form in zip(directory, forms, strict=True)
            ),
        )
        return signed(_header(self.flags, self.version, self.count) + packed, self.sections)


def _header(flags: int, version: int, count: int, total: int = 0) -> bytes:
    return HEADER.pack(typed_framing.MAGIC, flags, version % (1 << 32), count % (1 << 32), total)


def signed(start: bytes, sections: tuple[bytes, ...] = ()) -> bytes:
    """Header and directory with the sum that they have, and sections."""
    bare = start[: HEADER.size - 8] + bytes(8)
    total = (checksum(bare) + checksum(start[HEADER.size :])) % MODULUS
    return b"".join([bare[:-8], struct.pack("<Q", total), start[HEADER.size :], *sections])


def taken_apart(frame: bytes, schema: pa.Schema) -> Frame:
    _, flags, version, count, _ = HEADER.unpack_from(frame)
    layout = layout_of(schema)
    form = layout.directories[flags]
    directory = form.unpack_from(frame, HEADER.size)
    at, entry, sections = HEADER.size + form.size, 0, []
    for node in layout.nodes[flags].values():
        length = directory[entry + 1]
        sections.append(frame[at : at + length])
        at += length
        entry += 3 + len(node.form)
    return Frame(schema, flags, version, count, directory, tuple(sections))


def chunk_of(rng: random.Random) -> tuple[bytes, int, pa.Schema]:
    """A whole chunk, how many messages it has, and their schema."""
    count = rng.choice((1, 2, 3, 8, 100))
    schema = pa.schema(
        [
            _field(rng, f"c{each}", rng.choice((1, 1, 2, 3)))
            for each in range(rng.choice((1, 2, 4)))
        ]
    )
    present = [each for each in EXTRA if rng.random() < 0.4]
    fields = [*schema, *present]
    arrays = [pa.array([_cell(rng, each) for _ in range(count)], each.type) for each in fields]
    messages = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return encode(messages, schema, VERSION, rng.choice(CODECS)), count, schema


def mutant_of(rng: random.Random) -> tuple[bytes, int, pa.Schema]:
    """A chunk that was changed in one to four ways, and how many messages its row says it has."""
    data, count, schema = chunk_of(rng)
    frame = taken_apart(data, schema)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        frame = rng.choice(MUTATIONS)(rng, frame)
    data = frame.join(rng)
    if rng.random() < 0.2:
        data = rng.choice((_flip, _cut_off, _extend))(rng, data)
        if rng.random() < 0.5:
            stop = HEADER.size + layout_of(schema).directories[frame.flags].size
            data = signed(data[:stop]) + data[stop:] if len(data) > stop else data
    return data, frame.count if rng.random() < 0.95 else count, frame.schema


def _set_entry(rng: random.Random, frame: Frame) -> Frame:
    """Another number in the directory."""
    directory = list(frame.directory)
    at = rng.randrange(len(directory))
    near = directory[at] + rng.choice((-2, -1, 1, 2))
    directory[at] = rng.choice((near, near, directory[at] ^ (1 << rng.randrange(8)), *EDGES))
    return replace(frame, directory=tuple(directory))


def _set_count(rng: random.Random, frame: Frame) -> Frame:
    count = rng.choice((frame.count + 1, frame.count - 1, frame.count * 2, *EDGES))
    return replace(frame, count=max(0, count))


def _set_version(rng: random.Random, frame: Frame) -> Frame:
    return replace(frame, version=rng.choice((0, 1, 3, 1 << 31)))


def _set_flags(rng: random.Random, frame: Frame) -> Frame:
    """Key and headers that are not there."""
    nodes = layout_of(frame.schema).nodes[3]
    entries = [0] * sum(3 + len(node.form) for node in nodes.values())
    entries[-len(frame.directory) :] = frame.directory
    sections = (b"",) * (len(nodes) - len(frame.sections)) + frame.sections
    return replace(frame, flags=3, directory=tuple(entries), sections=sections)


def _other_schema(rng: random.Random, frame: Frame) -> Frame:
    """The schema that its version has is another one."""
    _, _, schema = chunk_of(rng)
    told = layout_of(schema)
    entries = sum(3 + len(node.form) for node in told.nodes[frame.flags].values())
    directory = (frame.directory * (entries // len(frame.directory) + 1))[:entries]
    count = len(told.nodes[frame.flags])
    sections = (frame.sections * count)[:count]
    return replace(frame, schema=schema, directory=directory, sections=sections)


def _in_section(rng: random.Random, frame: Frame) -> Frame:
    """Change what is compressed, and compress it again."""
    at, entry = _some_section(rng, frame)
    codec, section = frame.directory[entry] & 3, frame.sections[at]
    body: bytes = section
    if 0 < codec < len(CODECS):
        try:
            size = _size(frame, at, entry)
            body = packing.unpack(pa.py_buffer(section), codec, size).to_pybytes()
        except (OSError, pa.ArrowException, ValueError):
            return frame
    body = rng.choice((_flip, _flip, _set_word, _set_word, _cut_off, _extend))(rng, body)
    if rng.random() < 0.5:
        return _with(frame, at, entry, 0, body)
    codec = rng.choice((1, 2))
    packed = pa.compress(body, CODECS[codec], asbytes=True)
    if codec == 1:
        size = max(0, len(body) + rng.choice((0, 0, 0, -1, 1, 1 << 20)))
        packed = packing.with_size(packed, size)
    return _with(frame, at, entry, codec, packed)


def _bomb(rng: random.Random, frame: Frame) -> Frame:
    """A section that declares as much as the directory does, or little, and holds much."""
    at, entry = _some_section(rng, frame)
    codec = rng.choice((1, 2))
    packed = pa.compress(bytes(rng.choice((1 << 16, 1 << 24))), CODECS[codec], asbytes=True)
    if codec == 1:
        size = max(0, _size(frame, at, entry))
        packed = packing.with_size(packed, size)
    elif rng.random() < 0.5:
        packed += packed
    return _with(frame, at, entry, codec, packed)


def _splice(rng: random.Random, frame: Frame) -> Frame:
    at, entry = _some_section(rng, frame)
    return _with(frame, at, entry, frame.directory[entry], rng.choice(frame.sections))


def _some_section(rng: random.Random, frame: Frame) -> tuple[int, int]:
    """Which one, and where its entry begins."""
    nodes = list(layout_of(frame.schema).nodes[frame.flags].values())
    at = rng.randrange(len(nodes))
    return at, sum(3 + len(node.form) for node in nodes[:at])


def _size(frame: Frame, at: int, entry: int) -> int:
    """The bytes of a section, decompressed, as the directory says; 0 if it says nonsense."""
    node = list(layout_of(frame.schema).nodes[frame.flags].values())[at]
    plan = typed_framing.ColumnPlan()
    try:
        node.measure(frame.count, iter(frame.directory[entry + 3 :]), plan)
    except ValueError:
        return 0
    return plan.stored if 0 <= plan.stored < 1 << 24 else 0


def _with(frame: Frame, at: int, entry: int, codec: int, section: bytes) -> Frame:
    sections = (*frame.sections[:at], section, *frame.sections[at + 1 :])
    directory = (*frame.directory[:entry], codec, *frame.directory[entry + 1 :])
    return replace(frame, sections=sections, directory=directory)


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_word(rng: random.Random, data: bytes) -> bytes:
    """Lengths, bases and numbers are words of a section."""
    size = rng.choice((1, 2, 4, 8))
    if len(data) < size:
        return data
    at = rng.randrange(len(data) // size) * size
    number = rng.choice((-1, 0, 1, rng.getrandbits(64), *EDGES)) % (1 << 8 * size)
    return data[:at] + number.to_bytes(size, "little") + data[at + size :]


def _cut_off(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _extend(rng: random.Random, data: bytes) -> bytes:
    return data + rng.randbytes(rng.choice((1, 8, 100)))


MUTATIONS: tuple[Callable[[random.Random, Frame], Frame], ...] = (
    _set_entry,
    _set_entry,
    _set_entry,
    _in_section,
    _in_section,
    _in_section,
    _in_section,
    _bomb,
    _splice,
    _set_count,
    _set_version,
    _set_flags,
    _other_schema,
)


def _field(rng: random.Random, name: str, depth: int) -> pa.Field:
    return pa.field(name, _type(rng, depth), rng.random() < 0.6)


def _type(rng: random.Random, depth: int) -> pa.DataType:
    if depth == 1:
        return rng.choice(_FLAT)
    kind = rng.randrange(3)
    if kind == 0:
        return pa.list_(_field(rng, "element", depth - 1))
    if kind == 1:
        return pa.map_(pa.string(), _field(rng, "value", depth - 1))
    return pa.struct([_field(rng, name, depth - 1) for name in "ab"[: rng.choice((1, 2))]])


def _cell(rng: random.Random, field: pa.Field) -> Any:
    if field.nullable and rng.random() < 0.2:
        return None
    return _value(rng, field.type)


def _value(rng: random.Random, type_: pa.DataType) -> Any:  # noqa: C901, PLR0911 - one a type
    some = rng.choice((0, 1, 1, 2, 3))
    if pt.is_list(type_):
        return [_cell(rng, type_.value_field) for _ in range(some)]
    if pt.is_map(type_):
        return [(f"k{each}", _cell(rng, type_.item_field)) for each in range(some)]
    if pt.is_struct(type_):
        return {each.name: _cell(rng, each) for each in type_.fields}
    if pt.is_boolean(type_):
        return rng.random() < 0.5
    if pt.is_signed_integer(type_):
        return rng.choice((0, 1, 100, -(1 << (type_.bit_width - 1))))
    if pt.is_floating(type_):
        return rng.choice((0.0, 1.5, -1.0))
    if pt.is_decimal128(type_):
        most = 10**type_.precision - 1
        return Decimal(f"{rng.choice((0, 1, -1, most))}e-{type_.scale}")
    if pt.is_string(type_):
        return rng.choice(("", "a", "ä€", "text" * 10))
    if pt.is_binary(type_):
        return rng.randbytes(rng.choice((0, 1, 20)))
    if pt.is_date(type_):
        return rng.choice((date(1, 1, 1), date(2026, 11, 22), date(9999, 12, 31)))
    if pt.is_duration(type_):
        return timedelta(microseconds=rng.getrandbits(40))
    at = datetime(rng.choice((1, 2026, 9999)), 1, 1, tzinfo=UTC)
    return at.replace(second=rng.randrange(60), tzinfo=at.tzinfo if type_.tz else None)
