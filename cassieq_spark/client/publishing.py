"""Putting: rows into blocks, and one publish that makes all of them visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from cassieq_spark.arguments import check_count, check_many, check_text
from cassieq_spark.arrow.fingerprint import Fingerprinting
from cassieq_spark.client.messages import NewMessage, Row, Visible, batches_of, row_of, schema_of
from cassieq_spark.errors import InvariantError, MessageError, OptionError
from cassieq_spark.ledger.batches import check_order, skip_published
from cassieq_spark.ledger.once import Once, once_of_key, read_mark
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.read import read_sink
from cassieq_spark.model import PendingBlock, QueueDefinition, Range, SinkBatch
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import check_delayable, read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store


def message_limit(queue: str) -> int:
    """Most bytes that a message may have, with its key and headers."""
    return SinkOptions(queue=queue).max_message_bytes


def batch_named(
    app: str | None, version: int | None, idempotency_key: str | None = None
) -> SinkBatch | Once | None:
    """The name under which a batch is published once; None for a batch without one.

    It is the one that Spark's batch write with the same ``txnAppId`` and ``txnVersion`` has; or
    one that is remembered for a day.

    Raises:
        OptionError: One is given without the other, or is out of range; or both names are given.
    """
    if idempotency_key is not None:
        check_text("idempotency_key", idempotency_key)
    if app is not None:
        check_text("txn_app_id", app)
    if version is not None:
        check_count("txn_version", version, least=0)
    if idempotency_key is not None:
        if not idempotency_key.strip() or app is not None or version is not None:
            raise OptionError(
                "an idempotency key is not empty, and goes without txn_app_id and txn_version, "
                "not with " + repr((idempotency_key, app, version))
            )
        return once_of_key(idempotency_key)
    if app is None and version is None:
        return None
    if not app or version is None:
        raise OptionError(
            "txn_app_id and txn_version name a batch together: give a name that is not empty and "
            f"a number from 0 on, or neither, not {app!r} and {version!r}"
        )
    return SinkBatch(f"app:{app}", version)


def put_stream(
    store: Store,
    queue: QueueDefinition,
    messages: Iterable[bytes | str | NewMessage],
    *,
    visible: Visible = None,
    batch: SinkBatch | Once | None = None,
) -> Range | None:
    """Write messages as they come, then publish all of them at once. One LWT and a few reads.

    Returns:
        Their monotons, an empty range if there were no messages; None if the batch was published
        before, so that nothing was written.

    Raises:
        BatchChangedError: The batch was published before with other messages.
        BatchOrderError: A later batch was published before.
    """
    if isinstance(messages, NewMessage):
        raise MessageError(
            "messages must be a list of values, such as [message]; for a single value, use put"
        )
    check_many("messages", messages, "a list of values; for a single value, use put")
    limit = message_limit(queue.name)
    rows = (
        row_of(message, limit=limit, what=f"message {number} (counted from 0)")
        for number, message in enumerate(messages)
    )
    batches: Iterable[pa.RecordBatch] = batches_of(rows)
    if batch is None:
        return _publish(store, queue, _write(store, queue, batches, visible), None)
    if isinstance(batch, Once):
        # Under a key whatever comes is the same.
        if read_mark(store, queue.queue_id, batch) is not None:
            return None
        return _publish(store, queue, _write(store, queue, batches, visible), batch)
    last = read_sink(store, queue.queue_id, batch.sink)
    check_order(queue.queue_id, batch, last)
    is_published = last is not None and last.batch_id == batch.batch_id
    passing = Fingerprinting(batches)
    if last is not None and is_published:
        for _ in passing:
            pass
        # Without messages there is nothing to lose, whatever was published.
        content = str(passing.found) if passing.found.rows else None
        batch = replace(batch, fingerprint=content)
        skip_published(queue.queue_id, batch, last, fail_on_changed=True)
        return None
    written = _write(store, queue, passing, visible)
    return _publish(store, queue, written, replace(batch, fingerprint=str(passing.found)))


def _publish(
    store: Store,
    queue: QueueDefinition,
    written: PendingBlock,
    batch: SinkBatch | Once | None,
) -> Range | None:
    if not written.count:
        return Range(0, 0)
    return publish(store, queue.queue_id, [written], batch=batch).monotons


def put_rows(store: Store, queue: str, rows: Sequence[tuple[Row, Visible]]) -> list[int]:
    """Publish rows at once, a block for each time of delivery; there must be one. One LWT.

    Returns:
        The monoton of each row; those of one time of delivery are in their order.
    """
    definition = read_queue(store, queue)
    dealt: defaultdict[Visible, list[int]] = defaultdict(list)
    for index, (_, visible) in enumerate(rows):
        dealt[visible].append(index)
    pending = []
    for visible, indices in dealt.items():
        part = [rows[index][0] for index in indices]
        pending.append(_write(store, definition, batches_of(part, schema_of(part)), visible))
    published = publish(store, definition.queue_id, pending).monotons
    if published is None:
        raise InvariantError(f"queue {definition.queue_id}: a publish without a name came to none")
    order = [index for indices in dealt.values() for index in indices]
    monotons = dict(zip(order, range(published.start, published.stop), strict=True))
    return [monotons[index] for index in range(len(rows))]


def _write(
    store: Store, queue: QueueDefinition, batches: Iterable[pa.RecordBatch], visible: Visible
) -> PendingBlock:
    if visible is not None:
        check_delayable(queue)
    written = write_block(store, queue, batches, SinkOptions(queue=queue.name))
    return replace(written, visible=visible)
