"""DataFrames through a queue with a schema, and through Kafka as JSON or as Avro."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from benchmarks.bench import processor
from benchmarks.bench.contest import Contest, Measures
from benchmarks.bench.lab import Lab
from benchmarks.bench.measures import Took, run_stream, used
from benchmarks.bench.payloads import BATCHES, Payload
from benchmarks.bench.systems import (
    CASSIEQ,
    KAFKA_LZ4,
    System,
    cassieq_options,
    new_group,
    systems_of,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.schemas.canonical import all_nullable
from cassieq_spark.schemas.ddl import to_ddl
from cassieq_spark.schemas.files import parse_spark_json

JSON, AVRO = f"{KAFKA_LZ4}, JSON", f"{KAFKA_LZ4}, Avro"
WRITE = "batch write of a DataFrame"
READ = "AvailableNow read into columns, 100,000 a batch"
READ_SOME = "the same, 3 columns"
CASES = (WRITE, READ, READ_SOME)
RATE, INSIDE, STORED = "rows/s", "rows/s inside the batches", "bytes a row, as stored"
CPU = "us of processor time a row"
_FILES = 4
_BATCH = 100_000


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a payload in a folder of Parquet files; ``some`` are three of the columns."""

    name: str
    count: int
    schema: StructType
    folder: str
    some: tuple[str, ...]


class Pipeline(Protocol):
    """A path of DataFrames through a server, whose processor time is counted."""

    server: str

    def new(self, rows: Rows) -> str:
        """Create a queue or topic."""
        ...

    def write(self, place: str, frame: DataFrame) -> None:
        """Write a DataFrame."""
        ...

    def read(self, place: str, rows: Rows, columns: tuple[str, ...] | None) -> DataFrame:
        """A stream of all rows, with all columns or some."""
        ...

    def stored(self, place: str) -> int:
        """Bytes of the stored rows."""
        ...


def write_rows(lab: Lab, payload: Payload) -> Rows:
    """Parse the JSON messages of a payload, and write their rows to files."""
    lines = lab.spark.read.parquet(payload.files(max(BATCHES)))
    texts = lines.selectExpr("cast(value as string) as value")
    frame = lab.spark.read.json(texts.rdd.map(lambda row: row.value))
    folder = lab.new_folder()
    frame.repartition(_FILES).write.option("compression", "none").parquet(folder)
    atomic = [field.name for field in frame.schema if "<" not in field.dataType.simpleString()]
    return Rows(payload.name, payload.count, frame.schema, folder, tuple(atomic[:3]))


def contests(lab: Lab, payload: Payload) -> Iterator[Contest]:
    """Contests of whole pipelines: DataFrame, server, DataFrame."""
    rows = write_rows(lab, payload)
    pipelines: dict[str, Pipeline] = {
        CASSIEQ: _Columns(lab),
        JSON: _Json(lab, systems_of(lab)[KAFKA_LZ4]),
        AVRO: _Avro(lab, systems_of(lab)[KAFKA_LZ4]),
    }
    yield Contest(
        WRITE, rows.name, {name: partial(_write, lab, it, rows) for name, it in pipelines.items()}
    )
    places: dict[str, str] = {}
    for name, pipeline in pipelines.items():
        places[name] = pipeline.new(rows)
        pipeline.write(places[name], lab.spark.read.parquet(rows.folder))
    for case, columns in ((READ, None), (READ_SOME, rows.some)):
        trials: Mapping[str, Callable[[], Measures]] = {
            name: partial(_read, lab, it, places[name], rows, columns)
            for name, it in pipelines.items()
        }
        yield Contest(case, rows.name, trials)


def _write(lab: Lab, pipeline: Pipeline, rows: Rows) -> Measures:
    place = pipeline.new(rows)
    frame = lab.spark.read.parquet(rows.folder)
    before, began = lab.processor.read(), time.perf_counter()
    pipeline.write(place, frame)
    seconds = time.perf_counter() - began
    took = Took(rows.count, seconds, cpu=used(lab, before))
    return {
        RATE: took.rate,
        STORED: pipeline.stored(place) / rows.count,
        **_cpu(took, pipeline),
    }


