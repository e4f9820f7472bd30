"""The views of a batch read: which there are, and their columns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view; ``type`` as Spark's DDL has it. Any may be null."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class View:
    """What ``option("view", name)`` shows: a row for each of what ``rows_are`` says."""

    name: str
    rows_are: str
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """The schema for Spark: ``queue STRING, ...``."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)


_QUEUE = Column("queue", "STRING", "Name of the queue.")
_GROUP = Column("consumer_group", "STRING", "Name of the consumer group.")
_POINTER = Column("pointer", "BIGINT", "First monoton never offered to the group.")
_FLOOR = Column("floor", "BIGINT", "Lowest monoton still owed to the group.")
_DEPTH = Column("depth", "BIGINT", "Messages owed: not offered yet, leased, due, waiting or dead.")

#: The views, by name.
VIEWS: Mapping[str, View] = MappingProxyType(
    {
        view.name: view
        for view in (
            View(
                "messages",
                "message that is published and not finalised, in order",
                (
                    _QUEUE,
                    Column("monoton", "BIGINT", "Position in the queue, from 0, without gaps."),
                    Column("key", "BINARY", "As published."),
                    Column("value", "BINARY", "As published; never null."),
                    Column("headers", "MAP<STRING, STRING>", "Only with `includeHeaders`."),
                    Column("published_at", "TIMESTAMP", "When it became visible."),
                    Column("delivery_count", "INT", "In a stream, from 1; else null."),
                    Column("receipt", "STRING", "In a stream, only with `includeReceipts`."),
                ),
            ),
            View(
                "blocks",
                "block of the ledger that is not finalised, or only in part, in order",
                (
                    _QUEUE,
                    Column("first_monoton", "BIGINT", "Monoton of the block's first message."),
                    Column("stop_monoton", "BIGINT", "Monoton behind its last message."),
                    Column("messages", "BIGINT", "How many it has."),
                    Column("block", "STRING", "Its id, a time-based uuid."),
                    Column("published_at", "TIMESTAMP", "When it became visible."),
                ),
            ),
            View(
                "leases",
                "range that was offered to a group and is not settled (only option `group`'s, if "
                "given), by group",
                (
                    _QUEUE,
                    _GROUP,
                    Column(
                        "state",
                        "STRING",
                        "`leased`: a lease runs; `due`: it ran out, or the wait is over; "
                        "`waiting`: to be offered later; `dead`: to be dead-lettered.",
                    ),
                    Column("slot", "INT", "Which slot has it; null if it waits or waited."),
                    Column("start_monoton", "BIGINT", "First monoton."),
                    Column("stop_monoton", "BIGINT", "Monoton behind the last."),
                    Column("messages", "BIGINT", "How many those are."),
                    Column(
                        "lease",
                        "STRING",
                        "Token that holds it, or held it last; null with `slot`.",
                    ),
                    Column("due_at", "TIMESTAMP", "When the lease runs out or the wait is over."),
                    Column("deliveries", "INT", "How often it was handed out."),
                ),
            ),
            View(
                "groups",
                "consumer group, by name",
                (
                    _QUEUE,
                    _GROUP,
                    Column("starts_at", "BIGINT", "First monoton that it was ever owed."),
                    _POINTER,
                    _FLOOR,
                    _DEPTH,
                ),
            ),
            View(
                "queues",
                "queue of the keyspace that is or was (only option `queue`'s, if given), by name",
                (
                    _QUEUE,
                    Column("version", "INT", "Grows each time the queue is purged or made anew."),
                    Column(
                        "status",
                        "STRING",
                        "`active`; `purging`: about to have that version; `deleting`: gone, and "
                        "the repair has some of it to delete; `deleted`.",
                    ),
                    Column("bucket_size", "INT", "Messages per Cassandra partition."),
                    Column("chunk_size", "INT", "Messages per row, at the most."),
                    Column("lease_seconds", "INT", "How long a lease lasts unless extended."),
                    Column("max_deliveries", "INT", "After so many, a message is dead; 0: never."),
                    Column(
                        "dead_letter_queue",
                        "STRING",
                        "Where dead messages go; null: they are dropped.",
                    ),
                    Column(
                        "strict_fifo",
                        "BOOLEAN",
                        "Whether a group gets no message before the ones below it are settled.",
                    ),
                    Column(
                        "expire_after_seconds",
                        "INT",
                        "What was not consumed so long after it became visible is thrown away; "
                        "null: nothing is.",
                    ),
                    Column(
                        "keep_settled_seconds",
                        "INT",
                        "What every group has settled is kept until so long after it became "
                        "visible; null: it is not kept.",
                    ),
                    Column("created_at", "TIMESTAMP", "When it was created."),
                ),
            ),
            View(
                "stats",
                "consumer group, by name; of a queue without groups, one row without figures of "
                "any",
                (
                    _QUEUE,
                    _GROUP,
                    Column("finalised", "BIGINT", "All below is settled for every group."),
                    Column("next", "BIGINT", "Monoton that the next published message gets."),
                    _DEPTH,
                    Column("leased", "BIGINT", "Messages under a lease that runs."),
                    Column("due", "BIGINT", "Messages to be offered again now."),
                    Column(
                        "waiting",
                        "BIGINT",
                        "Messages to be offered later; of those not offered yet, in the first "
                        "10,000 blocks.",
                    ),
                    Column("dead", "BIGINT", "Messages to be dead-lettered."),
                    Column(
                        "oldest_age_seconds",
                        "DOUBLE",
                        "How long the oldest message owed has been visible; null if none is.",
                    ),
                    _POINTER,
                    _FLOOR,
                ),
            ),
        )
    }
)


def documentation() -> str:
    """docs/views.md: a table for each view."""
    lines = [
        "# Views",
        "",
        "Printed by `python -m cassieq_spark.spark.source`; change it there.",
        "",
        'What `spark.read.format("cassieq").option("view", ...)` shows; it leases nothing.',
        "Each action reads anew, and a group's state by serial reads: look, but don't poll.",
    ]
    for view in VIEWS.values():
        lines += ["", f"## {view.name}", "", f"One row for each {view.rows_are}."]
        lines += ["", "| Column | Type | Meaning |", "|---|---|---|"]
        lines += [f"| `{it.name}` | {it.type} | {it.meaning} |" for it in view.columns]
    return "\n".join(lines) + "\n"
