"""A producer of a chaos run: numbers its messages and publishes them until told to stop."""

from __future__ import annotations

from pyspark.sql.streaming import DataStreamWriter

from trials.chaos.messages import LANES, message_columns
from trials.chaos.program import RewoundRuns, arguments, begin
from trials.chaos.records import Notebook


def main() -> None:
    """Publish from where the checkpoint says on."""
    parser = arguments(__doc__)
    parser.add_argument("--rows-per-batch", type=int, required=True)
    given = parser.parse_args()
    notebook = Notebook(given.folder)
    spark = begin(notebook)

    def writer() -> DataStreamWriter:
        # Spark's own source of numbers: a batch that is made again has the same ones.
        numbers = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", given.rows_per_batch)
            .option("numPartitions", LANES)
            .load()
        )
        messages = numbers.selectExpr(*message_columns(given.folder.name, "value"))
        return messages.writeStream.format("cassieq").options(**given.options)

    # With a new checkpoint it would send all of its numbers again.
    RewoundRuns(notebook, writer, every="1 second", may_lose=False).go_on()
    spark.stop()


if __name__ == "__main__":
    main()
