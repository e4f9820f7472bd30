"""Schemas: what is printed is read again, rows become columns and rows again, versions agree."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pyarrow import types as of

from cassieq_spark.errors import InvariantError, MessageError, OptionError
from cassieq_spark.schemas.assign import assign
from cassieq_spark.schemas.canonical import ATOMIC, canonical, parts
from cassieq_spark.schemas.ddl import parse_ddl, parse_stored, schema_of, to_ddl, to_stored
from cassieq_spark.schemas.evolution import check_change, present
from cassieq_spark.schemas.files import parse_schema, to_spark_json
from cassieq_spark.schemas.from_rows import from_dicts, from_json, parse_json
from cassieq_spark.schemas.to_rows import to_dicts, to_json
from tests.support.schemas import ATOMIC_TYPES, batches, histories, schemas, values

WITH_ROWS = schemas(depth=2).flatmap(lambda schema: st.tuples(st.just(schema), batches(schema)))


@given(schemas())
def test_a_schema_is_read_as_it_was_printed(schema: pa.Schema):
    assert parse_ddl(to_ddl(schema)).equals(schema, check_metadata=True)
    assert parse_schema(to_spark_json(schema)).equals(schema, check_metadata=True)
    assert canonical(schema).equals(schema, check_metadata=True)


@given(st.lists(schemas(depth=1), min_size=1, max_size=3))
def test_versions_are_read_as_they_were_stored(versions: list[pa.Schema]):
    read = parse_stored(to_stored([to_ddl(version) for version in versions]))

    assert all(
        schema_of(each).equals(version, check_metadata=True)
        for each, version in zip(read, versions, strict=True)
    )


_PIECES = st.sampled_from(
    re.findall(
        r"\S+",
        "a b `xy` int decimal ( ) 10 2 , < > : array map struct not null comment 'it''s' \" '"
        " /* */ -- interval day to second { [ name type timestamp without time zone collate x'",
    )
)


@given(st.text() | st.lists(_PIECES).map(" ".join) | st.lists(_PIECES).map("".join))
@example("struct")
@example("struct<")
@example("a")
@example('{"type": "struct", "fields": [{"name": "a", "type": "struct<"}]}')
def test_any_text_is_a_schema_or_refused(text: str):
    with suppress(OptionError):
        schema = parse_schema(text)
        assert parse_ddl(to_ddl(schema)).equals(schema, check_metadata=True)
    with pytest.raises(InvariantError):
        parse_stored(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        ["int", "null", "record", "struct", "fixed", "enum", "array", "map", "a", "decimal"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "values",
                    "logicalType",
                    "precision",
                    "nullable",
                    "elementType",
                    "keyType",
                    "valueType",
                    "namespace",
                    "containsNull",
                    "scale",
                ]
            ),
            inner,
        )
    ),
)


@given(JSON)
def test_any_json_is_a_schema_or_refused(given_: Any):
    with suppress(OptionError):
        schema = parse_schema(json.dumps(given_))
        assert parse_ddl(to_ddl(schema)).equals(schema, check_metadata=True)


@given(WITH_ROWS)
def test_a_table_of_the_queue_is_assigned_as_it_is(case: tuple[pa.Schema, pa.RecordBatch]):
    schema, batch = case

    assigned = assign(batch, schema)

    assert assigned.schema.equals(schema)
    assert all(
        after is before or after.equals(before) or told(after) == told(before)
        for after, before in zip(assigned.columns, batch.columns, strict=True)
    )
    assigned.validate(full=True)


@given(WITH_ROWS, st.data())
def test_rows_survive_other_types_orders_slices_and_chunks(
    case: tuple[pa.Schema, pa.RecordBatch], data: st.DataObject
):
    schema, batch = case
    order = data.draw(st.permutations(schema.names))
    start = data.draw(st.integers(0, batch.num_rows))
    other = pa.Table.from_batches([batch]).select(order)
    other = pa.concat_tables([other.slice(0, start), other.slice(start)])
    fields = [pa.field(field.name, _other(data, field.type)) for field in other.schema]
    other = pa.Table.from_pylist(other.to_pylist(), schema=pa.schema(fields)).slice(start)

    assigned = assign(other, schema)

    assigned.validate(full=True)
    assert told(assigned) == told(batch.slice(start))
    assert assigned.schema.equals(schema, check_metadata=True)


def _other(data: st.DataObject, type_: pa.DataType) -> pa.DataType:
    """Another type of Arrow's for the same values."""
    others: dict[pa.DataType, list[pa.DataType]] = {
        pa.string(): [pa.large_string(), pa.string_view()],
        pa.binary(): [pa.large_binary(), pa.binary_view()],
        pa.date32(): [pa.date64()],
        pa.int8(): [pa.int16(), pa.int64()],
        pa.int32(): [pa.int64()],
        ATOMIC["timestamp"]: [pa.timestamp("us", "Europe/Berlin")],
        ATOMIC["time(6)"]: [pa.time64("us")],
    }
    if of.is_struct(type_):
        return pa.struct([pa.field(part.name, _other(data, part.type)) for part in type_])
    if of.is_list(type_):
        element = pa.field("item", _other(data, type_.value_type))
        return data.draw(st.sampled_from([pa.list_(element), pa.large_list(element)]))
    if of.is_map(type_):
        return pa.map_(_other(data, type_.key_type), _other(data, type_.item_type))
    return data.draw(st.sampled_from([type_, *others.get(type_, [])]))


