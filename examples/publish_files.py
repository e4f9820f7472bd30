"""Publish the lines of files, each file once, even if the program runs many times.

    python examples/publish_files.py [--folder FOLDER] [--contact-points host[:port],...]

Spark's file source remembers in the checkpoint which files it has read, and the queue remembers
which micro-batch was published. So a crash in between publishes nothing twice. Without --folder,
the program makes three small files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from cassieq_spark import Client
from cassieq_spark.errors import QueueStateError

QUEUE = "lines"


def main(arguments: list[str]) -> int:
    """Publish the new files of a folder, then look for new files again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--checkpoint", default="checkpoints/publish-files")
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    folder = given.folder or _make_files()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        try:
            client.create_queue(QUEUE)
        except QueueStateError:
            print(f"queue {QUEUE} exists already")
        for _ in range(2):  # the second time there is nothing new
            lines = spark.readStream.text(str(folder)).select("value")
            query = (
                lines.writeStream.format("cassieq")
                .option("queue", QUEUE)
                .option("spark.cassandra.connection.host", given.contact_points)
                .option("keyspace", given.keyspace)
                .option("checkpointLocation", given.checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        stats = client.stats(QUEUE)
    print(f"{len(list(folder.iterdir()))} files, {stats.next} lines published")
    return 0


def _make_files() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cassieq-files-"))
    for number in range(3):
        lines = (f"line {line} of file {number}\n" for line in range(100))
        (folder / f"{number}.txt").write_text("".join(lines))
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
