"""How many messages a delivery may have, so that one that always fails ends up alone. Pure."""

from __future__ import annotations

#: The batch size that the cut begins from where a batch has no limit of its own.
_UNLIMITED = 1_000_000


def most_messages(limit: int | None, *, delivery: int, max_deliveries: int) -> int | None:
    """Most messages that may be handed out together, for the ``delivery``-th time.

    The second delivery is as large as the first: a batch that failed after its sink had it must
    come again whole, or the sink could not know it by its id. Then it shrinks, to single messages
    one delivery before the last. So the neighbours of a bad message succeed in batches without it,
    and with a delivery to spare. With fewer than four deliveries there is no room for the whole
    batch to come again: the second is of single messages.

    Args:
        limit: Most messages of any batch; None for no limit.
        delivery: 1 for messages that were never handed out.
        max_deliveries: After so many a message is dead; 0 for never, and then nothing shrinks.

    >>> [most_messages(100_000, delivery=d, max_deliveries=5) for d in (1, 2, 3, 4, 5)]
    [100000, 100000, 316, 1, 1]
    """
    if not max_deliveries or delivery == 1:
        return limit
    steps_left = max_deliveries - 1 - delivery
    if steps_left <= 0:
        return 1
    if delivery == 2:  # noqa: PLR2004 the second delivery
        return limit
    return max(1, int((limit or _UNLIMITED) ** (steps_left / (max_deliveries - 3))))


def is_dead(deliveries: int, max_deliveries: int) -> bool:
    """Whether messages that were handed out so often must not be handed out again (I8)."""
    return 0 < max_deliveries <= deliveries
