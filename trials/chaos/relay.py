"""A relay of a chaos run: from one queue to another, while its checkpoint is rewound at times."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from trials.chaos.program import RewoundRuns, arguments, begin
from trials.chaos.records import Notebook


def main() -> None:
    """Pass on what comes, from where the checkpoint says on."""
    parser = arguments(__doc__)
    parser.add_argument("--onward", required=True, help="queue that the messages go to")
    given = parser.parse_args()
    notebook = Notebook(given.folder)
    spark = begin(notebook)
    reading = given.options | {"checkpointLocation": str(notebook.checkpoint)}
    connection = {name: each for name, each in given.options.items() if name.startswith("spark.")}
    writing = connection | {"queue": given.onward, "exactlyOnce": "batch"}

    def forward(batch: DataFrame, number: int) -> None:
        """Note what the batch has, so that the judge knows of each copy where it comes from."""
        rows = batch.select("key", "value", "delivery_count").toArrow()
        notebook.try_batch(number, rows)
        out = batch.select("key", "value").write.format("cassieq").options(**writing)
        out.mode("append").save()

    def writer() -> DataStreamWriter:
        stream = spark.readStream.format("cassieq").options(**reading).load()
        return stream.writeStream.foreachBatch(forward)

    RewoundRuns(notebook, writer, every="0 seconds", may_lose=True).go_on()
    spark.stop()


if __name__ == "__main__":
    main()
