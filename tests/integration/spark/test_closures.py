"""A client in a closure that Spark sends to its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from cassieq_spark import Client
from cassieq_spark.settings.connection import ConnectionOptions
from tests.support.spark_session import QueueOnSpark

pytestmark = pytest.mark.spark


def test_each_task_puts_with_the_client_of_the_driver(
    queue: QueueOnSpark, connection: ConnectionOptions
):
    name = queue.definition.name
    client = Client(
        contact_points=connection.contact_points,
        port=connection.port,
        keyspace=connection.keyspace,
    )

    def put(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            client.put_many(name, [str(each) for each in batch.column("id").to_pylist()])
            yield batch

    count = queue.spark.range(40, numPartitions=4).mapInArrow(put, "id long").count()

    assert count == 40
    with client:
        values = sorted(int(each.value) for each in client.peek(name, max=100))
    assert values == list(range(40))
