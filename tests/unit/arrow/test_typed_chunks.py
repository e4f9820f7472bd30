from __future__ import annotations

import pyarrow as pa
import pytest

from cassieq_spark.arrow.chunks import Cutter, check_messages, cut
from cassieq_spark.arrow.framing import HEADERS
from cassieq_spark.arrow.typed_chunks import TypedForm, decode
from cassieq_spark.arrow.typed_fingerprint import fingerprint_of_rows
from cassieq_spark.arrow.typed_framing import layout_of
from cassieq_spark.errors import MessageError, UnreadableError
from cassieq_spark.model import Chunk, Range
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.evolution import present

TRIPS = pa.schema(
    [
        pa.field("vendor", pa.string(), nullable=False),
        ("fare", pa.int64()),
        ("zones", pa.list_(pa.struct([("at", pa.date32()), ("note", pa.string())]))),
    ]
)
FORM = TypedForm(TRIPS, 5)


def trips(count: int, **other: pa.Array) -> pa.RecordBatch:
    columns = {
        "vendor": pa.array([f"vendor {each}" for each in range(count)]),
        "fare": pa.array(range(count), pa.int64()),
        "zones": pa.nulls(count, TRIPS.field("zones").type),
    }
    return pa.record_batch(columns | other)


def cutter(*, takes_reserved: bool = False, **sizes: int) -> Cutter:
    given = {"chunk_size": 100, "bucket_size": 1000, "chunk_bytes": 10_000} | sizes
    return Cutter(
        chunk_size=given["chunk_size"],
        bucket_size=given["bucket_size"],
        chunk_bytes=given["chunk_bytes"],
        max_message_bytes=given.get("max_message_bytes", 10_000),
        compression="lz4",
        takes_reserved=takes_reserved,
        form=FORM,
    )


def test_the_size_of_a_message_counts_all_of_its_columns():
    batch = pa.RecordBatch.from_pylist(
        [
            {"vendor": "abc", "fare": None, "zones": None},
            {"vendor": "", "fare": 1, "zones": [{"at": None, "note": "xy"}, None]},
        ],
        schema=TRIPS,
    )
    layout = layout_of(TRIPS)

    sizes = layout.sizes(layout.load(batch), 2)

    # A text has 4 bytes and its own, an array 4 and its elements; nulls have those of a value.
    assert sizes.tolist() == [4 + 3 + 8 + 4, 4 + 8 + 4 + (4 + 4 + 2) + (4 + 4)]


def test_a_message_that_is_too_large_is_named():
    batch = trips(3, vendor=pa.array(["a", "b" * 200, "c"]))

    with pytest.raises(MessageError, match="row 8 of this task, counted from 0, is 216 bytes"):
        list(cut([trips(7), batch], cutter(max_message_bytes=200)))
    with pytest.raises(MessageError, match=r"row 1 .* is 216 bytes"):
        check_messages(batch, 200, first_row=0, form=FORM)


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("vendor", pa.array(["a", "b", None]), "a null, which it may not have"),
        ("vendor", pa.array([b"a", b"b", b"\xff"]).view(pa.string()), "a text that is not UTF-8"),
        (
            "zones",
            pa.array(
                [None, [], [(1 << 30, "")]],
                pa.list_(pa.struct([("at", pa.int32()), ("note", pa.string())])),
            ),
            "a value outside",
        ),
    ],
)
def test_a_row_that_cannot_be_stored_is_named_with_its_column(
    column: str, values: pa.Array, problem: str
):
    if column == "zones":
        dates = pa.StructArray.from_arrays(
            [values.values.field(0).view(pa.date32()), values.values.field(1)], ["at", "note"]
        )
        values = pa.ListArray.from_arrays(values.offsets, dates, type=TRIPS.field("zones").type)
    batch = trips(3, **{column: values})

    with pytest.raises(MessageError, match=f"row 9 .* has {problem}.* in the column '{column}'"):
        list(cut([trips(7), batch], cutter()))


