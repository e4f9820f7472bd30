"""What the dead-letter queue has: each copy is looked at when it becomes visible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cassieq_spark.arrow.chunks import decode
from cassieq_spark.model import BucketSlice, Range
from cassieq_spark.store.memory import MemoryStore
from tests.property.machine.ledger import Block
from tests.property.machine.model import QueueModel


class Letters:
    """The copies of a queue's dead messages, by group and monoton.

    Attributes:
        copies: How many there are of each.
    """

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self.copies: Counter[tuple[str, int]] = Counter()

    def look_at(
        self, queue: QueueModel, target: QueueModel, blocks: Sequence[Block], sink: str
    ) -> None:
        """Check what was published into the dead-letter queue."""
        (block,) = blocks
        assert sink.startswith(f"dead:{queue.queue.queue_id}:"), sink
        for letter in self._read(target, block):
            headers = dict(letter["headers"])
            group = headers["cassieq.origin-group"]
            monoton = int(headers["cassieq.origin-monoton"])
            assert headers["cassieq.origin-queue"] == queue.queue.name
            assert letter["value"].decode() == value_of(queue, monoton), (letter, "another one")
            assert monoton in queue.dead.get(group, set()), (letter, "I9: it is not dead")
            self.copies[group, monoton] += 1
            copies, times = self.copies[group, monoton], queue.epochs(group)
            assert copies <= times, (group, monoton, copies, "I9: dead-lettered twice")

    def is_copied(self, group: str, monoton: int) -> bool:
        """Whether there is a copy."""
        return self.copies[group, monoton] > 0

    def _read(self, target: QueueModel, block: Block) -> list[Any]:
        count = block.stop - block.start
        size = target.queue.bucket_size
        slices = [
            BucketSlice(block.block, bucket, 0, count) for bucket in range((count - 1) // size + 1)
        ]
        found = self._memory.read_chunks(target.queue.queue_id, slices)
        letters = [row for _, chunk in found for row in decode(chunk, Range(0, count)).to_pylist()]
        assert len(letters) == count, (block, "I3: letters are missing")
        return letters


def value_of(queue: QueueModel, monoton: int) -> str:
    """The value that the message with this monoton was written with."""
    block = queue.ledger.published[monoton]
    return str(queue.first_values[block.block] + block.offset_of(monoton))
