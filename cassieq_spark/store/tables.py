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
    LOCK = "lock"
    REPAIR = "repair"
    ACCOUNT = "account"


#: As long as Cassandra keeps hints for a node that is away (``max_hint_window``): no longer is
#: needed where a row that came back would do no harm, and a hint lives no longer than this.
GRACE = 3 * 3600
#: Where rows that came back would be told, or held by two. Not longer than idempotency keys live:
#: what has expired is dropped after the longer of the two.
ROW_GRACE = 24 * 3600


@dataclass(frozen=True, slots=True)
class Shape:
    """A table.

    Attributes:
        partition: Columns of its partition key.
        clustering: Columns of its clustering key.
        columns: The rest, with their CQL types.
        gc_grace_seconds: How long Cassandra keeps the mark of a deletion, so that a replica that
            missed it still learns of it; an operator may keep it for longer.
    """

    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    columns: dict[str, str]
    gc_grace_seconds: int = GRACE


SHAPES = {
    Table.QUEUE: Shape(
        partition=("name",),
        clustering=(),
        columns={
            "version": "int",
            "status": "text",
            # every version up to this one is gone, but for the head of its ledger
            "retired": "int",
            # token of the last change of the row
            "change": "uuid",
            "bucket_size": "int",
            "chunk_size": "int",
            "lease_seconds": "int",
            "max_deliveries": "int",
            "dead_letter_queue": "text",
            "strict_fifo": "boolean",
            # 0: nothing expires
            "expire_after_seconds": "int",
            # 0: nothing is kept once it is settled
            "keep_settled_seconds": "int",
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
            # head: where the highest fence stood that was taken back; none, if none was
            "unfenced_until": "timestamp",
            "groups_version": "bigint",
            # head: the end of the last block that has a visible_at
            "delayed_stop": "bigint",
            # head: whether it is open or closed for ever (see Gate), whether readers pause; when
            # it is closed: messages per bucket
            "gate": "text",
            "paused": "boolean",
            "bucket_size": "int",
            # head: no block row is left that begins below
            "trimmed": "bigint",
            # block: first monoton in the key; bytes stored; visible_at only if delayed
            "stop": "bigint",
            "block": "timeuuid",
            "published_at": "timestamp",
            "visible_at": "timestamp",
            "size": "bigint",
            # sink: id in the key; its last batch, and which content that had. once: name in the
            # key; 0 published, 1 closed; it vanishes by itself
            "batch_id": "bigint",
            "fingerprint": "text",
            # group (name in the key; its groups_version is that of its registration) and hold
            # (position = groups version that it made, name = group): first monoton owed
            "starts_at": "bigint",
            "created_at": "timestamp",
        },
        gc_grace_seconds=ROW_GRACE,
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
            # when they were first and last handed out
            "first_at": "timestamp",
            "last_at": "timestamp",
            # waiting: why they are dead; none, if they are not
            "reason": "text",
            # slot; registration (ordinal = groups version that it made): a token of its state
            "lease": "uuid",
            "due_at": "timestamp",
            # slot: what the ack of its batch is to do, see groups/outcomes.py
            "outcomes": "text",
            # slot: whether its messages are settled one by one only, so that it is free when empty
            "by_receipts": "boolean",
            # slot: which attempt of a replay has taken it up last
            "taken_up_by": "uuid",
        },
        gc_grace_seconds=ROW_GRACE,
    ),
    Table.CHUNK: Shape(
        partition=("queue_id", "block", "bucket"),
        clustering=("start",),
        columns={"stop": "bigint", "data": "blob"},
    ),
    Table.LOCK: Shape(
        partition=("name",),
        clustering=("kind", "ticket"),
        columns={
            # ticket (its id in the key): its number, none while it is being chosen
            "number": "bigint",
            # entry: how often the lock was taken; by which ticket, and when
            "epoch": "bigint",
            "holder": "text",
            "entered_at": "timestamp",
            # both: who that is, for people
            "owner": "text",
        },
    ),
    Table.REPAIR: Shape(
        partition=("job",),
        clustering=("epoch",),
        columns={
            "runner": "text",
            "started_at": "timestamp",
            "duration_ms": "bigint",
            "outcome": "text",
            "steps": "text",
            "queues": "bigint",
            # JSON
            "counts": "text",
            "problems": "text",
        },
    ),
    Table.ACCOUNT: Shape(
        partition=("name",),
        clustering=(),
        columns={
            # whether it is active, being deleted, or deleted; rows stay
            "status": "text",
            # grows with each change
            "version": "bigint",
            # its keys, as JSON: what each is derived from, never itself, and what it allows
            "keys": "text",
            # over all of it, made with the secret of this fingerprint
            "seal": "text",
            "secret": "text",
        },
    ),
}
