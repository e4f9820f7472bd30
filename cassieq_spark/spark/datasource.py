"""``format("cassieq")``: from Spark's data source to the readers and writers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cassieq_spark.errors import OptionError
from cassieq_spark.settings import MESSAGES, SinkOptions, SourceOptions
from cassieq_spark.settings.reading import BATCH, STREAM
from cassieq_spark.settings.writing import PUBLISH
from cassieq_spark.spark.shipping import Shipped, check_platform

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from cassieq_spark.model import QueueDefinition
    from cassieq_spark.spark.sink.message_writer import MessageStreamWriter, MessageWriter
    from cassieq_spark.spark.sink.receipt_writer import ReceiptWriter
    from cassieq_spark.spark.source.browse import MessageReader, ViewReader
    from cassieq_spark.spark.source.columns import Columns
    from cassieq_spark.spark.source.stream import MessageStreamReader, RefusedStreamReader


class CassieqDataSource(Shipped, DataSource):
    """A durable work queue on Apache Cassandra.

    A streaming read leases messages batch by batch, and acks each batch when the next one begins.
    A batch read shows messages, or the queue's state, without leasing anything. A write publishes
    all of its messages or none. Options: docs/options.md; columns: docs/views.md.
    """

    #: The queue, once it has been read.
    _definition: QueueDefinition | None = None
    #: Of several queues, the columns of the read, and all columns; once they have been found.
    _of_several: tuple[Columns, pa.Schema | None] | None = None
    #: True if this object came from another process. Spark plans each write with an object made
    #: in place, and commits the batches of a stream with one that it made when the query began.
    _is_copy = False

    @classmethod
    def name(cls) -> str:
        """The text for ``format(...)``."""
        return "cassieq"

    def schema(self) -> StructType:
        """The columns of the queue's schema, of messages without one, or of a view. One read."""
        check_platform()
        options = SourceOptions.parse(self.options)
        if options.view != MESSAGES:
            from cassieq_spark.spark.source.views import VIEWS

            return _struct_type(VIEWS[options.view].ddl)
        columns = self._columns(options)
        if columns.schema is not None:
            from cassieq_spark.schemas.files import to_spark_json

            return StructType.fromJson(json.loads(to_spark_json(columns.whole)))
        from cassieq_spark.arrow.row_columns import row_ddl

        headers, receipts = options.include_headers, options.include_receipts
        return _struct_type(row_ddl(include_headers=headers, include_receipts=receipts))

    def streamReader(self, schema: StructType) -> MessageStreamReader | RefusedStreamReader:
        """The reader that leases messages; or one that raises the reason why there is none."""
        try:
            return self._stream_reader(schema)
        except Exception as error:  # noqa: BLE001 (whatever it is, the reader raises it)
            from cassieq_spark.spark.source.stream import RefusedStreamReader

            return RefusedStreamReader(error)

    def _stream_reader(self, schema: StructType) -> MessageStreamReader:
        from cassieq_spark.spark.source.stream import MessageStreamReader

        options = SourceOptions.parse(self.options)
        options.stream_group()
        options.check_meaning(STREAM, self.options)
        return MessageStreamReader(options, self._given_columns(options, schema))

    def reader(self, schema: StructType) -> MessageReader | ViewReader:
        """The reader that shows messages or a view."""
        options = SourceOptions.parse(self.options)
        options.check_meaning(BATCH, self.options)
        if options.view != MESSAGES:
            from cassieq_spark.spark.source.browse import ViewReader

            self._check_schema(schema)
            return ViewReader(options)
        from cassieq_spark.spark.source.browse import MessageReader

        return MessageReader(options, self._given_columns(options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> MessageStreamWriter:
        """The writer that publishes each micro-batch once."""
        check_platform()
        from cassieq_spark.spark.sink.message_writer import MessageStreamWriter

        return MessageStreamWriter(
            SinkOptions.parse(self.options),
            schema,
            overwrite=overwrite,
            checkpoint=self.options.get("checkpointLocation"),
            only_commits=self._is_copy,
        )

    def writer(self, schema: StructType, overwrite: bool) -> MessageWriter | ReceiptWriter:
        """The writer that publishes a DataFrame, or settles the messages whose receipts it has."""
        check_platform()
        from cassieq_spark.spark.sink.message_writer import MessageWriter
        from cassieq_spark.spark.sink.receipt_writer import ReceiptWriter

        options = SinkOptions.parse(self.options)
        if options.operation != PUBLISH:
            return ReceiptWriter(options, schema, overwrite=overwrite)
        checkpoint = self.options.get("checkpointLocation")
        return MessageWriter(options, schema, overwrite=overwrite, checkpoint=checkpoint)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_is_copy": True}

    def _columns(self, options: SourceOptions) -> Columns:
        if options.is_of_several:
            return self._columns_of_several(options)[0]
        from cassieq_spark.spark.source.columns import columns_of

        return columns_of(self._queue(options), options)

    def _given_columns(self, options: SourceOptions, schema: StructType) -> Columns:
        """The columns of the schema that Spark hands over, which the user may have given."""
        if options.is_of_several:
            columns, known = self._columns_of_several(options, schema.names)
        else:
            columns, known = self._columns(options), None
        if columns.schema is None:
            self._check_schema(schema)
            return columns
        from cassieq_spark.schemas.ddl import schema_of
        from cassieq_spark.schemas.files import parse_spark_fields
        from cassieq_spark.spark.source.columns import check_given

        queue = None if known is not None else self._queue(options)
        whole = known if queue is None else schema_of(queue.schema or "")
        return check_given(queue, whole, columns, parse_spark_fields(schema.jsonValue()))

    def _queue(self, options: SourceOptions) -> QueueDefinition:
        """The queue, read once: Spark pickles this object to the processes that make readers."""
        if self._definition is None:
            from cassieq_spark.queues import read_queue
            from cassieq_spark.store import open_store

            self._definition = read_queue(open_store(options.connection), options.queue)
        return self._definition

    def _columns_of_several(
        self, options: SourceOptions, given: Sequence[str] | None = None
    ) -> tuple[Columns, pa.Schema | None]:
        """The columns of a read of several queues, and all of their columns; found once, too.

        Args:
            options: The options.
            given: The columns that Spark hands over. The user has given them, unless `schema` was
                called before.
        """
        if self._of_several is None:
            from cassieq_spark.spark.source.selection import columns_of_several, read_selected
            from cassieq_spark.store import open_store

            queues = read_selected(open_store(options.connection), options)
            self._of_several = columns_of_several(queues, options, given)
        return self._of_several

    def _check_schema(self, schema: StructType) -> None:
        expected, given = map(_described, (self.schema(), schema))
        if given.lower() != expected.lower():
            raise OptionError(
                f"the rows are: {expected}; not: {given}. Leave out .schema(...), and "
                "select or cast afterwards"
            )


def _described(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)


def _struct_type(ddl: str) -> StructType:
    """The columns of our own DDL.

    Spark would read the DDL by the settings of the session: with some, TIMESTAMP has no time zone,
    and words such as ``order`` are not names.
    """
    columns = re.findall(r"(\w+) (MAP<STRING, STRING>|\w+)", ddl)
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns])


#: The types of the columns of views, and of messages without a schema.
_TYPES: dict[str, DataType] = {
    "BIGINT": LongType(),
    "BINARY": BinaryType(),
    "DOUBLE": DoubleType(),
    "INT": IntegerType(),
    "MAP<STRING, STRING>": MapType(StringType(), StringType()),
    "STRING": StringType(),
    "TIMESTAMP": TimestampType(),
}
