"""The recipe of docs/settling.md: rows, rejects and retries, and Parquet by batch id."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

#: Where a driver may die: at the beginning, after the outcomes, and after the files.
STEPS = ("begun", "settled", "written")

#: Values ending in 1 are bad; those ending in 2 are to come again, if they are in a first batch.
_OUTCOMES = """CASE WHEN value % 10 = 1 THEN 'reject'
                    WHEN value % 10 = 2 AND {batch_id} = 0 THEN 'release'
                    ELSE 'ack' END AS operation"""


def start(
    spark: SparkSession,
    options: Mapping[str, str],
    folder: str,
    reach: Callable[[str], None] = lambda _: None,
    **trigger: object,
) -> StreamingQuery:
    """Start the query of the recipe.

    Args:
        spark: Where.
        options: Of its queue.
        folder: For its checkpoint, and its files.
        reach: Called at each of `STEPS` of each batch.
        trigger: As Spark's; all there is, by default.
    """
    checkpoint = f"{folder}/checkpoint"

    def process(batch: DataFrame, batch_id: int) -> None:
        reach("begun")
        decided = batch.selectExpr(
            "receipt",
            "cast(cast(value AS string) AS bigint) AS value",
        ).selectExpr("*", _OUTCOMES.format(batch_id=batch_id))
        decided.persist()
        outcomes = decided.select("receipt", "operation").write.format("cassieq")
        outcomes.options(**options).option("operation", "each").mode("append").save()
        reach("settled")
        done = decided.where("operation = 'ack'").select("value")
        done.write.mode("overwrite").parquet(f"{folder}/rows/batch_id={batch_id}")
        decided.unpersist()
        reach("written")

    stream = spark.readStream.format("cassieq").options(**options).option("group", "g")
    stream = stream.option("includeReceipts", True).option("maxMessagesPerTrigger", 20)
    stream = stream.option("checkpointLocation", checkpoint)
    writer = stream.load().writeStream.foreachBatch(process)
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.trigger(**(trigger or {"availableNow": True})).start()  # type: ignore[arg-type]
