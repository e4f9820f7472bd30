"""Which columns a read of messages has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.columns import (
    Columns,
    check_given,
    check_has_all_values,
    check_still_there,
    columns_of,
)

BYTES = QueueDefinition("q", 1)
TYPED = QueueDefinition("q", 1, schemas=("a int not null, b string", "a bigint, c double"))
NOW = pa.schema([("a", pa.int64()), ("c", pa.float64())])


def options(**given: object) -> SourceOptions:
    return SourceOptions(queue="q", **given)  # type: ignore[arg-type]


def test_the_columns_are_those_of_the_last_version():
    assert columns_of(TYPED, options()).whole == NOW
    assert columns_of(BYTES, options()).whole is None


@pytest.mark.parametrize("receipts", [True, False])
def test_metadata_is_a_struct_with_all_that_is_told_of_a_message(receipts: bool):
    columns = columns_of(TYPED, options(include_metadata=True, include_receipts=receipts))

    assert columns.whole is not None
    metadata = columns.whole.field("_metadata").type
    names = {"queue", "partition", "monoton", "key", "headers", "published_at"}
    names |= {"delivery_count"}
    assert {field.name for field in metadata} == names | ({"receipt"} if receipts else set())


def test_receipts_need_metadata():
    assert columns_of(TYPED, options(include_receipts=True)).include_metadata


@pytest.mark.parametrize(
    ("queue", "given", "problem"),
    [
        (TYPED, {"columns": ("d",)}, "has no column 'd'; it has a, c"),
        (TYPED, {"columns": ("a", "A")}, "named twice"),
        (TYPED, {"include_headers": True}, "includeMetadata"),
        (BYTES, {"columns": ("a",)}, "'q' has no schema.*leave out the option 'columns'"),
        (BYTES, {"include_metadata": True}, "leave out the option 'includeMetadata'"),
    ],
)
def test_options_of_the_other_kind_of_queue_are_refused(
    queue: QueueDefinition, given: dict[str, object], problem: str
):
    with pytest.raises(OptionError, match=problem):
        columns_of(queue, options(**given))


def test_a_part_of_the_columns_may_be_named_in_any_order():
    columns = columns_of(TYPED, options())

    some = check_given(TYPED, NOW, columns, pa.schema([("c", pa.float64())]))

    assert some.whole == pa.schema([("c", pa.float64())])
    assert check_given(TYPED, NOW, columns, NOW) == columns


@pytest.mark.parametrize(
    "version", [pa.schema([("b", pa.string()), ("a", pa.int32())]), NOW, NOW.remove(0), None]
)
def test_columns_of_any_version_may_still_be_read(version: pa.Schema | None):
    queue = BYTES if version is None else TYPED

    check_still_there(Columns(version), queue)


@pytest.mark.parametrize(
    "other", [pa.schema([("a", pa.string())]), pa.schema([("z", pa.int64())])]
)
def test_a_queue_that_was_created_anew_with_other_columns_is_refused(other: pa.Schema):
    for columns, queue in ((other, TYPED), (None, TYPED), (NOW, BYTES)):
        with pytest.raises(QueueStateError, match="created again with other columns"):
            check_still_there(Columns(columns), queue)


@pytest.mark.parametrize(
    ("had", "now", "problem"),
    [
        ("a int", "a bigint", "widened 'a' from int to bigint"),
        ("a int not null", "a int", "'a' may be null now"),
        ("a int, b string", "b string, a double, c int", "widened 'a'"),
        ("s struct<x: int>", "s struct<x: bigint>", "widened 's.x'"),
        ("m map<string, int>", "m map<string, decimal(12, 0)>", "widened"),
    ],
)
def test_a_stream_of_a_data_frame_that_cannot_show_all_values_is_refused(
    had: str, now: str, problem: str
):
    queue = QueueDefinition("q", 1, schemas=(had, now))

    with pytest.raises(QueueStateError, match=problem) as told:
        check_has_all_values(Columns(schema_of(had)), queue)
    assert "make the DataFrame anew" in str(told.value)
    check_has_all_values(Columns(schema_of(now)), queue)


@pytest.mark.parametrize(
    ("had", "now"),
    [
        ("a int", "a int, b string"),
        ("a int, b string", "a int"),
        ("a int, b string", "b string"),
        ("s struct<x: int>", "s struct<x: int, y: int>"),
        ("s struct<x: int, y: int>", "s struct<y: int>"),
        ("a int, b string", "b string COMMENT 'new', a int"),
    ],
)
def test_a_stream_of_a_data_frame_that_lacks_columns_or_has_more_goes_on(had: str, now: str):
    queue = QueueDefinition("q", 1, schemas=(had, now))

    check_has_all_values(Columns(schema_of(had)), queue)
    check_has_all_values(Columns(None), BYTES)
