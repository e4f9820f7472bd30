"""Queues with a schema: DataFrames go in and come out as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from cassieq_spark import Client
from cassieq_spark.client.files import export_queue, import_file
from cassieq_spark.http.gateway.formats import write_lines
from cassieq_spark.http.gateway.tables import read_table, write_table
from cassieq_spark.queues import alter_queue, create_queue, delete_queue, read_queue
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from tests.support.arrow_streams import stream_of
from tests.support.gateway import RECEIPTS
from tests.support.spark_session import QueueOnSpark, queue_on_spark

TRIPS = (
    "vendor string not null, fare decimal(10,2), picked_up timestamp, "
    "stops array<struct<zone:int,at:timestamp>>"
)
POINT = "X'0101000000000000000000F03F0000000000000040'"
#: A column of each type, and a value of it.
EVERY = {
    "boolean": "id % 2 = 0",
    "tinyint": "cast(id % 100 as tinyint)",
    "smallint": "cast(id as smallint)",
    "int": "cast(id as int)",
    "bigint": "id",
    "float": "cast(id / 3 as float)",
    "double": "id / 3",
    "decimal(38,18)": "cast(id / 7 as decimal(38,18))",
    "string": "repeat('ü', cast(id % 4 as int))",
    "binary": "cast(cast(id as string) as binary)",
    "date": "date_add(date'2026-11-22', cast(id as int))",
    "timestamp": "timestamp_micros(id * 1000001)",
    "timestamp_ntz": "cast(timestamp_micros(id * 1000001) as timestamp_ntz)",
    "interval day to second": "make_dt_interval(0, 0, 0, id)",
    "time(6)": "time_from_micros(id * 1000001)",
    "array<string>": "array(cast(id as string), null)",
    "map<string,int>": "map('a', cast(id as int), 'b', null)",
    "struct<x:int,y:array<double>>": "named_struct('x', cast(id as int), 'y', array(id / 2))",
}

#: Values of types that no queue has, and what their errors say.
REFUSED = {
    """parse_json('{"a":1}')""": r"variant,.* use string, of to_json",
    "array(parse_json('1'))": r"variant,.* use string, of to_json",
    "interval '1-2' year to month": r"interval year to month,.* use int, of cast",
    "interval '3' year": r"interval year,.* use int, of cast",
    "named_struct('x', interval '3' month)": r"interval month,.* use int, of cast",
    f"st_geomfromwkb({POINT})": r"geometry,.* use binary, of st_asbinary",
    f"st_geogfromwkb({POINT})": r"geography,.* use binary, of st_asbinary",
}


@pytest.fixture
def make(
    spark: SparkSession, cassandra_store: Store, connection: ConnectionOptions, tmp_path: Path
) -> Callable[..., QueueOnSpark]:
    """Creates a queue with a schema."""

    def create(schema: str, **settings: object) -> QueueOnSpark:
        name = f"q-{uuid4().hex[:12]}"
        definition = create_queue(cassandra_store, name, schema=schema, **settings)
        return queue_on_spark(spark, cassandra_store, definition, connection, tmp_path)

    return create


def every_type(spark: SparkSession, count: int) -> DataFrame:
    """Rows with a column of each type, a third of whose values are null."""
    columns = [
        f"if((id + {number}) % 3 = 0, null, {value}) as c{number}"
        for number, value in enumerate(EVERY.values())
    ]
    return spark.range(count, numPartitions=3).selectExpr("id", *columns)


def trips(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2).selectExpr(
        "concat('v', cast(id % 7 as string)) as vendor",
        "cast(id / 4 as decimal(10,2)) as fare",
        "timestamp_seconds(id) as picked_up",
        "array(named_struct('zone', cast(id as int), 'at', timestamp_seconds(id))) as stops",
    )


def by_stream(first: QueueOnSpark, second: QueueOnSpark) -> None:
    writer = first.stream("g").writeStream.format("cassieq").options(**second.options)
    writer = writer.option("checkpointLocation", str(first.folder / "copy"))
    writer.trigger(availableNow=True).start().awaitTermination()


def by_a_write_that_creates_the_queue(first: QueueOnSpark, second: QueueOnSpark) -> None:
    delete_queue(second.store, second.definition.name)
    second.publish(first.browse(), createQueue="true")


def by_dicts_of_the_client(first: QueueOnSpark, second: QueueOnSpark) -> None:
    with Client.from_store(first.store) as client:
        messages = client.receive(first.definition.name, "g", max=1_000)
        client.put_many(second.definition.name, [message.value for message in messages])


def by_tables_of_the_client(first: QueueOnSpark, second: QueueOnSpark) -> None:
    with Client.from_store(first.store) as client:
        table = client.receive_table(first.definition.name, "g", max=1_000)
        client.put_many(second.definition.name, table.drop_columns(["_metadata"]))


def by_json_lines(first: QueueOnSpark, second: QueueOnSpark) -> None:
    with Client.from_store(first.store) as client:
        found = client.receive(first.definition.name, "g", max=1_000)
        lines = write_lines(found, RECEIPTS).splitlines()
        values = [json.loads(line)["message"] for line in lines]
        client.put_many(second.definition.name, values)


def by_arrow_over_http(first: QueueOnSpark, second: QueueOnSpark) -> None:
    columns = schema_of(str(second.definition.schema))
    with Client.from_store(first.store) as client:
        found = client.receive(first.definition.name, "g", max=1_000)
        body = write_table(found, RECEIPTS, columns)
        table = pa.ipc.open_stream(body).read_all().drop_columns(["_metadata"])
        sent, _ = read_table(stream_of(table), columns, 1_000, 1 << 20)
        client.put_many(second.definition.name, sent)


def by_a_file(first: QueueOnSpark, second: QueueOnSpark, name: str) -> None:
    file, store = first.folder / name, first.store
    export_queue(store, first.definition, file, force=False, watch=lambda *_: None)
    import_file(store, second.definition, file, watch=lambda *_: None)


@pytest.fixture
def with_times(spark: SparkSession) -> Iterator[None]:
    """Spark 4.3 has TIME only if it is asked for."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


