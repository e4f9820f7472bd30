"""A queue on a store in memory, for tests of the repair: buckets of 4 messages, chunks of 2."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa

from cassieq_spark.arrow.chunks import Cutter, cut
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.unique import digests_of
from cassieq_spark.ledger.window import UniqueIds, UniqueWindow
from cassieq_spark.model import Chunk, PendingBlock, UniquePer
from cassieq_spark.queues import create_queue, purge_queue
from cassieq_spark.repair.read import Seen, see, see_all
from cassieq_spark.repair.report import Report
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import Table
from tests.support.faults import FakeClock, make_block_id

BUCKET_SIZE = 4
CHUNK_SIZE = 2
WRITE_TIMEOUT = timedelta(hours=1)
LEASE = timedelta(seconds=60)
WINDOW = timedelta(minutes=5)


class RepairedQueue:
    """The queue, and what tests do with it; ``beside`` another one, in the same store."""

    def __init__(
        self, name: str = "orders", *, beside: RepairedQueue | None = None, **settings: Any
    ) -> None:
        self.clock = beside.clock if beside else FakeClock()
        self.store = beside.store if beside else MemoryStore(self.clock, here=self.clock.here)
        self.definition = create_queue(
            self.store,
            name,
            bucket_size=BUCKET_SIZE,
            chunk_size=CHUNK_SIZE,
            lease=LEASE,
            **settings,
        )
        self.queue_id = self.definition.queue_id
        self.leases: dict[str, Lease] = {}

    def write(self, count: int) -> UUID:
        """Write a block without publishing it."""
        self.clock.advance(timedelta(milliseconds=1))
        block = make_block_id(self.clock())
        self.store.write_chunks(self.queue_id, block, chunks_of(count))
        return block

    def publish(self, *counts: int, repeats: Collection[int] = ()) -> list[UUID]:
        """Publish blocks by one LWT; each number is the count of messages of a block.

        Args:
            repeats: The messages, counted over all blocks, that have the unique id of the first
                one, so that they are left out; if there are any, each message has an id.
        """
        blocks = [self.write(count) for count in counts]
        given = iter(range(sum(counts)))
        names = [
            [b"0" if (each := next(given)) in repeats else b"%d" % each for _ in range(count)]
            for count in counts
        ]
        pending = [
            PendingBlock(
                block,
                len(each),
                ids=digests_of(each, None, UniquePer.QUEUE) if repeats else b"",
            )
            for block, each in zip(blocks, names, strict=True)
        ]
        window = UniqueWindow(WINDOW, UniqueIds(self.clock.seconds)) if repeats else None
        publish(Ledger(self.store, self.queue_id), pending, window=window)
        return blocks

    def register(self, group: str) -> None:
        ensure_group(ConsumerGroup(Ledger(self.store, self.queue_id), group), starting="earliest")

    def consume(self, group: str, limit: int | None = None, *, ack: bool = True) -> Lease:
        """Ack the group's batch before, if ``ack``, and lease the next; of 0, none at all."""
        self.register(group)
        held = self.leases.get(group) if ack else None
        request = LeaseRequest(
            held=held.token if held else None,
            token=uuid4(),
            lease=LEASE,
            max_messages=limit,
            stop=0 if limit == 0 else Ledger(self.store, self.queue_id).read_head().next,
        )
        consumers = ConsumerGroup(Ledger(self.store, self.queue_id), group)
        self.leases[group] = consumers.lease(request)
        return self.leases[group]

    def settle(self, group: str, count: int) -> None:
        """Lease so many messages and ack them; nothing is leased afterwards."""
        self.consume(group, count)
        self.consume(group, 0)

    def purge(self) -> None:
        """Throw away all of it; what is leased, too."""
        self.definition = purge_queue(self.store, self.definition.name, force=True)
        self.queue_id = self.definition.queue_id
        self.leases.clear()

    def repair(self, *steps: Step, store: Store | None = None, **options: Any) -> Report:
        store = store or self.store
        return run_once(
            store,
            scan=options.pop("scan", DriverScan(store)),
            steps=steps or tuple(Step),
            write_timeout=WRITE_TIMEOUT,
            **options,
        )

    def seen(self) -> Seen:
        """What a repair run sees of it first."""
        seen = see(Ledger(self.store, self.queue_id))
        assert seen is not None
        assert see_all(self.store, self.definition.name)[self.queue_id] == seen
        return seen

    def buckets(self) -> set[tuple[UUID, int]]:
        """The buckets that there are."""
        rows: Iterable[Any] = self.store.scan(Table.CHUNK)
        return {(row["block"], row["bucket"]) for row in rows}

    def ledger_blocks(self) -> list[UUID]:
        return [block.block for block in Ledger(self.store, self.queue_id).read_blocks()]

    @property
    def finalised(self) -> int:
        return Ledger(self.store, self.queue_id).read_head().finalised

    def damage(self, block: UUID, keep: Callable[[Chunk], bool]) -> None:
        """Remove chunks of a block behind everybody's back."""
        for (_, owner, _), chunks in self.store._chunks.items():
            if owner == block:
                for start in [start for start, chunk in chunks.items() if not keep(chunk)]:
                    del chunks[start]

    def overwrite(self, block: UUID, start: int, data: bytes) -> None:
        """Change the data of the chunk that begins at this offset of a block."""
        for (_, owner, _), chunks in self.store._chunks.items():
            if owner == block and start in chunks:
                chunks[start] = replace(chunks[start], data=data)


def chunks_of(count: int) -> list[Chunk]:
    starts = range(0, count, CHUNK_SIZE)
    return [
        Chunk(start // BUCKET_SIZE, start, stop, data_of(stop - start))
        for start in starts
        for stop in (min(count, start + CHUNK_SIZE),)
    ]


@cache
def data_of(count: int) -> bytes:
    """A chunk's data: so many messages of 400 bytes, compressed."""
    values = [random.Random(number).randbytes(400) for number in range(count)]
    cutter = Cutter(
        chunk_size=count,
        bucket_size=count,
        chunk_bytes=1 << 20,
        compression="lz4",
        max_message_bytes=1 << 20,
    )
    (chunk,) = cut([pa.record_batch({"value": pa.array(values, pa.binary())})], cutter)
    return chunk.data


def buckets_of(blocks: Sequence[UUID], *numbers: int) -> set[tuple[UUID, int]]:
    return {(block, number) for block in blocks for number in numbers}


def make_busy(queue: RepairedQueue) -> None:
    """Something to do for each step: what is dead, too old, settled, unpublished, purged."""
    queue.publish(8)
    queue.purge()
    queue.publish(6, 10)
    queue.settle("billing", 4)
    queue.consume("dying", 12, ack=False)
    queue.write(3)
    queue.clock.advance(timedelta(days=2))
    queue.publish(5)
    queue.settle("billing", 6)
