"""The peak memory of writers and readers, for any size of messages and queue.

Writes messages with Spark, reads them with a stream, and streams them into another queue, each in
a separate application. Watches the peak memory (VmHWM of /proc) of each process: Spark's Java, its
Python workers, and the source's Python process beside the driver. Prints JSON lines, in MiB; for
streams also the rate in each tenth of the batches, in thousand messages a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self
from uuid import uuid4

import psutil
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.bench.lab import start_spark
from benchmarks.lines import show
from cassieq_spark.queues import create_queue
from trials.environment import cassandra
from trials.spark import stop_spark

_LOOK_SECONDS = 0.05
_KIB_PER_MIB = 1024
#: Messages of one write.
_AT_ONCE = 1_000_000
#: The queue that a stream writes to.
_RELAYED = "relayed"
_TENTHS = 10


def main() -> None:
    """Run each application in a child process, so that each has memory of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=1024, help="of a message")
    parser.add_argument("--batch", type=int, default=200_000, help="maxMessagesPerTrigger")
    given = parser.parse_args()
    with (
        cassandra(nodes=1, heap_mb=1024) as environment,
        tempfile.TemporaryDirectory() as folder,
    ):
        host = environment.hosts
        queue = create_queue(environment.store, "memory").name
        create_queue(environment.store, _RELAYED)
        environment.store.close()  # a fork has none of its threads
        about = {"messages": given.messages, "bytes": given.bytes}
        for step in (write, read, relay):
            child = os.fork()
            if not child:
                show(step=step.__name__, **about, **step(Path(folder), host, queue, given))
                sys.stdout.flush()
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                sys.exit(f"{step.__name__} failed")


def write(folder: Path, host: str, queue: str, given: argparse.Namespace) -> dict[str, object]:
    """Write all messages, at most a million in each batch write."""
    spark = start_spark(folder, host)
    with Watch() as watch:
        for start in range(0, given.messages, _AT_ONCE):
            numbers = spark.range(start, min(given.messages, start + _AT_ONCE))
            frame = numbers.selectExpr(f"cast(randstr({given.bytes}) as binary) as value")
            options = {"spark.cassandra.connection.host": host, "queue": queue}
            frame.write.format("cassieq").options(**options).mode("append").save()
    stop_spark(spark)
    return watch.report()


def read(folder: Path, host: str, queue: str, given: argparse.Namespace) -> dict[str, object]:
    """Read all messages with a stream, and drop them."""
    return _stream(folder, host, queue, given, "noop", {})


def relay(folder: Path, host: str, queue: str, given: argparse.Namespace) -> dict[str, object]:
    """Read all messages with a stream that writes them into another queue."""
    into = {"spark.cassandra.connection.host": host, "queue": _RELAYED}
    return _stream(folder, host, queue, given, "cassieq", into)


def _stream(
    folder: Path,
    host: str,
    queue: str,
    given: argparse.Namespace,
    form: str,
    into: dict[str, str],
) -> dict[str, object]:
    spark = start_spark(folder, host)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", given.messages)
    with Watch() as watch:
        options = {
            "spark.cassandra.connection.host": host,
            "queue": queue,
            "group": f"g-{form}",
            "maxMessagesPerTrigger": str(given.batch),
        }
        frame = spark.readStream.format("cassieq").options(**options).load().select("value")
        writer = frame.writeStream.format(form).options(**into).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / uuid4().hex)).start()
        query.awaitTermination()
    rates = _by_tenths([each for each in query.recentProgress if each.numInputRows])
    stop_spark(spark)
    return {**watch.report(), "thousand_per_second": rates}


def _by_tenths(progress: Sequence[StreamingQueryProgress]) -> list[int]:
    """Thousands of messages a second in each tenth of the batches; of all, if they are few."""
    size = max(1, -(-len(progress) // _TENTHS))
    parts = (progress[start : start + size] for start in range(0, len(progress), size))
    return [
        round(
            sum(each.numInputRows for each in part)
            / sum(each.durationMs["triggerExecution"] for each in part)
        )
        for part in parts
    ]


class Watch:
    """Keeps the peak memory of each process that this process has started."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, int], int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def report(self) -> dict[str, object]:
        """Seconds, and the highest peak among the processes of each kind."""
        most: defaultdict[str, int] = defaultdict(int)
        for (kind, _), kib in self._most.items():
            most[kind] = max(most[kind], kib)
        peaks = {f"{kind}_mib": round(kib / _KIB_PER_MIB) for kind, kib in sorted(most.items())}
        return {"seconds": round(time.monotonic() - self._began, 1), **peaks}

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            for process in psutil.Process().children(recursive=True):
                with suppress(OSError, psutil.Error):  # it may have ended meanwhile
                    self._look(process.pid, process.cmdline())

    def _look(self, pid: int, command: Sequence[str]) -> None:
        status = Path(f"/proc/{pid}/status").read_text()
        most = next((line for line in status.splitlines() if line.startswith("VmHWM")), None)
        if most is not None:
            self._most[_kind_of(command), pid] = int(most.split()[1])


def _kind_of(command: Sequence[str]) -> str:
    if "java" in "".join(command[:1]):
        return "java"
    return "source_runner" if "source_runner" in " ".join(command) else "python_worker"


if __name__ == "__main__":
    main()
