"""Writers of messages, for streams and for batch writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import ClassVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StringType, StructField, StructType

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.errors import (
    CassieqError,
    ExistsError,
    InvariantError,
    NotFoundError,
    OptionError,
    SchemaError,
    StoreError,
)
from cassieq_spark.ledger.identity import PlanIdentity, Standing, standing_of
from cassieq_spark.ledger.publish import check_order, skip_published
from cassieq_spark.ledger.window import UniqueWindows
from cassieq_spark.model import QueueDefinition, SinkBatch, name_of
from cassieq_spark.parallel import in_parallel
from cassieq_spark.producer.blocks import times_of_task
from cassieq_spark.producer.partitioned import publish_all, read_lasts, write_messages
from cassieq_spark.producer.publisher import Written, publish_written
from cassieq_spark.queues import list_queues, read_queue
from cassieq_spark.schemas.assign import assign
from cassieq_spark.schemas.canonical import all_nullable, checked
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.files import parse_written_fields
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.writing import BY_BATCH, PUBLISH
from cassieq_spark.spark.checkpoint import Plan, read_plan
from cassieq_spark.spark.shipping import Shipped
from cassieq_spark.spark.sink.columns import is_special, validate_published
from cassieq_spark.spark.sink.query import (
    BATCH_ID,
    QUERY_ID,
    check_task_messages,
    check_trigger,
    give_back_unseen,
    keep_sources_whole,
    query_and_batch,
)
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store


@lru_cache
def _windows_of(connection: ConnectionOptions) -> UniqueWindows:  # noqa: ARG001 (it is the key)
    """The unique ids that this process remembers: it commits batch after batch of a query."""
    return UniqueWindows()


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """The blocks that a task has written."""

    written: tuple[Written, ...]


@dataclass(frozen=True)
class PlannedBatch:
    """A micro-batch, as the driver knows it before its tasks run.

    Attributes:
        batch: The batch, known by its plan.
        is_fresh: True if no partition has published the batch.
        is_published: True if a partition has published it, by the same plan: this is a replay.
    """

    batch: SinkBatch
    is_fresh: bool
    is_published: bool


class _Writing(Shipped):
    """Base of both writers. Checks everything before anything is written.

    Args:
        options: The options of the write.
        schema: The schema of the rows.
        overwrite: True if Spark asks to overwrite; this is refused.
        only_commits: True if this writer only commits: for that it needs to read nothing of the
            queue.
    """

    #: What to do instead of overwriting.
    _ADVICE: ClassVar[str]
    #: The column that names the queue of each row, as the rows have it; None: there is none.
    _route: str | None = None

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        *,
        overwrite: bool,
        only_commits: bool = False,
    ) -> None:
        self._options = options
        if overwrite:
            raise OptionError(f"a queue can only be appended to: {self._ADVICE}")
        self._schema = schema
        if options.queue_column is not None:
            self._route = _string_column(schema, options.queue_column)
            fields = [field for field in schema.fields if field.name != self._route]
            self._schema = StructType(fields)
        elif not only_commits:
            _ = self._queue

    @cached_property
    def _queue(self) -> QueueDefinition:
        """The queue of all rows, after a check that it takes these columns. One read."""
        return self._checked(self._options.queue)

    def _checked(self, name: str) -> QueueDefinition:
        """A queue, after a check that it takes these columns. One read."""
        queue = self._made_or_read(name)
        columns = [(field.name, field.dataType.simpleString()) for field in self._schema.fields]
        has_schema = queue.schema is not None
        validate_published(
            columns,
            order=queue.order,
            has_schema=has_schema,
            deduplicates=queue.deduplicate is not None,
        )
        if queue.schema is not None:
            assign(arrow_schema(self._own()).empty_table(), schema_of(queue.schema))
        return queue

    def _own(self) -> list[StructField]:
        """The columns of a queue with a schema, among those of the rows."""
        return [field for field in self._schema.fields if not is_special(field.name)]

    def _made_or_read(self, name: str) -> QueueDefinition:
        store = self._store()
        try:
            return read_queue(store, name)
        except NotFoundError:
            if not self._options.create_queue:
                raise
        # Tasks, which import this module, need no client.
        from cassieq_spark.client import Client  # noqa: PLC0415

        wanted = checked(arrow_schema(self._own()))
        with suppress(ExistsError):
            # As in Spark's tables: a column without nulls now may have some in a later write.
            Client.from_store(store).create_queue(name, schema=all_nullable(wanted))
        return read_queue(store, name)

    def _store(self) -> Store:
        return open_store(self._options.connection)

    def _look_up(self, plan: Plan | None, sink: Callable[[str], str]) -> PlannedBatch | None:
        """Find what the sink has published of a planned batch. One read per queue partition.

        Args:
            plan: The plan in the checkpoint; None if it cannot be read.
            sink: Returns the name of the sink, given the query.

        Returns:
            None if the batch is to be known by its content.

        Raises:
            BatchOrderError: The sink has published a later batch.
            BatchChangedError: The sink has published a batch of this number by another plan.
        """
        if plan is None or plan.batch_id < 0:
            return None
        batch = _batch_of_plan(plan, sink)
        if self._route is not None:
            # Only the rows know the queues, so the tasks look what is published.
            return PlannedBatch(batch, is_fresh=False, is_published=False)
        store, queue = self._store(), self._queue
        queue_ids = [each.queue_id for each in queue.by_partition]
        lasts = read_lasts(store, queue_ids, batch.sink)
        for queue_id, last in lasts.items():
            check_order(queue_id, batch, last)
        same = [it for it in lasts.values() if standing_of(batch, it) is not Standing.NEW]
        if any(PlanIdentity.of(last.fingerprint) is None for last in same):
            # It was published when its plan could not be read.
            return None
        changed = [it for it in lasts.items() if standing_of(batch, it[1]) is Standing.CHANGED]
        for queue_id, last in changed if self._options.fail_on_changed_batch else ():
            skip_published(queue_id, batch, last, fail_on_changed=True)
        is_published = len(same) > len(changed)
        return PlannedBatch(batch, is_fresh=not same, is_published=is_published)

    def _write(
        self,
        batches: Iterator[pa.RecordBatch],
        batch: SinkBatch | None,
        planned: PlannedBatch | None = None,
    ) -> TaskDone:
        """Write the rows of a task.

        Args:
            batches: The rows.
            batch: The batch of the task, as Spark names it.
            planned: What the driver knows about the batch that it has planned.
        """
        context = TaskContext.get()
        times = times_of_task(context.partitionId() if context else 0)
        is_planned = planned is not None and batch == replace(planned.batch, fingerprint=None)

        def write(queue: QueueDefinition, rows: Iterator[pa.RecordBatch]) -> list[Written]:
            return write_messages(
                self._store(),
                queue,
                rows,
                planned.batch if planned and is_planned else batch,
                options=self._options,
                most_times=times,
                is_fresh=planned.is_fresh if planned and is_planned else False,
            )

        if self._route is None:
            return TaskDone(tuple(write(self._queue, batches)))
        # Most writes have one queue, and start faster without it.
        from cassieq_spark.spark.sink.routing import write_routed  # noqa: PLC0415

        written = write_routed(
            batches, self._route, lambda name, rows: write(self._checked(name), rows)
        )
        return TaskDone(tuple(written))

    def _publish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        done = [cast("TaskDone", message) for message in messages if message is not None]
        store, fails = self._store(), self._options.fail_on_changed_batch
        windows = _windows_of(self._options.connection)
        by_queue: dict[str, list[Written]] = {}
        for written in (written for each in done for written in each.written):
            by_queue.setdefault(name_of(written.queue_id), []).append(written)

        def publish(of_one: list[Written]) -> None:
            publish_all(
                store,
                of_one,
                fail_on_changed=fails,
                publish=partial(publish_written, store, fail_on_changed=fails, windows=windows),
            )

        in_parallel(publish, list(by_queue.values()))


class MessageStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Publishes each micro-batch of a query once, however often and by which drivers it is run."""

    _ADVICE = "use outputMode('append'), or write the rows of another mode inside foreachBatch"

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        *,
        overwrite: bool,
        checkpoint: str | None = None,
        only_commits: bool = False,
    ) -> None:
        plan = None if checkpoint is None or only_commits else read_plan(checkpoint)
        check_trigger(plan)
        if options.operation != PUBLISH:
            raise OptionError(
                "option 'operation' is for batch writes: settle inside foreachBatch, with "
                "batch.select('receipt').write"
            )
        once = "a streaming query publishes every micro-batch once by itself"
        if options.exactly_once == BY_BATCH:
            raise OptionError(
                f"option 'exactlyOnce' = 'batch' is for writes inside foreachBatch: {once}"
            )
        if options.txn_app_id is not None:
            raise OptionError(f"option 'txnAppId' is for batch writes: {once}")
        try:
            super().__init__(options, schema, overwrite=overwrite, only_commits=only_commits)
            self._planned = self._look_up(plan, _sink_of_query)
        except StoreError:
            # It may work in a moment; then the restarted query has the same batch.
            raise
        except CassieqError:
            if plan is not None:
                self._give_back(plan)
            raise
        if plan and self._planned and self._planned.is_published:
            keep_sources_whole(self._store(), plan)
        #: The plan, if tasks find out whether the batch is published.
        self._plan = plan if self._route is not None else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write the messages of a task as blocks, on an executor."""
        done = self._write(iterator, _batch_of_task(), self._planned)
        if self._plan is not None and any(each.published for each in done.written):
            keep_sources_whole(self._store(), self._plan)
        return done

    def _give_back(self, plan: Plan) -> None:
        """Give back the messages of a refused batch, unless a part of it is published."""
        with suppress(CassieqError):
            store, name = self._store(), self._options.queue
            # Without its rows, a batch that they route may be published in any queue.
            queues = [read_queue(store, name)] if name else list_queues(store)
            batch = _batch_of_plan(plan, _sink_of_query)
            queue_ids = [part.queue_id for each in queues for part in each.by_partition]
            # What a driver that was killed has sent last may be under way still.
            lasts = read_lasts(store, queue_ids, batch.sink, serial=True).values()
            if Standing.PUBLISHED not in {standing_of(batch, last) for last in lasts}:
                give_back_unseen(store, plan)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the micro-batch visible. One LWT."""
        del batchId
        check_task_messages(messages)
        self._publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the repair job deletes the blocks."""


class MessageWriter(_Writing, DataSourceArrowWriter):
    """Publishes one DataFrame; once, if ``txnAppId`` and ``txnVersion`` name it."""

    _ADVICE = "use mode('append'), after cassieq queue purge if its messages are to go"

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        *,
        overwrite: bool,
        checkpoint: str | None = None,
    ) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        by_batch = options.exactly_once == BY_BATCH
        plan = read_plan(checkpoint) if checkpoint and by_batch else None
        sink = partial(_sink_of_foreach, name=options.txn_app_id)
        self._planned = self._look_up(plan, sink)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write the messages of a task as blocks, on an executor."""
        app, version = self._options.txn_app_id, self._options.txn_version
        batch: SinkBatch | None = None
        if self._options.exactly_once == BY_BATCH:
            batch = _batch_of_foreach(app)
        elif app is not None and version is not None:
            batch = SinkBatch(f"app:{app}", version)
        return self._write(iterator, batch, self._planned)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the write visible. One LWT."""
        self._publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the repair job deletes the blocks."""


