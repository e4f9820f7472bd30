"""Reads the history that the queue of a chaos run has kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta

from cassieq_spark.groups.history import SPAN, HistoryEvent, stream_span
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import read_queue
from cassieq_spark.store.protocol import Store
from trials.chaos.history_checker import Entry

_NONE = timedelta(0)


def ends_of(store: Store, queue: str) -> Mapping[int, int]:
    """The monoton that the next message of each partition would get."""
    parts = enumerate(read_queue(store, queue).by_partition)
    return {number: Ledger(store, part.queue_id).read_head().next for number, part in parts}


def entries_of(
    store: Store, queue: str, group: str, skews: Mapping[str, timedelta]
) -> Iterator[Entry]:
    """The whole history of a group, and the acks of all others.

    Args:
        store: Where the queue is kept.
        queue: The queue.
        group: The group of which all is read.
        skews: How far the wall clock of each reader is ahead of that of this process.
    """
    # The monotonic clock, which all processes share, by the wall clock.
    began = time.time() - time.monotonic()
    for number, part in enumerate(read_queue(store, queue).by_partition):
        for event in _events_of(store, part):
            if event.group == group or event.did == "acked":
                at = (event.at - skews.get(event.by or "", _NONE)).timestamp() - began
                for each in event.monotons:
                    for monoton in range(each.start, each.stop):
                        yield Entry(
                            event.group,
                            (number, monoton),
                            str(event.did),
                            event.by,
                            at,
                            str(event.lease),
                            event.deliveries,
                        )


def _events_of(store: Store, part: QueueDefinition) -> Iterator[HistoryEvent]:
    ledger = Ledger(store, part.queue_id)
    end = ledger.read_head().next
    for group in ledger.read_groups():
        for span in range(-(-end // SPAN)):
            yield from stream_span(store, part, group.name, span)
