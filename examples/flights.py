from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
flights = spark.range(100_000).selectExpr("id AS number", "id % 60D AS delay")
flights.write.format("cassieq").option("queue", "flights").mode("append").save()  # all, or nothing


def process(batch, batch_id):
    print(batch_id, batch.where("delay > 30").count())


messages = spark.readStream.format("cassieq").option("queue", "flights").option("group", "delays")
query = messages.load().writeStream.foreachBatch(process)
query = query.option("checkpointLocation", "checkpoints/delays").trigger(availableNow=True)
query.start().awaitTermination()
