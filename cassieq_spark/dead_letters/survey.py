"""Lists dead letters, and reads single ones. Leases and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Self

import pyarrow as pa

from cassieq_spark.arguments import check_count
from cassieq_spark.arrow.rows import Rows, metadata_of, metadata_rows, values_of
from cassieq_spark.dead_letters.claims import read_claims
from cassieq_spark.dead_letters.letters import (
    DeadLetter,
    DeadLetterGroup,
    Delivered,
    Filter,
    Headers,
    group_letters,
    read_letter,
)
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import NotFoundError, QueueStateError, UnreadableError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import Destination, OnUnreadable, Unreadable, fetch
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.queues import list_queues, read_queue
from cassieq_spark.store.protocol import Store

#: Called with the progress: the activity, the number of finished messages, and that of all
#: messages.
Watch = Callable[[str, int, int], None]
#: Waits a number of seconds; returns True to stop. ``Event.wait`` is one.
Wait = Callable[[float], bool]


def unwatched(doing: str, done: int, total: int) -> None:
    """A `Watch` that does nothing."""


@dataclass(frozen=True, slots=True, repr=False)
class Survey(Displayed):
    """The dead letters of a queue, in groups.

    Attributes:
        queue: The dead-letter queue.
        groups: The dead letters, by origin and reason.
    """

    queue: QueueDefinition
    groups: tuple[DeadLetterGroup, ...]

    @classmethod
    def among(cls, queue: QueueDefinition, messages: Iterable[Delivered]) -> Self:
        """The dead letters among messages that were received from a dead-letter queue.

        A message that names no origin is in a group without one. Reads nothing, so some of them
        may have been redriven or purged; a redrive leaves those out.

        Args:
            queue: The dead-letter queue.
            messages: Messages of it, as `Client.receive` returns them.
        """
        letters = map(DeadLetter.of, sorted(messages, key=attrgetter("monoton")))
        return cls(queue, group_letters(letters, Filter()))

    @property
    def monotons(self) -> Ranges:
        """The monotons of all letters."""
        return Ranges.union(group.monotons for group in self.groups)

    def _view(self) -> ObjectView:
        facts = {"dead letters": self.monotons.count}
        return ObjectView("surveys", self.queue.label, facts, parts=self.groups)


@dataclass(frozen=True, slots=True, repr=False)
class DeadLetterMessage(Displayed):
    """A whole message of a dead-letter queue.

    Attributes:
        queue: Name of the dead-letter queue.
        monoton, published_at: The position in the dead-letter queue, and the time of publication.
        headers, key: The headers and the key as they are stored.
        value: The value as it is stored; a dict of columns if the queue has a schema.
    """

    queue: str
    monoton: int
    published_at: datetime
    headers: Headers
    key: bytes | None
    value: Any

    def _view(self) -> ObjectView:
        facts = {
            "monoton": str(self.monoton),
            "key": self.key,
            "value": self.value,
            "headers": dict(self.headers or ()),
            "published_at": self.published_at,
        }
        return ObjectView("dead letters", self.queue, facts, usual={"headers": {}})


def survey(  # noqa: PLR0913 (each narrows it down, by name)
    store: Store,
    name: str,
    criteria: Filter | None = None,
    *,
    limit: int | None = None,
    examine: int | None = None,
    watch: Watch = unwatched,
) -> Survey:
    """List dead letters. Reads the dead-letter queue; changes nothing.

    Args:
        name: A dead-letter queue, for all letters in it; or another queue, for the letters from
            it.
        criteria: The letters to list; None for all.
        limit: Maximum number of letters to list, the first ones; None for all.
        examine: Maximum number of letters to read, including those that do not match; None for
            all.

    Raises:
        OptionError: A limit is below 1.
        QueueStateError: There is no such queue, or it neither is nor has a dead-letter queue.
    """
    if limit is not None:
        check_count("limit", limit)
    if examine is not None:
        check_count("examine", examine)
    queue, origin = find_dead_letter_queue(store, name)
    criteria = criteria or Filter()
    if origin is not None:
        criteria = replace(criteria, origin=origin)
    dead, _ = read_dead(store, queue).split(examine)
    letters = _read_letters(store, queue, dead, watch)
    return Survey(queue, group_letters(letters, criteria, limit=limit))


def read_message(store: Store, name: str, monoton: int) -> DeadLetterMessage:
    """Read one dead letter. Changes nothing.

    Args:
        name: A queue, as for `survey`.
        monoton: The position of the letter in the dead-letter queue.

    Raises:
        QueueStateError: As for `survey`; or there is no such dead letter.
    """
    queue, _ = find_dead_letter_queue(store, name)
    dead = read_dead(store, queue)
    if monoton not in dead:
        raise NotFoundError(
            f"queue {queue.name!r} has no dead letter {monoton}: it was redriven or "
            f"purged, or never existed; see which exist: cassieq dead list {name}"
        )
    at = Ranges.of(Range(monoton, monoton + 1))
    (rows,) = read_messages(store, queue, at)
    published_at, headers, key = (
        metadata_of(rows, name)[0].as_py() for name in ("published_at", "headers", "key")
    )
    return DeadLetterMessage(queue.name, monoton, published_at, headers, key, *values_of(rows))


def find_dead_letter_queue(store: Store, name: str) -> tuple[QueueDefinition, str | None]:
    """Find the dead-letter queue for a name, as `survey` does. A few reads.

    Returns:
        The dead-letter queue; and the origin queue of the requested letters, None for any.

    Raises:
        QueueStateError: See `survey`.
    """
    queue = read_queue(store, name)
    if queue.dead_letter_queue is not None:
        return read_queue(store, queue.dead_letter_queue), name
    named = any(other.dead_letter_queue == name for other in list_queues(store))
    if named or _begins_with_a_dead_letter(store, queue):
        return queue, None
    raise QueueStateError(
        f"queue {name!r} has no dead-letter queue, and is not one: no queue sends dead letters to "
        "it, and its first message is not a dead letter; name a queue that has a dead-letter "
        "queue, or a dead-letter queue: cassieq queue list"
    )


def read_dead(store: Store, queue: QueueDefinition) -> Ranges:
    """The messages of a dead-letter queue that are neither redriven nor purged. Some reads."""
    ledger = Ledger(store, queue.queue_id)
    state = read_group_states(ledger).get(ADMIN_GROUP)
    head = ledger.read_head()
    if state is None:
        return Ranges.of(Range(head.finalised, head.next))
    never_taken = Range(state.head.pointer, max(state.head.pointer, head.next))
    held = [claim.slot.monotons for claim in read_claims(ledger, state) if not claim.is_published]
    waiting = [each.monotons for each in state.waiting]
    return Ranges.union([Ranges.of(never_taken), *waiting, *held])


def _begins_with_a_dead_letter(store: Store, queue: QueueDefinition) -> bool:
    if queue.partitions > 1:
        return False  # a dead-letter queue has one
    head = Ledger(store, queue.queue_id).read_head()
    first = Ranges.of(Range(head.finalised, min(head.next, head.finalised + 1)))
    letters = _read_letters(store, queue, first, unwatched)
    return any(letter.origin_queue is not None for letter in letters)


def _read_letters(
    store: Store, queue: QueueDefinition, monotons: Ranges, watch: Watch
) -> Iterator[DeadLetter]:
    done, total, found = 0, monotons.count, Unreadable()
    for batch in read_messages(store, queue, monotons, metadata_rows(queue), found.add):
        watch("reading", done, total)
        numbers = metadata_of(batch, "monoton").to_pylist()
        yield from map(read_letter, numbers, metadata_of(batch, "headers").to_pylist())
        done += batch.num_rows
    for reason, ranges in found.by_reason().items():
        for part in ranges:
            yield from (DeadLetter(each, reason=reason) for each in range(part.start, part.stop))


def read_messages(  # noqa: PLR0913 (as `fetch`)
    store: Store,
    queue: QueueDefinition,
    monotons: Ranges,
    rows: Rows | None = None,
    on_unreadable: OnUnreadable | None = None,
    *,
    into: Destination | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read messages in order. About one read per bucket that has some of the messages.

    Args:
        rows: See `fetch`; must have monotons.
        on_unreadable, into: See `fetch`, also for the errors.
    """
    run = bridged(monotons, queue.chunk_size)
    pieces = find_pieces(Ledger(store, queue.queue_id), run, deliveries=None)
    parts = iter(monotons)
    part = next(parts, None)

    def tell(found: Range, reason: str) -> None:
        for wanted in Ranges.of(found) & monotons:
            if on_unreadable is None:
                raise UnreadableError(f"queue {queue.queue_id}: messages {wanted} are {reason}")
            on_unreadable(wanted, reason)

    whole = rows is None
    for batch in fetch(store, queue, pieces, rows, on_unreadable=tell, whole=whole, into=into):
        mask = []
        for monoton in metadata_of(batch, "monoton").to_pylist():
            while part is not None and part.stop <= monoton:
                part = next(parts, None)
            mask.append(part is not None and part.start <= monoton)
        yield batch if all(mask) else batch.filter(pa.array(mask))


def bridged(monotons: Ranges, gap: int) -> Ranges:
    """Join ranges that are fewer than ``gap`` monotons apart.

    >>> str(bridged(Ranges.parse("0-1,3-4,9-10"), 3))
    '0-4,9-10'
    """
    joined: list[Range] = []
    for part in monotons:
        if joined and part.start - joined[-1].stop < gap:
            joined[-1] = Range(joined[-1].start, part.stop)
        else:
            joined.append(part)
    return Ranges(tuple(joined))
