"""How often messages are handed out: how many together, when they are dead, and pauses between."""

from __future__ import annotations

from datetime import timedelta

from cassieq_spark.groups.state import Slot, Waiting

#: No message that failed waits for longer, unless the first pause is longer already.
LONGEST_BACKOFF = timedelta(hours=1)


def most_messages(count: int, *, delivery: int, max_deliveries: int) -> int:
    """How many of ``count`` messages may be handed out together, for the ``delivery``-th time.

    The second delivery is as large as the first: a batch that failed after its sink had it must
    come again whole, or the sink would not recognise its id. Then the batch shrinks, by the same
    factor each time, to single messages one delivery before the last. So the neighbours of a bad
    message succeed in batches without it, with a delivery to spare. With fewer than four
    deliveries there is no room for the whole batch to come again: the second is of single
    messages.

    Args:
        count: How many messages failed together, or are left of those.
        delivery: 1 for messages that were never handed out.
        max_deliveries: Deliveries after which a message is dead; 0 for no limit, and then nothing
            shrinks.

    >>> [most_messages(100_000, delivery=d, max_deliveries=5) for d in (1, 2, 3, 4, 5)]
    [100000, 100000, 316, 1, 1]
    """
    if not max_deliveries or delivery == 1:
        return count
    steps_left = max_deliveries - 1 - delivery
    if steps_left <= 0:
        return 1
    if delivery == 2:  # noqa: PLR2004 the second delivery
        return count
    return max(1, int(count ** (steps_left / (steps_left + 1))))


def is_dead(deliveries: int, max_deliveries: int) -> bool:
    """True if messages that were handed out this many times must not be handed out again (I8)."""
    return 0 < max_deliveries <= deliveries


def row_is_dead(row: Slot | Waiting, max_deliveries: int) -> bool:
    """True if the row's messages must be dead-lettered: marked dead, or handed out too often."""
    is_marked = isinstance(row, Waiting) and row.reason is not None
    return is_marked or is_dead(row.deliveries, max_deliveries)


def backoff(first: timedelta, deliveries: int) -> timedelta:
    """How long messages wait after they failed: doubles each time, up to an hour.

    Args:
        first: The wait after the first delivery. If it is an hour or more, all waits are equal.
        deliveries: How often the messages were handed out.

    >>> [str(backoff(timedelta(minutes=10), n)) for n in (1, 2, 3, 4)]
    ['0:10:00', '0:20:00', '0:40:00', '1:00:00']
    """
    if not first or not deliveries:
        return timedelta(0)
    # A pause of days, doubled so often, is more than a timedelta holds.
    if first >= LONGEST_BACKOFF:
        return first
    doubled: timedelta = first * (1 << min(deliveries - 1, 32))
    return min(LONGEST_BACKOFF, doubled)


def too_often(deliveries: int) -> str:
    """The reason of dead messages that nobody rejected."""
    return f"not settled in {deliveries} deliveries, which is the limit"
