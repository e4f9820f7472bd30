"""The streaming source, as Spark calls it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.errors import OptionError
from cassieq_spark.processes import process_name
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.shipping import Shipped
from cassieq_spark.spark.source.columns import Columns, check_has_all_values, check_still_there
from cassieq_spark.spark.source.tasks import TaskPart
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from cassieq_spark.groups.lease import LeaseRequest
    from cassieq_spark.spark.source.queue_reader import QueueReader
    from cassieq_spark.spark.source.selection import Selection

logger = logging.getLogger(__name__)

#: Spark's progress of a batch lacks our metrics.
REPORT_FAILED = "progress.report_failed"

#: When this process got SIGTERM.
_terminations: list[float] = []
#: Seconds within which a process whose JVM was killed has another parent.
_ORPHANED_WITHIN = 0.5
_LOOK_SECONDS = 0.01

#: Only this trigger has the limit `ReadAllAvailable`: our own default limit has another type.
_ONCE = (
    "trigger(once=True) is not supported: Spark ends the query after one batch without asking for "
    "the next one, and only that acks a batch; use trigger(availableNow=True). If the query has "
    "that trigger, another source of it does not support it, and Spark falls back to once: read "
    "the other source in a query of its own"
)


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    """The part of a batch that one Spark task reads."""

    parts: tuple[TaskPart, ...]


class MessageStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Leases messages batch by batch; see the folder's docstring for the flow.

    Spark builds the reader twice per run of a query: beside its driver, where it calls all methods
    except `read`, and once more to pickle it to executors. So the reader opens nothing before a
    call.
    """

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._group = options.stream_group()
        self._reader: QueueReader | None = None
        self._parent = 0

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxMessagesPerTrigger``."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def initialOffset(self) -> dict[str, Any]:
        """The offset before the first batch; checks that the queue exists."""
        from cassieq_spark.spark.source import offsets  # noqa: PLC0415

        self._open()
        if self._options.is_of_several:
            return offsets.initial_offset_of_queues(self._group)
        return offsets.initial_offset(self._options.queue, self._group)

    def prepareForTriggerAvailableNow(self) -> None:
        """Deliver only messages that are published by now, in as many batches as needed."""
        self._open().aim()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Ack the batch that ended at ``start``; lease the next. One LWT, none when idle.

        Raises:
            OptionError: The trigger is Once, with which nothing would ack the only batch.
        """
        if isinstance(limit, ReadAllAvailable):
            raise OptionError(_ONCE)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return cast("dict[str, Any]", self._open().next_batch(start, limit=most))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Metrics for the query's progress; never raises. See `cassieq_spark.spark.progress`."""
        try:
            return self._reader.report() if self._reader else None
        except Exception as error:  # noqa: BLE001 (no error of a metric may end a query)
            logger.warning(
                "could not report the metrics of the query: %s",
                error,
                extra={
                    "action": REPORT_FAILED,
                    "queue": self._options.queue or self._options.queue_pattern,
                    "group": self._group,
                },
            )
            return None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The tasks of the batch that ends at ``end``; see `QueueReader.tasks`."""
        del start
        tasks = self._open().tasks(
            end,
            messages_per_task=self._options.messages_per_task,
            min_partitions=self._options.min_partitions,
            limit=self._options.max_messages_per_trigger,
        )
        return [TaskPartition(parts) for parts in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch a task's messages, on an executor.

        Messages that cannot be read are left out, and the ack of the batch dead-letters them. To
        record them, their task takes one LWT and two reads.
        """
        store = open_store(self._options.connection)
        for part in cast("TaskPartition", partition).parts:
            yield from self._read_part(store, part)

    def _read_part(self, store: Store, part: TaskPart) -> Iterator[pa.RecordBatch]:
        # Only tasks need it, and the process beside the driver starts faster without it.
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
                from cassieq_spark.consumer.consumer import Consumer  # noqa: PLC0415 (rarely)

                receipt = Receipt.parse(f"{part.receipt_prefix}0")
                Consumer(store, part.queue, receipt.group).reject_unreadable(
                    receipt.lease, reasons, deliveries=receipt.deliveries, with_batch=True
                )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: Spark calls it after a later `latestOffset`, which has acked the batch."""

    def stop(self) -> None:
        """Ack or release the batch in hand; see `PartitionReader.stop`.

        If the JVM has died, nothing is released: its tasks may still run, and the sink may already
        have the batch under its id.
        """
        if self._reader is not None:
            self._reader.stop(with_release=_is_stopped_by_spark(self._parent))

    def _open(self) -> QueueReader:
        if self._reader is None:
            # Only the process beside the driver needs it; tasks and the planner start without it.
            from cassieq_spark.spark.source.queue_reader import QueueReader  # noqa: PLC0415

            options = self._options
            store = open_store(options.connection)
            queue = None
            if not options.is_of_several:
                queue = read_queue(store, options.queue)
                check_still_there(self._columns, queue)
                check_has_all_values(self._columns, queue)
            selection = self._selection(store) if queue is None else None
            self._reader = QueueReader(
                store,
                queue,
                self._group,
                select=selection,
                check_fits=None if selection is None else selection.check_left,
                starting=options.starting_position,
                fail_on_data_loss=options.fail_on_data_loss,
                request=_request_of(options),
                max_trigger_delay=options.max_trigger_delay,
                with_receipts=options.include_receipts,
                checkpoint=options.checkpoint_location,
            )
            self._parent = os.getppid()
            _survive_termination()
        return self._reader

    def _selection(self, store: Store) -> Selection:
        # A query of one queue starts faster without it.
        from cassieq_spark.spark.source.selection import Selection  # noqa: PLC0415

        return Selection(store, self._options, self._columns)


def _request_of(options: SourceOptions) -> LeaseRequest:
    """The lease request of a query, which has a name for people."""
    # As the reader, only beside the driver.
    from cassieq_spark.groups.lease import LeaseRequest  # noqa: PLC0415

    request = LeaseRequest(**options.lease_limits)
    return request if request.by else replace(request, by=process_name())


class RefusedStreamReader(Shipped, DataSourceStreamReader):
    """Stands in for a reader that cannot be made: the first call raises the error.

    If Spark gets the error instead of a reader, it calls `stop` of the missing reader,
    and shows the resulting `UnboundLocalError` after our error.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raise the error; Spark calls this first."""
        raise self._error

    def initialOffset(self) -> dict[str, Any]:
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raise the error."""
        del start, limit
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        del partition
        raise self._error


def _survive_termination() -> None:
    """Let this process live through SIGTERM, by which Spark stops a query.

    Spark closes its end of the socket as well. Its runner then leaves its loop and calls `stop`,
    which releases the messages; without a handler the process would die before that. The handler
    takes no lock: Spark may send the signal twice, and the handler would wait for itself.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: _terminations.append(time.monotonic()))


def _is_stopped_by_spark(parent: int) -> bool:
    """True if Spark stops the query; False if the JVM is gone, so that only its socket closed.

    Spark sends SIGTERM before it closes the socket. Without the signal, a process whose JVM was
    killed gets another parent, possibly a moment after it sees the end of the socket.

    Args:
        parent: The process that has started this one.
    """
    deadline = time.monotonic() + _ORPHANED_WITHIN
    while not _terminations and time.monotonic() < deadline:
        if os.getppid() != parent:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
