"""What a chaos run has come to: what was sent against what was processed, message by message.

Pure, and independent: it knows what producers were told by Spark's own checkpoints, and what
consumers have stored, and nothing of the queue's state. A message says who sent it, which one it
is, and its checksum.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Tasks of a micro-batch of a producer: message n is of task n modulo this, in that order.
LANES = 4
#: Keys of a producer: message n has key n modulo this, so all messages of a key are of one task.
KEYS = 10 * LANES
#: The checksum is repeated once to so many times, so that messages differ in length.
_LENGTHS = 7


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """A message by its producer and its number there, from 0."""

    producer: str
    number: int

    @property
    def lane(self) -> tuple[str, int]:
        """Messages of one lane come in the order of their numbers."""
        return self.producer, self.number % LANES

    @property
    def key(self) -> str:
        return f"{self.producer}:{self.number % KEYS}"

    @property
    def body(self) -> str:
        """The message's value: its name and, once or more often, the checksum of that."""
        name = f"{self.producer}:{self.number}"
        checksum = hashlib.sha256(name.encode()).hexdigest()
        return f"{name}:{checksum * (1 + self.number % _LENGTHS)}"


def read_message(key: str | None, body: str) -> Message | None:
    """Tell which message it is; None if a byte of key or body is not as it was sent."""
    producer, _, rest = body.partition(":")
    number = rest.partition(":")[0]
    if not number.isdecimal():
        return None
    message = Message(producer, int(number))
    return message if (message.key, message.body) == (key, body) else None


def message_columns(producer: str, number: str) -> tuple[str, str]:
    """Key and value as expressions of Spark SQL, of the column ``number``."""
    key = f"concat('{producer}:', {number} % {KEYS})"
    name = f"concat('{producer}:', {number})"
    checksum = f"repeat(sha2({name}, 256), cast(1 + {number} % {_LENGTHS} as int))"
    return f"{key} as key", f"concat({name}, ':', {checksum}) as value"


@dataclass(frozen=True, slots=True)
class Sent:
    """What a producer has sent.

    Attributes:
        producer: Its name.
        acknowledged: The publication of all numbers below this is acknowledged.
        attempted: No number from this on was ever sent.
    """

    producer: str
    acknowledged: int
    attempted: int


@dataclass(frozen=True, slots=True)
class Row:
    """A message as a consumer stored it; ``deliveries`` as the queue counts them."""

    key: str | None
    body: str
    deliveries: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a consumer has stored of one batch.

    Attributes:
        consumer: Its name.
        batch: Number of the batch; a batch that is processed again replaces its result.
        rows: Its messages in order.
        acked: Whether the consumer was told that the batch is acked, and its lease never broken.
        stored_at: When it was stored last, by the one clock of the machine.
    """

    consumer: str
    batch: int
    rows: Sequence[Row]
    acked: bool
    stored_at: int = 0


@dataclass(frozen=True, slots=True)
class Try:
    """A batch that a relay was about to publish.

    Attributes:
        query: Of which query, thus of which checkpoint.
        batch: Its number there; a batch that comes again is the same one.
        rows: Its messages.
        rewound: Whether the checkpoint was an older copy, so that it must not be published.
    """

    query: str
    batch: int
    rows: Sequence[Row]
    rewound: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of all messages.

    Attributes:
        published: Messages whose publication was acknowledged to their producer.
        acked: Messages that are in a batch whose ack was confirmed to its consumer.
        lost: Messages that were published, and neither processed nor dead-lettered.
        duplicated: Messages that are in the results more often than once, all copies but one.
        duplicated_under_lease: Those of them without an excuse: a consumer was told that it holds
            the message and that its ack is good, and yet another delivery came after it.
        damaged: Rows that are not what was sent.
        reordered: First deliveries after a later message of the same lane and consumer; in order
            by key, of the same key.
        reordered_by_key: Messages that were processed first, by any consumer, after a later one of
            their key was; 0 unless the queue is ordered by key.
        invented: Messages that nobody has sent.
        unacknowledged: Messages that were processed although their publication was not
            acknowledged: the producer was ended in between.
        redelivered: Rows that were not their message's first delivery.
        dead: Messages in the dead-letter queue.
    """

    published: int
    acked: int
    lost: int
    duplicated: int
    duplicated_under_lease: int
    damaged: int
    reordered: int
    reordered_by_key: int
    invented: int
    unacknowledged: int
    redelivered: int
    dead: int

    @property
    def is_fine(self) -> bool:
        wrong = (self.lost, self.damaged, self.duplicated_under_lease, self.reordered)
        return not any((*wrong, self.reordered_by_key, self.invented)) and self.published > 0


