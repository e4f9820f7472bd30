"""Pausing: readers lease nothing more; writers go on, since to keep messages is a queue's job."""

from __future__ import annotations

from cassieq_spark.ledger.gate import set_paused
from cassieq_spark.ledger.read import read_head
from cassieq_spark.queues.record import read_queue
from cassieq_spark.store.protocol import Store


def pause_queue(store: Store, name: str) -> bool:
    """Let readers lease nothing more from their next batch on. One LWT and two reads.

    They ack what they have, and go on looking. A purge keeps the pause; a deletion does not.

    Returns:
        False: it was paused already.

    Raises:
        QueueStateError: There is no active queue of that name.
        ContentionError: Lost to others again and again.
    """
    return set_paused(store, read_queue(store, name).queue_id, paused=True)


def resume_queue(store: Store, name: str) -> bool:
    """Let readers go on with their next batch. One LWT and two reads.

    Returns:
        False: it was not paused.

    Raises:
        QueueStateError: There is no active queue of that name.
        ContentionError: Lost to others again and again.
    """
    return set_paused(store, read_queue(store, name).queue_id, paused=False)


def is_paused(store: Store, name: str) -> bool:
    """Whether readers pause. Two reads.

    Raises:
        QueueStateError: There is no active queue of that name.
    """
    return read_head(store, read_queue(store, name).queue_id).paused