def _string_column(schema: StructType, name: str) -> str:
    """The name of a column of strings, as the rows have it.

    Raises:
        SchemaError: There is no such column, or it has another type.
    """
    found = [field for field in schema.fields if field.name.lower() == name.lower()]
    if not found:
        names = [field.name for field in schema.fields]
        advice = did_you_mean(name, names, f"the rows have {', '.join(names)}")
        raise SchemaError(f"option 'queueColumn': the rows have no column {name!r}; {advice}")
    if not isinstance(found[0].dataType, StringType):
        raise SchemaError(
            f"option 'queueColumn': column {found[0].name!r} is "
            f"{found[0].dataType.simpleString()}, and must be string: cast it"
        )
    return found[0].name


def arrow_schema(fields: Sequence[StructField]) -> pa.Schema:
    """The Arrow types with which Spark hands over columns."""
    return parse_written_fields(StructType(list(fields)).jsonValue())


def _batch_of_plan(plan: Plan, sink: Callable[[str], str]) -> SinkBatch:
    return SinkBatch(sink(plan.query), plan.batch_id, str(PlanIdentity(plan.digest)))


def _batch_of_task() -> SinkBatch:
    query, batch = query_and_batch()
    if query is None or batch is None:
        raise InvariantError(
            f"Spark did not give this task its query and batch ({QUERY_ID}, {BATCH_ID}); write "
            "from foreachBatch with the option exactlyOnce instead"
        )
    return SinkBatch(_sink_of_query(query), int(batch))


def _batch_of_foreach(name: str | None) -> SinkBatch:
    """The micro-batch whose ``foreachBatch`` makes this write.

    ``name`` distinguishes several writes of one micro-batch to one queue. The query's own sink has
    another kind of name.
    """
    query, batch = query_and_batch()
    if query is None or batch is None:
        raise OptionError(
            "option 'exactlyOnce' = 'batch' is for writes inside foreachBatch, in the thread in "
            "which Spark calls the function, and not over Spark Connect: Spark did not show this "
            "task which query and batch it is a part of. Give 'txnAppId' and 'txnVersion' instead"
        )
    return SinkBatch(_sink_of_foreach(query, name=name), int(batch))


def _sink_of_query(query: str) -> str:
    return f"query:{query}"


def _sink_of_foreach(query: str, *, name: str | None) -> str:
    return f"batch:{query}" + (f":{name}" if name else "")
