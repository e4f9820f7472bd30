"""Run the recipe of docs/settling.md once for each step, and hang there; the test kills this."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.recipe import start

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.authenticate.socketTimeout": "120s",
}


def main(options_of: dict[str, dict[str, str]], folder: str, reached: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for hang_at, options in options_of.items():
        hangs = threading.Event()

        def reach(step: str, hang_at: str = hang_at, hangs: threading.Event = hangs) -> None:
            if step == hang_at:
                hangs.set()
                threading.Event().wait()

        # Nothing but the first batch: the next trigger would ack it.
        query = start(spark, options, f"{folder}/{hang_at}", reach, processingTime="1 day")
        committed = Path(folder) / hang_at / "checkpoint" / "commits" / "0"
        while not (hangs.wait(0.05) or committed.exists()):
            if query.exception():
                Path(reached).write_text(str(query.exception()))
    Path(reached).write_text("all")
    threading.Event().wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3])
