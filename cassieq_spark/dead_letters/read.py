"""Reading messages that lie scattered in their queue, each chunk of it once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cassieq_spark.errors import UnreadableError
from cassieq_spark.fetch import OnUnreadable, fetch, find_pieces
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.store.protocol import Store


def read_messages(
    store: Store,
    queue: QueueDefinition,
    monotons: Ranges,
    on_unreadable: OnUnreadable | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read messages in order. About one read for each bucket that has some of them.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        monotons: Which messages; none is finalised.
        on_unreadable: As for `fetch`.

    Returns:
        Rows of the source, with headers.

    Raises:
        LeaseLostError: Messages are not there any more.
        UnreadableError: Messages can't be read, and nobody is to be told.
    """
    run = bridged(monotons, queue.chunk_size)
    pieces = find_pieces(store, queue.queue_id, run, deliveries=None)
    parts = iter(monotons)
    part = next(parts, None)

    def tell(found: Range, reason: str) -> None:
        for part in Ranges.of(found) & monotons:
            if on_unreadable is None:
                raise UnreadableError(f"queue {queue.queue_id}: messages {part} are {reason}")
            on_unreadable(part, reason)

    batches = fetch(store, queue, pieces, include_headers=True, on_unreadable=tell)
    for batch in batches:
        wanted = []
        for monoton in batch.column("monoton").to_pylist():
            while part is not None and part.stop <= monoton:
                part = next(parts, None)
            wanted.append(part is not None and part.start <= monoton)
        yield batch if all(wanted) else batch.filter(pa.array(wanted))


def bridged(monotons: Ranges, gap: int) -> Ranges:
    """Join ranges between which there are fewer than ``gap`` monotons.

    >>> str(bridged(Ranges.parse("0-1,3-4,9-10"), 3))
    '0-4,9-10'
    """
    joined: list[Range] = []
    for part in monotons:
        if joined and part.start - joined[-1].stop < gap:
            joined[-1] = Range(joined[-1].start, part.stop)
        else:
            joined.append(part)
    return Ranges(tuple(joined))
