"""Creating a queue, also anew where one of that name was deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cassieq_spark.errors import ExistsError
from cassieq_spark.ledger.read import open_ledger
from cassieq_spark.model import (
    DEFAULT_BUCKET_SIZE,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_LEASE,
    QueueDefinition,
)
from cassieq_spark.queues.change import change
from cassieq_spark.queues.end import close_versions
from cassieq_spark.queues.record import QueueRecord, Status, active, read_record, settings_of
from cassieq_spark.queues.validate import validate
from cassieq_spark.store.protocol import ServerNow, Store, Values

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
    strict_fifo: bool = False,
    expire_after: timedelta | None = None,
    keep_settled: timedelta | None = None,
) -> QueueDefinition:
    """Create a queue. Two LWTs; where one was deleted that the repair has not retired, some reads.

    Args:
        store: Where it is to be kept.
        name: See `validate_name`.
        bucket_size: Messages per Cassandra partition; a multiple of ``chunk_size``.
        chunk_size: Messages per row, at the most.
        lease: How long a reader holds messages unless it says otherwise; whole seconds.
        max_deliveries: After so many, a message is dead; 0 for never.
        dead_letter_queue: Where dead messages go; made, without a limit, if it does not exist.
            None: they are dropped.
        strict_fifo: Whether a group is given no message before the ones below it are settled.
        expire_after: What was not consumed so long after it became visible is thrown away; whole
            seconds. None: nothing is.
        keep_settled: What every group has settled is kept until so long after it became visible,
            and groups can go back to it; whole seconds. None: it is not kept.

    Raises:
        OptionError: A value is out of range.
        ExistsError: There is a queue of that name.
        ContentionError: No answer, again and again.
    """
    wanted = validate(
        QueueDefinition(
            name,
            _FIRST_VERSION,
            bucket_size,
            chunk_size,
            lease,
            max_deliveries,
            dead_letter_queue,
            strict_fifo=strict_fifo,
            expire_after=expire_after,
            keep_settled=keep_settled,
        )
    )
    if dead_letter_queue is not None:
        _refuse_if_there(name, read_record(store, name))
        make_dead_letter_queue(store, dead_letter_queue)

    def create(found: QueueRecord | None) -> Values:
        _refuse_if_there(name, found)
        version = _FIRST_VERSION
        if found is not None:
            # I10: before anything of a new version is there, nothing can get into an old one.
            close_versions(store, found)
            version = found.version + 1
        # The ledger first: whoever sees the queue's row finds its ledger.
        open_ledger(store, replace(wanted, version=version).queue_id)
        begun: Values = {"version": version, "status": Status.ACTIVE, "created_at": ServerNow()}
        first: Values = {"retired": 0} if found is None else {}
        return {**settings_of(wanted), **begun, **first}

    return active(name, change(store, name, create)).definition


def make_dead_letter_queue(store: Store, name: str) -> None:
    """Make the queue for another one's dead messages if there is none. One read if there is."""
    found = read_record(store, name)
    if found is None or found.is_gone:
        create_queue(store, name)


def _refuse_if_there(name: str, found: QueueRecord | None) -> None:
    if found is not None and not found.is_gone:
        raise ExistsError(f"queue {name!r} exists already: cassieq queue show {name}")
