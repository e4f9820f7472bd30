"""The unique ids of messages that are written, and the partitions that follow from them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cassieq_spark.arrow.chunks import ColumnNames, row_at
from cassieq_spark.arrow.framing import used_column
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.ledger import unique
from cassieq_spark.model import QueueDefinition

#: The longest unique id, in bytes.
LONGEST_ID = 1024


def check_deduplicates(queue: QueueDefinition) -> None:
    """Raise `OptionError` if messages of this queue have no unique ids."""
    if queue.deduplicate is None:
        raise OptionError(
            f"queue {queue.name!r} does not deduplicate, so messages can't have unique ids; let "
            f"it: cassieq queue alter {queue.name} --deduplicate 5m"
        )


def check_id(unique_id: bytes, what: str) -> bytes:
    """Return a unique id if a message may have it.

    Raises:
        MessageError: The id is empty, or too long.
    """
    if not 0 < len(unique_id) <= LONGEST_ID:
        raise MessageError(
            f"the unique id of {what} has {len(unique_id)} bytes: expected 1 to {LONGEST_ID}"
        )
    return unique_id


def digests_of(queue: QueueDefinition, rows: pa.RecordBatch, *, first_row: int) -> bytes | None:
    """The digests of the unique ids of these messages, as `ledger.unique` has them.

    Takes 0.4 us per row, and 0.5 us with keys.

    Args:
        queue: The queue, or a partition of it.
        rows: The messages, as `blocks.write_blocks` takes them.
        first_row: The number of the first row in an error.

    Returns:
        None if no message has a unique id.

    Raises:
        MessageError: An id is empty, or too long.
    """
    names = form_of(queue).names
    column = used_column(rows, names.unique_id)
    if column is None:
        return None
    values = _bytes_in(column)
    sizes = {len(value) for value in values if value is not None}
    if not 0 < min(sizes) <= max(sizes) <= LONGEST_ID:
        for number, value in enumerate(values):
            check_id(b"-" if value is None else value, row_at(first_row + number))
    keys = used_column(rows, names.key)
    return unique.digests_of(values, None if keys is None else _bytes_in(keys), queue.unique_per)


def _bytes_in(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found


def keys_to_go_by(rows: pa.RecordBatch, names: ColumnNames) -> pa.Array | None:
    """The keys that decide partitions: for messages without a key, the unique ids.

    So messages that must not both be published go to the same partition.

    Returns:
        None if no message has a key or an id.
    """
    keys, ids = (used_column(rows, name) for name in (names.key, names.unique_id))
    if ids is None or keys is None:
        return keys if ids is None else ids
    return pc.coalesce(keys.cast(pa.binary()), ids.cast(pa.binary()))
