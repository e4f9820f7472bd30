"""What the programs of a chaos run on Spark have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from trials.chaos.checkpoints import Checkpoint
from trials.chaos.records import Notebook

_LOOK_SECONDS = 1
#: A query is stopped so long after its first batch, and started again.
_RUN_SECONDS = (0.0, 30.0)
#: How many of the runs are stopped so long after their beginning, also before the first batch.
_HASTY, _HASTY_SECONDS = 0.2, (0.0, 10.0)
#: How many of the runs take what is there and end, by `Trigger.AvailableNow`.
_AVAILABLE_NOW = 0.3
#: Before how many of the runs an older copy of the checkpoint is restored, if there is one.
_REWIND = 0.4
#: Of which errors a query with a rewound checkpoint must die.
_REFUSALS = ("BatchOrderError", "BatchChangedError")


def arguments(about: str | None) -> argparse.ArgumentParser:
    """What each of them takes."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--options", type=json.loads, required=True, help="of cassieq, as JSON")
    parser.add_argument("--folder", type=Path, required=True, help="checkpoint and results")
    return parser


def begin(notebook: Notebook) -> SparkSession:
    """Note that the program has begun, and which package its executors have."""

    def where(_: Iterator[int]) -> Iterator[str]:
        import cassieq_spark  # noqa: PLC0415 (the executor's)

        yield cassieq_spark.__file__

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    package = spark.sparkContext.parallelize([0], 1).mapPartitions(where).first()
    notebook.tell("started", package=package)
    return spark


class Runs:
    """One run of a query after another, until the program is asked to end, or the query fails.

    Each run takes what is there, or goes on until it is stopped at some moment; whatever the
    query is doing then.

    Args:
        notebook: Where it is noted.
        writer: Makes the query, but for its trigger and its checkpoint.
        every: Trigger of the runs that go on.
    """

    def __init__(
        self, notebook: Notebook, writer: Callable[[], DataStreamWriter], *, every: str
    ) -> None:
        self._notebook = notebook
        self._writer = writer
        self._every = every
        self._chance = Random()

    def go_on(self) -> None:
        """Run it again and again."""
        while not self._notebook.is_over:
            self.run()

    def run(self) -> None:
        """Run it once."""
        now_only = self._chance.random() < _AVAILABLE_NOW and not self._notebook.is_calm
        path = str(self._notebook.checkpoint)
        writer = self._writer().option("checkpointLocation", path)
        self._notebook.tell("query", trigger="availableNow" if now_only else self._every)
        if now_only:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime=self._every).start()
        self._wait(query)
        query.stop()

    def _wait(self, query: StreamingQuery) -> None:
        """Return at some moment, or when it has ended, or is to end."""
        kept = self._notebook.kept
        before = kept.last_committed
        is_hasty = self._chance.random() < _HASTY
        seconds = self._chance.uniform(*(_HASTY_SECONDS if is_hasty else _RUN_SECONDS))
        while seconds > 0 and not self._notebook.is_over:
            span = min(seconds, _LOOK_SECONDS)
            if query.awaitTermination(span):
                return
            if self._notebook.is_calm:
                continue
            if is_hasty or kept.last_committed > before:
                seconds -= span


class RewoundRuns(Runs):
    """The same, but now and then with a checkpoint that is restored from an older copy.

    The query must stop with an error then, having published nothing. It goes on with the newest
    checkpoint, or, where that counts as lost, with a new one.

    Args:
        notebook: Where it is noted.
        writer: Makes the query, but for its trigger and its checkpoint.
        every: Trigger of the runs that go on.
        may_lose: Whether the newest checkpoint may count as lost.
    """

    def __init__(
        self,
        notebook: Notebook,
        writer: Callable[[], DataStreamWriter],
        *,
        every: str,
        may_lose: bool,
    ) -> None:
        super().__init__(notebook, writer, every=every)
        notebook.kept.recover()
        self._may_lose = may_lose

    def run(self) -> None:
        """Run it once, and see what becomes of a rewound checkpoint."""
        kept = self._notebook.kept
        kept.copy()
        choices = [] if self._notebook.is_calm else kept.choices()
        if choices and self._chance.random() < _REWIND:
            copy = self._chance.choice(choices)
            self._notebook.tell("rewinding", copy=copy, newest=kept.last_committed)
            kept.rewind(copy)
        was_rewound, before = kept.is_rewound, kept.last_committed
        try:
            super().run()
        except StreamingQueryException as error:
            refusal = next((name for name in _REFUSALS if name in str(error)), None)
            if refusal is None or not was_rewound:
                raise
            self._notebook.tell("refused", error=refusal)
            self._mend(kept)
        else:
            if was_rewound and kept.last_committed > before:
                self._notebook.tell("not refused", batch=kept.last_committed)

    def _mend(self, kept: Checkpoint) -> None:
        is_lost = self._may_lose and self._chance.random() < 0.5
        self._notebook.tell("mended", by="a new checkpoint" if is_lost else "the newest one")
        (kept.begin_anew if is_lost else kept.go_on)()
