"""A small part of `trials.replays`: the process that reads the queue is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from trials.replays.cell import Cell, Checkpoint, Trial, play
from trials.replays.striking import Moment

KEPT, REWOUND, COPIED = Checkpoint.KEPT, Checkpoint.REWOUND, Checkpoint.COPIED


@pytest.mark.parametrize(
    "cell",
    [
        Cell("queue", "all columns", Moment.AFTER, 4, KEPT),
        Cell("queue", "uuid", Moment.HALF, 1, COPIED),
        Cell("queue", "all columns", Moment.AFTER, 2, REWOUND),
        Cell("queue", "shuffle", Moment.BEFORE, 1, KEPT),
        Cell("files", "time", Moment.HALF, 1, KEPT),
        Cell("rate", "uuid", Moment.AFTER, 1, COPIED),
    ],
    ids=str,
)
def test_each_message_is_published_once_and_the_query_goes_on_by_itself(
    cell: Cell,
    spark: SparkSession,
    cassandra_store: Store,
    connection: ConnectionOptions,
    tmp_path: Path,
) -> None:
    options = {
        "spark.cassandra.connection.host": ",".join(connection.contact_points),
        "spark.cassandra.connection.port": str(connection.port),
        "keyspace": connection.keyspace,
    }
    trial = Trial(cell, cassandra_store, options, tmp_path / tmp_path.name)

    assert play(trial, lambda it: it.run(spark)) == []
