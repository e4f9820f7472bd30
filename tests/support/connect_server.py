"""A server of Spark Connect, as its own script starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyspark

from tests.support.spark_session import recommended_settings

SPARK_HOME = Path(pyspark.__file__).parent
_ROOT = Path(__file__).parents[2]
_STARTED = re.compile(r"Spark Connect server started at: \S*:(?P<port>\d+)")
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a server in a folder of its own; yields where it is, as clients want to know it."""
    wanted = _SETTINGS | recommended_settings()
    settings = [f"--conf={key}={value}" for key, value in wanted.items()]
    server = subprocess.Popen(
        [
            SPARK_HOME / "sbin" / "start-connect-server.sh",
            "--wait",
            "--master=local[2]",
            *settings,
        ],
        cwd=folder,
        env=os.environ
        | {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(_ROOT),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOG_DIR": str(folder),
            "SPARK_PID_DIR": str(folder),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    with server:
        try:
            port = _port_of(server.stdout)
            # It says a lot, and would wait for somebody to read it.
            threading.Thread(target=server.stdout.read, daemon=True).start()
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def _port_of(output: IO[str]) -> int:
    said = []
    for line in output:
        if started := _STARTED.search(line):
            return int(started["port"])
        said.append(line)
    raise AssertionError(f"the server ended:\n{''.join(said)}")