def test_headers_are_checked_as_those_of_other_queues():
    forged = pa.array([None, [("cassieq.reason", "x")]], HEADERS)

    with pytest.raises(MessageError, match="row 1 of this task, counted from 0, has a header"):
        list(cut([trips(2, _headers=forged)], cutter()))
    assert len(list(cut([trips(2, _headers=forged)], cutter(takes_reserved=True)))) == 1


def test_columns_that_no_chunk_has_are_left_out_and_one_that_is_missing_is_named():
    batch = trips(2, _delay=pa.array([1, 2]), _key=pa.array(["a", None]))

    (chunk,) = cut([batch], cutter())

    version, found = decode(chunk, Range(0, 2), {5: TRIPS}.get)
    assert (version, found.schema.names) == (5, [*TRIPS.names, "_key", "_headers"])
    assert found.column("_key").to_pylist() == [b"a", None]
    assert found.column("_headers").null_count == 2
    with pytest.raises(MessageError, match="the column 'fare' is missing"):
        list(cut([batch.select(["vendor"])], cutter()))


def test_a_reader_may_want_no_column_at_all():
    (chunk,) = cut([trips(8)], cutter())

    _, found = decode(chunk, Range(2, 5), {5: TRIPS}.get, [])

    assert (found.num_rows, found.num_columns) == (3, 0)


def test_a_chunk_of_a_version_that_does_not_exist_cannot_be_read():
    (chunk,) = cut([trips(8)], cutter())

    with pytest.raises(UnreadableError, match="version 5"):
        decode(chunk, Range(0, 8), {4: TRIPS}.get)
    with pytest.raises(UnreadableError, match="begin with a header"):
        decode(Chunk(0, 0, 8, b"nonsense" * 9), Range(0, 8), {5: TRIPS}.get)


def test_a_schema_that_was_widened_leaves_fingerprints_as_they_were():
    narrow = pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.float32()),
            ("c", pa.decimal128(5, 2)),
            ("d", pa.int32()),
            ("e", pa.list_(pa.int64())),
        ]
    )
    wide = pa.schema(
        [
            ("new", pa.string()),
            ("e", pa.list_(pa.decimal128(38, 18))),
            ("c", pa.decimal128(9, 4)),
            ("d", pa.decimal128(12, 2)),
            ("b", pa.float64()),
            ("a", pa.float64()),
        ]
    )
    batch = pa.RecordBatch.from_pylist(
        [
            {"a": 1, "b": 1.5, "c": None, "d": -5, "e": [2**63 - 1, 100]},
            {"a": None, "b": -0.5, "c": -3, "d": 5, "e": [-(2**63), None]},
        ],
        schema=narrow,
    )
    later = present(batch, narrow, wide)

    assert fingerprint_of_rows(batch, narrow) == fingerprint_of_rows(later, wide)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Two numbers that are exchanged, and differ in their sign, the highest bit of a word.
        ({"a": 1.5, "b": -1.5}, {"a": -1.5, "b": 1.5}),
        ({"a": 0.0, "b": None}, {"a": None, "b": 0.0}),
        ({"a": 0.0, "b": 0.0}, {"a": None, "b": None}),
        ({"t": "x" * 33 + "a"}, {"t": "x" * 33 + "b"}),
        ({"t": "12345678abcdefgh"}, {"t": "abcdefgh12345678"}),
        ({"t": ""}, {"t": None}),
        ({"t": "a"}, {"t": "a\0"}),
        ({"l": []}, {"l": None}),
        ({"l": [None]}, {"l": []}),
        ({"l": [1, 2]}, {"l": [2, 1]}),
        ({"l": [0]}, {"l": [None]}),
        ({"s": {"a": None}}, {"s": None}),
        ({"m": [("a", "b")]}, {"m": [("b", "a")]}),
        ({"m": []}, {"m": None}),
    ],
)
def test_rows_that_differ_in_little_have_other_fingerprints(
    one: dict[str, object], other: dict[str, object]
):
    schema = pa.schema(
        [
            ("a", pa.float64()),
            ("b", pa.float64()),
            ("t", pa.string()),
            ("l", pa.list_(pa.int8())),
            ("s", pa.struct([("a", pa.int8())])),
            ("m", pa.map_(pa.string(), pa.string())),
        ]
    )
    batches = [pa.RecordBatch.from_pylist([each], schema=schema) for each in (one, other)]

    assert (
        fingerprint_of_rows(batches[0], schema).hashes
        != fingerprint_of_rows(batches[1], schema).hashes
    )