@given(WITH_ROWS, st.data())
def test_rows_survive_dictionaries_views_and_other_layouts(
    case: tuple[pa.Schema, pa.RecordBatch], data: st.DataObject
):
    schema, batch = case
    start = data.draw(st.integers(0, batch.num_rows))
    arrays = [_laid_out(data, column).slice(start) for column in batch.columns]
    other = pa.RecordBatch.from_arrays(arrays, names=schema.names)

    assigned = assign(other, schema)

    assigned.validate(full=True)
    assert told(assigned) == told(batch.slice(start))


def _laid_out(data: st.DataObject, array: pa.Array) -> pa.Array:
    """The same values in another layout of Arrow's, at each level."""
    type_ = array.type
    is_null = array.is_null()
    if of.is_struct(type_):
        inner = [_laid_out(data, part) for part in array.flatten()]
        names = [part.name for part in type_]
        array = pa.StructArray.from_arrays(inner, names, mask=is_null)
    elif of.is_list(type_):
        element = _laid_out(data, array.values)
        kinds = (pa.ListArray, pa.LargeListArray)
        kind = data.draw(st.sampled_from(kinds))
        array = kind.from_arrays(array.offsets, element, mask=is_null)
    elif of.is_map(type_):
        inner = _laid_out(data, array.keys), _laid_out(data, array.items)
        array = pa.MapArray.from_arrays(array.offsets, *inner, mask=is_null)
    elif views := _VIEWS.get(type_):
        array = array.cast(data.draw(st.sampled_from([type_, *views])))
    if data.draw(st.booleans()):
        # Each value is there twice, and every second one is of no row.
        indices = pa.array(range(len(array)), pa.int32())
        array = pa.DictionaryArray.from_arrays(indices, pa.concat_arrays([array, array]))
    return array


_VIEWS: dict[pa.DataType, list[pa.DataType]] = {
    pa.string(): [pa.large_string(), pa.string_view()],
    pa.binary(): [pa.large_binary(), pa.binary_view()],
    pa.date32(): [pa.date64()],
}


@given(WITH_ROWS)
def test_dicts_and_json_objects_are_the_rows_that_they_were(
    case: tuple[pa.Schema, pa.RecordBatch],
):
    schema, batch = case

    assert told(from_dicts(to_dicts(batch), schema)) == told(batch)
    text = json.dumps(to_json(batch), allow_nan=False)
    assert told(from_json(parse_json(text), schema)) == told(batch)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.decimals()
    | st.datetimes()
    | st.timedeltas()
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "B", "key", 1]), inner, max_size=3)
    ),
)


@given(
    schemas(st.sampled_from("abc")), st.lists(st.dictionaries(st.sampled_from("abcd"), ANYTHING))
)
def test_any_dicts_are_rows_or_refused(schema: pa.Schema, rows: list[dict[str, Any]]):
    for read in (from_dicts, from_json):
        with suppress(MessageError, TypeError):
            read(rows, schema).validate(full=True)


_WHOLE = pa.decimal128(38, 0)
NUMBERS = st.sampled_from(
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]
) | ATOMIC_TYPES.filter(of.is_decimal)
#: Only writers have decimals of these widths.
OTHER_DECIMALS = st.sampled_from(
    [(pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal256, 76)]
).flatmap(
    lambda kind: st.integers(1, kind[1]).flatmap(
        lambda precision: st.integers(0, precision).map(partial(kind[0], precision))
    )
)


@given(NUMBERS | OTHER_DECIMALS, NUMBERS, st.data())
def test_a_number_is_assigned_if_nothing_of_it_is_lost(
    source: pa.DataType, target: pa.DataType, data: st.DataObject
):
    assume(not of.is_unsigned_integer(target))
    value = data.draw(_number(source))
    given_ = pa.record_batch({"a": pa.array([value], source)})
    (value,) = given_.column(0).to_pylist()
    expected = _stored(value, target)
    is_printed = of.is_floating(source) and of.is_decimal(target) and np.isfinite(value)
    if is_printed:
        # 0.1 is a tenth.
        expected = _stored(
            Decimal(str(np.float32(value) if source == pa.float32() else value)), target
        )

    try:
        (stored,) = assign(given_, pa.schema([("a", target)])).column(0).to_pylist()
    except MessageError:
        assert expected is None
    else:
        assert repr(stored) == repr(expected)
        assert not is_printed or _stored(stored, source) == value


