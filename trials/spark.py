"""A small local Spark for trials, benchmarks and the demo, and the results of its programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from cassieq_spark.spark import daemon

try:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
except ModuleNotFoundError:
    sys.exit("pyspark is missing: pip install 'cassieq-spark[spark,demo]'")

MASTER = "local[2]"
#: For a Java that runs for minutes on few cores: it compiles once, which is half the work.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STOP_SECONDS = 30
_SUFFIX = ".parquet"


def spark_settings(scratch: Path) -> dict[str, str]:
    """Settings of a Spark that writes all of its files to ``scratch``, which is created."""
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
        "spark.python.daemon.module": daemon.NAME,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def start_spark(
    name: str,
    scratch: Path,
    *,
    master: str = MASTER,
    log_level: str = "WARN",
    settings: Mapping[str, str] = MappingProxyType({}),
    log: Path | None = None,
) -> SparkSession:
    """Start Spark in this process, with the Python of this process.

    Args:
        name: Name of the application.
        scratch: The folder for its files.
        master: The URL of Spark's master.
        log_level: Spark's log level.
        settings: Further settings.
        log: The file for the standard error of its processes; None: that of this process.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    builder = builder.config(map={**spark_settings(scratch), **settings})
    with nullcontext() if log is None else _errors_to(log):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel(log_level)
    return session


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Let processes that are started inside write their standard error to a file."""
    ours = os.dup(sys.stderr.fileno())
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), sys.stderr.fileno())
        yield
    finally:
        os.dup2(ours, sys.stderr.fileno())
        os.close(ours)


def stop_spark(session: SparkSession) -> None:
    """Stop Spark, and wait until its Java has ended."""
    gateway = session.sparkContext._gateway  # noqa: SLF001 (PySpark ends it with Python only)
    session.stop()
    java = getattr(gateway, "proc", None)
    if gateway is not None and java is not None:
        gateway.shutdown()
        java.stdin.close()
        java.wait(_STOP_SECONDS)
        # Another session of this process starts another Java.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 (PySpark keeps them)


class Results:
    """The results of a program: a file for each batch, complete even if the program is killed."""

    def __init__(self, folder: Path, name: str = "results") -> None:
        self._folder = folder / name
        self._folder.mkdir(parents=True, exist_ok=True)

    def store(self, batch: object, rows: pa.Table) -> None:
        """Store the rows of a batch; a batch that is stored again is replaced."""
        unfinished = self._folder / f".{batch}"
        pq.write_table(rows, unfinished)
        unfinished.replace(self._folder / f"{batch}{_SUFFIX}")

    def paths(self) -> list[Path]:
        return list(self._folder.glob(f"[0-9]*{_SUFFIX}"))

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Each batch, with its name."""
        for path in self.paths():
            yield path.stem, pq.read_table(path)

    def stored_at(self, name: str) -> int:
        """When a batch was stored last, in nanoseconds, by the file system."""
        return (self._folder / f"{name}{_SUFFIX}").stat().st_mtime_ns

    def count(self) -> int:
        """How many rows there are."""
        return sum(int(pq.read_metadata(path).num_rows) for path in self.paths())
