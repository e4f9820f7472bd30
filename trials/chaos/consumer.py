"""A consumer of a chaos run: stores what each batch has under its number, until told to stop."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter, StreamingQueryListener

from cassieq_spark import progress
from trials.chaos.program import Runs, arguments, begin
from trials.chaos.records import Notebook


def main() -> None:
    """Read the queue from where the checkpoint says on."""
    given = arguments(__doc__).parse_args()
    notebook = Notebook(given.folder)
    spark = begin(notebook)
    spark.streams.addListener(Listener(notebook))

    def store(batch: DataFrame, number: int) -> None:
        rows = batch.select("key", "value", "delivery_count").toArrow()
        notebook.store(number, rows)
        notebook.tell("stored", batch=number, rows=rows.num_rows)

    def writer() -> DataStreamWriter:
        reading = given.options | {"checkpointLocation": str(notebook.checkpoint)}
        stream = spark.readStream.format("cassieq").options(**reading).load()
        return stream.writeStream.foreachBatch(store)

    Runs(notebook, writer, every="0 seconds").go_on()
    spark.stop()


class Listener(StreamingQueryListener):
    """Notes what the source tells of lost leases.

    Args:
        notebook: Where.
    """

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    def onQueryStarted(self, event: Any) -> None:
        """Nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Note the batch, and how many leases were lost so far in this run of the query."""
        told = event.progress
        for source in progress(told):
            self._notebook.tell("progress", batch=told.batchId, lost=source.lost_leases)


if __name__ == "__main__":
    main()
