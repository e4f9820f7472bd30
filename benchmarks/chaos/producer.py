"""A producer of a chaos run: numbers its messages and publishes them until told to stop."""

from __future__ import annotations

from benchmarks.chaos.messages import LANES, message_columns
from benchmarks.chaos.program import arguments, begin, go_on
from benchmarks.chaos.records import Notebook


def main() -> None:
    """Publish from where the checkpoint says on."""
    parser = arguments(__doc__)
    parser.add_argument("--rows-per-batch", type=int, required=True)
    given = parser.parse_args()
    notebook = Notebook(given.folder)
    spark = begin(notebook)
    # Spark's own source of numbers: a batch that is made again has the same ones.
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", given.rows_per_batch)
        .option("numPartitions", LANES)
        .load()
    )
    query = (
        numbers.selectExpr(*message_columns(given.folder.name, "value"))
        .writeStream.format("cassieq")
        .options(**given.options)
        .option("checkpointLocation", str(notebook.checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )
    go_on(spark, query, notebook)


if __name__ == "__main__":
    main()