@pytest.mark.usefixtures("with_times")
@pytest.mark.parametrize(
    "way",
    [
        by_stream,
        by_a_write_that_creates_the_queue,
        by_dicts_of_the_client,
        by_tables_of_the_client,
        by_json_lines,
        by_arrow_over_http,
        *(partial(by_a_file, name=name) for name in ("x.parquet", "x.arrow", "x.jsonl")),
    ],
)
def test_every_type_and_null_comes_back_as_it_was_by_every_way(
    make: Callable[..., QueueOnSpark], way: Callable[[QueueOnSpark, QueueOnSpark], None]
):
    schema = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(EVERY))
    first, second = (make(f"id bigint not null, {schema}") for _ in range(2))
    rows = every_type(first.spark, 1_000)
    first.publish(rows)

    way(first, second)

    assert_df_equality(second.browse().orderBy("id"), rows.orderBy("id"), ignore_nullable=True)


def started(rows: DataFrame, queue: QueueOnSpark, options: dict[str, str]) -> None:
    """Write rows, or start a query that writes them."""
    if rows.isStreaming:
        writer = rows.writeStream.format("cassieq").options(**options)
        query = writer.option("checkpointLocation", str(queue.folder / "refused")).start()
        query.awaitTermination()
    else:
        rows.write.format("cassieq").options(**options).mode("append").save()


@pytest.mark.parametrize("value", REFUSED)
@pytest.mark.parametrize("way", ["queue", "createQueue", "stream"])
def test_a_type_that_no_queue_has_is_refused_with_its_name_and_what_to_write_instead(
    make: Callable[..., QueueOnSpark], way: str, value: str
):
    queue = make("c string")
    options = queue.options
    if way == "createQueue":
        options = options | {"queue": f"{queue.definition.name}-made", "createQueue": "true"}
    spark = queue.spark
    numbers = spark.readStream.format("rate").load() if way == "stream" else spark.range(1)
    rows = numbers.selectExpr(f"{value} as c")

    with pytest.raises(PySparkException, match=f"column 'c.* is of type {REFUSED[value]}"):
        started(rows, queue, options)

    assert queue.stats().next == 0


