"""The writer that settles the messages whose receipts a DataFrame has."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from cassieq_spark.arrow.chunks import PLAIN
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.client.settling import LeaseKey
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.errors import MessageError, OptionError, SchemaError
from cassieq_spark.groups.settle import Settled
from cassieq_spark.model import QueueDefinition, partition_of_id
from cassieq_spark.queues import read_queue
from cassieq_spark.schemas.assign import assign
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.writing import NOW, REPLACE, WITH_BATCH
from cassieq_spark.spark.shipping import Shipped
from cassieq_spark.spark.sink.columns import validate_replaced, validate_settled
from cassieq_spark.spark.sink.message_writer import arrow_schema
from cassieq_spark.spark.sink.query import is_in_batch
from cassieq_spark.spark.sink.receipt_rows import Defaults, Outcomes, read_outcomes
from cassieq_spark.store import open_store

logger = logging.getLogger(__name__)

#: Messages were settled: ``count`` of them; ``stale`` receipts changed nothing.
SETTLED = "settle.done"
#: Messages of a micro-batch were settled before the micro-batch was done.
SETTLED_EARLY = "settle.before_batch"


@dataclass(frozen=True)
class TaskReceipts(WriterCommitMessage):
    """The receipts that one task has read, by lease.

    Attributes:
        outcomes: What to do with which messages.
        in_batch: True if the write is inside `foreachBatch`.
    """

    outcomes: dict[LeaseKey, Outcomes]
    in_batch: bool


class ReceiptWriter(Shipped, DataSourceArrowWriter):
    """Settles messages by their receipts. One LWT per lease.

    A receipt is stale if its lease no longer holds the message. Stale receipts are counted
    and logged, and change nothing.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("receipts can only be appended: use mode('append')")
        if options.txn_app_id is not None:
            raise OptionError("option 'txnAppId' is for publishing; settling twice does no harm")
        self._options = options
        self._queue: QueueDefinition = read_queue(open_store(options.connection), options.queue)
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if self._queue.schema is None or options.operation != REPLACE:
            validate_settled(columns, options.operation)
            if self._queue.schema is not None and "value" in dict(columns):
                raise SchemaError(
                    f"queue {options.queue!r} has a schema: leave out the column 'value', and "
                    "replace messages by a write of their own, with 'operation' = 'replace'"
                )
            return
        own = schema_of(self._queue.schema)
        names = set(validate_replaced(columns, own.names))
        rows = arrow_schema([field for field in schema.fields if field.name in names])
        assign(rows.empty_table(), own)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipts:
        """Read receipts, without settling anything, on an executor."""
        defaults = Defaults(
            queue=self._queue,
            operation=self._options.operation,
            delay=self._options.delay,
            seconds=self._options.seconds or self._queue.lease,
            reason=self._options.reason,
            max_message_bytes=self._options.max_message_bytes,
            form=form_of(self._queue) if self._options.operation == REPLACE else PLAIN,
        )
        return TaskReceipts(read_outcomes(iterator, defaults), in_batch=is_in_batch())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Settle, or record the outcomes for the ack of the batch.

        One LWT and two reads per lease; three LWTs more if the lease has messages to replace.

        Raises:
            MessageError: A row replaces a message that another row names; nothing has changed.
        """
        named: defaultdict[LeaseKey, Outcomes] = defaultdict(Outcomes)
        tasks = [message for message in messages if isinstance(message, TaskReceipts)]
        for task in tasks:
            for key, outcomes in task.outcomes.items():
                named[key].merge(outcomes)
        for key, outcomes in named.items():
            if again := outcomes.replaced_and_named_again():
                raise MessageError(
                    f"a row replaces message {key.receipts(again)[0]!r}, and another row of the "
                    f"write names it, too ({again.count} such messages under its lease); nothing "
                    "has changed. Write one row for each message that is replaced"
                )
        with_batch = self._with_batch(in_batch=any(task.in_batch for task in tasks))
        count = stale = 0
        for key, outcomes in named.items():
            for done in self._settle(key, outcomes, with_batch=with_batch):
                count += done.count
                stale += done.stale.count
        logger.log(
            logging.WARNING if stale else logging.INFO,
            "queue %s: %s %d messages (operation %s); %d receipts were stale",
            self._queue.queue_id,
            "recorded for the ack of their batch" if with_batch else "settled",
            count,
            self._options.operation,
            stale,
            extra={
                "action": SETTLED,
                "queue": self._queue.queue_id,
                "count": count,
                "stale": stale,
            },
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: tasks settle nothing."""

    def _with_batch(self, *, in_batch: bool) -> bool:
        if in_batch and self._options.settle == NOW:
            logger.warning(
                "queue %s: messages of a running micro-batch are settled at once (option 'settle' "
                "is 'now'); if the driver dies before Spark commits the batch, its replay leaves "
                "them out, and a sink that overwrites what it wrote under the batch id loses them",
                self._queue.queue_id,
                extra={"action": SETTLED_EARLY, "queue": self._queue.queue_id},
            )
        return in_batch if self._options.settle is None else self._options.settle == WITH_BATCH

    def _settle(self, key: LeaseKey, outcomes: Outcomes, *, with_batch: bool) -> Iterator[Settled]:
        lease, deliveries = key.lease, key.deliveries
        queue = partition_of_id(self._queue, key.queue_id) or self._queue
        consumer = Consumer(open_store(self._options.connection), queue, key.group)
        if settlement := outcomes.settlement():
            yield consumer.settle(lease, settlement, deliveries=deliveries, with_batch=with_batch)
        for delay, replacements in outcomes.replacements():
            yield consumer.replace(
                lease, replacements, deliveries=deliveries, delay=delay, with_batch=with_batch
            )