def _read(
    lab: Lab, pipeline: Pipeline, place: str, rows: Rows, columns: tuple[str, ...] | None
) -> Measures:
    took = run_stream(lab, pipeline.read(place, rows, columns), rows.count, "noop", {})
    return {RATE: took.rate, INSIDE: took.rate_inside, **_cpu(took, pipeline)}


def _cpu(took: Took, pipeline: Pipeline) -> Measures:
    return took.by_process(CPU, per=took.messages / 1e6, server=pipeline.server)


class _Columns:
    """A queue with the columns of the rows."""

    server = processor.CASSANDRA

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._reach = cassieq_options(lab)

    def new(self, rows: Rows) -> str:
        schema = all_nullable(parse_spark_json(rows.schema.jsonValue()))
        return create_queue(self._lab.store, f"q-{uuid4().hex[:12]}", schema=to_ddl(schema)).name

    def write(self, place: str, frame: DataFrame) -> None:
        writer = frame.write.format("cassieq").options(queue=place, **self._reach)
        writer.mode("append").save()

    def read(self, place: str, rows: Rows, columns: tuple[str, ...] | None) -> DataFrame:
        del rows
        reader = self._lab.spark.readStream.format("cassieq").options(**self._reach)
        reader = reader.options(queue=place, group=new_group(self._lab, place))
        reader = reader.option("maxMessagesPerTrigger", _BATCH)
        if columns is not None:
            reader = reader.option("columns", ",".join(columns))
        return reader.load()

    def stored(self, place: str) -> int:
        ledger = Ledger(self._lab.store, read_queue(self._lab.store, place).queue_id)
        return sum(block.size for block in ledger.read_blocks())


class _Records:
    """A topic with a message for each row, compressed."""

    server = processor.KAFKA

    def __init__(self, lab: Lab, system: System) -> None:
        self._lab = lab
        self._system = system

    def new(self, rows: Rows) -> str:
        del rows
        return self._system.new()

    def write(self, place: str, frame: DataFrame) -> None:
        values = frame.select(self._encoded(sf.struct("*")).alias("value"))
        writer = values.write.format("kafka").options(**self._system.write_options(place))
        writer.mode("append").save()

    def read(self, place: str, rows: Rows, columns: tuple[str, ...] | None) -> DataFrame:
        wanted = rows.schema
        if columns is not None:
            wanted = StructType([field for field in rows.schema if field.name in columns])
        reader = self._lab.spark.readStream.format("kafka")
        frame = reader.options(**self._system.read_options(place, _BATCH)).load()
        row = self._decoded(frame["value"], rows.schema, wanted).alias("row")
        return frame.select(row).select("row.*")

    def stored(self, place: str) -> int:
        parts = Path(self._lab.folder / "kafka").rglob(f"{place}-*/*.log")
        return sum(part.stat().st_size for part in parts)

    def _encoded(self, row: Column) -> Column:
        raise NotImplementedError

    def _decoded(self, value: Column, schema: StructType, wanted: StructType) -> Column:
        raise NotImplementedError


class _Json(_Records):
    def _encoded(self, row: Column) -> Column:
        return sf.to_json(row)

    def _decoded(self, value: Column, schema: StructType, wanted: StructType) -> Column:
        del schema
        return sf.from_json(value.cast("string"), wanted)


class _Avro(_Records):
    def _encoded(self, row: Column) -> Column:
        return to_avro(row)

    def _decoded(self, value: Column, schema: StructType, wanted: StructType) -> Column:
        options = {"avroSchema": self._avro(wanted)}
        return from_avro(value, self._avro(schema), options)

    def _avro(self, schema: StructType) -> str:
        """The Avro schema that Spark uses."""
        jvm: Any = self._lab.spark.sparkContext._jvm  # noqa: SLF001 (Python has no way to it)
        converters = jvm.org.apache.spark.sql.avro.SchemaConverters
        of_jvm = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        # Like `to_avro` for a struct that is never null.
        return str(converters.toAvroType(of_jvm, False, "topLevelRecord", "").toString())
