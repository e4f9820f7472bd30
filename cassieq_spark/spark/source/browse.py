"""The batch read, as Spark calls it: messages of a queue without leasing them, and views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cassieq_spark.errors import LeaseLostError, OptionError, QueueStateError
from cassieq_spark.fetch.find import Piece, pieces_of
from cassieq_spark.fetch.read import fetch
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.settings.position import show_position
from cassieq_spark.spark.shipping import Shipped
from cassieq_spark.spark.source.columns import Columns, check_still_there
from cassieq_spark.spark.source.stream import TaskPartition
from cassieq_spark.spark.source.tasks import TaskPart, plan_tasks
from cassieq_spark.spark.source.views import read_view
from cassieq_spark.store import open_store


class MessageReader(Shipped, DataSourceReader):
    """Reads messages that are visible and not finalised, all or those between two positions.

    The messages come in monoton order. The reader takes no filters from Spark: Spark 4.3 keeps the
    partitions of a filtered query, and answers other queries of the DataFrame with them.
    """

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Find the messages. One read, and three per queue partition; more for an instant.

        One read more per thousand blocks.

        Raises:
            QueueStateError: There is no such queue or position.
            OptionError: The end is before the start.
        """
        store, options = open_store(self._options.connection), self._options
        queue = read_queue(store, options.queue)
        check_still_there(self._columns, queue)
        self._check_positions(queue)
        parts: list[TaskPart] = []
        left = options.max_messages
        for partition in queue.by_partition:
            ledger = Ledger(store, partition.queue_id)
            monotons = self._between_positions(ledger)
            if left is not None:
                monotons = Range(monotons.start, min(monotons.stop, monotons.start + left))
                left -= len(monotons)
            pieces = pieces_of(ledger.locate(monotons), Ranges.of(monotons), deliveries=None)
            parts.append(TaskPart(partition, tuple(pieces)))
        tasks = plan_tasks(
            parts,
            messages_per_task=options.messages_per_task,
            min_partitions=options.min_partitions,
            may_combine=queue.partitions > 1,
            keeps_order=False,
        )
        # Without any partition, Spark would make one of its own, which `read` cannot handle.
        return [TaskPartition(each) for each in tasks or [()]]

    def _check_positions(self, queue: QueueDefinition) -> None:
        given = {
            "startingPosition": self._options.starting_position,
            "endingPosition": self._options.ending_position,
        }
        for option, position in given.items():
            if queue.partitions > 1 and isinstance(position, int):
                raise OptionError(
                    f"option {option!r} is monoton {position}, and queue {queue.name!r} has "
                    f"{queue.partitions} partitions, each with monotons of its own: give "
                    "earliest, latest or an instant, and filter by partition and monoton"
                )

    def _between_positions(self, ledger: Ledger) -> Range:
        starting, ending = self._options.starting_position, self._options.ending_position
        is_whole = (starting, ending) == ("earliest", "latest")
        head = ledger.read_head(serial=not is_whole)
        if is_whole:
            return Range(head.finalised, head.next)
        start = ledger.find_position(head, starting)
        if isinstance(ending, int) and ending > head.next:
            raise QueueStateError(
                f"queue {ledger.queue_id} has no monoton {ending - 1} yet: it holds "
                f"{Range(head.finalised, head.next)}; end at {head.next}, or at latest"
            )
        stop = ledger.find_position(head, ending)
        if isinstance(starting, int) and isinstance(ending, int) and stop < start:
            raise OptionError(f"endingPosition {ending} is before startingPosition {starting}")
        if start < head.finalised and self._options.fail_on_data_loss:
            raise QueueStateError(
                f"queue {ledger.queue_id}: monotons {Range(start, head.finalised)} from "
                f"startingPosition {show_position(starting)} on are settled and deleted; start at "
                f"earliest ({head.finalised}) or later, or set failOnDataLoss to false"
            )
        start = max(start, head.finalised)
        return Range(start, max(start, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch a task's messages, on an executor."""
        store = open_store(self._options.connection)
        for part in cast("TaskPartition", partition).parts:
            try:
                yield from fetch(store, part.queue, part.pieces, self._columns.rows(part.queue))
            except LeaseLostError as error:
                _explain_deleted(Ledger(store, part.queue.queue_id), part.pieces, error)
                raise


def _explain_deleted(ledger: Ledger, pieces: Sequence[Piece], error: LeaseLostError) -> None:
    """Raise a more specific error if messages are deleted as they should be. One read."""
    finalised = ledger.read_head(serial=True).finalised
    if any(piece.first_monoton < finalised for piece in pieces):
        raise QueueStateError(
            f"queue {ledger.queue_id}: messages below {finalised} are deleted, as every group has "
            "settled them, and this DataFrame was planned before: Spark finds the messages of a "
            "DataFrame in its first action and keeps them; load it again"
        ) from error


class ViewReader(Shipped, DataSourceReader):
    """Reads a view in one task, anew for every action; leases nothing."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One partition: a view is small."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read the rows of the view, on an executor."""
        del partition
        return read_view(open_store(self._options.connection), self._options)
