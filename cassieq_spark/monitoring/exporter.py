"""Exact figures of all queues over HTTP, for Prometheus."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from prometheus_client import start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from cassieq_spark.arguments import address_of
from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    MissingSchemaError,
    OptionError,
    QueueStateError,
    SetupError,
)
from cassieq_spark.monitoring.metrics import LastRuns, families
from cassieq_spark.monitoring.readings import Readings
from cassieq_spark.monitoring.snapshot import Snapshot
from cassieq_spark.repair.runs import read_history
from cassieq_spark.signals import Stop
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: The queues, a queue, or the history of the repair could not be read; the next reading retries.
READ_FAILED = "exporter.read_failed"
#: Figures are published again, after Cassandra was unreachable.
READS_AGAIN = "exporter.reads_again"

#: A month of repair runs, one run every five minutes.
_FIRST_RUNS = 10_000
_LATER_RUNS = 100
_BY_THE_CALLER = (OptionError, SetupError, MissingSchemaError, QueueStateError)
#: The label of errors that belong to no queue.
_NO_QUEUE = ""


@dataclass(frozen=True, slots=True)
class _Read:
    """The figures to publish until the next reading; never changed, only replaced."""

    snapshot: Snapshot | None = None
    repairs: LastRuns = field(default_factory=LastRuns)
    errors: MappingProxyType[str, int] = field(default_factory=lambda: MappingProxyType({}))


class Exporter(Collector):
    """Reads the figures of queues, and publishes the last reading, so that no scrape waits.

    Args:
        connect: Opens the store; called again until it succeeds.
        queues: Names of the queues; empty for all.
    """

    def __init__(self, connect: Callable[[], Store], queues: Sequence[str] = ()) -> None:
        self._connect = connect
        self._queues = queues
        self._store: Store | None = None
        self._errors: Counter[str] = Counter()
        self._repairs = LastRuns()
        self._is_away = False
        self._read = _Read()

    def read(self, *, may_continue: Callable[[], bool] = lambda: True) -> Snapshot | None:
        """Read all figures once; see `Readings.read`. Two reads more, for the repair. No LWT.

        Args:
            may_continue: Called before each queue; once False, the reading is dropped.

        Returns:
            The figures; None if the reading was dropped.

        Raises:
            CassieqError: Cassandra cannot be reached, or its tables are missing; published, too.
        """
        try:
            if self._store is None:
                self._store = self._connect()
                self._readings = Readings(self._store, self._queues)
            snapshot = self._readings.read(may_continue=may_continue)
            self._read_repairs(self._store)
        except CassieqError as error:
            self._note(_NO_QUEUE, error)
            self._is_away = True
            self._publish(None)
            raise
        if not may_continue():
            return None
        for name, found in snapshot.errors.items():
            self._note(name, found)
        if self._is_away:
            logger.warning("figures can be read again", extra={"action": READS_AGAIN})
        self._is_away = False
        self._publish(snapshot)
        return snapshot

    def collect(self) -> Iterator[Metric]:
        """The metrics of the last reading, for the registry."""
        read = self._read
        return families(read.snapshot, read.repairs, read.errors)

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()

    def _read_repairs(self, store: Store) -> None:
        limit = _LATER_RUNS if self._repairs.judged else _FIRST_RUNS
        try:
            self._repairs = self._repairs.after(read_history(store, limit))
        except ConnectError:
            raise
        except CassieqError as error:
            self._note(_NO_QUEUE, error)

    def _note(self, queue: str, error: CassieqError) -> None:
        self._errors[queue] += 1
        what = f"queue {queue!r}" if queue else "the queues, or the history of the repair"
        logger.warning(
            "could not read %s: %s", what, error, extra={"action": READ_FAILED, "queue": queue}
        )

    def _publish(self, snapshot: Snapshot | None) -> None:
        self._read = _Read(snapshot, self._repairs, MappingProxyType(dict(self._errors)))


def export(exporter: Exporter, every: timedelta, stop: Stop) -> None:
    """Read the figures until ``stop`` is set, with a pause of ``every`` between two readings.

    Raises:
        OptionError, SetupError, MissingSchemaError, QueueStateError: The first reading found that
            the arguments are wrong. Errors of later readings are published and logged.
    """
    for number in itertools.count():
        try:
            snapshot = exporter.read(may_continue=lambda: not stop.is_set())
        except CassieqError as error:
            if number == 0 and isinstance(error, _BY_THE_CALLER):
                raise
        else:
            if number == 0 and snapshot is not None:
                for found in snapshot.errors.values():
                    if isinstance(found, QueueStateError):
                        raise found
        if stop.wait(every):
            return


@contextmanager
def serve(exporter: Exporter, host: str, port: int) -> Iterator[str]:
    """Answer HTTP requests at an address until the context ends; port 0 for any free port.

    Yields:
        The URL of the metrics.

    Raises:
        OptionError: The address cannot be used.
    """
    registry = CollectorRegistry()
    registry.register(exporter)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise OptionError(
            f"can't listen at {host}, port {port}: {error}; give another address with --listen"
        ) from error
    try:
        yield f"http://{address_of(host, server.server_port)}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
