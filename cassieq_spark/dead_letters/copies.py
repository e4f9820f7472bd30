"""Messages of one queue as those of another: dead letters, and those that are redriven. Pure."""

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
    """Refuse a dead-letter queue in whose columns something of a message would get lost.

    Raises:
        SchemaError: It has other columns, or one of the two queues has no schema.
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
    """Refuse to bring messages with a schema to a queue without one, and the other way.

    Raises:
        SchemaError: One of the two has a schema, and the other one has none.
    """
    if (source.schema is None) != (target.schema is None):
        has, lacks = (source, target) if source.schema else (target, source)
        raise SchemaError(
            f"messages of queue {source.name!r} can't go to queue {target.name!r}: {has.name!r} "
            f"has a schema and {lacks.name!r} has none; name another queue"
        )


def copies_of(
    batch: pa.RecordBatch, headers: Headers, source: QueueDefinition, target: QueueDefinition
) -> pa.RecordBatch:
    """Messages as `write_block` takes them for another queue, with other headers.

    Args:
        batch: As `fetch.Decoder` returns them.
        headers: For each message.
        source: The queue that they are from; of the same kind.
        target: The queue that they are to go to.

    Raises:
        MessageError: A value does not fit a column of the other queue, or has none there to go to.
    """
    told = pa.array(headers, HEADERS)
    if source.schema is None or target.schema is None:
        return batch.set_column(batch.schema.get_field_index("headers"), "headers", told)
    advice = f"widen that column of queue {target.name!r} first"
    rows = present(batch, schema_of(source.schema), schema_of(target.schema), advice=advice)
    key, headers_name = EXTRA.names
    arrays = [*rows.columns, batch.column(key), told]
    return pa.RecordBatch.from_arrays(arrays, [*rows.schema.names, key, headers_name])


def letter_of_bytes(
    data: bytes, headers: Mapping[str, str | None], target: QueueDefinition
) -> pa.RecordBatch:
    """A dead letter that stands for a chunk that can't be read.

    Args:
        data: Bytes of the chunk: the letter's value; its key, if the queue has a schema.
        headers: What it says.
        target: The dead-letter queue; its columns may be null.
    """
    told = pa.array([list(headers.items())], HEADERS)
    if target.schema is None:
        arrays = [pa.array([None], pa.binary()), pa.array([data], pa.binary()), told]
        return pa.RecordBatch.from_arrays(arrays, schema=STORED)
    schema = schema_of(target.schema)
    arrays = [*(pa.nulls(1, field.type) for field in schema), pa.array([data], pa.binary()), told]
    return pa.RecordBatch.from_arrays(arrays, [*schema.names, *EXTRA.names])
