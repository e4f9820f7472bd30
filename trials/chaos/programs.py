"""The programs of a chaos run on Spark: a producer, a consumer and a relay.

A producer publishes numbered messages. A consumer stores each batch under its number. A relay
publishes what it reads to another queue. Each begins at its checkpoint, and runs until it is told
to stop.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryListener

from cassieq_spark import progress
from trials.chaos.checker import LANES, message_columns, queue_column
from trials.chaos.records import Checkpoint, Notebook

_LOOK_SECONDS = 1
#: A query is stopped this long after its first batch, and started again.
_RUN_SECONDS = (0.0, 30.0)
#: The share of runs that are stopped this long after their beginning, even before the first batch.
_HASTY, _HASTY_SECONDS = 0.2, (0.0, 10.0)
#: The share of runs with `Trigger.AvailableNow`.
_AVAILABLE_NOW = 0.3
#: The share of runs before which an older copy of the checkpoint is restored, if there is one.
_REWIND = 0.4
#: With a rewound checkpoint, a query must fail with one of these errors.
_REFUSALS = ("BatchOrderError", "BatchChangedError")

Options = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=_ROLES)
    parser.add_argument("--reading", type=json.loads, default={}, help="options of the source")
    parser.add_argument("--writing", type=json.loads, default={}, help="options of the sink")
    parser.add_argument("--folder", type=Path, required=True, help="checkpoint and results")
    parser.add_argument("--rows-per-batch", type=int, help="of a producer")
    given = parser.parse_args()
    notebook = Notebook(given.folder)
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    package = spark.sparkContext.parallelize([0], 1).mapPartitions(_where_is_the_package).first()
    notebook.tell("started", package=package)
    given.reading["checkpointLocation"] = str(notebook.checkpoint)
    _ROLES[given.role](spark, notebook, given).go_on()
    spark.stop()


def _where_is_the_package(_: Iterable[int]) -> Iterator[str]:
    import cassieq_spark  # noqa: PLC0415 (the executor's)

    yield cassieq_spark.__file__


def produce(spark: SparkSession, notebook: Notebook, given: argparse.Namespace) -> Runs:
    def writer() -> DataStreamWriter:
        # Spark's own source of numbers: a replayed batch has the same numbers.
        numbers = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", given.rows_per_batch)
            .option("numPartitions", LANES)
            .load()
        )
        columns = list(message_columns(given.folder.name, "value"))
        if "queueColumn" in given.writing:
            columns.append(f"{queue_column('value')} as {given.writing['queueColumn']}")
        messages = numbers.selectExpr(*columns)
        return messages.writeStream.format("cassieq").options(**given.writing)

    # With a new checkpoint, it would send all numbers again.
    return RewoundRuns(notebook, writer, "1 second", may_lose=False)


def consume(spark: SparkSession, notebook: Notebook, given: argparse.Namespace) -> Runs:
    def store(batch: DataFrame, number: int) -> None:
        rows = batch.select("key", "value", "delivery_count").toArrow()
        notebook.stored.store(number, rows)
        notebook.tell("stored", batch=number, rows=rows.num_rows)

    def writer() -> DataStreamWriter:
        stream = spark.readStream.format("cassieq").options(**given.reading).load()
        return stream.writeStream.foreachBatch(store)

    spark.streams.addListener(LostLeases(notebook))
    return Runs(notebook, writer, "0 seconds")


def relay(spark: SparkSession, notebook: Notebook, given: argparse.Namespace) -> Runs:
    def forward(batch: DataFrame, number: int) -> None:
        # So that the verdict knows the origin of each copy.
        rows = batch.select("key", "value", "delivery_count").toArrow()
        notebook.try_batch(number, rows)
        out = batch.select("key", "value").write.format("cassieq").options(**given.writing)
        out.mode("append").save()

    def writer() -> DataStreamWriter:
        stream = spark.readStream.format("cassieq").options(**given.reading).load()
        return stream.writeStream.foreachBatch(forward)

    return RewoundRuns(notebook, writer, "0 seconds", may_lose=True)


_ROLES = {"producer": produce, "consumer": consume, "relay": relay}


class LostLeases(StreamingQueryListener):
    """Records with each batch how many leases were lost so far in this run of the query."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        told = event.progress
        for source in progress(told):
            self._notebook.tell("progress", batch=told.batchId, lost=source.lost_leases)


@dataclass
class Runs:
    """One run of a query after another, until the program is to end, or the query fails.

    Each run takes the messages that exist now, or continues until it is stopped at some moment.

    Attributes:
        notebook: The records of the program.
        writer: Makes the query, without its trigger and its checkpoint.
        every: Trigger of the runs that continue.
    """

    notebook: Notebook
    writer: Callable[[], DataStreamWriter]
    every: str
    chance: Random = field(default_factory=Random, kw_only=True)

    def go_on(self) -> None:
        while not self.notebook.is_over:
            self.run()

    def run(self) -> None:
        now_only = self.chance.random() < _AVAILABLE_NOW and not self.notebook.is_calm
        path = str(self.notebook.checkpoint)
        writer = self.writer().option("checkpointLocation", path)
        self.notebook.tell("query", trigger="availableNow" if now_only else self.every)
        if now_only:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime=self.every).start()
        self._wait(query)
        query.stop()

    def _wait(self, query: StreamingQuery) -> None:
        """Return at some moment, or when the query has ended or is to end."""
        kept = self.notebook.kept
        before = kept.last_committed
        is_hasty = self.chance.random() < _HASTY
        seconds = self.chance.uniform(*(_HASTY_SECONDS if is_hasty else _RUN_SECONDS))
        while seconds > 0 and not self.notebook.is_over:
            span = min(seconds, _LOOK_SECONDS)
            # A float works, although the annotation says int.
            if query.awaitTermination(span):  # type: ignore[arg-type]
                return
            if self.notebook.is_calm:
                continue
            if is_hasty or kept.last_committed > before:
                seconds -= span


@dataclass
class RewoundRuns(Runs):
    """The same, but some runs begin with an older copy of the checkpoint.

    Then the query must stop with an error, and publish nothing. It continues with the newest
    checkpoint or, if that counts as lost (``may_lose``), with a new one.
    """

    may_lose: bool

    def __post_init__(self) -> None:
        self.notebook.kept.recover()

    def run(self) -> None:
        kept = self.notebook.kept
        kept.copy()
        choices = [] if self.notebook.is_calm else kept.choices()
        if choices and self.chance.random() < _REWIND:
            copy = self.chance.choice(choices)
            self.notebook.tell("rewinding", copy=copy, newest=kept.last_committed)
            kept.rewind(copy)
        was_rewound, before = kept.is_rewound, kept.last_committed
        try:
            super().run()
        except StreamingQueryException as error:
            refusal = next((name for name in _REFUSALS if name in str(error)), None)
            if refusal is None or not was_rewound:
                raise
            self.notebook.tell("refused", error=refusal)
            self._mend(kept)
        else:
            if was_rewound and kept.last_committed > before:
                self.notebook.tell("not refused", batch=kept.last_committed)

    def _mend(self, kept: Checkpoint) -> None:
        is_lost = self.may_lose and self.chance.random() < 0.5
        self.notebook.tell("mended", by="a new checkpoint" if is_lost else "the newest one")
        (kept.begin_anew if is_lost else kept.go_on)()


if __name__ == "__main__":
    main()