def test_elements_belong_to_their_rows_and_columns():
    schema = pa.schema([("a", pa.list_(pa.string())), ("b", pa.list_(pa.string()))])
    rows = [
        [{"a": ["x"], "b": ["y"]}, {"a": ["z"], "b": []}],
        [{"a": ["z"], "b": ["y"]}, {"a": ["x"], "b": []}],
        [{"a": ["y"], "b": ["x"]}, {"a": ["z"], "b": []}],
        [{"a": ["x", "z"], "b": ["y"]}, {"a": [], "b": []}],
    ]

    found = {
        fingerprint_of_rows(pa.RecordBatch.from_pylist(each, schema=schema), schema)
        for each in rows
    }

    assert len(found) == len(rows)


#: The versions of a schema that was widened, and got a field in the structs of an array.
WIDENED = (
    "a array<tinyint>, s array<struct<b:tinyint>>",
    "a array<double>, s array<struct<b:tinyint>>",
    "a array<double>, s array<struct<b:bigint,c:decimal(38,0)>>",
)


def version_of_copy(a: pa.Array, s: pa.Array, rows: int = 1) -> int:
    """By which version a row of the last one of `WIDENED` is stored; it comes back as it was."""
    schemas = [schema_of(each) for each in WIDENED]
    form = TypedForm(schemas[-1], len(WIDENED), WIDENED[:-1])
    lists = [
        pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=field.type)
        for values, field in zip((a, s), schemas[-1], strict=True)
    ]
    row = pa.RecordBatch.from_arrays([*lists, pa.array([b"k"])], ["a", "s", "_key"])
    batch = pa.concat_batches([row] * rows)

    chunk = Chunk(0, 0, rows, form.encode(batch, "lz4"))

    version, found = decode(chunk, Range(0, rows), dict(enumerate(schemas, 1)).get)
    later = present(found, schemas[version - 1], schemas[-1])
    assert later.to_pydict() == batch.select(["a", "s"]).to_pydict()
    assert found.column("_key").to_pylist() == [b"k"] * rows
    return version


def test_a_copy_that_is_too_large_by_its_version_is_stored_by_the_one_that_wrote_it():
    kind = schema_of(WIDENED[-1]).field("s").type.value_type
    floats = pa.array(range(-128, 127), pa.float64())
    large = pa.concat_arrays([floats] * 5_000)
    few = pa.nulls(3, kind)

    assert version_of_copy(large, few) == 1
    assert version_of_copy(floats, pa.nulls(400_000, kind)) == 1
    # A fraction, a number too large for the field of before, and a value of the new field.
    assert version_of_copy(pa.concat_arrays([large, pa.array([0.5])]), few) == 2
    assert version_of_copy(large, pa.array([{"b": 300, "c": None}], kind)) == 3
    assert version_of_copy(large, pa.array([{"b": 1, "c": 2}], kind)) == 3


def test_what_a_writer_may_store_is_stored_by_the_last_version():
    kind = schema_of(WIDENED[-1]).field("s").type.value_type
    floats = pa.array(range(-128, 127), pa.float64())

    assert version_of_copy(floats, pa.nulls(3, kind)) == 3
    assert version_of_copy(pa.concat_arrays([floats] * 400), pa.nulls(3, kind), rows=15) == 3
