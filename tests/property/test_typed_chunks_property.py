"""Rows of any schema come back from chunks as they went in, and equal rows make equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from cassieq_spark.arrow.chunks import Cutter, cut
from cassieq_spark.arrow.fingerprint import Fingerprint
from cassieq_spark.arrow.typed_chunks import TypedForm, decode
from cassieq_spark.arrow.typed_fingerprint import fingerprint_of_rows
from cassieq_spark.arrow.typed_framing import EXTRA, encode, layout_of
from cassieq_spark.model import Chunk, Range
from cassieq_spark.schemas.evolution import is_wider, present
from tests.support.typed import batch_of, cells, rows, schemas, types, values_of, with_garbage

slow_to_draw = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
COMPRESSIONS = st.sampled_from(["none", "lz4", "zstd"])
VERSION = 3

DECIMALS = [pa.decimal128(digits, scale) for digits in range(1, 39) for scale in range(digits + 1)]
NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), *DECIMALS]


@cache
def wider_types() -> Mapping[pa.DataType, Sequence[pa.DataType]]:
    """The numbers of which some type has all values, with all of these types."""
    found = {old: [new for new in NUMBERS if is_wider(old, new)] for old in NUMBERS}
    return {old: wider for old, wider in found.items() if wider}


def read(
    frame: bytes, schema: pa.Schema, offsets: Range, columns: list[str] | None = None
) -> pa.RecordBatch:
    chunk = Chunk(0, 0, offsets.stop, frame)
    version, batch = decode(chunk, offsets, {VERSION: schema}.get, columns)
    batch.validate(full=True)
    assert version == VERSION
    return batch


@st.composite
def tables(draw: st.DrawFn, *, extras: bool = True) -> tuple[pa.Schema, pa.RecordBatch]:
    """A schema, and a batch of it that perhaps has keys and headers."""
    schema = draw(schemas())
    present = [each for each in EXTRA if extras and draw(st.booleans())]
    whole = pa.schema([*schema, *present])
    found = draw(rows(pa.schema([*schema])))
    for field in present:
        for row in found:
            row[field.name] = draw(cells(field))
            if field.name == "_headers" and row[field.name]:
                row[field.name] = [*{name or "n": item for name, item in row[field.name]}.items()]
    return schema, batch_of(found, whole)


@slow_to_draw
@given(tables(), COMPRESSIONS, st.data())
def test_rows_come_back_as_they_went_in(
    table: tuple[pa.Schema, pa.RecordBatch], compression: str, data: st.DataObject
):
    schema, batch = table
    start = data.draw(st.integers(0, batch.num_rows - 1))
    part = batch.slice(start, data.draw(st.integers(1, batch.num_rows - start)))

    found = read(encode(part, schema, VERSION, compression), schema, Range(0, part.num_rows))

    assert found.select(part.schema.names).to_pylist() == part.to_pylist()
    assert found.schema == pa.schema([*schema, *EXTRA])


@slow_to_draw
@given(tables(), COMPRESSIONS, st.data())
def test_equal_rows_make_equal_bytes(
    table: tuple[pa.Schema, pa.RecordBatch], compression: str, data: st.DataObject
):
    schema, batch = table
    start = data.draw(st.integers(0, batch.num_rows - 1))
    part = batch.slice(start)
    rebuilt = batch_of(part.to_pylist(), part.schema)
    decoded = read(encode(part, schema, VERSION, compression), schema, Range(0, part.num_rows))

    frames = {
        encode(each, schema, VERSION, compression)
        for each in (part, rebuilt, decoded.select(batch.schema.names))
    }

    assert len(frames) == 1


@slow_to_draw
@given(types(), st.data())
def test_what_is_behind_a_null_does_not_count(type_: pa.DataType, data: st.DataObject):
    values = data.draw(st.lists(values_of(type_), min_size=1, max_size=8))
    nulls = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    dirty = with_garbage(pa.array(values, type_), nulls)
    clean = pa.array(
        [None if null else value for value, null in zip(values, nulls, strict=True)], type_
    )
    schema = pa.schema([("a", type_)])

    batches = [pa.record_batch([each], schema=schema) for each in (dirty, clean)]

    frames = [encode(each, schema, VERSION, "none") for each in batches]
    assert frames[0] == frames[1]
    assert fingerprint_of_rows(batches[0], schema) == fingerprint_of_rows(batches[1], schema)
    assert read(frames[0], schema, Range(0, len(values)), ["a"]).equals(batches[1])


@slow_to_draw
@given(tables(), COMPRESSIONS, st.data())
def test_some_columns_are_those_of_the_whole(
    table: tuple[pa.Schema, pa.RecordBatch], compression: str, data: st.DataObject
):
    schema, batch = table
    wanted = data.draw(st.lists(st.sampled_from([*schema.names, "_key", "_headers"])))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, batch.num_rows)] * 2)))
    frame = encode(batch, schema, VERSION, compression)
    chunk = Chunk(0, 0, batch.num_rows, frame)

    _, whole = decode(chunk, Range(start, stop), {VERSION: schema}.get)
    _, some = decode(chunk, Range(start, stop), {VERSION: schema}.get, wanted)

    assert some.num_rows == stop - start
    assert some.schema.names == [each for each in whole.schema.names if each in wanted]
    assert all(some.column(name).equals(whole.column(name)) for name in wanted)


LAYOUTS = st.fixed_dictionaries(
    {
        "chunk_size": st.integers(1, 6),
        "chunk_bytes": st.integers(1, 400),
        "compression": COMPRESSIONS,
        "max_message_bytes": st.just(1 << 20),
    }
).map(lambda layout: layout | {"bucket_size": layout["chunk_size"] * 2})


@slow_to_draw
@given(tables(), LAYOUTS, st.lists(st.integers(0, 12), max_size=4))
def test_chunks_do_not_depend_on_batches_and_hold_what_fits(
    table: tuple[pa.Schema, pa.RecordBatch], layout: dict[str, Any], borders: list[int]
):
    schema, batch = table
    form = TypedForm(schema, VERSION)
    edges = [0, *sorted(min(each, batch.num_rows) for each in borders), batch.num_rows]
    parts = [batch.slice(start, stop - start) for start, stop in pairwise(edges)]

    chunks = list(cut(parts, Cutter(**layout, form=form)))

    assert chunks == list(cut([batch], Cutter(**layout, form=form)))
    sizes = layout_of(schema).sizes(layout_of(schema).load(batch), batch.num_rows)
    found = []
    for chunk in chunks:
        inside = sizes[chunk.start : chunk.stop]
        assert inside.sum() <= layout["chunk_bytes"] or len(inside) == 1
        _, messages = decode(chunk, Range(chunk.start, chunk.stop), {VERSION: schema}.get)
        found += messages.select(batch.schema.names).to_pylist()
    assert found == batch.to_pylist()


def of(schema: pa.Schema, *parts: pa.RecordBatch) -> Fingerprint:
    return sum((fingerprint_of_rows(each, schema) for each in parts), Fingerprint())


@slow_to_draw
@given(tables(), st.data())
def test_order_and_division_of_rows_do_not_change_their_fingerprint(
    table: tuple[pa.Schema, pa.RecordBatch], data: st.DataObject
):
    schema, batch = table
    order = data.draw(st.permutations(range(batch.num_rows)))
    shuffled = batch.take(pa.array(order, pa.int64()))
    edge = data.draw(st.integers(0, batch.num_rows))

    parts = [shuffled.slice(0, edge), shuffled.slice(edge)]

    assert of(schema, *parts) == of(schema, batch)


@slow_to_draw
@given(schemas(), st.data())
def test_other_rows_have_another_fingerprint(schema: pa.Schema, data: st.DataObject):
    batches = [batch_of(data.draw(rows(schema, most=4)), schema) for _ in range(2)]
    contents = [sorted(_content(row, schema) for row in each.to_pylist()) for each in batches]
    assume(contents[0] != contents[1])

    assert of(schema, batches[0]) != of(schema, batches[1])


def _numbers(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Numbers of a type, many of which are small or round."""
    if pa.types.is_floating(type_):
        return st.floats(width=32) | st.integers(-(2**15), 2**15).map(float)
    if pa.types.is_integer(type_):
        most = 2 ** (type_.bit_width - 1)
        return st.integers(-most, most - 1) | st.integers(-10, 10)
    most, scale = 10**type_.precision - 1, type_.scale
    digits = st.integers(-most, most) | st.integers(-min(most, 99), min(most, 99))
    round_ = st.tuples(st.integers(1, 99), st.integers(0, type_.precision - 1))
    round_ = round_.map(lambda each: each[0] * 10 ** each[1]).filter(lambda each: each <= most)
    every = digits | round_ | round_.map(lambda each: -each)
    return every.map(lambda each: Decimal((int(each < 0), _digits_of(each), -scale)))