@given(scale=st.integers(1, 38), turns=st.integers(-(10**6), 10**6), as_float=st.booleans())
def test_a_number_that_would_turn_round_in_128_bits_is_refused(
    scale: int, turns: int, *, as_float: bool
):
    """Arrow's own cast makes a small number of it."""
    number = turns * 2**128 // 10**scale
    assume(10 ** (38 - scale) < abs(number) < 10**38)
    given_ = pa.array([float(number)]) if as_float else pa.array([Decimal(number)], _WHOLE)

    with pytest.raises(MessageError):
        assign(pa.record_batch({"a": given_}), pa.schema([("a", pa.decimal128(38, scale))]))


def _number(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if of.is_unsigned_integer(type_):
        return st.integers(0, 2**type_.bit_width - 1)
    numbers = values(pa.field("a", type_, nullable=False))
    if of.is_floating(type_):
        # Hypothesis prefers large ones.
        sizes = st.integers(-330, 40).map("{{}}e{}".format)
        printed = st.builds(str.format, sizes, st.integers(0, 999) | st.integers(0, 10**17))
        return numbers | st.integers(-5000, 5000).map(lambda n: n / 100) | printed.map(float)
    return numbers


def _stored(value: Any, target: pa.DataType) -> Any:  # noqa: PLR0911 - one for each kind
    """What a number becomes; None if that would not be the same number."""
    if of.is_floating(target):
        kind = np.float32 if target == pa.float32() else np.float64
        with np.errstate(over="ignore"):
            near = float(kind(str(value)) if isinstance(value, Decimal) else kind(value))
        if isinstance(value, float):
            return None if np.isinf(near) and not np.isinf(value) else near
        if isinstance(value, Decimal):
            return near
        # Arrow takes integers up to where floats have gaps.
        return near if abs(value) <= 2 ** (24 if target == pa.float32() else 53) else None
    if isinstance(value, float) and not np.isfinite(value):
        return None
    exact = Fraction(value)
    if of.is_integer(target):
        end = 1 << (target.bit_width - 1)
        return int(exact) if exact.denominator == 1 and -end <= exact < end else None
    scaled = exact * 10**target.scale
    if scaled.denominator != 1 or abs(scaled) >= 10**target.precision:
        return None
    return (
        pa.array([int(scaled)], pa.decimal128(38, 0))
        .cast(pa.decimal128(38, 0))[0]
        .as_py()
        .scaleb(-target.scale, _WIDE)
    )


_WIDE = Context(prec=80)


@given(histories(), st.data())
def test_each_version_reads_what_each_other_one_writes(
    versions: list[pa.Schema], data: st.DataObject
):
    for count in range(1, len(versions)):
        check_change(versions[:count], versions[count])
    written = data.draw(st.sampled_from(versions))
    wanted = data.draw(st.sampled_from(versions))
    batch = data.draw(batches(written))
    start = data.draw(st.integers(0, batch.num_rows))
    batch = batch.slice(start)

    try:
        expected = [_row(row, list(written), list(wanted)) for row in batch.to_pylist()]
    except _MisfitError:
        with pytest.raises(MessageError, match="restart the query"):
            present(batch, written, wanted)
    else:
        shown = present(batch, written, wanted)
        shown.validate(full=True)
        assert shown.schema.equals(wanted, check_metadata=True)
        assert repr(shown.to_pylist()) == repr(expected)


class _MisfitError(Exception):
    pass


def _row(row: dict[str, Any], written: list[pa.Field], wanted: list[pa.Field]) -> dict[str, Any]:
    known = {field.name: field for field in written}
    return {
        field.name: _presented(row.get(field.name), known.get(field.name, field), field)
        for field in wanted
    }


def _presented(value: Any, written: pa.Field, wanted: pa.Field) -> Any:
    if value is None:
        if not wanted.nullable:
            raise _MisfitError
        return None
    before, after = written.type, wanted.type
    if before == after:
        return value
    if of.is_struct(after):
        return _row(value, list(before), list(after))
    if of.is_list(after):
        return [_presented(each, *parts(before), *parts(after)) for each in value]
    if of.is_map(after):
        (key, item), (other_key, other_item) = parts(before), parts(after)
        return [
            (_presented(one, key, other_key), _presented(two, item, other_item))
            for one, two in value
        ]
    number = _stored(value, after)
    if number is None or (number != value and not np.isnan(float(value))):
        raise _MisfitError
    return number


def told(rows: Any) -> str:
    return repr(rows.to_pylist())
