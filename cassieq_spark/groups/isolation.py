"""How many messages a delivery may have, so that one that always fails ends up alone. Pure."""

from __future__ import annotations

from datetime import timedelta

#: No message that failed is left alone for longer, unless the first pause is longer already.
LONGEST_BACKOFF = timedelta(hours=1)


def most_messages(count: int, *, delivery: int, max_deliveries: int) -> int:
    """Most of ``count`` messages that may be handed out together, for the ``delivery``-th time.

    The second delivery is as large as the first: a batch that failed after its sink had it must
    come again whole, or the sink could not know it by its id. Then it shrinks, by the same factor
    each time, to single messages one delivery before the last. So the neighbours of a bad message
    succeed in batches without it, and with a delivery to spare. With fewer than four deliveries
    there is no room for the whole batch to come again: the second is of single messages.

    Args:
        count: How many failed together, or are left of those.
        delivery: 1 for messages that were never handed out.
        max_deliveries: After so many a message is dead; 0 for never, and then nothing shrinks.

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
    """Whether messages that were handed out so often must not be handed out again (I8)."""
    return 0 < max_deliveries <= deliveries


def backoff(first: timedelta, deliveries: int) -> timedelta:
    """How long messages that failed are left alone: doubles each time, up to an hour.

    Args:
        first: After the first delivery.
        deliveries: How often they were handed out.

    >>> [str(backoff(timedelta(minutes=10), n)) for n in (1, 2, 3, 4)]
    ['0:10:00', '0:20:00', '0:40:00', '1:00:00']
    """
    if not first or not deliveries:
        return timedelta(0)
    doubled: timedelta = first * (1 << min(deliveries - 1, 32))
    return max(first, min(LONGEST_BACKOFF, doubled))
