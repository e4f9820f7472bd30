"""The verdict on a chaos run: compares sent with processed messages, one by one. Pure.

It does not ask the queue: what was sent follows from Spark's own checkpoints of the producers, and
what was processed from the results of the consumers. A message names its producer, its number and
its checksum.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Tasks of a micro-batch of a producer: message n is in task n modulo this.
LANES = 4
#: Keys of a producer: message n has key n modulo this, so one task has all messages of a key.
KEYS = 10 * LANES
#: The queue, and the second one of a run with several: it gets the messages of one lane.
QUEUE, ASIDE = "chaos", "chaos.aside"
#: The checksum is repeated up to so many times, so that messages differ in length.
_LENGTHS = 7


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """A message, by its producer and its number, from 0."""

    producer: str
    number: int

    @property
    def lane(self) -> tuple[str, int]:
        """Messages of one lane are published in the order of their numbers."""
        return self.producer, self.number % LANES

    @property
    def key(self) -> str:
        return f"{self.producer}:{self.number % KEYS}"

    @property
    def body(self) -> str:
        """The value: the name of the message and, once or more often, its checksum."""
        name = f"{self.producer}:{self.number}"
        checksum = hashlib.sha256(name.encode()).hexdigest()
        return f"{name}:{checksum * (1 + self.number % _LENGTHS)}"


def read_message(key: str | None, body: str) -> Message | None:
    """Which message this is; None if a byte of key or body was changed."""
    producer, _, rest = body.partition(":")
    number = rest.partition(":")[0]
    if not number.isdecimal():
        return None
    message = Message(producer, int(number))
    return message if (message.key, message.body) == (key, body) else None


def message_columns(producer: str, number: str) -> tuple[str, str]:
    """Key and value as expressions of Spark SQL over the column ``number``."""
    key = f"concat('{producer}:', {number} % {KEYS})"
    name = f"concat('{producer}:', {number})"
    checksum = f"repeat(sha2({name}, 256), cast(1 + {number} % {_LENGTHS} as int))"
    return f"{key} as key", f"concat({name}, ':', {checksum}) as value"


def queue_column(number: str) -> str:
    """The queue of a message in a run with several, as an expression of Spark SQL."""
    return f"if({number} % {LANES} = 0, '{ASIDE}', '{QUEUE}')"


def is_aside(number: int) -> bool:
    """Whether a producer routes this message to the second queue, as `queue_column` says."""
    return number % LANES == 0


@dataclass(frozen=True, slots=True)
class Sent:
    """What a producer has sent.

    Attributes:
        producer: Its name.
        acknowledged: Its messages below this number are acknowledged.
        attempted: It has not sent messages from this number on.
    """

    producer: str
    acknowledged: int
    attempted: int


@dataclass(frozen=True, slots=True)
class Row:
    """A message as a consumer stored it, with its delivery count."""

    key: str | None
    body: str
    deliveries: int


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one batch.

    Attributes:
        consumer: The name of the consumer.
        batch: Number of the batch; a batch that is processed again replaces its result.
        rows: Its messages in order.
        acked: Whether the consumer knows that the batch is acked and its lease was never lost.
        stored_at: When it was stored last, by the clock of the machine.
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
        query: The query, and so the checkpoint.
        batch: Its number in the query; a replay has the same number.
        rows: Its messages.
        rewound: Whether the checkpoint was an older copy, so that it must not be published.
    """

    query: str
    batch: int
    rows: Sequence[Row]
    rewound: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on all messages.

    Attributes:
        published: Messages whose publication is acknowledged.
        acked: Messages in a batch whose ack is confirmed.
        lost: Published messages that were neither processed nor dead-lettered.
        duplicated: Copies of messages in the results, without the first of each.
        duplicated_under_lease: Those of them without a reason: a consumer knew that it held the
            message and has acked it, and a delivery came later, though the queue had it only once.
        damaged: Rows that differ from what was sent.
        reordered: First deliveries after a later message of the same lane and consumer; in order
            by key, of the same key.
        reordered_by_key: Messages that any consumer processed first after a later one of their
            key; 0 unless the queue is ordered by key.
        invented: Messages that nobody has sent.
        unacknowledged: Processed messages whose publication is not acknowledged, as the producer
            was killed before.
        redelivered: Rows of second and later deliveries.
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
    sent: Iterable[Sent],
    results: Iterable[Result],
    dead: Iterable[Row],
    *,
    by_key: bool = False,
    several: Container[Message] = (),
) -> Verdict:
    """Compare what was sent with what was processed.

    Args:
        sent: All producers.
        results: All batches of all consumers of one group.
        dead: The dead letters of the group.
        by_key: Whether the queue is ordered by key.
        several: Messages that the queue may have more than once.
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
    known = {message for message in copies.keys() | dead_lettered if was_sent(message, producers)}
    published = sum(each.acknowledged for each in producers.values())
    acknowledged = sum(
        message.number < producers[message.producer].acknowledged for message in known
    )
    return Verdict(
        published=published,
        acked=sum(any(acked for _, acked in each) for each in copies.values()),
        lost=published - acknowledged,
        duplicated=sum(len(each) - 1 for each in copies.values()),
        duplicated_under_lease=sum(
            _without_excuse(each) for message, each in copies.items() if message not in several
        ),
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
    """The verdict on the messages that a relay passed on.

    Attributes:
        relayed: Messages that arrived, with copies.
        relay_lost: Published messages that neither arrived nor were dead-lettered.
        relay_damaged: Arrived messages that differ from what was sent.
        relay_invented: Arrived messages that nobody has sent.
        relay_doubled: Copies of messages that arrived, without the first of each.
        relay_doubled_without_reason: Copies beyond the number of batches that had the message: a
            batch was published twice, or one from a rewound checkpoint was published.
        relay_held_twice: Deliveries that two batches had.
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
    sent: Iterable[Sent],
    tries: Iterable[Try],
    arrived: Iterable[Row],
    dead: Iterable[Row],
    *,
    several: Container[Message | None] = (),
) -> RelayVerdict:
    """Compare what was sent with what a relay has passed on.

    Args:
        sent: All producers.
        tries: All batches that the relay was about to publish.
        arrived: The messages in the relay's queue.
        dead: The dead letters of the relay's group.
        several: Messages that the queue may have more than once.
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
        relay_invented=sum(not was_sent(message, producers) for message in copies),
        relay_doubled=copies.total() - len(copies),
        relay_doubled_without_reason=sum(
            max(0, count - max(1, len(batches[message])))
            for message, count in copies.items()
            if message not in several
        ),
        relay_held_twice=sum(
            len(each) > 1 for (message, _), each in holders.items() if message not in several
        ),
        relay_dead=len(dead_lettered),
    )


@dataclass(frozen=True, slots=True)
class Rewinds:
    """Counts of checkpoints that were restored from older copies.

    Attributes:
        rewound: All of them.
        refused: Those after which the query stopped with the right error.
        not_refused: Those after which the query committed a batch.
    """

    rewound: int
    refused: int
    not_refused: int


def rewinds(events: Iterable[Mapping[str, Any]]) -> Rewinds:
    """Count the events of programs about rewound checkpoints."""
    counts = Counter(event["event"] for event in events)
    return Rewinds(counts["rewinding"], counts["refused"], counts["not refused"])


def acked_batches(events: Iterable[Mapping[str, Any]]) -> set[int]:
    """The batches that were certainly acked and never lost their lease, by one consumer's events.

    The ack of a batch comes with the lease of the next, in the same run of the query. So if Spark
    reports progress of that one, the batch before is acked, unless more leases were lost.
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


