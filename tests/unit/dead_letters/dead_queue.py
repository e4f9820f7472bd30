"""A dead-letter queue of two queues, with dead letters in it, in a line of a test."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from cassieq_spark.dead_letters.survey import read_dead
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import ensure_group, read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import LEASE, make_clocked_store

HEADERS = pa.map_(pa.string(), pa.string())
MOMENT = timedelta(milliseconds=1)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def headers_of(number: int, queue: str | None, **told: str) -> list[tuple[str, str]]:
    """As `dead_letter_messages` writes them: each an hour later than the one before."""
    own = [("own", f"h{number}")]
    if queue is None:
        return own
    values = {
        "origin-queue": queue,
        "origin-group": "g",
        "origin-monoton": str(number),
        "deliveries": "5",
        "reason": "too often",
        "dead-lettered-at": (NOON + timedelta(hours=number)).isoformat(),
        "published-at": NOON.isoformat(),
    } | {name.replace("_", "-"): value for name, value in told.items()}
    return own + [(f"cassieq.{name}", value) for name, value in values.items()]


class DeadQueue:
    """``orders`` and ``payments`` send their dead letters to ``dead``; letter n has value n.

    Args:
        origins: The queue of each letter, in order; None for a message that is no dead letter.
    """

    def __init__(self, origins: Iterable[str | None] = ()) -> None:
        self.memory, self.clock = make_clocked_store()
        self.store = FaultyStore(self.memory)
        self.dead = create_queue(self.memory, "dead", bucket_size=8, chunk_size=4, lease=LEASE)
        for name in ("orders", "payments"):
            queue = create_queue(
                self.memory,
                name,
                bucket_size=8,
                chunk_size=4,
                max_deliveries=5,
                dead_letter_queue="dead",
            )
            ensure_group(
                ConsumerGroup(Ledger(self.memory, queue.queue_id), "g"), starting="earliest"
            )
            setattr(self, name, queue)
        self.count = 0
        self.add(origins)

    orders: QueueDefinition
    payments: QueueDefinition

    def add(self, origins: Iterable[str | None], **told: str) -> None:
        """Let letters come, in one block."""
        numbered = list(enumerate(origins, self.count))
        if not numbered:
            return
        self.count += len(numbered)
        batch = pa.record_batch(
            {
                "key": pa.array([f"k{number}" for number, _ in numbered]),
                "value": pa.array([str(number) for number, _ in numbered]),
                "headers": pa.array([headers_of(*each, **told) for each in numbered], HEADERS),
            }
        )
        options = SinkOptions(queue="dead")
        written = write_block(self.memory, self.dead, [batch], options, takes_reserved=True)
        publish(Ledger(self.memory, self.dead.queue_id), [written])

    def left(self) -> list[int]:
        """Which letters are dead."""
        return numbers_of(read_dead(self.memory, self.dead))

    def held(self) -> list[str]:
        """What the leases of the group hold that letters are redriven in."""
        states = read_group_states(Ledger(self.memory, self.dead.queue_id))
        slots = states[ADMIN_GROUP].slots if ADMIN_GROUP in states else ()
        return [str(slot.monotons) for slot in slots if slot.monotons]

    def fail(self, fault: Fault, *, after: int) -> None:
        """Let the compare-and-set after so many of `store` fail."""
        cas, left = self.store.cas, after

        def troubled(*call: Any) -> bool:
            nonlocal left
            if left == 0:
                self.store.fault = fault
            left -= 1
            return cas(*call)

        self.store.cas = troubled  # type: ignore[method-assign]

    def lapse(self) -> None:
        """Let every lease run out."""
        self.clock.advance(LEASE + MOMENT)

    def everything(self) -> Any:
        """All that is stored."""
        return copy.deepcopy((self.memory._rows, self.memory._chunks))

    def arrived(self, name: str) -> list[int]:
        """The values of a queue's messages, in order."""
        return [int(row["value"]) for row in self.messages(name)]

    def messages(self, name: str) -> list[dict[str, Any]]:
        return read_all(self.memory, getattr(self, name))


def read_all(store: Store, queue: QueueDefinition) -> list[dict[str, Any]]:
    """Every message of a queue."""
    every = Ranges.of(Range(0, Ledger(store, queue.queue_id).read_head().next))
    pieces = find_pieces(Ledger(store, queue.queue_id), every, deliveries=None)
    batches = fetch(store, queue, pieces)
    return [row for batch in batches for row in batch.to_pylist()]


def numbers_of(monotons: Ranges) -> list[int]:
    return [monoton for part in monotons for monoton in range(part.start, part.stop)]