def test_what_is_to_be_written_instead_comes_back_as_the_type_that_was_refused(
    make: Callable[..., QueueOnSpark],
):
    queue = make("a string, b int, c int, d binary, e binary")
    queue.publish(
        queue.spark.range(1).selectExpr(
            """to_json(parse_json('{"x":1}')) as a""",
            "cast(interval '1-2' year to month as int) as b",
            "cast(interval '3' year as int) as c",
            f"st_asbinary(st_geomfromwkb({POINT})) as d",
            f"st_asbinary(st_geogfromwkb({POINT})) as e",
        )
    )

    rows = queue.browse().selectExpr(
        "variant_get(parse_json(a), '$.x', 'int') = 1",
        "make_ym_interval(0, b) = interval '1-2' year to month",
        "make_ym_interval(c) = interval '3' year",
        f"st_asbinary(st_geomfromwkb(d)) = {POINT}",
        f"st_asbinary(st_geogfromwkb(e)) = {POINT}",
    )

    assert list(rows.first()) == [True] * 5


def test_headers_may_have_collations(make: Callable[..., QueueOnSpark]):
    queue = make("a string")

    queue.publish(
        queue.spark.range(1).selectExpr(
            "'x' collate unicode_ci as a",
            "map('k' collate unicode_ci, 'v' collate utf8_lcase) as _headers",
        )
    )

    (row,) = queue.browse(includeMetadata="true").collect()
    assert (row.a, row._metadata.headers) == ("x", {"k": "v"})


def test_nulls_of_no_type_within_other_values_become_nulls_of_the_queues_types(
    make: Callable[..., QueueOnSpark],
):
    queue = make("a array<int>, b array<int>, c map<string,int>, d struct<x:int>, e int")
    columns = ("array() as a", "array(null) as b", "map() as c", "struct(null as x) as d")

    queue.publish(queue.spark.range(1).selectExpr(*columns, "null as e"))

    (row,) = queue.browse().collect()
    assert row.asDict(recursive=True) == {
        "a": [],
        "b": [None],
        "c": {},
        "d": {"x": None},
        "e": None,
    }


def test_intervals_and_texts_of_other_types_become_those_of_the_queue(
    make: Callable[..., QueueOnSpark],
):
    queue = make("a interval day to second, b string, c string, d array<interval day to second>")
    conf = queue.spark.conf
    conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    try:
        rows = queue.spark.range(1).selectExpr(
            "interval '2' hour as a",
            "cast('x' as varchar(3)) as b",
            "cast('y' as char(3)) as c",
            "array(interval '1:30' minute to second) as d",
        )

        queue.publish(rows)
    finally:
        conf.unset("spark.sql.preserveCharVarcharTypeInfo")

    (row,) = queue.browse().collect()
    lengths = timedelta(hours=2), [timedelta(minutes=1, seconds=30)]
    assert (row.a, row.b, row.c.rstrip(), row.d) == (lengths[0], "x", "y", lengths[1])


def test_a_stream_brings_the_rows_from_queue_to_queue(make: Callable[..., QueueOnSpark]):
    first, second = make(TRIPS), make(TRIPS)
    first.publish(trips(first.spark, 500))

    writer = first.stream("g").writeStream.format("cassieq").options(**second.options)
    writer = writer.option("checkpointLocation", str(first.folder / "copy"))
    writer.trigger(availableNow=True).start().awaitTermination()

    found = second.browse()
    assert found.schema == first.browse().schema
    assert_df_equality(found, trips(first.spark, 500), ignore_row_order=True, ignore_nullable=True)


def test_rows_have_their_metadata_if_it_is_asked_for(make: Callable[..., QueueOnSpark]):
    queue = make(TRIPS)
    queue.publish(
        trips(queue.spark, 10)
        .selectExpr("*", "vendor as _key", "map('n', vendor) as _headers")
        .coalesce(1)
    )

    rows = queue.browse(includeMetadata="true").orderBy("_metadata.monoton").collect()

    assert [row._metadata.monoton for row in rows] == list(range(10))
    assert [bytes(row._metadata.key).decode() for row in rows] == [row.vendor for row in rows]
    assert [row._metadata.headers for row in rows] == [{"n": row.vendor} for row in rows]
    assert {row._metadata.queue for row in rows} == {queue.definition.name}


