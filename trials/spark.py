"""Local Spark, small, for trials, benchmarks and the demo; and what programs on it have stored."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

try:
    from pyspark.sql import SparkSession
except ModuleNotFoundError:
    sys.exit("pyspark is missing: pip install 'cassieq-spark[spark,demo]'")

MASTER = "local[2]"
#: For a Java that lives for minutes on few cores: half the work, as it compiles nothing twice.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STOP_SECONDS = 30
_SUFFIX = ".parquet"


def spark_settings(scratch: Path) -> dict[str, str]:
    """Settings of a Spark whose files all go to ``scratch``, which is made."""
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
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
    """Start Spark in this process, with the Python that runs it.

    Args:
        name: Of the application.
        scratch: Where its files go.
        master: Where it runs.
        log_level: What it logs.
        settings: Further ones.
        log: Where the errors of its processes go; None: to those of this process.
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
    """Let what is started inside, and all that it starts, write its errors to a file."""
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


class Results:
    """What a program has stored of each batch: a file under its number, never torn by a kill."""

    def __init__(self, folder: Path, name: str = "results") -> None:
        self._folder = folder / name
        self._folder.mkdir(parents=True, exist_ok=True)

    def store(self, batch: object, rows: pa.Table) -> None:
        """Store what a batch had; stored again, it replaces itself."""
        unfinished = self._folder / f".{batch}"
        pq.write_table(rows, unfinished)
        unfinished.replace(self._folder / f"{batch}{_SUFFIX}")

    def paths(self) -> list[Path]:
        return list(self._folder.glob(f"[0-9]*{_SUFFIX}"))

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Each batch, by the name that it was stored under."""
        for path in self.paths():
            yield path.stem, pq.read_table(path)

    def stored_at(self, name: str) -> int:
        """When a batch was stored last, in nanoseconds, as the file system says."""
        return (self._folder / f"{name}{_SUFFIX}").stat().st_mtime_ns

    def count(self) -> int:
        """How many messages they have."""
        return sum(int(pq.read_metadata(path).num_rows) for path in self.paths())
