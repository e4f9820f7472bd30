"""Spark's edge of the batch read: a queue's messages without leasing them, and the views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cassieq_spark.fetch import fetch, pieces_of
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range, Ranges
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.stream import TaskPartition
from cassieq_spark.spark.source.tasks import cut_tasks
from cassieq_spark.spark.source.views import read_view
from cassieq_spark.store import open_store


class MessageReader(DataSourceReader):
    """Reads every message that is visible and not finalised yet, in monoton order."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Find the messages. Four reads."""
        store = open_store(self._options.connection)
        queue = read_queue(store, self._options.queue)
        ledger = Ledger(store, queue.queue_id)
        head = ledger.read_head()
        visible = Range(head.finalised, head.next)
        pieces = pieces_of(ledger.locate(visible), Ranges.of(visible), deliveries=None)
        tasks = cut_tasks(pieces, queue, self._options.messages_per_task)
        # Of no partitions at all, Spark makes one of its own, which `read` could not understand.
        return [TaskPartition(queue, task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: fetch a task's messages."""
        task = cast("TaskPartition", partition)
        return fetch(
            open_store(self._options.connection),
            task.queue,
            task.task,
            include_headers=self._options.include_headers,
        )


class ViewReader(DataSourceReader):
    """Reads a view in one task, anew for every action; leases nothing."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One: a view is small."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """On an executor: the rows of the view."""
        del partition
        return read_view(open_store(self._options.connection), self._options)
