"""DataFrames through a queue with a schema, and through Kafka as JSON or as Avro."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
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
from benchmarks.bench.names import (
    AVRO,
    JSON,
    ROW_CPU,
    ROW_RATE,
    ROW_STEADY,
    STORED,
    TYPED_READ_100K,
    TYPED_READ_100K_SOME,
    TYPED_READ_ALL,
    TYPED_READ_ALL_SOME,
    TYPED_WRITE,
)
from benchmarks.bench.payloads import Table, write_table
from benchmarks.bench.progress import as_measures
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

#: The limit of a batch, and whether only some columns are read.
READS: Mapping[str, tuple[int | None, bool]] = {
    TYPED_READ_ALL: (None, False),
    TYPED_READ_ALL_SOME: (None, True),
    TYPED_READ_100K: (100_000, False),
    TYPED_READ_100K_SOME: (100_000, True),
}


class Pipeline(Protocol):
    """A path of DataFrames through a server, whose processor time is counted."""

    server: str

    def new(self, schema: StructType) -> str:
        """Create a queue or topic."""
        ...

    def drop(self, place: str) -> None:
        """Delete it, to save disk space."""
        ...

    def write(self, place: str, frame: DataFrame) -> None:
        """Write a DataFrame."""
        ...

    def read(
        self, place: str, schema: StructType, columns: Sequence[str], limit: int | None
    ) -> DataFrame:
        """A stream of all rows, with some or all columns, ``limit`` rows a batch."""
        ...

    def stored(self, place: str) -> int:
        """Bytes of the stored rows."""
        ...


def writes(lab: Lab, *, name: str, count: int) -> Iterator[Contest]:
    """The contest of batch writes."""
    table = _table(lab.folder, name, count)
    trials: dict[str, Callable[[], Measures]] = {
        system: partial(_write, lab, it, table) for system, it in pipelines(lab).items()
    }
    yield Contest(TYPED_WRITE, name, trials)


def reads(lab: Lab, *, name: str, count: int) -> Iterator[Contest]:
    """The contests of streams that read the same rows, which are written once."""
    table = _table(lab.folder, name, count)
    every, frame = pipelines(lab), lab.spark.read.parquet(table.folder)
    places = {system: it.new(frame.schema) for system, it in every.items()}
    for system, it in every.items():
        it.write(places[system], frame)
    for case, (limit, is_some) in READS.items():
        columns = table.some if is_some else frame.columns
        trials: dict[str, Callable[[], Measures]] = {
            system: partial(_read, lab, it, count, (places[system], frame.schema, columns, limit))
            for system, it in every.items()
        }
        yield Contest(case, name, trials)
    for system, it in every.items():
        it.drop(places[system])


@cache
def _table(folder: Path, name: str, count: int) -> Table:
    return write_table(name, count, folder / f"{name}, rows")


def pipelines(lab: Lab) -> dict[str, Pipeline]:
    """The ways of rows through the servers, by name."""
    kafka = systems_of(lab)[KAFKA_LZ4]
    return {CASSIEQ: _Columns(lab), JSON: _Json(lab, kafka), AVRO: _Avro(lab, kafka)}


def _write(lab: Lab, pipeline: Pipeline, table: Table) -> Measures:
    frame = lab.spark.read.parquet(table.folder)
    place = pipeline.new(frame.schema)
    before, began = lab.processor.read(), time.perf_counter()
    pipeline.write(place, frame)
    seconds = time.perf_counter() - began
    took = Took(table.count, seconds, cpu=used(lab, before))
    stored = pipeline.stored(place) / table.count
    pipeline.drop(place)
    return {ROW_RATE: took.rate, STORED: stored, **_cpu(took, pipeline)}


def _read(
    lab: Lab,
    pipeline: Pipeline,
    count: int,
    what: tuple[str, StructType, Sequence[str], int | None],
) -> Measures:
    took = run_stream(lab, pipeline.read(*what), count, "noop", {})
    return {ROW_RATE: took.rate, **as_measures(took.phases, ROW_STEADY), **_cpu(took, pipeline)}


def _cpu(took: Took, pipeline: Pipeline) -> Measures:
    return took.by_process(ROW_CPU, per=took.messages / 1e6, server=pipeline.server)


class _Columns:
    """A queue with the columns of the rows."""

    server = processor.CASSANDRA

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._reach = cassieq_options(lab)

    def new(self, schema: StructType) -> str:
        ours = to_ddl(all_nullable(parse_spark_json(schema.jsonValue())))
        return create_queue(self._lab.store, f"q-{uuid4().hex[:12]}", schema=ours).name

    def drop(self, place: str) -> None:
        """Nothing: `Lab.clear` deletes all messages."""

    def write(self, place: str, frame: DataFrame) -> None:
        writer = frame.write.format("cassieq").options(queue=place, **self._reach)
        writer.mode("append").save()

    def read(
        self, place: str, schema: StructType, columns: Sequence[str], limit: int | None
    ) -> DataFrame:
        reader = self._lab.spark.readStream.format("cassieq").options(**self._reach)
        reader = reader.options(queue=place, group=new_group(self._lab, place))
        if limit is not None:
            reader = reader.option("maxMessagesPerTrigger", limit)
        if len(columns) < len(schema):
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

    def new(self, schema: StructType) -> str:
        del schema
        return self._system.new()

    def drop(self, place: str) -> None:
        self._system.drop(place)

    def write(self, place: str, frame: DataFrame) -> None:
        values = frame.select(self._encoded(sf.struct("*")).alias("value"))
        writer = values.write.format("kafka").options(**self._system.write_options(place))
        writer.mode("append").save()

    def read(
        self, place: str, schema: StructType, columns: Sequence[str], limit: int | None
    ) -> DataFrame:
        wanted = StructType([field for field in schema if field.name in columns])
        reader = self._lab.spark.readStream.format("kafka")
        frame = reader.options(**self._system.read_options(place, limit)).load()
        row = self._decoded(frame["value"], schema, wanted).alias("row")
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
