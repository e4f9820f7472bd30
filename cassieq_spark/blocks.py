"""Writing a block: Arrow batches into chunks under an id of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from uuid import UUID, uuid1

import pyarrow as pa

from cassieq_spark.chunks import cut
from cassieq_spark.model import Chunk, Draft, QueueDefinition
from cassieq_spark.options import SinkOptions
from cassieq_spark.store.protocol import Store


def new_block_id() -> UUID:
    """A time-based uuid that no other process makes, whatever its host's address (I10)."""
    multicast = 1 << 40  # as RFC 9562 asks of a random node
    return uuid1(node=secrets.randbits(48) | multicast, clock_seq=secrets.randbits(14))


def write_block(
    store: Store,
    queue: QueueDefinition,
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
) -> Draft:
    """Write the messages of one task as a block of its own; nobody sees it until it is published.

    No LWT, no read: one write for each chunk, several at a time.

    Raises:
        MessageError: A null value, or a message over the limit.
        StoreError: Cassandra did not take it, within the time allowed.
    """
    chunks = _Counted(
        cut(
            batches,
            chunk_size=queue.chunk_size,
            bucket_size=queue.bucket_size,
            chunk_bytes=options.chunk_bytes,
            compression=options.compression,
            max_message_bytes=options.max_message_bytes,
        )
    )
    block = new_block_id()
    store.write_chunks(queue.queue_id, block, chunks)
    return Draft(block, chunks.messages)


class _Counted:
    """Passes chunks on, and remembers where the last one stopped."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self.messages = 0

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self._chunks:
            self.messages = chunk.stop
            yield chunk
