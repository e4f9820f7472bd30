"""The words of the glossary as values: ranges, blocks, chunks, queues."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from operator import attrgetter
from typing import NewType, Self
from uuid import UUID

from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT, MOST, abridged, shown
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import OptionError

#: ``<name>@<version>``, or ``<name>@<version>.<partition>`` if the queue has several partitions;
#: never used twice, even if a queue is deleted and created again.
QueueId = NewType("QueueId", str)

#: Messages per Cassandra partition of a block.
DEFAULT_BUCKET_SIZE = 8192
#: Most buckets of a block: a deletion of a block goes through all of them.
MOST_BUCKETS = 1_000_000
#: Most messages per row of a bucket.
DEFAULT_CHUNK_SIZE = 512
#: Both sizes for queues with a schema, where each chunk costs some time per column.
TYPED_BUCKET_SIZE, TYPED_CHUNK_SIZE = 16_384, 4096
#: The upper bound of the numbers in row keys, for a deletion or a read of all rows.
NO_END = MOST
#: How long a lease lasts unless its heartbeat extends it.
DEFAULT_LEASE = timedelta(seconds=60)

#: From the epoch of time-based UUIDs (1582-10-15) to the Unix epoch, in units of 100 ns.
_UUID_EPOCH_OFFSET = 0x01B21DD213814000
_UNIX_EPOCH = FIRST_INSTANT
_LAST_MILLISECOND = (LAST_INSTANT - FIRST_INSTANT) // timedelta(milliseconds=1)
_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_QUEUE_ID = re.compile(r"([^@]+)@(0|[1-9][0-9]*)(?:\.(0|[1-9][0-9]*))?")
#: The part after the colon is a segment of URL paths of the gateway, and clients drop segments of
#: dots alone from URLs.
_DOTS_ALONE = re.compile(r".*:\.+")


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """A half-open run ``[start, stop)`` of monotons, or of offsets within a block.

    >>> Range(3, 7) & Range(5, 9)
    Range(start=5, stop=7)
    >>> len(Range(3, 7)), bool(Range(4, 4))
    (4, False)
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"a range needs 0 <= start <= stop, not [{self.start}, {self.stop})")

    def __len__(self) -> int:
        return self.stop - self.start

    def __and__(self, other: Range) -> Range:
        start = max(self.start, other.start)
        return Range(start, max(start, min(self.stop, other.stop)))

    def __contains__(self, position: int) -> bool:
        return self.start <= position < self.stop

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"

    def split_at_multiples(self, size: int) -> Iterator[Range]:
        """Cut at every multiple of ``size``.

        >>> list(map(str, Range(3, 9).split_at_multiples(4)))
        ['[3, 4)', '[4, 8)', '[8, 9)']
        """
        start = self.start
        while start < self.stop:
            stop = min(self.stop, start - start % size + size)
            yield Range(start, stop)
            start = stop


_START = attrgetter("start")