def test_rows_are_settled_by_the_receipts_of_their_metadata(make: Callable[..., QueueOnSpark]):
    queue = make(TRIPS, max_deliveries=3)
    queue.publish(trips(queue.spark, 10))

    def reject_some(batch: DataFrame, _: int) -> None:
        bad = batch.where("fare >= 2").select("_metadata.receipt")
        writer = bad.write.format("cassieq").options(**queue.options)
        writer.options(operation="reject", reason="dear").mode("append").save()

    query = queue.start(queue.stream("g", includeReceipts="true"), reject_some)
    query.awaitTermination()

    assert queue.group_stats("g").depth == 0


def test_rows_that_were_changed_replace_those_that_were_read(make: Callable[..., QueueOnSpark]):
    queue = make(TRIPS)
    queue.publish(trips(queue.spark, 10))

    def raise_fares(batch: DataFrame, _: int) -> None:
        rows = batch.where("fare < 1").selectExpr("*", "_metadata.key as _key")
        changed = rows.withColumn("fare", expr("cast(fare * 100 + 100 as decimal(10,2))"))
        writer = changed.write.format("cassieq").options(**queue.options)
        writer.option("operation", "replace").mode("append").save()

    query = queue.start(queue.stream("g", includeReceipts="true"), raise_fares)
    query.awaitTermination()

    found = queue.browse(includeMetadata="true").where("_metadata.monoton >= 10")
    assert sorted(row.fare for row in found.collect()) == [100, 125, 150, 175]
    assert queue.group_stats("g").depth == 4


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["vendor", "fare"], "its receipts are missing"),
        (["vendor", "fare as fair", "'r' as receipt"], "did you mean 'fare'"),
        (["fare", "'r' as receipt"], "'vendor' string is missing"),
    ],
)
def test_rows_that_can_replace_nothing_are_refused_before_a_task_starts(
    make: Callable[..., QueueOnSpark], columns: list[str], problem: str
):
    queue = make(TRIPS)
    rows = trips(queue.spark, 1).selectExpr(*columns)
    writer = rows.write.format("cassieq").options(**queue.options, operation="replace")

    with pytest.raises(PySparkException, match=problem):
        writer.mode("append").save()


def test_columns_whose_names_have_commas_are_read_by_their_names(
    make: Callable[..., QueueOnSpark],
):
    queue = make("`a,b` int, `c``,` int, d int")
    queue.publish(queue.spark.sql("select 1 as `a,b`, 2 as `c``,`, 3 as d"))

    (row,) = queue.browse(columns="d, `c``,`,`a,b`").collect()

    assert row.asDict() == {"d": 3, "c`,": 2, "a,b": 1}


@pytest.mark.parametrize("options", [{"columns": "fare, VENDOR"}, {}])
def test_only_the_columns_that_are_asked_for_are_read(
    make: Callable[..., QueueOnSpark], options: dict[str, str]
):
    queue = make(TRIPS)
    queue.publish(trips(queue.spark, 100))
    reader = queue.spark.read.format("cassieq").options(**queue.options).options(**options)
    if not options:
        reader = reader.schema("fare decimal(10,2), vendor string")

    found = reader.load()

    assert found.columns == ["fare", "vendor"]
    assert_df_equality(
        found,
        trips(queue.spark, 100).select("fare", "vendor"),
        ignore_row_order=True,
        ignore_nullable=True,
    )