def judge(
    sent: Iterable[Sent], results: Iterable[Result], dead: Iterable[Row], *, by_key: bool = False
) -> Verdict:
    """Compare what was sent with what was processed.

    Args:
        sent: All producers.
        results: All batches of all consumers of one group.
        dead: What is in the dead-letter queue.
        by_key: Whether the queue is ordered by key.
    """
    producers = {each.producer: each for each in sent}
    copies: defaultdict[Message, list[tuple[int, bool]]] = defaultdict(list)
    damaged = redelivered = 0
    batches = sorted(results, key=lambda each: (each.consumer, each.batch))
    for result in batches:
        for row in result.rows:
            message = read_message(row.key, row.body)
            redelivered += row.deliveries > 1
            if message is None:
                damaged += 1
            else:
                copies[message].append((row.deliveries, result.acked))
    letters = [read_message(row.key, row.body) for row in dead]
    damaged += letters.count(None)
    dead_lettered = {letter for letter in letters if letter is not None}
    known = {message for message in copies.keys() | dead_lettered if _was_sent(message, producers)}
    published = sum(each.acknowledged for each in producers.values())
    acknowledged = sum(
        message.number < producers[message.producer].acknowledged for message in known
    )
    return Verdict(
        published=published,
        acked=sum(any(acked for _, acked in each) for each in copies.values()),
        lost=published - acknowledged,
        duplicated=sum(len(each) - 1 for each in copies.values()),
        duplicated_under_lease=sum(map(_without_excuse, copies.values())),
        damaged=damaged,
        reordered=_reordered(batches, by_key=by_key),
        reordered_by_key=_reordered_by_key(batches) if by_key else 0,
        invented=len(copies.keys() | dead_lettered) - len(known),
        unacknowledged=len(known) - acknowledged,
        redelivered=redelivered,
        dead=len(dead_lettered),
    )


@dataclass(frozen=True, slots=True)
class RelayVerdict:
    """What became of the messages that a relay was to pass on.

    Attributes:
        relayed: Messages that arrived; copies count.
        relay_lost: Messages that were published, and neither arrived nor dead-lettered.
        relay_damaged: Those that arrived and are not what was sent.
        relay_invented: Messages that arrived, and that nobody has sent.
        relay_doubled: Messages that arrived more often than once, all copies but one.
        relay_doubled_without_reason: Copies beyond the batches that had the message: of which one
            was published twice, or one that was planned from a rewound checkpoint.
        relay_held_twice: Messages of which two batches had the same delivery.
        relay_dead: Messages in the dead-letter queue.
    """

    relayed: int
    relay_lost: int
    relay_damaged: int
    relay_invented: int
    relay_doubled: int
    relay_doubled_without_reason: int
    relay_held_twice: int
    relay_dead: int

    @property
    def is_fine(self) -> bool:
        wrong = (self.relay_lost, self.relay_damaged, self.relay_invented)
        return not any((*wrong, self.relay_doubled_without_reason, self.relay_held_twice))


