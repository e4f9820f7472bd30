"""What a keyspace looked like before the release that brought delays, pauses and the lock."""

from __future__ import annotations

from collections.abc import Iterator

from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, RowKey, Value
from cassieq_spark.store.tables import SHAPES, Shape, Table

_COLUMNS = {
    Table.QUEUE: (
        "version",
        "status",
        "bucket_size",
        "chunk_size",
        "lease_seconds",
        "max_deliveries",
        "dead_letter_queue",
        "created_at",
    ),
    Table.LEDGER: (
        "next",
        "finalised",
        "fence",
        "groups_version",
        "stop",
        "block",
        "published_at",
        "batch_id",
        "starts_at",
        "created_at",
    ),
    Table.GROUP_STATE: (
        "pointer",
        "waiting_from",
        "waiting_version",
        "ranges",
        "deliveries",
        "lease",
        "due_at",
    ),
    Table.CHUNK: ("stop", "data"),
}

#: Its tables; all kept the marks of deletions for three hours.
EARLIER = {
    table: Shape(
        SHAPES[table].partition,
        SHAPES[table].clustering,
        {name: SHAPES[table].columns[name] for name in names},
    )
    for table, names in _COLUMNS.items()
}
#: What has come since.
NEWER_TABLES = tuple(table for table in Table if table not in EARLIER)
NEWER_COLUMNS = {
    table: newer
    for table, shape in EARLIER.items()
    if (newer := tuple(name for name in SHAPES[table].columns if name not in shape.columns))
}
#: Where that is too short by now.
SHORT_GRACES = tuple(
    table
    for table, shape in EARLIER.items()
    if shape.gc_grace_seconds < SHAPES[table].gc_grace_seconds
)


def make_earlier(store: MemoryStore) -> None:
    """Forget what the earlier release did not write, in all rows that there are."""
    for partition, rows in store._rows.items():
        for values in rows.values():
            for name in NEWER_COLUMNS.get(partition.table, ()):
                values.pop(name, None)


def rows_of(store: MemoryStore) -> Iterator[tuple[Table, dict[str, Value]]]:
    """Every row but those of the chunks: its table, and its columns that are set, keys too."""
    for partition, rows in store._rows.items():
        for key, values in rows.items():
            yield partition.table, _keys(partition, key) | values


def _keys(partition: Partition, key: RowKey) -> dict[str, Value]:
    shape = SHAPES[partition.table]
    return dict(zip(shape.partition + shape.clustering, partition.key + key, strict=True))
