from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cassieq_spark.arrow import packing, typed_columns, typed_framing, typed_numbers
from cassieq_spark.arrow.framing import HEADERS, MOST_DATA_BYTES
from cassieq_spark.arrow.typed_framing import MOST_ALONE_BYTES, decode, encode, layout_of
from cassieq_spark.errors import MessageError, UnreadableError
from cassieq_spark.schemas.canonical import MOST_LEVELS
from tests.fuzz.typed_mutations import HEADER, signed
from tests.support.typed import with_garbage

TRIPS = pa.schema(
    [
        pa.field("vendor", pa.string(), nullable=False),
        ("fare", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("stops", pa.list_(pa.struct([("zone", pa.int32()), ("tip", pa.float64())]))),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {
        "vendor": "ä",
        "fare": Decimal("12.50"),
        "at": NOON,
        "stops": [{"zone": 1, "tip": 0.5}, {"zone": None, "tip": None}, None],
        "tags": [("a", None), ("b", "c")],
    },
    {"vendor": "", "fare": None, "at": None, "stops": None, "tags": None},
    {"vendor": "x", "fare": Decimal(-1), "at": NOON, "stops": [], "tags": []},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=TRIPS)


def schemas(version: int) -> pa.Schema | None:
    return TRIPS if version == 7 else None


def one(array: pa.Array, *, nullable: bool = True) -> tuple[pa.RecordBatch, pa.Schema]:
    schema = pa.schema([pa.field("a", array.type, nullable)])
    return pa.RecordBatch.from_arrays([array], names=["a"]), schema


def there_and_back(array: pa.Array) -> pa.Array:
    batch, schema = one(array)
    frame = encode(batch, schema, 1, "none")
    return decode(frame, len(array), lambda _: schema).columns["a"]


def forged(
    schema: pa.Schema, count: int, *sections: tuple[Sequence[int], bytes], codec: int = 0
) -> bytes:
    """A frame with these entries and sections, and right sums."""
    directory: list[int] = []
    for entries, body in sections:
        total = packing.checksum(body) % packing.MODULUS
        directory += [codec, len(body), total, *entries]
    told = layout_of(schema).directories[0].pack(*directory)
    start = HEADER.pack(typed_framing.MAGIC, 0, 1, count, 0)
    return signed(start + told, tuple(body for _, body in sections))


def refused(frame: bytes, count: int, schema: pa.Schema, problem: str) -> None:
    with pytest.raises(UnreadableError, match=problem):
        decode(frame, count, lambda _: schema)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_rows_come_back_as_they_went_in(compression: str):
    found = decode(encode(BATCH, TRIPS, 7, compression), 3, schemas)

    assert (found.version, found.schema) == (7, TRIPS)
    assert {name: each.to_pylist() for name, each in found.columns.items()} == {
        name: BATCH.column(name).to_pylist() for name in TRIPS.names
    }


def test_key_and_headers_come_along_if_there_are_some():
    extra = BATCH.append_column("_key", pa.array([b"k", None, b""]))
    extra = extra.append_column("_headers", pa.array([[("n", "v")], None, []], HEADERS))

    found = decode(encode(extra, TRIPS, 7, "lz4"), 3, schemas).columns

    assert found["_key"].to_pylist() == [b"k", None, b""]
    assert found["_headers"].to_pylist() == [[("n", "v")], None, []]


def test_a_column_that_nobody_wants_is_not_looked_at():
    frame = bytearray(encode(BATCH, TRIPS, 7, "lz4"))
    frame[-1] ^= 1  # of the last column

    found = decode(bytes(frame), 3, schemas, ["fare", "vendor", "gone"]).columns

    assert list(found) == ["vendor", "fare"]
    with pytest.raises(UnreadableError, match="the checksum of its column 'tags'"):
        decode(bytes(frame), 3, schemas)


def test_a_byte_of_the_directory_that_changed_by_accident_is_noticed():
    frame = bytearray(encode(BATCH, TRIPS, 7, "lz4"))
    frame[HEADER.size + 1] ^= 1

    with pytest.raises(UnreadableError, match="the checksum of its directory"):
        decode(bytes(frame), 3, schemas)


def test_a_frame_of_another_count_or_version_is_refused():
    frame = encode(BATCH, TRIPS, 8, "lz4")

    with pytest.raises(UnreadableError, match="it has 3 messages, and its row says 4"):
        decode(frame, 4, schemas)
    with pytest.raises(UnreadableError, match="version 8, which the queue never had"):
        decode(frame, 3, schemas)


def test_a_frame_that_is_cut_off_or_longer_is_refused():
    frame = encode(BATCH, TRIPS, 7, "none")

    for other in (b"", frame[:10], frame[: HEADER.size], frame[:60], frame[:-1], frame + b"\0"):
        with pytest.raises(UnreadableError):
            decode(other, 3, schemas)


def test_numbers_take_as_few_bytes_as_their_differences_need():
    sizes = {}
    for largest in (0, 255, 256, 65_535, 65_536, 1 << 40):
        batch, schema = one(pa.array([*range(-1000, -900), -1000 + largest], pa.int64()))
        sizes[largest] = len(encode(batch, schema, 1, "none"))

    overhead = sizes[255] - 101 - 8
    assert {each: (size - overhead) // 101 for each, size in sizes.items()} == {
        0: 1,
        255: 1,
        256: 2,
        65_535: 2,
        65_536: 4,
        1 << 40: 8,
    }


@pytest.mark.parametrize(
    "array",
    [
        pa.array([-128, 127], pa.int8()),
        pa.array([-(1 << 63), (1 << 63) - 1], pa.int64()),
        pa.array([date(1, 1, 1), date(9999, 12, 31)]),
        pa.array([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001
        pa.array([NOON, NOON.replace(second=5)], pa.timestamp("us", "UTC")),
        pa.array([Decimal(10**38 - 1), Decimal(1 - 10**38)], pa.decimal128(38)),
        pa.array([Decimal(10**18), None], pa.decimal128(38)),
        pa.array([None, None], pa.decimal128(38)),
        pa.array([None, None], pa.int16()),
        pa.array([None, True, False], pa.bool_()),
        pa.array([None, -0.0, 1e300], pa.float64()),
        pa.array(["", "", ""]),
        pa.array([b"same", b"size"]),
        pa.array(["x" * 300, None, "y" * 70_000]),
        pa.array([[None, [1, None]], None, []], pa.list_(pa.list_(pa.int8()))),
        pa.array([{"a": None}, None], pa.struct([("a", pa.map_(pa.int32(), pa.string()))])),
    ],
)
def test_the_ends_of_each_type_come_back(array: pa.Array):
    assert there_and_back(array).to_pylist() == array.to_pylist()
    assert there_and_back(array.slice(1)).to_pylist() == array.to_pylist()[1:]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["garbage", "b", "garbage"]),
        (pa.int32(), [-7, 5, 1 << 30]),
        (pa.bool_(), [True, False, True]),
        (pa.float64(), [1e9, 0.0, 1e9]),
        (pa.decimal128(30), [Decimal(10**29), Decimal(3), Decimal(1)]),
        (pa.date32(), [date(1, 1, 1), date(2026, 1, 1), date(9999, 1, 1)]),
        (pa.list_(pa.string()), [["garbage"], ["b"], []]),
        (pa.map_(pa.string(), pa.int8()), [[("garbage", 1)], [], [("garbage", None)]]),
        (
            pa.struct([("a", pa.list_(pa.string())), ("b", pa.int8())]),
            [{"a": ["garbage"], "b": 7}, {"a": ["b"], "b": None}, {"a": None, "b": 9}],
        ),
    ],
)
def test_what_is_behind_a_null_is_not_stored(type_: pa.DataType, values: list[Any]):
    dirty, schema = one(with_garbage(pa.array(values, type_), [True, False, True]))
    clean, _ = one(pa.array([None, values[1], None], type_))

    frame = encode(dirty, schema, 1, "none")

    assert frame == encode(clean, schema, 1, "none")
    assert b"garbage" not in frame


def test_what_does_not_become_smaller_is_not_compressed():
    numbers = np.frombuffer(np.random.default_rng(1).bytes(8000), np.float64)
    batch, schema = one(pa.array(numbers))

    assert encode(batch, schema, 1, "lz4") == encode(batch, schema, 1, "none")


def test_numbers_of_a_column_that_is_not_compressed_are_aligned():
    names = ["a", "bc"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    numbers = pa.array(np.random.default_rng(1).random(5))
    batch = pa.RecordBatch.from_arrays([numbers, numbers], schema=schema)

    found = decode(encode(batch, schema, 1, "none"), 5, lambda _: schema).columns

    assert [each.buffers()[1].address % 8 for each in found.values()] == [0, 0]


@pytest.mark.parametrize(
    ("array", "nullable", "problem"),
    [
        (pa.array([1, None]), False, "the column 'a' has a null"),
        (pa.array([[1, None]], pa.list_(pa.field("element", pa.int32(), False))), True, "a null"),
        (pa.array([3_000_000], pa.int32()).cast(pa.date32()), True, "outside of what its type"),
        (pa.array([1 << 62]).cast(pa.timestamp("us")), True, "outside of what its type"),
        (pa.array([b"\xff"]).view(pa.string()), True, "not UTF-8"),
        (pa.array([b"\xc3", b"\xa4"]).view(pa.string()), True, "not UTF-8"),
        (pa.array([Decimal(1000)], pa.decimal128(4)).view(pa.decimal128(3)), True, "a value"),
    ],
)
def test_what_nobody_could_read_is_not_written(array: pa.Array, nullable: bool, problem: str):
    batch, schema = one(array, nullable=nullable)

    with pytest.raises(MessageError, match=problem):
        encode(batch, schema, 1, "none")


def test_columns_that_are_not_those_of_the_schema_are_refused():
    with pytest.raises(MessageError, match="the column 'fare' is missing"):
        encode(BATCH.select(["vendor"]), TRIPS, 7, "none")
    other = BATCH.set_column(0, "vendor", BATCH.column(0).cast(pa.binary()))
    with pytest.raises(MessageError, match="the column 'vendor' is binary, and must be string"):
        encode(other, TRIPS, 7, "none")


def test_types_that_cannot_be_stored_are_refused():
    deep = pa.int8()
    for _ in range(MOST_LEVELS):
        deep = pa.list_(deep)

    for type_ in (
        pa.null(),
        pa.uint8(),
        pa.large_string(),
        pa.timestamp("ns"),
        pa.struct([]),
        deep,
    ):
        with pytest.raises(TypeError, match=r"can't be stored|deeper"):
            layout_of(pa.schema([("a", type_)]))
    for name in ("_key", "_headers"):
        with pytest.raises(TypeError, match="different names"):
            layout_of(pa.schema([(name, pa.int8())]))


@pytest.mark.parametrize(
    ("type_", "entries", "size"),
    [
        (pa.int64(), [4], (MOST_DATA_BYTES // 8 + 1)),
        (pa.int64(), [0], (MOST_DATA_BYTES // 8 + 1)),
        (pa.bool_(), [0], 0),
        (pa.string(), [1, MOST_ALONE_BYTES], 1),
        (pa.string(), [1, MOST_DATA_BYTES], 2),
        (pa.list_(pa.int8()), [1, MOST_ALONE_BYTES, 0], 1),
        (pa.list_(pa.int8()), [1, MOST_DATA_BYTES, 0], 2),
        # A value may cost a reader many times as much as its byte.
        (pa.list_(pa.int8()), [1, MOST_DATA_BYTES, 0], 1),
        (pa.list_(pa.bool_()), [1, 0xFFFFFFFF, 0], 1),
        (pa.list_(pa.struct([("a", pa.bool_())])), [1, 0xFFFFFFFF, 0, 0], 1),
    ],
)
def test_what_is_too_large_is_refused_before_anything_is_allocated(
    type_: pa.DataType, entries: list[int], size: int
):
    schema = pa.schema([pa.field("a", type_, nullable=False)])
    before = pa.default_memory_pool().max_memory()
    count = size or (1 << 20) + 1

    frame = forged(schema, count, (entries, b""))

    refused(frame, count, schema, "is the most")
    assert pa.default_memory_pool().max_memory() == before


def test_columns_are_too_large_together():
    schema = pa.schema([pa.field(f"c{each}", pa.int64(), nullable=False) for each in range(5)])
    base = struct.pack("<q", 1)

    frame = forged(schema, 1 << 19, *[([0], base)] * 5)

    refused(frame, 1 << 19, schema, "20971520 bytes of columns, and 16777216 is the most")


@pytest.mark.parametrize("codec", [1, 2])
def test_a_section_that_holds_more_than_the_directory_says_is_not_decompressed(codec: int):
    schema = pa.schema([("a", pa.float64())])
    bomb = pa.compress(bytes(1 << 26), packing.CODECS[codec], asbytes=True)
    before = pa.total_allocated_bytes()

    refused(
        forged(schema, 10, ([0], bomb), codec=codec), 10, schema, "does not match its directory"
    )

    assert pa.total_allocated_bytes() == before


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "little", signed=value < 0)


TEXT, NUMBERS = pa.string(), pa.list_(pa.int8())


@pytest.mark.parametrize(
    ("type_", "entries", "body", "problem"),
    [
        # Lengths: code, bytes of data; lengths, least length, data.
        (TEXT, [1, 4], bytes([1, 2]) + number(0) + b"abcd", "2 lengths are not 4 together"),
        (TEXT, [1, 4], bytes([1, 2]) + number(-1) + b"abcd", "not 4 together"),
        (TEXT, [3, 4], number(-4) + number(8) + b"abcd", "not 4 together"),
        (TEXT, [0, 4], number(1 << 31) + b"abcd", "2 lengths of 2147483648 are not 4"),
        (TEXT, [0, 2], number(1) + "ä".encode(), "not UTF-8"),
        (TEXT, [0, 2], number(1) + b"a\xff", "not UTF-8"),
        (TEXT, [4, 0], bytes(16), "impossible form"),
        (TEXT, [9, 4], bytes([2, 2]) + number(0) + b"abcd", "impossible form"),
        (TEXT, [0x11, 4], bytes([2, 2]) + number(0) + b"abcd", "multiples"),
        (NUMBERS, [0, 3, 1], number(1) + b"abc", "2 lengths of 1 are not 3"),
        (NUMBERS, [0, 2, 2], number(1) + bytes(4), "impossible form"),
        # Numbers: the least one, if that is wider, and by how much they are above it.
        (pa.date32(), [0], number(2_932_897), "values from 2932897"),
        (pa.date32(), [1], number(2_932_896) + bytes([0, 1]), "values from 2932896 to 2932897"),
        (pa.date32(), [3], number(0) + number(-719_163), "values from -719163"),
        (pa.date32(), [0x10], number(0), "multiples"),
        (pa.int8(), [1], bytes(3), "3 bytes, not 2"),
        (pa.int8(), [0], number(127, 2), "2 bytes, not 1"),
        (pa.int16(), [1], number(32_767, 2) + bytes([0, 1]), "values from 32767 to 32768"),
        (pa.timestamp("us"), [0x31], bytes([0, 1]) + number(0, 8), "impossible form"),
        (pa.timestamp("us"), [0x24], bytes(16), "no multiples"),
        (
            pa.timestamp("us"),
            [0x23],
            number(253_402_300_799_999_999, 8) + number(0) + b"\xff" * 4,
            "values from",
        ),
        (pa.decimal128(3), [0], number(1000, 8), "values from 1000"),
        (pa.decimal128(3), [5], number(1000, 16) * 2, "precision"),
        (pa.bool_(), [1], b"\0", "impossible form"),
        (pa.float64(), [5], bytes(16), "impossible form"),
    ],
)
def test_values_that_no_writer_takes_are_refused(
    type_: pa.DataType, entries: list[int], body: bytes, problem: str
):
    schema = pa.schema([pa.field("a", type_, nullable=False)])

    refused(forged(schema, 2, (entries, body)), 2, schema, problem)


def test_headers_without_a_name_are_refused_in_both_directions():
    headers = pa.array([[("", "v")]], HEADERS)
    batch = BATCH.slice(0, 1).append_column("_headers", headers)

    with pytest.raises(MessageError, match="'_headers' has an empty text"):
        encode(batch, TRIPS, 7, "none")
    for code, lengths in ((0, b""), (1, b"\0")):
        node = typed_columns.headers_node(HEADERS)
        plan = typed_numbers.ColumnPlan()
        node.measure(1, iter([0, 1, code, 0, 0, 0]), plan)
        sizes = number(1) + lengths + number(0) + number(0)
        body = pa.py_buffer(number(1) + number(0) * 2 + lengths if code else sizes)
        with pytest.raises(ValueError, match=r"an empty text|lengths of 0"):
            node.build(plan.open(body))


def test_more_than_a_frame_takes_is_refused_when_it_is_written():
    batch, schema = one(pa.nulls((MOST_DATA_BYTES >> 3) + 8, pa.int64()))

    with pytest.raises(MessageError, match="smaller values"):
        encode(batch, schema, 1, "lz4")


def test_a_message_alone_may_be_as_large_as_the_largest_one_whose_types_were_widened():
    count = (8 << 20) - 4
    decimals = pa.nulls(count, pa.decimal128(38, 35))
    batch, schema = one(pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), decimals))

    frame = encode(batch, schema, 1, "lz4")

    assert decode(frame, 1, {1: schema}.get).columns["a"].offsets.to_pylist() == [0, count]
    batch, schema = one(pa.array([bytes(MOST_ALONE_BYTES)], pa.binary()))
    with pytest.raises(MessageError, match="and 150994944 is the most"):
        encode(batch, schema, 1, "lz4")


def test_a_frame_without_messages_is_refused():
    schema = pa.schema([("a", pa.int8())])

    refused(forged(schema, 0, ([0], b"")), 0, schema, "it has 0 messages")
