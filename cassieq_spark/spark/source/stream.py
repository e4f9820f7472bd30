"""Spark's rim of the streaming source."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.columns import Columns, check_still_there
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.spark.source.tasks import TaskPart
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

#: The progress of a batch comes without metrics.
REPORT_FAILED = "progress.report_failed"

#: Spark asks for all there is with this trigger only, as our own limit has another type.
_ONCE = (
    "trigger(once=True) is not supported: Spark ends the query after one batch without asking for "
    "the next, which is what acks it; use trigger(availableNow=True). If the query has that "
    "trigger, another source of it does not support it, and Spark falls back to once: read the "
    "other source in a query of its own"
)


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    """What one Spark task reads."""

    parts: tuple[TaskPart, ...]


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Leases messages batch by batch; see the folder's docstring for the flow.

    Built twice for every run of a query: beside Spark's driver, where all methods but `read` are
    called, and once to be pickled to executors. So it opens nothing until it is asked something.
    """

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._group = options.stream_group()
        self._reader: QueueReader | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most ``maxMessagesPerTrigger`` messages a batch."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def initialOffset(self) -> dict[str, Any]:
        """The offset before the first batch; checks that the queue is there."""
        self._open()
        return initial_offset(self._options.queue, self._group)

    def prepareForTriggerAvailableNow(self) -> None:
        """Deliver what is there now, in as many batches as that takes, then stop."""
        self._open().aim()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Ack the batch that ended at ``start``; lease the next. One LWT, none when idle.

        Raises:
            OptionError: The trigger is Once, after whose only batch nothing would ack it.
        """
        if isinstance(limit, ReadAllAvailable):
            raise OptionError(_ONCE)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return cast("dict[str, Any]", self._open().next_batch(start, limit=most))

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Metrics for the query's progress, see `cassieq_spark.spark.progress`; never raises."""
        try:
            return self._reader.report() if self._reader else None
        except Exception as error:  # noqa: BLE001 - whatever it is, no metric is worth a query
            logger.warning(
                "could not report the metrics of the query: %s",
                error,
                extra={
                    "action": REPORT_FAILED,
                    "queue": self._options.queue,
                    "group": self._group,
                },
            )
            return None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The tasks of the batch that ends at ``end``; takes its lease again if it is a replay."""
        del start
        reader = self._open()
        tasks = reader.tasks(
            end,
            messages_per_task=self._options.messages_per_task,
            limit=self._options.max_messages_per_trigger,
        )
        return [TaskPartition(parts) for parts in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: fetch a task's messages.

        What can't be read is left out, and goes to the dead-letter queue with the ack of the
        batch: one LWT and two reads for a task that has some.
        """
        store = open_store(self._options.connection)
        for part in cast("TaskPartition", partition).parts:
            yield from self._read_part(store, part)

    def _read_part(self, store: Store, part: TaskPart) -> Iterator[pa.RecordBatch]:
        # Only tasks need it: the process beside the driver begins sooner without.
        from cassieq_spark.fetch.read import Unreadable, fetch  # noqa: PLC0415

        found = Unreadable()
        try:
            yield from fetch(
                store,
                part.queue,
                part.pieces,
                self._columns.rows(part.queue, part.receipt_prefix),
                on_unreadable=found.add,
            )
        finally:
            if reasons := found.by_reason():
                receipt = Receipt.parse(f"{part.receipt_prefix}0")
                Consumer(store, part.queue, receipt.group).reject_unreadable(
                    receipt.lease, reasons, deliveries=receipt.deliveries, with_batch=True
                )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: Spark calls it after a later `latestOffset`, which has acked the batch."""

    def stop(self) -> None:
        """Ack what Spark has committed, release the rest; see `Reader.stop`."""
        if self._reader is not None:
            self._reader.stop()

    def _open(self) -> QueueReader:
        if self._reader is None:
            store = open_store(self._options.connection)
            queue = read_queue(store, self._options.queue)
            check_still_there(self._columns, queue)
            self._reader = QueueReader(
                store,
                queue,
                self._group,
                starting=self._options.starting_position,
                fail_on_data_loss=self._options.fail_on_data_loss,
                request=_request(self._options),
                max_trigger_delay=self._options.max_trigger_delay,
                with_receipts=self._options.include_receipts,
                checkpoint=self._options.checkpoint_location,
            )
            _survive_termination()
        return self._reader


def _request(options: SourceOptions) -> LeaseRequest:
    return LeaseRequest(
        lease=options.lease,
        min_messages=options.min_messages_per_trigger,
        max_bytes=options.max_bytes_per_trigger,
        max_in_flight=options.max_in_flight,
        skip_older_than=options.skip_older_than,
        retry_backoff=options.retry_backoff,
    )


def _survive_termination() -> None:
    """Let this process live through SIGTERM, by which Spark stops a query.

    Spark closes its end of the socket as well; the runner then leaves its loop and calls `stop`,
    which releases what is held. Without a handler it would die before that. The handler does
    nothing at all: Spark may send the signal twice, and one that takes a lock would then wait for
    itself.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: None)
