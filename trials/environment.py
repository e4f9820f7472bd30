"""What all trials share: arguments, a Cassandra, an end by Ctrl-C, a report as the last line."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, QueueId
from cassieq_spark.node import Cluster
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import DEFAULT_KEYSPACE, ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.protocol import Store

#: The last line of a trial, as JSON.
Report = dict[str, Any]

_INTERRUPTED = 130
_BLOCK = 100_000
_BEGAN = time.monotonic()


def tell(what: object) -> None:
    """Print progress: to standard error, with the seconds since the start."""
    print(f"{time.monotonic() - _BEGAN:6.1f} s  {what}", file=sys.stderr, flush=True)


def arguments(about: str | None) -> argparse.ArgumentParser:
    """A parser with ``--seed``."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    return parser


def carry_out(
    name: str, play: Callable[[Path], Report], *, fine: Callable[[Report], object]
) -> int:
    """Run a trial in a temporary folder, print its report, and return the exit code.

    Ctrl-C, SIGTERM and SIGHUP end it with 130. The folder is kept if something is wrong.

    Args:
        name: Name of the trial, for the folder.
        play: Runs the trial in the folder, and returns the report.
        fine: Whether the report says that all is as promised.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix=f"cassieq-{name}-"))
    is_kept = True
    try:
        report = play(folder)
        is_kept = not fine(report)
    except KeyboardInterrupt:
        tell("stopped")
        is_kept = False
        return _INTERRUPTED
    finally:
        if is_kept:
            tell(f"logs and results are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(report))
    return int(is_kept)


@dataclass(frozen=True, slots=True)
class Cassandra:
    """A cluster with all tables, and a store on it."""

    cluster: Cluster
    connection: ConnectionOptions
    store: Store

    @property
    def hosts(self) -> str:
        """All nodes, as options take them: ``address:port,...``."""
        return ",".join(self.connection.contact_points)


@contextmanager
def cassandra(keyspace: str = DEFAULT_KEYSPACE, **nodes: Any) -> Iterator[Cassandra]:
    """Run a Cassandra of our own; `Cluster` takes the other arguments."""
    with Cluster(**nodes) as cluster:
        hosts = tuple(f"{address}:{cluster.port}" for address in cluster.contact_points)
        connection = ConnectionOptions(contact_points=hosts, keyspace=keyspace)
        apply_schema(connection)
        with closing(open_store(connection)) as store:
            yield Cassandra(cluster, connection, store)


def fill(store: Store, queue: QueueDefinition, messages: int) -> None:
    """Publish numbers from 0 as text; in a new queue, they are the monotons."""
    for start in range(0, messages, _BLOCK):
        numbers = range(start, min(messages, start + _BLOCK))
        batch = pa.record_batch({"value": pa.array([str(number) for number in numbers])})
        written = write_block(store, queue, [batch], SinkOptions(queue=queue.name))
        publish(Ledger(store, queue.queue_id), [written])


def depth(store: Store, queue_id: QueueId) -> int | None:
    """Messages that the groups of a queue have not settled; None while there is no group."""
    groups = queue_stats(Ledger(store, queue_id)).groups
    return sum(group.depth for group in groups) if groups else None