def was_sent(message: Message, producers: Mapping[str, Sent]) -> bool:
    """True if its producer has sent it, or tried to."""
    sent = producers.get(message.producer)
    return sent is not None and message.number < sent.attempted


def count_late(first: Mapping[Message, Any]) -> int:
    """Count messages that came first, at comparable times, after a later one of their key."""
    count = 0
    highest: dict[str, int] = {}
    for message in sorted(first, key=lambda each: first[each]):
        count += message.number < highest.get(message.key, -1)
        highest[message.key] = max(message.number, highest.get(message.key, -1))
    return count


def _without_excuse(copies: Sequence[tuple[int, bool]]) -> int:
    """Copies beside an acked one, except earlier deliveries, whose lease was lost."""
    acked = [deliveries for deliveries, is_acked in copies if is_acked]
    if not acked:
        return 0
    return sum(deliveries >= min(acked) for deliveries, _ in copies) - 1


def _reordered_by_key(batches: Iterable[Result]) -> int:
    """Count messages that were first stored after a later one of their key."""
    first: dict[Message, tuple[int, int]] = {}
    for result in batches:
        for place, row in enumerate(result.rows):
            message = read_message(row.key, row.body)
            if message is not None:
                stored = result.stored_at, place
                first[message] = min(first.get(message, stored), stored)
    return count_late(first)


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
