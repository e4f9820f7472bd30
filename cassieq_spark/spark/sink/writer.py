"""Spark's rim of the sink: streams and batch writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cassieq_spark.arrow.fingerprint import Fingerprint, Fingerprinting
from cassieq_spark.errors import InvariantError, OptionError
from cassieq_spark.ledger.batches import check_order, skip_published
from cassieq_spark.ledger.decide import Standing, standing_of
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.read import read_sink
from cassieq_spark.model import PendingBlock, QueueDefinition, SinkBatch
from cassieq_spark.producer.blocks import times_of_task, write_blocks
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.writing import BY_BATCH, PUBLISH
from cassieq_spark.spark.sink.columns import validate_published
from cassieq_spark.spark.sink.query import (
    BATCH_ID,
    QUERY_ID,
    check_handed_over,
    check_trigger,
    told,
)
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        batch: The sink and batch that it wrote for; None for a batch write without a name.
        pending: Its blocks; None if the batch was published before, so that nothing was written.
        fingerprint: Of its rows, if there is a batch.
        last: What the sink had published, if that was this batch.
    """

    batch: SinkBatch | None
    pending: tuple[PendingBlock, ...] | None
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    last: SinkBatch | None = None


class _Writing:
    """What streams and batch writes share. Everything that can be wrong is found here, first."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "a queue is only ever appended to: use outputMode('append') or mode('append')"
            )
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        validate_published(columns)
        self._options = options
        self._queue: QueueDefinition = read_queue(self._store(), options.queue)
        validate_published(columns, strict_fifo=self._queue.strict_fifo)

    def _store(self) -> Store:
        return open_store(self._options.connection)

    def _write(self, batches: Iterator[pa.RecordBatch], batch: SinkBatch | None) -> TaskDone:
        store, queue_id = self._store(), self._queue.queue_id
        if batch is None:
            return TaskDone(None, self._write_blocks(store, batches))
        passing = Fingerprinting(batches)
        last = read_sink(store, queue_id, batch.sink)
        check_order(queue_id, batch, last)
        if standing_of(batch, last) is Standing.NEW:
            return TaskDone(batch, self._write_blocks(store, passing), passing.found)
        for _ in passing:
            pass  # what it would have written
        return TaskDone(batch, pending=None, fingerprint=passing.found, last=last)

    def _write_blocks(
        self, store: Store, batches: Iterable[pa.RecordBatch]
    ) -> tuple[PendingBlock, ...]:
        context = TaskContext.get()
        times = times_of_task(context.partitionId() if context else 0)
        return tuple(write_blocks(store, self._queue, batches, self._options, most_times=times))

    def _publish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        done = [cast("TaskDone", message) for message in messages if message is not None]
        batches = {each.batch for each in done}
        if len(batches) > 1:
            raise InvariantError(f"the tasks of one write named several batches: {batches}")
        batch = next(iter(batches), None)
        if batch is not None:
            fingerprint = sum((each.fingerprint for each in done), Fingerprint())
            # Without rows there is nothing to lose, whatever was published.
            content = str(fingerprint) if fingerprint.rows else None
            batch = replace(batch, fingerprint=content)
        fail_on_changed = self._options.fail_on_changed_batch
        # A task that found the batch published makes the whole batch published: all or nothing.
        last = next((each.last for each in done if each.last is not None), None)
        if batch is not None and last is not None:
            skip_published(self._queue.queue_id, batch, last, fail_on_changed=fail_on_changed)
            return
        pending = [written for each in done for written in each.pending or ()]
        publish(
            self._store(),
            self._queue.queue_id,
            pending,
            batch=batch,
            fail_on_changed=fail_on_changed,
        )


class MessageStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Publishes every micro-batch of a query once, whoever replays it how often."""

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        *,
        overwrite: bool,
        checkpoint: str | None = None,
    ) -> None:
        check_trigger(checkpoint)
        if options.operation != PUBLISH:
            raise OptionError(
                "option 'operation' is for batch writes: settle inside foreachBatch, with "
                "batch.select('receipt').write"
            )
        if options.exactly_once == BY_BATCH:
            raise OptionError(
                "option 'exactlyOnce' = 'batch' is for writes inside foreachBatch: a streaming "
                "query publishes every micro-batch once by itself"
            )
        if options.txn_app_id is not None:
            raise OptionError(
                "option 'txnAppId' is for batch writes: a streaming query publishes every "
                "micro-batch once by itself"
            )
        super().__init__(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """On an executor: write one task's messages as a block."""
        return self._write(iterator, _batch_of_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the micro-batch visible. One LWT."""
        del batchId
        check_handed_over(messages)
        self._publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the blocks to the sweep."""


class MessageWriter(_Writing, DataSourceArrowWriter):
    """Publishes one DataFrame; once, if ``txnAppId`` and ``txnVersion`` name it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """On an executor: write one task's messages as a block."""
        return self._write(iterator, self._batch())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the write visible. One LWT."""
        self._publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the blocks to the sweep."""

    def _batch(self) -> SinkBatch | None:
        app, version = self._options.txn_app_id, self._options.txn_version
        if self._options.exactly_once == BY_BATCH:
            return _batch_of_foreach(app)
        return None if app is None or version is None else SinkBatch(f"app:{app}", version)


def _batch_of_task() -> SinkBatch:
    """The micro-batch of a stream into the queue."""
    query, batch = told()
    if query is None or batch is None:
        raise InvariantError(
            f"Spark did not tell this task its query and batch ({QUERY_ID}, {BATCH_ID}); write "
            "from foreachBatch with the option exactlyOnce instead"
        )
    return SinkBatch(f"query:{query}", int(batch))


def _batch_of_foreach(name: str | None) -> SinkBatch:
    """The micro-batch in whose ``foreachBatch`` a batch write is; several may go to one queue.

    Their sinks have another kind of name than that of the query's own sink.
    """
    query, batch = told()
    if query is None or batch is None:
        raise OptionError(
            "option 'exactlyOnce' = 'batch' is for writes inside foreachBatch, in the thread in "
            "which Spark calls the function, and not over Spark Connect: Spark did not tell this "
            "task which query and batch it is a part of. Give 'txnAppId' and 'txnVersion' instead"
        )
    return SinkBatch(f"batch:{query}" + (f":{name}" if name else ""), int(batch))
