"""One cell of the matrix: its source, its query, its strikes, and what must come out."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cassieq_spark.client import Client
from cassieq_spark.errors import BatchChangedError, BatchOrderError
from cassieq_spark.settings.queue import DEFAULT_MAX_DELIVERIES
from cassieq_spark.store.protocol import Store
from trials.replays.striking import (
    STRUCK,
    Fault,
    Moment,
    Strikes,
    StrikingDataSource,
    strikes_of,
)

#: Messages of a cell, and of a batch.
MESSAGES, BATCH = 60, 20
#: Partitions of the target, where a batch is to be published in part.
PARTITIONS = 4
#: Longer than any cell takes, so that all happens while the lease is held.
LEASE_SECONDS = "600"
_MOST_RUNS = 20
_MORE_THAN_KILLS = 9

#: What a query makes of the columns of its source and ``id``.
QUERIES: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "identity": lambda rows: rows.selectExpr("id", "cast(id AS STRING) AS value"),
    "all columns": lambda rows: rows.selectExpr("id", "to_json(struct(*)) AS value"),
    "uuid": lambda rows: rows.selectExpr("id", "uuid() AS value"),
    "time": lambda rows: rows.selectExpr("id", "cast(current_timestamp() AS STRING) AS value"),
    "shuffle": lambda rows: rows.selectExpr("id", "cast(rand() AS STRING) AS value").repartition(
        3
    ),
    "dedup": lambda rows: rows.dropDuplicates(["id"]).selectExpr("id", "uuid() AS value"),
}


class Checkpoint(StrEnum):
    """What becomes of the checkpoint when the query was struck."""

    KEPT = "kept"
    #: The plan of the struck batch is missing, as in a copy that was taken before it.
    REWOUND = "rewound"
    #: The query goes on with a copy of it.
    COPIED = "copied"


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    source: str
    query: str
    moment: Moment
    kills: int
    checkpoint: Checkpoint
    fault: Fault = Fault.READER

    @property
    def publishes(self) -> bool:
        """Whether a batch that is struck was published, as a whole or in part."""
        return self.moment in {Moment.HALF, Moment.AFTER}

    def __str__(self) -> str:
        kills = f"{self.kills} x {self.fault}"
        return f"{self.source} | {self.query} | {kills} {self.moment} | {self.checkpoint}"


class QueryFailedError(Exception):
    """A query ended with an error that is no strike."""


@dataclass
class Trial:
    """A cell on its way.

    Args:
        cell: Which.
        store: The store of the target.
        options: How Spark reaches it.
        folder: Its own.
        kafka: The address of a broker, for the source ``kafka``.
    """

    cell: Cell
    store: Store
    options: Mapping[str, str]
    folder: Path
    kafka: str = ""
    runs: int = 0
    checkpoint: Path = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoint = self.folder / "checkpoint"
        self.name = f"replays-{self.folder.name}"

    def prepare(self) -> None:
        """Create the queues, the files, and what is to be struck."""
        self.folder.mkdir(parents=True)
        with Client.from_store(self.store) as client:
            parts = PARTITIONS if self.cell.moment is Moment.HALF else 1
            client.create_queue(self.name, partitions=parts)
            if self.cell.source == "queue":
                # A batch that was not published is delivered again, and its messages may die.
                most = DEFAULT_MAX_DELIVERIES if self.cell.publishes else _MORE_THAN_KILLS
                client.create_queue(f"{self.name}-source", max_deliveries=most)
                client.put_many(f"{self.name}-source", [str(n) for n in range(MESSAGES)])
        if self.cell.source == "files":
            files = self.folder / "files"
            files.mkdir()
            for batch in range(MESSAGES // BATCH):
                numbers = range(batch * BATCH, (batch + 1) * BATCH)
                (files / f"{batch}.txt").write_text("\n".join(map(str, numbers)))
                os.utime(files / f"{batch}.txt", (batch, batch))
        cell = self.cell
        Strikes(cell.moment, cell.fault, cell.kills).write(strikes_of(self.checkpoint))

    # -- running it ---------------------------------------------------------------------------

    def run(self, spark: SparkSession) -> None:
        """Run the query until it ends or is struck.

        Raises:
            QueryFailedError: It ended with another error.
        """
        spark.dataSource.register(StrikingDataSource)
        rows = QUERIES[self.cell.query](self._source(spark))
        writer = rows.selectExpr("cast(id AS STRING) AS key", "value").writeStream
        writer = writer.format("striking").options(**self.options).option("queue", self.name)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        is_endless = self.cell.source == "rate"
        query = (writer if is_endless else writer.trigger(availableNow=True)).start()
        try:
            while is_endless and self._batches() < MESSAGES // BATCH:
                query.awaitTermination(1)
            if is_endless:
                query.stop()
            query.awaitTermination()
        except PySparkException as error:
            if not _was_struck(str(error)):
                raise QueryFailedError(str(error)) from error

    def _source(self, spark: SparkSession) -> DataFrame:
        match self.cell.source:
            case "queue":
                read = spark.readStream.format("cassieq").options(**self.options)
                read = read.option("queue", f"{self.name}-source").option("group", "relay")
                read = read.option("maxMessagesPerTrigger", str(BATCH))
                read = read.option("leaseSeconds", LEASE_SECONDS)
                return read.load().selectExpr("*", "monoton AS id")
            case "kafka":
                self._fill_topic(spark)
                read = spark.readStream.format("kafka").option("subscribe", self.name)
                read = read.option("kafka.bootstrap.servers", self.kafka)
                read = read.option("startingOffsets", "earliest")
                read = read.option("maxOffsetsPerTrigger", str(BATCH))
                return read.load().selectExpr("*", "cast(cast(value AS STRING) AS BIGINT) AS id")
            case "files":
                read = spark.readStream.option("maxFilesPerTrigger", "1")
                lines = read.text(str(self.folder / "files"))
                return lines.selectExpr("*", "cast(value AS BIGINT) AS id")
        read = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(BATCH))
        return read.load().selectExpr("*", "value AS id")

    def _fill_topic(self, spark: SparkSession) -> None:
        if self.checkpoint.exists():
            return
        numbers = spark.range(MESSAGES).selectExpr("cast(id AS STRING) AS value")
        writer = numbers.write.format("kafka").option("kafka.bootstrap.servers", self.kafka)
        writer.option("topic", self.name).save()

    def _batches(self) -> int:
        """How many batches Spark has committed."""
        commits = self.checkpoint / "commits"
        return sum(each.name.isdecimal() for each in commits.iterdir()) if commits.is_dir() else 0

    # -- what becomes of the checkpoint --------------------------------------------------------

    def disturb(self) -> Path | None:
        """Do to the checkpoint what the cell says, after a strike.

        Returns:
            Where the right one is, if the query is to be refused with this one.
        """
        if self.cell.checkpoint is Checkpoint.KEPT:
            return None
        copy = self.folder / f"checkpoint-{self.runs}"
        shutil.copytree(self.checkpoint, copy)
        before, self.checkpoint = self.checkpoint, copy
        if self.cell.checkpoint is Checkpoint.COPIED:
            return None
        offsets = [each.name for each in (copy / "offsets").iterdir()]
        last = max(int(name) for name in offsets if name.isdecimal())
        for file in (copy / "offsets" / str(last), copy / "offsets" / f".{last}.crc"):
            file.unlink(missing_ok=True)
        return before

    # -- what came out -------------------------------------------------------------------------

    def left(self) -> int:
        """How many strikes are left."""
        return Strikes.read(strikes_of(self.checkpoint)).left

    def found(self) -> list[str]:
        """What is wrong; nothing, if each message was published once, and none is left or dead."""
        with Client.from_store(self.store) as client:
            got = Counter(int(it.key or b"-1") for it in client.peek(self.name, max=10_000))
            wrong = []
            if twice := sorted(key for key, count in got.items() if count > 1):
                wrong.append(f"published twice: {twice}")
            if missing := sorted({*range(MESSAGES)} - got.keys()):
                wrong.append(f"not published: {missing}")
            if self.cell.source == "queue":
                (group,) = client.groups(f"{self.name}-source")
                if group.depth or group.dead:
                    wrong.append(f"in the source: {group.depth} owed, {group.dead} dead")
                if self.cell.query == "all columns":
                    values = [json.loads(it.value) for it in client.peek(self.name, max=10_000)]
                    counts = {each["delivery_count"] for each in values}
                    # What nobody published comes in smaller batches from the third time on.
                    most = 1 if self.cell.publishes else 1 + self.cell.kills
                    if not counts <= {*range(1, most + 1)}:
                        wrong.append(f"counts of deliveries: {sorted(counts)}")
        return wrong


def _was_struck(error: str) -> bool:
    # A reader that was killed is the end of its socket.
    return STRUCK in error or "EOFException" in error or "Connection reset" in error


def play(trial: Trial, run: Callable[[Trial], Any]) -> list[str]:
    """Run a cell until its query ends by itself.

    Args:
        trial: A new one.
        run: Runs the query once, as `Trial.run` does.

    Returns:
        What is wrong.
    """
    trial.prepare()
    for _ in range(_MOST_RUNS):
        left = trial.left()
        trial.runs += 1
        try:
            run(trial)
        except QueryFailedError as error:
            return [f"run {trial.runs} ended with: {error}"]
        if trial.left() == left:
            return trial.found()
        right = trial.disturb()
        if right is not None:
            try:
                run(trial)
            except QueryFailedError as error:
                names = (BatchChangedError.__name__, BatchOrderError.__name__)
                if not any(name in str(error) for name in names):
                    return [f"a rewound checkpoint ended with: {error}"]
            else:
                return ["a rewound checkpoint was not refused"]
            trial.checkpoint = right
    return [f"the query did not end by itself in {_MOST_RUNS} runs"]
