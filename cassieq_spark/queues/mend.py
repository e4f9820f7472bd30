"""The row of a queue that can't be read, as far as its deletion needs it."""

from __future__ import annotations

from typing import Any

from cassieq_spark.errors import InvariantError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues.record import QueueRecord, Status, read_record
from cassieq_spark.store.protocol import Store, partition_of_queue
from cassieq_spark.store.tables import Table


def read_mended(store: Store, name: str, *, serial: bool = False) -> QueueRecord | None:
    """Read a queue's row; what can't be read of it is guessed, so that it can be deleted.

    One read; of a row that can't be read, another one, and a scan of the heads of all ledgers: the
    version is that of its last ledger. The size of its buckets is what the row says, if that can
    be, or the default; what that misses of its messages, a sweep with a scan finds.
    """
    try:
        return read_record(store, name, serial=serial)
    except InvariantError:
        rows = store.read_rows(partition_of_queue(name), serial=serial).rows
    return _mended(store, name, rows[0]) if rows else None


def _mended(store: Store, name: str, row: Any) -> QueueRecord:
    version = max(_versions(store, name), default=1)
    size = row["bucket_size"]
    plain = QueueDefinition(name, version)
    if size is not None and size > 0:
        plain = QueueDefinition(name, version, bucket_size=size, chunk_size=1)
    retired = row["retired"] or 0
    possible = range(max(0, version - 1))
    status = Status.DELETING if row["status"] == Status.DELETING else Status.ACTIVE
    return QueueRecord(plain, status, retired if retired in possible else 0, row["change"])


def _versions(store: Store, name: str) -> list[int]:
    found = (str(row["queue_id"]).rpartition("@") for row in store.scan(Table.LEDGER, ("head",)))
    return [int(version) for queue, _, version in found if queue == name and version.isdecimal()]
