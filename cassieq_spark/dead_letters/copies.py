"""Turns messages of one queue into messages of another, to dead-letter or redrive them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cassieq_spark.arrow.framing import HEADERS, STORED
from cassieq_spark.arrow.typed_framing import EXTRA, HEADERS_COLUMN
from cassieq_spark.errors import SchemaError
from cassieq_spark.fetch.read import Destination
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.ddl import schema_of

#: The headers of each message.
Headers = Sequence[Sequence[tuple[str, str | None]]]


def check_same_kind(source: QueueDefinition, target: QueueDefinition) -> None:
    """Raise `SchemaError` if only one of two queues has a schema."""
    if (source.schema is None) != (target.schema is None):
        has, lacks = (source, target) if source.schema else (target, source)
        raise SchemaError(
            f"messages of queue {source.name!r} can't go to queue {target.name!r}: {has.name!r} "
            f"has a schema and {lacks.name!r} has none; name another queue"
        )


def destination(
    source: QueueDefinition, target: QueueDefinition, *, no_column: str | None
) -> Destination | None:
    """The columns into which messages are decoded, to be copied; None if messages are bytes.

    Args:
        target: The queue that gets the copies; it has a schema if ``source`` has one.
        no_column: See `Destination`.
    """
    if source.schema is None or target.schema is None:
        return None
    misfit = f"widen that column of queue {target.name!r} first"
    return Destination(schema_of(target.schema), misfit, no_column)


def with_headers(batch: pa.RecordBatch, headers: Headers) -> pa.RecordBatch:
    """Messages with other headers, as `write_block` takes them.

    Args:
        batch: The messages, as `fetch.Decoder` returns them.
        headers: The new headers of each message.
    """
    name = next(name for name in (HEADERS_COLUMN, "headers") if name in batch.schema.names)
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, name, pa.array(headers, HEADERS))


def letter_of_bytes(
    data: bytes, headers: Mapping[str, str | None], target: QueueDefinition
) -> pa.RecordBatch:
    """Make the dead letter that represents a chunk that can't be read.

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
