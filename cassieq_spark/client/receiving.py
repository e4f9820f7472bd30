"""Receiving: what is asked for, how long it is waited for; and peeking."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from cassieq_spark.arguments import A_MOMENT, check_count, check_duration
from cassieq_spark.client.received import StoredMessage, size_of
from cassieq_spark.client.shelf import read_stored
from cassieq_spark.fetch import Unreadable
from cassieq_spark.ledger.read import find_position, read_head
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Messages that were to be looked at can't be read.
UNSEEN = "peek.unreadable"

#: Seconds between two looks at a queue that has nothing: three reads each.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a `receive` asks for.

    Attributes:
        limit: Most messages; 0 for none.
        lease: How long they are held; None: as long as the queue says.
        max_bytes: About how many bytes of fresh messages, as stored; None: no limit.
        most_bytes: Most bytes that are handed over, as `size_of` counts them, but a message at
            least. What was leased beyond that goes back at once, by an LWT and two reads more,
            and its delivery does not count: compressed, a thousand messages may be as small as
            one. None: no limit.
        strict_limit: Most messages if the queue is strictly ordered. Who deals the messages of one
            call to several receivers sets it to what the first of them takes, as the second must
            not have a message before the first has settled the earlier ones. None: ``limit``.
    """

    limit: int
    lease: timedelta | None = None
    max_bytes: int | None = None
    most_bytes: int | None = None
    strict_limit: int | None = None


def check_receive(
    limit: int, wait: timedelta, lease: timedelta | None, max_bytes: int | None
) -> None:
    """Raise `OptionError` if one of them is of another type, or out of range."""
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    check_count("max", limit)
    check_duration("wait", wait)
    if lease is not None:
        check_duration("lease", lease, least=A_MOMENT)


def pauses_within(wait: timedelta) -> Iterator[float]:
    """Seconds to pause before each further look, longer each time, until ``wait`` is over."""
    end = time.monotonic() + wait.total_seconds()
    pause = _FIRST_PAUSE
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(_LONGEST_PAUSE, pause * 2)


def within(messages: Iterable[StoredMessage], most_bytes: int | None) -> Iterator[StoredMessage]:
    """The first messages, as many as have so many bytes together; one at least."""
    left = float("inf") if most_bytes is None else float(most_bytes)
    is_first = True
    for each in messages:
        left -= size_of(each)
        if left < 0 and not is_first:
            return
        is_first = False
        yield each


def peek_messages(
    store: Store,
    queue: QueueDefinition,
    *,
    limit: int,
    start: StartingPosition,
    max_bytes: int | None = None,
) -> list[StoredMessage]:
    """Look at messages without leasing them. A few reads. Those that can't be read are left out.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        limit: Most messages.
        start: Where to begin.
        max_bytes: Most bytes of them, as `size_of` counts; None: no limit.

    Raises:
        OptionError: ``limit`` is below 1.
        QueueStateError: No message has that monoton yet.
    """
    check_count("max", limit)
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    head = read_head(store, queue.queue_id, serial=True)
    first = max(head.finalised, find_position(store, queue.queue_id, head, start))
    which = Ranges.of(Range(first, max(first, min(head.next, first + limit))))
    found = Unreadable()
    messages = list(within(read_stored(store, queue, which, found.add), max_bytes))
    for reason, monotons in found.by_reason().items():
        logger.warning(
            "queue %s: messages %s can't be seen, they are %s",
            queue.queue_id,
            monotons,
            reason,
            extra={"action": UNSEEN, "queue": queue.queue_id, "count": monotons.count},
        )
    return messages
