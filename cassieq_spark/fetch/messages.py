"""Reading messages: chunks to Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa

from cassieq_spark.chunks import decode
from cassieq_spark.errors import LeaseLostError
from cassieq_spark.fetch.pieces import Piece, bucket_slices
from cassieq_spark.model import QueueDefinition
from cassieq_spark.rows import message_rows
from cassieq_spark.store.protocol import Store

#: Batches of fewer messages, and fewer bytes, are put together before Spark gets them; each costs
#: it some 0.1 ms. Copying twice as many, of a kilobyte, takes as long.
SMALL_COUNT, SMALL_BYTES = 200, 1 << 20


def fetch(
    store: Store,
    queue: QueueDefinition,
    pieces: Iterable[Piece],
    *,
    include_headers: bool,
    receipt_prefix: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read messages, piece after piece. One read for each bucket; no side effect.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        pieces: Which messages.
        include_headers: Whether the rows have a column ``headers``.
        receipt_prefix: What their receipts begin with; None for rows without receipts.

    Raises:
        LeaseLostError: Messages are not there any more.
    """
    as_rows = partial(
        message_rows,
        queue=queue.name,
        include_headers=include_headers,
        receipt_prefix=receipt_prefix,
    )
    batches = (batch for piece in pieces for batch in _fetch_piece(store, queue, piece, as_rows))
    return _put_together(batches)


def _fetch_piece(
    store: Store,
    queue: QueueDefinition,
    piece: Piece,
    as_rows: Callable[..., pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    at = piece.offsets.start
    for _, chunk in store.read_chunks(queue.queue_id, bucket_slices(piece, queue)):
        if chunk.stop <= at:
            continue
        if chunk.start > at:
            break
        messages = decode(chunk, piece.offsets)
        yield as_rows(
            messages,
            first_monoton=piece.first_monoton + at - piece.offsets.start,
            published_at=piece.published_at,
            delivery_count=piece.deliveries,
        )
        at += messages.num_rows
    if at < piece.offsets.stop:
        missing = piece.first_monoton + at - piece.offsets.start
        raise LeaseLostError(
            f"queue {queue.queue_id}: message {missing} is not in the store (block {piece.block}, "
            f"offset {at}): either this batch's lease ran out, others finished it and the sweep "
            "deleted it, or data was lost; the audit of the repair job tells which"
        )


def _put_together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    small: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        small.append(batch)
        count, size = count + batch.num_rows, size + batch.get_total_buffer_size()
        if count >= SMALL_COUNT or size >= SMALL_BYTES:
            yield small[0] if len(small) == 1 else pa.concat_batches(small)
            small, count, size = [], 0, 0
    if small:
        yield pa.concat_batches(small)
