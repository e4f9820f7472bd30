"""Turns messages of one queue into those of another, to dead-letter or redrive them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cassieq_spark.arrow.framing import HEADERS, STORED
from cassieq_spark.arrow.typed_framing import EXTRA
from cassieq_spark.errors import SchemaError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.evolution import dead_letter_schema, present

#: The headers of each message.
Headers = Sequence[Sequence[tuple[str, str | None]]]


def check_takes_all(source: QueueDefinition, target: QueueDefinition) -> None:
    """Refuse a dead-letter queue whose columns can't hold all messages of a queue.

    Raises:
        SchemaError: It lacks columns, or only one of the two queues has a schema.
    """
    check_same_kind(source, target)
    if source.schema is None or target.schema is None:
        return
    before = schema_of(target.schema)
    if dead_letter_schema(schema_of(source.schema), [before]) is not before:
        raise SchemaError(
            f"queue {target.name!r} lacks columns of queue {source.name!r}, whose dead-letter "
            "queue it is: cassieq queue alter"
            f" {source.name} --dead-letter-queue {target.name} adds them"
        )


def check_same_kind(source: QueueDefinition, target: QueueDefinition) -> None:
    """Raise `SchemaError` if only one of two queues has a schema."""
    if (source.schema is None) != (target.schema is None):
        has, lacks = (source, target) if source.schema else (target, source)
        raise SchemaError(
            f"messages of queue {source.name!r} can't go to queue {target.name!r}: {has.name!r} "
            f"has a schema and {lacks.name!r} has none; name another queue"
        )


def copies_of(
    batch: pa.RecordBatch, headers: Headers, source: QueueDefinition, target: QueueDefinition
) -> pa.RecordBatch:
    """Messages with other headers, as `write_block` takes them for another queue.

    Args:
        batch: The messages, as `fetch.Decoder` returns them.
        headers: The new headers of each message.
        target: The queue that they are to go to; with a schema if ``source`` has one.

    Raises:
        MessageError: A value does not fit its column of the other queue, or has no column there.
    """
    column = pa.array(headers, HEADERS)
    if source.schema is None or target.schema is None:
        return batch.set_column(batch.schema.get_field_index("headers"), "headers", column)
    advice = f"widen that column of queue {target.name!r} first"
    rows = present(batch, schema_of(source.schema), schema_of(target.schema), advice=advice)
    key, headers_name = EXTRA.names
    arrays = [*rows.columns, batch.column(key), column]
    return pa.RecordBatch.from_arrays(arrays, [*rows.schema.names, key, headers_name])


def letter_of_bytes(
    data: bytes, headers: Mapping[str, str | None], target: QueueDefinition
) -> pa.RecordBatch:
    """A dead letter that stands for a chunk that can't be read.

    Args:
        data: Bytes of the chunk: the letter's value, or its key if the queue has a schema.
        target: The dead-letter queue; its columns may be null.
    """
    column = pa.array([list(headers.items())], HEADERS)
    binary = pa.array([data], pa.binary())
    if target.schema is None:
        arrays = [pa.nulls(1, pa.binary()), binary, column]
        return pa.RecordBatch.from_arrays(arrays, schema=STORED)
    schema = schema_of(target.schema)
    arrays = [*(pa.nulls(1, field.type) for field in schema), binary, column]
    return pa.RecordBatch.from_arrays(arrays, [*schema.names, *EXTRA.names])
