"""Sinks that publish once, in the ledger of the queue that they publish to. One LWT each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cassieq_spark.ledger.state import HEAD, last_batch_of, sink_key
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    Delete,
    Op,
    Row,
    ServerNow,
    Slice,
    Store,
    Update,
    When,
    partition_of_ledger,
)

#: Sinks that one compare-and-set reaches.
SINKS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class SinkRow:
    """A sink as the ledger knows it.

    Attributes:
        name: Its name.
        batch_id: The last batch that it has published.
        seen_at: When a sweep first saw it, by the server's clock; None: none has.
    """

    name: str
    batch_id: int
    seen_at: datetime | None


def read_sinks(store: Store, queue_id: QueueId) -> tuple[list[SinkRow], datetime | None]:
    """Read all sinks by name, and the time, if there are any; see `Rows.sure_now`. One read."""
    found = store.read_rows(partition_of_ledger(queue_id), Slice(kinds=("sink",)))
    return [sink_of(row) for row in found.rows], found.sure_now


def sink_of(row: Row) -> SinkRow:
    """Decode a sink row."""
    values: Any = row
    return SinkRow(values["name"], last_batch_of(row), values["seen_at"])


def stamp_sinks(store: Store, queue_id: QueueId, sinks: Iterable[tuple[str, int]]) -> bool:
    """Write down that sinks were seen now. One LWT.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        sinks: Name and last batch of each; at the most `SINKS_AT_ONCE`.

    Returns:
        False: another sweep has, or one of them has published meanwhile.
    """
    stamped = [
        Update(
            sink_key(name),
            {"seen_at": ServerNow()},
            when=(When("batch_id", "=", batch_id), When("seen_at", "=", None)),
        )
        for name, batch_id in sinks
    ]
    return store.cas(partition_of_ledger(queue_id), stamped)


def forget_sinks(store: Store, queue_id: QueueId, sinks: Iterable[str], fence: datetime) -> bool:
    """Delete the rows of sinks, and publish no block any more that was begun before. One LWT.

    I4: what such a sink has written and not published by then, it never will.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        sinks: Their names; at the most `SINKS_AT_ONCE`.
        fence: No block begun at or before this instant; not below the fence as it stands (I10).

    Returns:
        False: another sweep has, or has raised the fence beyond.
    """
    raised = Update(HEAD, {"fence": fence}, when=(When("fence", "<=", fence),))
    gone: list[Op] = [Delete(sink_key(name)) for name in sinks]
    return store.cas(partition_of_ledger(queue_id), [raised, *gone])
