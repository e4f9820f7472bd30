"""Checks definitions of queues."""

from __future__ import annotations

from collections.abc import Sequence

from cassieq_spark.errors import OptionError
from cassieq_spark.ledger.unique import LONGEST_WINDOW
from cassieq_spark.model import OnDead, Order, QueueDefinition, UniquePer, validate_name
from cassieq_spark.schemas.canonical import walk
from cassieq_spark.schemas.ddl import parse_ddl, schema_of, to_ddl, to_stored
from cassieq_spark.settings.queue import MOST_PARTITIONS, check_definition

#: Most versions that may wait to be retired: purges since the last repair run.
_MOST_TO_RETIRE = 100_000
#: Pairs of a version and the number of partitions from this version on; earlier versions have one.
Counts = tuple[tuple[int, int], ...]
_HOW_ORDERED = {Order.KEY: "ordered by key", Order.STRICT: "strictly ordered"}


def validate(queue: QueueDefinition) -> QueueDefinition:
    """Return the definition if it is valid.

    Raises:
        OptionError: A value is out of range, or contradicts another one.
    """
    validate_name("queue", queue.name)
    validate_settings(queue)
    return queue


def validate_settings(queue: QueueDefinition) -> None:
    """Check everything that `validate` checks, except the name."""
    check_definition(queue)
    check_order(queue.order, queue.partitions)
    if queue.bucket_size % queue.chunk_size:
        raise OptionError(
            f"bucket size {queue.bucket_size} must be a positive multiple of chunk size "
            f"{queue.chunk_size}"
        )
    if queue.on_dead is OnDead.STOP and not queue.is_ordered:
        raise OptionError(
            "a queue without an order cannot stop at a dead message, as the messages behind it do "
            "not depend on it: give order 'key' or 'strict', or leave out on_dead 'stop'"
        )
    if queue.deduplicate is not None and queue.deduplicate > LONGEST_WINDOW:
        raise OptionError(
            f"deduplicate must be at most {LONGEST_WINDOW.days} day, not {queue.deduplicate}: "
            "each program that publishes has the unique ids of that time in its memory"
        )
    if queue.history is not None:
        # Spark's tasks read definitions, and start faster without what leases.
        from cassieq_spark.groups.history import LONGEST_HISTORY  # noqa: PLC0415

        if queue.history > LONGEST_HISTORY:
            raise OptionError(
                f"history must be at most {LONGEST_HISTORY.days} days, not {queue.history}"
            )
    if queue.unique_per is UniquePer.QUEUE and queue.partitions > 1:
        raise OptionError(
            "unique ids are those of the whole queue only if it has one partition, and this one "
            f"has {queue.partitions}: give unique_per 'key', or one partition"
        )
    if queue.dead_letter_queue is not None:
        if not queue.max_deliveries:
            raise OptionError(
                "a dead-letter queue needs a limit: give max deliveries, or leave out "
                f"{queue.dead_letter_queue!r}"
            )
        if queue.dead_letter_queue == queue.name:
            raise OptionError(f"queue {queue.name!r} can't be its own dead-letter queue")


def check_order(order: Order, partitions: int) -> None:
    """Raise `OptionError` if a queue with this number of partitions can't have the order."""
    if order is Order.STRICT and partitions != 1:
        raise OptionError(
            f"a strictly ordered queue has one partition, not {partitions}: give order 'key', "
            "which keeps the messages of each key in order, or one partition"
        )


def next_versions(versions: Sequence[str], schema: str) -> tuple[str, ...]:
    """Add a version to the versions of a queue's schema, unless it equals the last one.

    Args:
        versions: See `QueueDefinition.schemas`; empty for a new queue.
        schema: The new schema in Spark's DDL.

    Raises:
        OptionError: ``schema`` is not a schema, or the queue has had too many schemas.
        SchemaError: The change is not safe.
    """
    from cassieq_spark.schemas.evolution import check_change  # noqa: PLC0415 (a query begins without it)

    wanted = parse_ddl(schema)
    for path, field in walk(list(wanted)):
        if "\0" in field.name:
            raise OptionError(
                f"column {path!r} has a NUL character in its name, where Arrow and Spark cut it: "
                "give it another name"
            )
    if versions and not check_change([schema_of(each) for each in versions], wanted):
        return tuple(versions)
    found = (*versions, to_ddl(wanted))
    to_stored(found)
    return found


def count_of(counts: Counts, version: int) -> int:
    """The number of partitions that a version of a queue has.

    >>> [count_of(parse_counts("2:16,5:4"), version) for version in (1, 2, 4, 5)]
    [1, 16, 16, 4]
    """
    return next((count for since, count in reversed(counts) if since <= version), 1)


def parse_counts(text: str) -> Counts:
    """Read what `show_counts` writes.

    Raises:
        OptionError: No queue can have this number of partitions.
        ValueError: The text has another form.
    """
    pairs = (part.split(":") for part in text.split(",") if part)
    counts = tuple((int(since), int(count)) for since, count in pairs)
    if any(not 1 <= count <= MOST_PARTITIONS for _, count in counts):
        raise OptionError(f"{text!r} has a number of partitions that no queue has")
    return counts


def show_counts(counts: Counts) -> str:
    """The counts as text: ``2:16,5:4`` for 16 partitions from version 2 on, and 4 from 5 on."""
    return ",".join(f"{since}:{count}" for since, count in counts)


def validate_versions(version: int, retired: int) -> None:
    """Refuse impossible versions, because the repair reads each version that is not retired.

    Raises:
        OptionError: The version is below 1, or more versions wait to be retired than purges can
            leave.
    """
    if version < 1 or not 0 <= retired <= version <= retired + _MOST_TO_RETIRE:
        raise OptionError(f"version is {version}, and {retired} is the last one that is retired")


def check_delayable(queue: QueueDefinition) -> None:
    """Raise `OptionError` if messages of this queue can't be delayed."""
    if queue.is_ordered:
        raise OptionError(
            f"queue {queue.name!r} is {_HOW_ORDERED[queue.order]}, so a delayed message would "
            "hold up all later ones: give no delay, let the queue delay all of its messages "
            f"(cassieq queue alter {queue.name} --delay), or use another queue"
        )
