"""Spark's rim of settling: a DataFrame of receipts says what is done, or is to come again."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.settle import Settled, settle
from cassieq_spark.errors import MessageError, OptionError, SchemaError
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.options import SinkOptions
from cassieq_spark.options.roles import ACK
from cassieq_spark.queues import read_queue
from cassieq_spark.receipts import Receipt
from cassieq_spark.store import open_store

logger = logging.getLogger(__name__)

#: Messages were settled; ``count`` and ``stale`` say how many were, and were not.
SETTLED = "settle.done"

_COLUMN = "receipt"

#: Consumer group and token of a lease.
LeaseKey = tuple[str, UUID]


@dataclass(frozen=True)
class TaskReceipts(WriterCommitMessage):
    """The messages that one task's receipts name, by lease."""

    leases: dict[LeaseKey, Ranges]


class ReceiptWriter(DataSourceArrowWriter):
    """Acks or releases the messages whose receipts it is given. One LWT for each lease.

    A receipt whose lease does not hold its message any more is counted and reported, and harms
    nobody.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if columns != [(_COLUMN, "string")]:
            given = ", ".join(f"{name} {type_}" for name, type_ in columns)
            raise SchemaError(
                f"option 'operation' = {options.operation!r} takes one column, receipt string, "
                f'not: {given}; select it: df.select("receipt")'
            )
        if overwrite:
            raise OptionError("receipts are only ever appended: use mode('append')")
        if options.txn_app_id is not None:
            raise OptionError("option 'txnAppId' is for publishing; settling twice does no harm")
        self._options = options
        self._queue: QueueDefinition = read_queue(open_store(options.connection), options.queue)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipts:
        """On an executor: read receipts; nothing is settled yet."""
        monotons: defaultdict[LeaseKey, list[int]] = defaultdict(list)
        for batch in iterator:
            for text in batch.column(_COLUMN).to_pylist():
                receipt = Receipt.parse(text or "")
                if receipt.queue_id != self._queue.queue_id:
                    raise MessageError(
                        f"receipt {text!r} is of queue {receipt.queue_id}, not of "
                        f"{self._queue.queue_id}, which option 'queue' names"
                    )
                monotons[receipt.group, receipt.lease].append(receipt.monoton)
        return TaskReceipts({key: _ranges(each) for key, each in monotons.items()})

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Settle. One LWT and two reads for each lease."""
        named: defaultdict[LeaseKey, list[Range]] = defaultdict(list)
        for message in messages:
            for key, ranges in cast("TaskReceipts", message).leases.items():
                named[key] += ranges
        count = stale = 0
        for key, parts in named.items():
            done = self._settle(key, Ranges.of(*parts))
            count += done.count
            stale += done.stale
        logger.log(
            logging.WARNING if stale else logging.INFO,
            "queue %s: %s of %d messages; %d receipts were stale",
            self._queue.queue_id,
            self._options.operation,
            count,
            stale,
            extra={"action": SETTLED, "queue": self._queue.queue_id, "stale": stale},
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was settled."""

    def _settle(self, key: LeaseKey, ranges: Ranges) -> Settled:
        group, lease = key
        delivery = Delivery(open_store(self._options.connection), self._queue.queue_id, group)
        if self._options.operation == ACK:
            return settle(delivery, lease, acked=ranges, released={})
        return settle(delivery, lease, acked=Ranges(), released={self._options.delay: ranges})


def _ranges(monotons: Sequence[int]) -> Ranges:
    return Ranges.of(*(Range(each, each + 1) for each in monotons))