def _digits_of(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


@st.composite
def _widened(draw: st.DrawFn) -> tuple[pa.DataType, pa.DataType, list[Any]]:
    kind = draw(st.sampled_from(["integer", "float", "decimal"]))
    is_kind = {
        "integer": pa.types.is_integer,
        "float": pa.types.is_floating,
        "decimal": pa.types.is_decimal,
    }[kind]
    wider = wider_types()
    old = draw(st.sampled_from([each for each in wider if is_kind(each)]))
    return old, draw(st.sampled_from(wider[old])), draw(st.lists(_numbers(old), max_size=9))


@slow_to_draw
@given(_widened())
@example((pa.int32(), pa.float64(), [5, -5, 0, -(2**31), 2**31 - 1]))
@example((pa.int16(), pa.float32(), [5, -5, 0, -(2**15), 2**15 - 1]))
@example((pa.float32(), pa.float64(), [5.0, 0.1, -0.0, float("nan"), float("-inf"), 2.0**31]))
@example((pa.int32(), pa.decimal128(10, 0), [5, -5, -(2**31)]))
@example((pa.int32(), pa.decimal128(12, 2), [5, -5, 0]))
@example((pa.int64(), pa.decimal128(38, 19), [5, -5, -(2**63), 2**63 - 1]))
@example((pa.decimal128(10, 2), pa.decimal128(12, 4), [Decimal("1.50"), Decimal("-1.05")]))
@example((pa.decimal128(19, 0), pa.decimal128(38, 19), [Decimal(10**18), Decimal(-(10**18))]))
@example((pa.decimal128(1, 1), pa.decimal128(38, 37), [Decimal("0.1"), Decimal("-0.9")]))
def test_a_column_that_is_widened_leaves_fingerprints_as_they_were(
    widened: tuple[pa.DataType, pa.DataType, list[Any]],
):
    old, new, found = widened
    narrow = pa.schema([("a", old), ("l", pa.list_(old))])
    wide = pa.schema([("l", pa.list_(new)), ("new", pa.int8()), ("a", new)])
    values = [*found, None]
    columns = {"a": pa.array(values, old), "l": pa.array([values] * len(values), pa.list_(old))}
    batch = pa.record_batch(columns)

    later = present(batch, narrow, wide)

    for row in range(len(values)):
        before, after = batch.slice(row, 1), later.slice(row, 1)
        assert fingerprint_of_rows(before, narrow) == fingerprint_of_rows(after, wide)
    assert fingerprint_of_rows(batch, narrow) == fingerprint_of_rows(later, wide)


@slow_to_draw
@given(st.data())
def test_numbers_of_another_value_have_another_fingerprint(data: st.DataObject):
    type_ = data.draw(st.sampled_from([pa.float64(), pa.int64(), *DECIMALS]))
    one, other = data.draw(_numbers(type_)), data.draw(_numbers(type_))
    assume(one != other and (one == one or other == other))  # noqa: PLR0124 - NaN is not itself
    schema = pa.schema([("a", type_)])

    prints = [
        fingerprint_of_rows(pa.record_batch({"a": pa.array([each], type_)}), schema)
        for each in (one, other)
    ]

    assert prints[0] != prints[1]


def _content(row: dict[str, Any], schema: pa.Schema) -> str:
    return repr([_plain(row[field.name], field.type) for field in schema])


def _plain(value: Any, type_: pa.DataType) -> Any:
    """The value, with the pairs of maps in order: their order is not told."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        pairs = [(_plain(k, type_.key_type), _plain(v, type_.item_type)) for k, v in value]
        return sorted(pairs, key=repr)
    if pa.types.is_list(type_):
        return [_plain(each, type_.value_type) for each in value]
    if pa.types.is_struct(type_):
        return {each.name: _plain(value[each.name], each.type) for each in type_.fields}
    return value