def judge_relay(
    sent: Iterable[Sent], tries: Iterable[Try], arrived: Iterable[Row], dead: Iterable[Row]
) -> RelayVerdict:
    """Compare what was sent with what a relay has passed on.

    Args:
        sent: All producers.
        tries: What it was about to publish, each time.
        arrived: What is in the queue that it publishes to.
        dead: What is in the dead-letter queue of its group.
    """
    producers = {each.producer: each for each in sent}
    read = [read_message(row.key, row.body) for row in arrived]
    copies = Counter(message for message in read if message is not None)
    dead_lettered = {read_message(row.key, row.body) for row in dead} - {None}
    batches: defaultdict[Message | None, set[tuple[str, int]]] = defaultdict(set)
    holders: defaultdict[tuple[Message | None, int], set[object]] = defaultdict(set)
    for each in tries:
        for row in each.rows:
            message = read_message(row.key, row.body)
            holders[message, row.deliveries].add((each.query, each.batch, each.rewound))
            if not each.rewound:
                batches[message].add((each.query, each.batch))
    there = copies.keys() | dead_lettered
    return RelayVerdict(
        relayed=len(read),
        relay_lost=sum(
            Message(each.producer, number) not in there
            for each in producers.values()
            for number in range(each.acknowledged)
        ),
        relay_damaged=read.count(None),
        relay_invented=sum(not _was_sent(message, producers) for message in copies),
        relay_doubled=copies.total() - len(copies),
        relay_doubled_without_reason=sum(
            max(0, count - max(1, len(batches[message]))) for message, count in copies.items()
        ),
        relay_held_twice=sum(len(each) > 1 for each in holders.values()),
        relay_dead=len(dead_lettered),
    )


@dataclass(frozen=True, slots=True)
class Rewinds:
    """What became of checkpoints that were restored from older copies.

    Attributes:
        rewound: How often that was done.
        refused: How often the query stopped with the error that tells of it.
        not_refused: How often it committed a batch instead.
    """

    rewound: int
    refused: int
    not_refused: int


def rewinds(events: Iterable[Mapping[str, Any]]) -> Rewinds:
    """Count what programs have noted of their rewound checkpoints."""
    counts = Counter(event["event"] for event in events)
    return Rewinds(counts["rewinding"], counts["refused"], counts["not refused"])


def acked_batches(events: Iterable[Mapping[str, Any]]) -> set[int]:
    """Which batches were surely acked under an unbroken lease, by what one consumer has noted.

    The ack of a batch comes with the lease of the next, in the same run of the query. If Spark
    tells of that one, the batch before is acked; unless it also tells of more lost leases.
    """
    acked: set[int] = set()
    waiting: set[int] = set()
    lost = 0
    for event in events:
        match event["event"]:
            case "started" | "query":
                waiting, lost = set(), 0
            case "stored":
                waiting.add(event["batch"])
            case "progress" if event["lost"] is not None:
                done = {batch for batch in waiting if batch < event["batch"]}
                if event["lost"] == lost:
                    acked |= done
                waiting -= done
                lost = event["lost"]
    return acked


def _was_sent(message: Message, producers: Mapping[str, Sent]) -> bool:
    sent = producers.get(message.producer)
    return sent is not None and message.number < sent.attempted


def _without_excuse(copies: Sequence[tuple[int, bool]]) -> int:
    """Copies beside one that was acked: only earlier deliveries, whose lease broke, may be."""
    acked = [deliveries for deliveries, is_acked in copies if is_acked]
    if not acked:
        return 0
    return sum(deliveries >= min(acked) for deliveries, _ in copies) - 1


def _reordered_by_key(batches: Iterable[Result]) -> int:
    """Count the messages of a key that were stored first after a later one was."""
    first: dict[Message, tuple[int, int]] = {}
    for result in batches:
        for place, row in enumerate(result.rows):
            message = read_message(row.key, row.body)
            if message is not None:
                stored = result.stored_at, place
                first[message] = min(first.get(message, stored), stored)
    count = 0
    highest: dict[str, int] = {}
    for message in sorted(first, key=lambda each: first[each]):
        count += message.number < highest.get(message.key, -1)
        highest[message.key] = max(message.number, highest.get(message.key, -1))
    return count


def _reordered(batches: Iterable[Result], *, by_key: bool) -> int:
    highest: dict[tuple[str, object], int] = {}
    count = 0
    for result in batches:
        for row in result.rows:
            message = read_message(row.key, row.body)
            if message is None or row.deliveries > 1:
                continue
            place = result.consumer, message.key if by_key else message.lane
            if message.number < highest.get(place, -1):
                count += 1
            else:
                highest[place] = message.number
    return count
