"""The tables, as both stores see them: what identifies a row, and what else it has. Pure.

``schema.cql`` makes the same tables in Cassandra; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Table(StrEnum):
    """The tables of a keyspace."""

    QUEUE = "queue"
    LEDGER = "ledger"
    DELIVERY = "delivery"
    CHUNK = "chunk"


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of a table: partition key, clustering key, the rest with their CQL types."""

    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    columns: dict[str, str]


SHAPES = {
    Table.QUEUE: Shape(
        partition=("name",),
        clustering=(),
        columns={
            "version": "int",
            "status": "text",
            "bucket_size": "int",
            "chunk_size": "int",
            "lease_seconds": "int",
            "max_deliveries": "int",
            "dead_letter_queue": "text",
            "created_at": "timestamp",
        },
    ),
    Table.LEDGER: Shape(
        partition=("queue_id",),
        clustering=("kind", "position", "name"),
        columns={
            # head: the next monoton to assign; the end of what is settled for every group; no
            # older block may be published; how often a group was registered
            "next": "bigint",
            "finalised": "bigint",
            "fence": "timestamp",
            "groups_version": "bigint",
            # block: first monoton in the key
            "stop": "bigint",
            "block": "timeuuid",
            "published_at": "timestamp",
            # sink: id in the key; its last batch
            "batch_id": "bigint",
            # group (name in the key; its groups_version is that of its registration) and hold
            # (position = groups version that it made, name = group): first monoton owed
            "starts_at": "bigint",
            "created_at": "timestamp",
        },
    ),
    Table.DELIVERY: Shape(
        partition=("queue_id", "consumer_group"),
        clustering=("kind", "ordinal", "position"),
        columns={
            # head
            "pointer": "bigint",
            "waiting_from": "bigint",
            "waiting_version": "bigint",
            # slot (ordinal = its number), waiting (ordinal = due time in ms, position = first
            # monoton): which monotons, as "0-3,5-9"; none in a free slot
            "ranges": "text",
            "deliveries": "int",
            # slot; registration (ordinal = groups version that it made): a token of its state
            "lease": "uuid",
            "due_at": "timestamp",
        },
    ),
    Table.CHUNK: Shape(
        partition=("queue_id", "block", "bucket"),
        clustering=("start",),
        columns={"stop": "bigint", "data": "blob"},
    ),
}
