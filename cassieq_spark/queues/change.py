"""Changing a queue's row, whoever else does and whatever answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import uuid4

from cassieq_spark.errors import ContentionError, OutcomeUnknownError
from cassieq_spark.queues.record import QueueRecord, read_record
from cassieq_spark.store.protocol import (
    Insert,
    Op,
    Store,
    Update,
    Values,
    When,
    partition_of_queue,
)
from cassieq_spark.store.race import pauses


class Read(Protocol):
    """Reads the row of a queue; see `read_record`."""

    def __call__(self, store: Store, name: str, *, serial: bool = False) -> QueueRecord | None:
        """The row; None if there is none."""


def change(
    store: Store,
    name: str,
    decide: Callable[[QueueRecord | None], Values | None],
    *,
    read: Read = read_record,
) -> QueueRecord | None:
    """Change a queue's row. One LWT and two serial reads.

    Each change writes a token of its own, on the token that was read: one that arrives late finds
    another, and a lost answer is resolved by looking for ours.

    Args:
        store: Where the queue is kept.
        name: Which queue.
        decide: Given the row, what to write; None: nothing. It may do what must be done before,
            and be called again.
        read: Reads the row.

    Returns:
        The row as it is then.

    Raises:
        ContentionError: Lost to others, or no answer, again and again.
    """
    token = uuid4()
    for _ in pauses():
        found = read(store, name, serial=True)
        if found is not None and found.change == token:
            return found
        try:
            values = decide(found)
            if values is None:
                return found
            store.cas(partition_of_queue(name), [_on(found, {**values, "change": token})])
        except OutcomeUnknownError:
            continue
    raise ContentionError(f"queue {name!r} could not be changed; try again")


def _on(found: QueueRecord | None, values: Values) -> Op:
    if found is None:
        return Insert((), values, if_absent=True)
    return Update((), values, when=(When("change", "=", found.change),))