@dataclass(frozen=True, slots=True)
class Ranges:
    """Monotons as disjoint ranges in order, neighbours joined; made by `of`.

    >>> Ranges.of(Range(5, 7), Range(0, 3), Range(7, 9))
    Ranges(parts=(Range(start=0, stop=3), Range(start=5, stop=9)))
    """

    parts: tuple[Range, ...] = ()

    @classmethod
    def of(cls, *ranges: Range) -> Ranges:
        """Sort ranges, join those that touch or overlap, and drop empty ones."""
        joined: list[Range] = []
        # With a key, no comparison runs in Python.
        for each in sorted([it for it in ranges if it.start < it.stop], key=_START):
            if not joined or each.start > joined[-1].stop:
                joined.append(each)
            elif each.stop > joined[-1].stop:
                joined[-1] = Range(joined[-1].start, each.stop)
        return cls(tuple(joined))

    @classmethod
    def union(cls, every: Iterable[Ranges]) -> Ranges:
        """The monotons that are in any of these ranges."""
        return cls.of(*(part for each in every for part in each))

    @classmethod
    def parse(cls, text: str) -> Ranges:
        """Read what `str` writes.

        >>> str(Ranges.parse("0-3,5-9"))
        '0-3,5-9'
        """
        pairs = (part.split("-") for part in text.split(",") if part)
        return cls.of(*(Range(int(start), int(stop)) for start, stop in pairs))

    @property
    def count(self) -> int:
        """The number of monotons."""
        return sum(len(part) for part in self.parts)

    @property
    def start(self) -> int:
        """The lowest monoton of ranges that are not empty."""
        return self.parts[0].start

    @property
    def hull(self) -> Range:
        """The range from the lowest to the highest monoton of ranges that are not empty."""
        return Range(self.parts[0].start, self.parts[-1].stop)

    def split(self, count: int | None) -> tuple[Ranges, Ranges]:
        """The lowest ``count`` monotons (None: all), and the rest.

        >>> [str(part) for part in Ranges.parse("0-3,5-9").split(4)]
        ['0-3,5-6', '6-9']
        """
        if count is None or count >= self.count:
            return self, Ranges()
        taken: list[Range] = []
        for part in self.parts:
            taken.append(Range(part.start, min(part.stop, part.start + count)))
            count -= len(taken[-1])
            if not count:
                break
        low = Ranges.of(*taken)
        return low, self - low

    def __hash__(self) -> int:
        # A row that was read is the key of a dictionary, and may have hundreds of ranges.
        ends = (self.parts[0].start, self.parts[-1].stop) if self.parts else ()
        return hash((len(self.parts), *ends))

    def __iter__(self) -> Iterator[Range]:
        return iter(self.parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __contains__(self, monoton: int) -> bool:
        return any(monoton in part for part in self.parts)

    def __and__(self, other: Ranges) -> Ranges:
        few, many = self.parts, other.parts
        if len(few) > len(many):
            few, many = many, few
        shared: list[Range] = []
        for part in few:
            first = bisect_right(many, part.start, key=_START) - 1
            for at in range(max(0, first), len(many)):
                each = many[at]
                if each.start >= part.stop:
                    break
                # Most ranges are in the other set as a whole: no new one is made.
                if each.start <= part.start and part.stop <= each.stop:
                    shared.append(part)
                elif part.start <= each.start and each.stop <= part.stop:
                    shared.append(each)
                elif each.stop > part.start:
                    shared.append(each & part)
        return Ranges(tuple(shared))

    def __sub__(self, other: Ranges) -> Ranges:
        left: list[Range] = []
        cuts = iter(other.parts)
        cut = next(cuts, None)
        for part in self.parts:
            start = part.start
            while cut is not None and cut.stop <= start:
                cut = next(cuts, None)
            while cut is not None and cut.start < part.stop:
                if start < cut.start:
                    left.append(Range(start, cut.start))
                start = min(part.stop, cut.stop)
                if cut.stop > part.stop:
                    break
                cut = next(cuts, None)
            if start < part.stop:
                left.append(Range(start, part.stop))
        return Ranges(tuple(left))

    def __str__(self) -> str:
        return ",".join(f"{part.start}-{part.stop}" for part in self.parts)

    @property
    def short(self) -> str:
        """The first ten ranges as text for people, each with its last monoton included.

        >>> Ranges.of(Range(0, 6), Range(8, 9)).short
        '0 to 5, 8'
        >>> Ranges.of(*(Range(at, at + 1) for at in range(0, 2000, 2))).short
        '0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 990 more'
        """
        return abridged(
            [
                f"{part.start} to {part.stop - 1}" if len(part) > 1 else f"{part.start}"
                for part in self.parts
            ]
        )


@dataclass(frozen=True, slots=True)
class Positions:
    """The monotons of messages that were put together into several partitions, by partition."""

    by_partition: Mapping[int, Range]

    def __len__(self) -> int:
        return sum(len(each) for each in self.by_partition.values())

    def __str__(self) -> str:
        parts = (f"{each} of partition {at}" for at, each in sorted(self.by_partition.items()))
        return ", ".join(parts) or "none"


class Position(int):
    """Where a message is in a queue: the number is its monoton in its queue partition.

    >>> at = Position(7, partition=3, version=1)
    >>> at + 1, at.partition, at.version, at.is_repeat
    (8, 3, 1, False)
    >>> at.text
    '7 of partition 3'

    Attributes:
        partition: Which partition of the queue, from 0.
        version: Which version of the queue; a purge begins the next one, with new monotons.
        is_repeat: True if the message was not published now, because a message with its unique id
            existed: this is the position of the existing message.
    """

    # Attributes of the class: each put makes a position, and most have these values.
    partition: int = 0
    version: int = 1
    is_repeat: bool = False

    def __new__(
        cls, monoton: int, partition: int = 0, version: int = 1, *, is_repeat: bool = False
    ) -> Self:
        """Make a position of its parts."""
        made = int.__new__(cls, monoton)
        if partition or version != 1 or is_repeat:
            made.partition, made.version, made.is_repeat = partition, version, is_repeat
        return made

    @classmethod
    def of_all(cls, monotons: Range, partition: int, version: int) -> list[Self]:
        """The positions of messages that were published one after the other.

        Takes 0.1 us per message in partition 0 of version 1, and 0.2 us in others.
        """
        made = [int.__new__(cls, monoton) for monoton in range(monotons.start, monotons.stop)]
        if partition or version != 1:
            for each in made:
                each.partition, each.version = partition, version
        return made

    @property
    def text(self) -> str:
        """The monoton and the partition, for people."""
        return f"{int(self)} of partition {self.partition}"

    def __getnewargs__(self) -> tuple[int]:
        return (int(self),)


class UniquePer(StrEnum):
    """The scope within which a unique id is unique.

    ``KEY``: among the messages of a key, and among those without a key.
    ``QUEUE``: in the whole queue, which has one partition.
    """

    KEY = "key"
    QUEUE = "queue"


class Order(StrEnum):
    """The order in which a queue offers its messages to a group.

    ``NONE``: in the order of their monotons, but messages that are offered again come later.
    ``KEY``: no message before all earlier ones of its key are settled. A Spark batch has all keys
    of a queue partition: it begins when no message of this partition is held.
    ``STRICT``: no message before all earlier ones of the queue are settled.
    """

    NONE = "none"
    KEY = "key"
    STRICT = "strict"


class OnDead(StrEnum):
    """The policy for the messages behind a dead message, in a queue with an order.

    ``CONTINUE``: the dead message goes to the dead-letter queue, and the next ones are delivered.
    ``STOP``: the group gets no more messages of its key until an operator decides; in strict
    order, and for Spark batches, no more messages of its queue partition.
    """

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True, slots=True, repr=False)
class QueueDefinition(Displayed):
    """The definition of a queue, or of one of its partitions.

    Attributes:
        name: See `validate_name`.
        version: Grows with each purge, and whenever a deleted queue is created again.
        bucket_size: Messages per Cassandra partition of a block.
        chunk_size: Most messages per row of a bucket.
        lease: How long a lease lasts without a heartbeat.
        max_deliveries: Deliveries after which a message is dead; 0 for never.
        dead_letter_queue: Where dead messages go; None: they are dropped.
        order: The order in which messages are offered.
        on_dead: The policy for the messages behind a dead message.
        expire_after: The age, counted from when it became visible, at which a message expires that
            a group has not consumed; None: messages do not expire.
        keep_settled: The age, counted from when it became visible, up to which a message that
            every group has settled is kept, to be read again; None: it is not kept.
        delay: The shortest time from the publication of a message to its delivery, unless the
            message sets its own; None: no delay.
        deduplicate: The time after the publication of a message in which no other message with
            its unique id is published; None: messages have no unique ids.
        unique_per: The scope within which a unique id is unique.
        history: How long the history of its messages is kept; None: it is not kept.
        schemas: The versions of its schema in Spark's DDL, oldest first; empty: its messages are
            bytes.
        partitions: The number of its partitions, each with a ledger and group states of its own.
        created_at: When it was created, by the coordinator's clock.
        partition: The number of the partition that this defines, if the queue has several; None:
            the whole queue.
    """

    name: str
    version: int
    bucket_size: int = DEFAULT_BUCKET_SIZE
    chunk_size: int = DEFAULT_CHUNK_SIZE
    lease: timedelta = DEFAULT_LEASE
    max_deliveries: int = 0
    dead_letter_queue: str | None = None
    order: Order = Order.NONE
    on_dead: OnDead = OnDead.CONTINUE
    expire_after: timedelta | None = None
    keep_settled: timedelta | None = None
    delay: timedelta | None = None
    deduplicate: timedelta | None = None
    unique_per: UniquePer = UniquePer.KEY
    history: timedelta | None = None
    schemas: tuple[str, ...] = ()
    partitions: int = 1
    created_at: datetime | None = None
    partition: int | None = None

    @property
    def schema(self) -> str | None:
        """The present columns of the queue in Spark's DDL; None if its messages are bytes."""
        return self.schemas[-1] if self.schemas else None

    @property
    def has_lanes(self) -> bool:
        """True if a held message holds up the messages of its key only."""
        return self.order is Order.KEY

    @property
    def is_ordered(self) -> bool:
        """True if a message may wait for earlier ones."""
        return self.order is not Order.NONE

    @property
    def queue_id(self) -> QueueId:
        """The id under which ledger, chunks and group state are kept.

        If the queue has several partitions, each partition has an id. The id of the whole queue is
        then used for presences only.
        """
        return id_of(self.name, self.version, self.partition)

    @property
    def label(self) -> str:
        """The name of the queue or partition for people: ``orders``, ``orders/3``."""
        return self.name if self.partition is None else f"{self.name}/{self.partition}"

    @property
    def by_partition(self) -> tuple[QueueDefinition, ...]:
        """The definition of each partition, in order; this definition if there is only one."""
        if self.partitions == 1 or self.partition is not None:
            return (self,)
        return tuple(replace(self, partition=number) for number in range(self.partitions))

    def of_partition(self, partition: int) -> QueueDefinition:
        """The definition of one of its partitions, from 0."""
        return replace(self, partition=partition if self.partitions > 1 else None)

    def _view(self) -> ObjectView:
        derived = {"schemas": "schema"}
        names = [derived.get(it.name, it.name) for it in fields(self) if it.name != "partition"]
        facts = {name: getattr(self, name) for name in names} | {"name": self.label}
        details = {name: facts.pop(name) for name in ("bucket_size", "chunk_size")}
        usual = {"partitions": 1, "order": Order.NONE, "on_dead": OnDead.CONTINUE}
        if self.deduplicate is None:
            facts.pop("unique_per")
        return ObjectView("queues", "", facts, details, usual)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One row of a bucket: messages ``[start, stop)`` of their block as a frame.

    `arrow.framing` has the layout of a frame.
    """

    bucket: int
    start: int
    stop: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BucketSlice:
    """The chunks of one bucket that start at offsets ``[start, stop)`` of their block."""

    block: UUID
    bucket: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Kept:
    """The published messages of a block whose repeated messages were left out.

    >>> kept = Kept(Ranges.parse("1-3,6-8"), count=9)
    >>> [kept.offset_of(number) for number in range(5)]
    [1, 2, 6, 7, 8]
    >>> [kept.before(offset) for offset in (0, 1, 3, 5, 7, 9)]
    [0, 0, 2, 2, 3, 4]

    Attributes:
        offsets: The offsets of the published messages in the block.
        count: The number of messages in the block as it was written.
    """

    offsets: Ranges
    count: int
    # The number of messages kept before each part.
    _numbers: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = accumulate(map(len, self.offsets.parts), initial=0)
        object.__setattr__(self, "_numbers", tuple(numbers)[:-1])

    def offset_of(self, number: int) -> int:
        """The offset of a kept message, given its number from 0; for their count, the end."""
        at = bisect_right(self._numbers, number) - 1
        return self.offsets.parts[at].start + number - self._numbers[at]

    def before(self, offset: int) -> int:
        """The number of kept messages before this offset."""
        at = bisect_right(self.offsets.parts, offset, key=_START) - 1
        if at < 0:
            return 0
        part = self.offsets.parts[at]
        return self._numbers[at] + min(offset - part.start, len(part))


@dataclass(frozen=True, slots=True)
class PendingBlock:
    """A block that a writer task has written, and that has no monotons yet.

    Attributes:
        block: Its id.
        count: The number of its messages.
        size: Bytes that its messages take in the store.
        visible: When its messages are to be delivered: an instant, or a delay after publication;
            None: at once.
        ids: The unique id of each message, in order, encoded by `ledger.unique`; empty: the
            messages have no unique ids.
        lanes: The lane of each message, in order, encoded by `groups.lanes`; empty: the ledger is
            not told.
    """

    block: UUID
    count: int
    size: int = 0
    visible: datetime | timedelta | None = None
    ids: bytes = b""
    lanes: str = ""


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """One batch of one sink: published once, and only if no later batch of the sink was published.

    Attributes:
        sink: Name of the sink.
        batch_id: Its number; the numbers of a sink grow.
        fingerprint: A digest of its content; None: not known, or not needed.
    """

    sink: str
    batch_id: int
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerBlock:
    """A published block: where its messages are.

    Attributes:
        monotons: The monotons of its messages.
        block: Its id.
        published_at: When it was published, by the coordinator's clock.
        visible_at: The earliest instant at which its messages are delivered; None: once published.
        size: Bytes that its messages take in the store.
        there_by: An instant by which it was published, even if the other clocks were wrong; None:
            not known.
        kept: Which of its messages were published; None: all.
        lanes: The lane of each of its messages in the store, encoded by `groups.lanes`; empty:
            only the messages tell.
    """

    monotons: Range
    block: UUID
    published_at: datetime
    visible_at: datetime | None = None
    size: int = 0
    there_by: datetime | None = None
    kept: Kept | None = None
    lanes: str = ""

    @property
    def count(self) -> int:
        """The number of its messages in the store, including those that were left out."""
        return len(self.monotons) if self.kept is None else self.kept.count

    @property
    def visible_since(self) -> datetime:
        """When its messages became, or will become, visible."""
        return self.visible_at or self.published_at

    @property
    def young_since(self) -> datetime:
        """The instant from which the age of its messages counts when they expire.

        This is not before the writer began the block, by the writer's clock: the clock of the
        server that published the block may have been behind.
        """
        begun_at, visible_since = block_time(self.block), self.visible_since
        if self.there_by is not None:
            begun_at = min(begun_at, self.there_by)
            visible_since = self.visible_at or min(self.published_at, self.there_by)
        return max(visible_since, begun_at)

    def offsets(self, monotons: Range) -> Range:
        """The offsets within this block of the monotons that it shares with ``monotons``.

        Between the first and the last, messages may have been left out.
        """
        shared = self.monotons & monotons
        start, stop = shared.start - self.monotons.start, shared.stop - self.monotons.start
        if self.kept is None or start == stop:
            return Range(start, stop)
        return Range(self.kept.offset_of(start), self.kept.offset_of(stop - 1) + 1)

    def offset_of(self, monoton: int) -> int:
        """The offset of the message with this monoton; 0 before the block, the end after it.

        Messages that were left out just before this message have lower offsets.
        """
        number = min(max(0, monoton - self.monotons.start), len(self.monotons))
        return number if self.kept is None or not number else self.kept.offset_of(number)

    def monotons_at(self, offsets: Range) -> Range:
        """The monotons of its messages at these offsets."""
        start, stop = offsets.start, offsets.stop
        if self.kept is not None:
            start, stop = self.kept.before(start), self.kept.before(stop)
        return Range(self.monotons.start + start, self.monotons.start + stop)


def validate_name(kind: str, name: str) -> str:
    """Return ``name`` if it can name a queue or a consumer group.

    Args:
        kind: What it names, for the error: ``queue`` or ``group``.
        name: 1 to 200 letters, digits, ``.``, ``_``, ``:`` or ``-``; first a letter or digit.

    Raises:
        OptionError: It is not a str, empty, too long, has another character, or only dots after a
            colon.
    """
    if not isinstance(name, str):
        raise OptionError(f"{kind} name must be a str, not {shown(name)}")
    if not _QUEUE_NAME.fullmatch(name) or _DOTS_ALONE.fullmatch(name):
        raise OptionError(
            f"{kind} name {name!r} is not valid: expected 1 to 200 letters, digits, '.', '_', ':' "
            "or '-', beginning with a letter or digit, and not dots alone after a colon"
        )
    return name


def id_of(name: str, version: int, partition: int | None = None) -> QueueId:
    """The id of a version of a queue, or of one of its partitions if it has several.

    >>> id_of("orders", 1), id_of("orders", 1, 3)
    ('orders@1', 'orders@1.3')
    """
    return QueueId(f"{name}@{version}" + ("" if partition is None else f".{partition}"))


def parts_of_id(queue_id: str) -> tuple[str, int, int | None]:
    """Split a queue id into name, version and partition.

    >>> parts_of_id("orders@1"), parts_of_id("orders@1.3")
    (('orders', 1, None), ('orders', 1, 3))

    Raises:
        ValueError: It is not the id of a queue.
    """
    found = _QUEUE_ID.fullmatch(queue_id)
    if found is None:
        raise ValueError(f"{queue_id!r} is not the id of a queue")
    name, version, partition = found.groups()
    return name, int(version), None if partition is None else int(partition)


def name_of(queue_id: str) -> str:
    """The name of the queue with this id.

    >>> name_of("acme:orders@1.3")
    'acme:orders'
    """
    return queue_id.rpartition("@")[0]


def partition_of_id(queue: QueueDefinition, queue_id: QueueId) -> QueueDefinition | None:
    """The partition of a queue that has this id; None if the queue has no such partition now."""
    name, version, partition = parts_of_id(queue_id)
    if (name, version) != (queue.name, queue.version):
        return None
    if (partition is None) != (queue.partitions == 1) or (partition or 0) >= queue.partitions:
        return None
    return queue.of_partition(partition or 0)


def account_of(queue: str) -> str | None:
    """The account of the gateway that owns a queue of this name; None if no account does.

    >>> account_of("acme:orders"), account_of("orders")
    ('acme', None)
    """
    account, colon, _ = queue.partition(":")
    return account if colon else None


def block_time(block: UUID) -> datetime:
    """When the block was begun, by its writer's clock, in whole milliseconds like Cassandra's."""
    milliseconds = (block.time - _UUID_EPOCH_OFFSET) // 10_000
    return _UNIX_EPOCH + timedelta(milliseconds=milliseconds)


def block_timestamp(block: UUID) -> int:
    """Write timestamp of the block's chunks, in microseconds: a retry rewrites the same cells."""
    return (block.time - _UUID_EPOCH_OFFSET) // 10


def to_millis(instant: datetime) -> int:
    """Milliseconds since 1970.

    >>> to_millis(FIRST_INSTANT + timedelta(seconds=1))
    1000
    """
    return (instant - _UNIX_EPOCH) // timedelta(milliseconds=1)


def from_millis(milliseconds: int) -> datetime:
    """The aware instant this many milliseconds after 1970.

    Other programs may have stored a number out of range; it counts as the nearest instant.

    >>> from_millis(2**63 - 1) == LAST_INSTANT, from_millis(-(2**63)) == FIRST_INSTANT
    (True, True)
    """
    return _UNIX_EPOCH + timedelta(milliseconds=max(0, min(milliseconds, _LAST_MILLISECOND)))
