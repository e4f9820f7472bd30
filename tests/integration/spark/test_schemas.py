"""Schemas as text mean to us what they mean to Spark."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from packaging.version import Version
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.canonical import canonical
from cassieq_spark.schemas.ddl import parse_ddl, to_ddl
from cassieq_spark.schemas.files import parse_schema, to_spark_json

_TYPES = re.findall(
    r"\w+",
    "boolean byte tinyint short smallint int integer long bigint float real double string binary "
    "date timestamp timestamp_ltz timestamp_ntz decimal dec numeric",
)
_PHRASES = (
    "interval day to second",
    "decimal(38, 18)",
    "dec(5)",
    "Numeric( 7,7 )",
    "timestamp without time zone",
    # Spark 4.2 has timestamps without a precision only.
    *(["timestamp(6)"] if Version(pyspark.__version__) >= Version("4.3") else []),
    "string collate utf8_binary",
)
_NAMES = (
    "a",
    "B1",
    "_c",
    "1x",
    "select",
    "order",
    "interval",
    "comment",
    "not",
    "struct",
    "`a b`",
    "`c``d`",
    "`é`",
    "`e.f`",
    "timestamp",
    "`_key`",
)
_COMMENTS = ("'x'", '"it\'s"', "'it''s'", r"'a\'b\\c\n\u00e9\101\%'", "r'\\n'", "'a' 'b'", "''")
_SPACES = (" ", "  ", "\n", " /* why /* not */ */ ", " -- remark\n")

#: What one of the two refuses, and what is alike.
_ODD = [
    "",
    "a",
    "a int,",
    "a int b int",
    ", a int",
    "a int) partitioned by (x",
    "a int; drop table t",
    "a array<int",
    "a array",
    "a map<int>",
    "a struct<int>",
    "a int(10)",
    "a string(10)",
    "a int8",
    "a text",
    "a bool",
    "a number",
    "a uint",
    "a int unsigned",
    "a double precision",
    "a bytes",
    "a decimal(39,2)",
    "a decimal(5,9)",
    "a decimal(5,-2)",
    "a decimal(1,1,1)",
    "a nullable int",
    "a int not null not null",
    "a int comment 'x' not null",
    "a int default 5",
    "a.b int",
    "'a' int",
    "é int",
    "5s int",
    "1e5 int",
    "10L int",
    "1 int",
    "a interval second to day",
    "a null",
    "a timestamp with time zone",
    "a timestamp(3)",
    "x\u00b2 int",
    "a-b int",
    "a $int",
    "a bigint,,b int",
    "value string default 'x'",
    "a int generated always as (b)",
    "a int comment",
    "a int /* x",
]
#: Spark takes them; no queue can have them, or the text means less than it says.
_OURS_REFUSES = [
    "a varchar(3)",
    "a char(3)",
    "a void",
    "a variant",
    "a interval hour",
    "a interval year to month",
    "a interval",
    "a string collate unicode",
    "a struct<>",
    "a int, A int",
    "a map<map<int,int>,int>",
    "`` int",
    "_key int",
]


def _random_type(random_: random.Random, depth: int) -> str:
    kind = random_.randrange(6) if depth else 5
    if kind == 0:
        return f"array<{_random_type(random_, depth - 1)}>"
    if kind == 1:
        key = random_.choice(_TYPES)
        return f"MAP< {key},{_random_type(random_, depth - 1)} >"
    if kind == 2:
        return f"struct<{_random_columns(random_, depth - 1, ':')}>"
    word = random_.choice((*_TYPES, *_PHRASES))
    return random_.choice([word, word.upper(), word.title()])


def _random_columns(random_: random.Random, depth: int, between: str) -> str:
    columns = []
    for name in random_.sample(_NAMES[:-1] if between == " " else _NAMES, random_.randint(1, 4)):
        text = name + random_.choice([between, " "]) + random_.choice(_SPACES)
        text += _random_type(random_, depth)
        text += random_.choice(["", " not null", random_.choice(_SPACES) + "NOT NULL"])
        if random_.random() < 0.3:
            text += " comment " + random_.choice(_COMMENTS)
        columns.append(text)
    return random_.choice([",", ", "]).join(columns)


@pytest.fixture(scope="module")
def of_spark(spark: SparkSession) -> Any:
    """The JSON of what Spark's own parser makes of a text; None if it refuses it."""
    parse = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL  # type: ignore[union-attr]

    def parsed(ddl: str) -> Any:
        try:
            return json.loads(
                parse(ddl).json().replace('"string collate UTF8_BINARY"', '"string"')
            )
        except Exception:  # noqa: BLE001 - py4j has many
            return None

    return parsed


def _of_ours(ddl: str) -> Any:
    try:
        return json.loads(to_spark_json(parse_ddl(ddl)))
    except OptionError:
        return None


def test_random_schemas_mean_the_same_to_spark(of_spark):
    random_ = random.Random(20261122)
    texts = [_random_columns(random_, 3, " ") for _ in range(300)]

    differing = [text for text in texts if of_spark(text) != _of_ours(text)]

    assert not differing, _told(differing, of_spark)
    # What we print, Spark reads as well, unless only we can write it.
    printed = [to_ddl(parse_ddl(text)) for text in texts]
    assert [of_spark(text) for text in printed] == [_of_ours(text) for text in texts]


def test_what_spark_refuses_is_refused(of_spark):
    differing = [text for text in _ODD if (of_spark(text) is None) != (_of_ours(text) is None)]

    assert not differing, _told(differing, of_spark)


def test_what_no_queue_has_is_refused_though_spark_has_it(of_spark):
    assert [text for text in _OURS_REFUSES if of_spark(text) is None] == []
    assert [text for text in _OURS_REFUSES if _of_ours(text) is not None] == []


def test_arrow_types_are_those_of_sparks_tables(of_spark):
    random_ = random.Random(5)
    for _ in range(100):
        ddl = _random_columns(random_, 3, " ")
        structure = StructType.fromJson(of_spark(ddl))
        arrow = to_arrow_schema(structure, timezone="UTC")

        assert parse_ddl(ddl).equals(arrow, check_metadata=True), ddl
        assert canonical(arrow).equals(arrow, check_metadata=True)
        assert parse_schema(structure.json()).equals(arrow, check_metadata=True)


def test_a_dataframe_has_the_schema_that_is_written(spark: SparkSession):
    ddl = "a string not null, b array<struct<c:decimal(5,2),d:timestamp>>, e map<int,date>"

    table = spark.createDataFrame([], ddl).toArrow()

    assert canonical(table.schema) == parse_ddl(ddl)
    assert isinstance(table, pa.Table)


def _told(differing: list[str], of_spark: Any) -> str:
    return "\n".join(
        f"{text!r}\n  Spark: {of_spark(text)}\n  ours:  {_of_ours(text)}"
        for text in differing[:10]
    )