def test_columns_go_by_name_and_become_the_queues_types(make: Callable[..., QueueOnSpark]):
    queue = make("a bigint, b double, c string not null, d timestamp")

    queue.publish(queue.spark.sql("select 'x' as C, 7S as A, 1.5BD as b"))

    (row,) = queue.browse().collect()
    assert (row.a, row.b, row.c, row.d) == (7, 1.5, "x", None)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("select 1 as fare", "column 'vendor' string is missing"),
        ("select 'v' as vendor, 1 as fair", "has no column 'fair': did you mean 'fare'"),
        ("select 'v' as vendor, array(1) as fare", "column 'fare'.*array<int>.*decimal"),
        ("select cast(null as string) as vendor", "column 'vendor', row 0.*it is null"),
        ("select 'v' as vendor, 123456789012 as fare", "column 'fare', row 0.*123456789012"),
        ("select 'v' as vendor, 1 as _key", "column '_key' is int, expected string or binary"),
        ("select 'v' as vendor, 'v' as Vendor", "there are 2 columns 'vendor'|[Dd]uplicate"),
        ("select 'v' as vendor, -1 as _delay", "row 0.*has a negative delay"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_visible(
    make: Callable[..., QueueOnSpark], query: str, problem: str
):
    queue = make(TRIPS)

    with pytest.raises(PySparkException, match=f"(?s){problem}"):
        queue.publish(queue.spark.sql(query))

    assert queue.stats().next == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"columns": "fair"}, "has no column 'fair'; did you mean 'fare'"),
        ({"columns": "fare,fare"}, "a column is named twice"),
        ({"columns": "fare,`vendor"}, "option 'columns': '`vendor' begins with a name in backquo"),
        ({"includeHeaders": "true"}, "has a schema; headers are in includeMetadata"),
    ],
)
def test_reads_that_make_no_sense_are_refused(
    make: Callable[..., QueueOnSpark], options: dict[str, str], problem: str
):
    with pytest.raises(PySparkException, match=problem):
        make(TRIPS).browse(**options)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("fare double", r"is decimal\(10,2\), not double"),
        ("fair int", "has no column 'fair'"),
        ("_metadata struct<monoton:bigint>, fare decimal(10,2)", "includeMetadata"),
    ],
)
def test_a_schema_that_the_queue_does_not_have_is_refused(
    make: Callable[..., QueueOnSpark], schema: str, problem: str
):
    queue = make(TRIPS)
    reader = queue.spark.read.format("cassieq").options(**queue.options).schema(schema)

    with pytest.raises(PySparkException, match=problem):
        reader.load().collect()


@pytest.mark.parametrize("options", [{"columns": "value"}, {"includeMetadata": "true"}])
def test_what_needs_a_schema_is_refused_without_one(queue: QueueOnSpark, options: dict[str, str]):
    with pytest.raises(PySparkException, match="has no schema, and its messages are bytes"):
        queue.browse(**options)


def test_a_write_creates_the_queue_with_the_columns_of_the_dataframe(queue: QueueOnSpark):
    name = f"{queue.definition.name}-made"
    rows = trips(queue.spark, 10)

    for _ in range(2):
        queue.publish(rows.withColumn("_key", rows.vendor), queue=name, createQueue="true")

    assert read_queue(queue.store, name).schema == TRIPS.replace(" not null", "")
    assert queue.browse(queue=name).count() == 20


def test_a_running_query_reads_what_a_newer_schema_wrote_by_its_own(
    make: Callable[..., QueueOnSpark],
):
    queue = make("a int, b string")
    queue.publish(queue.spark.sql("select 1 as a, 'x' as b"))
    batches: list[list[tuple[object, ...]]] = []

    def alter_after_first(batch: DataFrame, number: int) -> None:
        batches.append([tuple(row) for row in batch.collect()])
        if number == 0:
            alter_queue(queue.store, queue.definition.name, schema="a bigint, c double")
            queue.publish(queue.spark.sql("select 2L as a, 2.5D as c"))

    query = queue.start(
        queue.stream("g"), alter_after_first, checkpoint="c", processingTime="0 seconds"
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    alter_again = queue.browse().orderBy("a")

    assert batches == [[(1, "x")], [(2, None)]]
    assert [tuple(row) for row in alter_again.collect()] == [(1, None), (2, 2.5)]


def test_an_sql_view_is_selected_from_and_inserted_into(make: Callable[..., QueueOnSpark]):
    queue = make("a int, b string")
    options = ", ".join(f"`{key}` '{value}'" for key, value in queue.options.items())
    view = f"v{uuid4().hex[:8]}"
    queue.spark.sql(f"create temporary view {view} using cassieq options ({options})")

    queue.publish(queue.spark.sql("select 5 as a, 'x' as b"))

    assert [tuple(row) for row in queue.spark.sql(f"select b, a from {view}").collect()] == [
        ("x", 5)
    ]
