"""Queues: what is defined, by name. Creating one is two LWTs; reading one is one read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from cassieq_spark.errors import (
    ContentionError,
    OptionError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.ledger.read import open_ledger
from cassieq_spark.model import (
    DEFAULT_BUCKET_SIZE,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_LEASE,
    QueueDefinition,
    validate_name,
)
from cassieq_spark.store.protocol import (
    Insert,
    Row,
    ServerNow,
    Store,
    Values,
    partition_of_queue,
)
from cassieq_spark.store.race import pauses
from cassieq_spark.store.tables import Table

_ACTIVE = "active"
_FIRST_VERSION = 1


def create_queue(  # noqa: PLR0913 (each is a setting of its own, by name)
    store: Store,
    name: str,
    *,
    bucket_size: int = DEFAULT_BUCKET_SIZE,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    lease: timedelta = DEFAULT_LEASE,
    max_deliveries: int = 0,
    dead_letter_queue: str | None = None,
) -> QueueDefinition:
    """Create a queue. Two LWTs.

    Args:
        store: Where it is to be kept.
        name: See `validate_name`.
        bucket_size: Messages per Cassandra partition; a multiple of ``chunk_size``.
        chunk_size: Messages per row, at the most.
        lease: How long a reader holds messages unless it says otherwise; whole seconds.
        max_deliveries: After so many, a message is dead; 0 for never.
        dead_letter_queue: Where dead messages go; made, without a limit, if it does not exist.
            None: they are dropped.

    Raises:
        OptionError: A value is out of range.
        QueueStateError: There is a queue of that name.
        ContentionError: No answer, again and again.
    """
    validate_name("queue", name)
    if chunk_size < 1 or bucket_size < 1 or bucket_size % chunk_size:
        raise OptionError(
            f"bucket size {bucket_size} must be a positive multiple of chunk size {chunk_size}"
        )
    if lease < timedelta(seconds=1) or lease % timedelta(seconds=1):
        raise OptionError(f"a lease must last whole seconds, at least a second, not {lease}")
    if max_deliveries < 0:
        raise OptionError(f"max deliveries must be 0 (no limit) or more, not {max_deliveries}")
    if dead_letter_queue is not None:
        _check_dead_letter_queue(name, dead_letter_queue, max_deliveries)
        _make_dead_letter_queue(store, name, dead_letter_queue)
    queue = QueueDefinition(
        name, _FIRST_VERSION, bucket_size, chunk_size, lease, max_deliveries, dead_letter_queue
    )
    values: Values = {
        "version": queue.version,
        "status": _ACTIVE,
        "bucket_size": bucket_size,
        "chunk_size": chunk_size,
        "lease_seconds": int(lease.total_seconds()),
        "max_deliveries": max_deliveries,
        "dead_letter_queue": dead_letter_queue or "",
        "created_at": ServerNow(),
    }
    in_doubt = False
    for _ in pauses():
        try:
            # The ledger first: whoever sees the queue's row finds its ledger.
            open_ledger(store, queue.queue_id)
            created = store.cas(partition_of_queue(name), [Insert((), values, if_absent=True)])
        except OutcomeUnknownError:
            in_doubt = True
            continue
        found = read_queue(store, name)
        # After a lost answer, a queue that is defined as asked is the one that was asked for.
        if created or (in_doubt and replace(found, created_at=None) == queue):
            return found
        raise _exists(name)
    raise ContentionError(f"Cassandra gave no answer about creating queue {name!r}; try again")


def _check_dead_letter_queue(name: str, other: str, max_deliveries: int) -> None:
    validate_name("queue", other)
    if not max_deliveries:
        raise OptionError(
            f"a dead-letter queue needs a limit: give max deliveries, or leave out {other!r}"
        )
    if other == name:
        raise OptionError(f"queue {name!r} can't be its own dead-letter queue")


def _make_dead_letter_queue(store: Store, name: str, other: str) -> None:
    """Make it if there is none; but not for a queue that can't be made."""
    if store.read_rows(partition_of_queue(name)).rows:
        raise _exists(name)
    if not store.read_rows(partition_of_queue(other)).rows:
        create_queue(store, other)


def _exists(name: str) -> QueueStateError:
    return QueueStateError(f"queue {name!r} exists already: cassieq queue show {name}")


def read_queue(store: Store, name: str) -> QueueDefinition:
    """Read a queue's definition. One read.

    Raises:
        QueueStateError: There is no active queue of that name.
    """
    rows = store.read_rows(partition_of_queue(name)).rows
    if not rows:
        raise QueueStateError(
            f"there is no queue {name!r}; create it with: cassieq queue create {name}"
        )
    if rows[0]["status"] != _ACTIVE:
        raise QueueStateError(
            f"queue {name!r} is {rows[0]['status']}, which this release can't work with"
        )
    return _definition_of(rows[0])


def list_queues(store: Store) -> list[QueueDefinition]:
    """List all queues by name. Reads the whole table of queues."""
    return sorted(map(_definition_of, store.scan(Table.QUEUE)), key=lambda queue: queue.name)


def _definition_of(row: Row) -> QueueDefinition:
    values: Any = row
    return QueueDefinition(
        name=values["name"],
        version=values["version"],
        bucket_size=values["bucket_size"],
        chunk_size=values["chunk_size"],
        lease=timedelta(seconds=values["lease_seconds"]),
        max_deliveries=values["max_deliveries"],
        dead_letter_queue=values["dead_letter_queue"] or None,
        created_at=values["created_at"],
    )
