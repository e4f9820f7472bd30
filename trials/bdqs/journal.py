"""The records of senders and receivers, and the paper's measures. Pure.

A sequence is the tags of one queue in the order of their arrival; tags number the messages as they
were sent.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import fmean
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """One arrival of a message: its number in the queue, and whether its checksum is correct."""

    tag: int
    intact: bool = True


def loss(sent: Iterable[int], received: Iterable[Received]) -> float:
    """Share of the messages that did not arrive intact; 0 if none was sent.

    >>> loss([1, 2, 3, 4], [Received(1), Received(2, intact=False), Received(3)])
    0.5
    """
    wanted = set(sent)
    lost = wanted - {each.tag for each in received if each.intact}
    return len(lost) / len(wanted) if wanted else 0.0


def duplication(sent: Iterable[int], received: Sequence[Received]) -> float:
    """Second and later arrivals, divided by the messages sent; 0 if none was sent.

    >>> duplication([1, 2], [Received(1), Received(1), Received(2), Received(1)])
    1.0
    """
    count = len(set(sent))
    again = len(received) - len({each.tag for each in received})
    return again / count if count else 0.0


def firsts(received: Iterable[Received]) -> list[int]:
    """The tags in the order of their first arrival, without duplicates.

    >>> firsts([Received(2), Received(1), Received(2)])
    [2, 1]
    """
    return list(dict.fromkeys(each.tag for each in received))


def out_of_order(sequence: Sequence[int]) -> float:
    """Share of a sequence outside its longest increasing subsequence; 0 if it is empty.

    >>> out_of_order([2, 1, 3, 4, 5])
    0.2
    """
    if not sequence:
        return 0.0
    return (len(sequence) - longest_increasing(sequence)) / len(sequence)


def displacement(sequence: Sequence[int]) -> float:
    """Mean distance of a message from its place in the sorted sequence; 0 if it is empty.

    >>> displacement([2, 3, 4, 5, 1])
    1.6
    """
    if not sequence:
        return 0.0
    places = {tag: place for place, tag in enumerate(sorted(sequence))}
    return sum(abs(at - places[tag]) for at, tag in enumerate(sequence)) / len(sequence)


def longest_increasing(sequence: Iterable[int]) -> int:
    """Length of the longest strictly increasing subsequence, by patience sorting.

    Each number goes onto the leftmost pile whose top is not below it; the number of piles is the
    length.

    >>> longest_increasing([3, 1, 4, 1, 5, 9, 2, 6])
    4
    """
    tops: list[int] = []
    for number in sequence:
        pile = bisect_left(tops, number)
        tops[pile : pile + 1] = [number]
    return len(tops)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least a share of the values do not exceed; 0 without values.

    >>> percentile([5.0, 1.0, 3.0, 2.0, 4.0], 0.8)
    4.0
    """
    if not values:
        return 0.0
    rank = -int(-share * len(values) // 1)
    return sorted(values)[max(0, rank - 1)]


#: The line of JSON for a cell.
Line = dict[str, Any]

_NUMBER_BYTES = 4
_TAIL = 0.95


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its repetitions, in seconds of the monotonic clock, and its messages."""

    began: float
    ended: float
    count: int = 1

    @property
    def milliseconds(self) -> float:
        return (self.ended - self.began) * 1000


@dataclass(frozen=True, slots=True)
class Arrival:
    """An arrival: its time by the monotonic clock, the monoton, and the content of the body."""

    at: float
    monoton: int
    received: Received


@dataclass(slots=True)
class Journal:
    """The records of one queue; lists only grow, so any thread may append.

    Attributes:
        sent: Tags of confirmed messages.
        puts: Calls that put.
        receives: Calls that received something.
        acks: Calls that acked.
        arrivals: Received messages, with duplicates.
        repeated: Repeated calls, by the name of the error.
        deaths: Receivers that died.
    """

    sent: list[int] = field(default_factory=list)
    puts: list[Call] = field(default_factory=list)
    receives: list[Call] = field(default_factory=list)
    acks: list[Call] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)
    deaths: int = 0

    def add(self, other: Journal) -> None:
        """Add the records of another phase of the same queue."""
        self.sent += other.sent
        self.puts += other.puts
        self.receives += other.receives
        self.acks += other.acks
        self.arrivals += other.arrivals
        self.repeated += other.repeated
        self.deaths += other.deaths


def body_of(tag: int, content: bytes) -> bytes:
    """A message: a checksum of the rest, its tag, its content."""
    rest = tag.to_bytes(_NUMBER_BYTES) + content
    return zlib.crc32(rest).to_bytes(_NUMBER_BYTES) + rest


def parse_body(body: bytes) -> Received:
    """The tag of a message, and whether it is intact.

    >>> parse_body(body_of(7, b"content")), parse_body(body_of(7, b"content")[:-1]).intact
    (Received(tag=7, intact=True), False)
    """
    checksum, rest = body[:_NUMBER_BYTES], body[_NUMBER_BYTES:]
    return Received(
        int.from_bytes(rest[:_NUMBER_BYTES]), zlib.crc32(rest).to_bytes(_NUMBER_BYTES) == checksum
    )


def figures_of(journals: Sequence[Journal]) -> Line:
    """The paper's figures of one run: rates per second, times in ms, shares and places.

    Figures of consistency are means over all queues. Order is measured twice: by the tags, in the
    order in which the puts began, as in the paper; and by the monotons, in the order of
    publication.
    """
    puts = [call for journal in journals for call in journal.puts]
    receives = [call for journal in journals for call in journal.receives]
    acks = [call for journal in journals for call in journal.acks]
    repeated = sum((journal.repeated for journal in journals), Counter[str]())
    return {
        "sent": sum(len(journal.sent) for journal in journals),
        "send_per_s": _rate(puts, puts),
        "send_ms": _mean(call.milliseconds for call in puts),
        "send_p95_ms": percentile([call.milliseconds for call in puts], _TAIL),
        "receive_per_s": _rate(receives, acks),
        "receive_ms": _mean(call.milliseconds for call in receives),
        "receive_p95_ms": percentile([call.milliseconds for call in receives], _TAIL),
        "ack_ms": _mean(call.milliseconds for call in acks),
        "loss": _mean(loss(each.sent, _received(each)) for each in journals),
        "duplication": _mean(duplication(each.sent, _received(each)) for each in journals),
        "out_of_order": _mean(out_of_order(_tags(each)) for each in journals),
        "displacement": _mean(displacement(_tags(each)) for each in journals),
        "out_of_order_published": _mean(out_of_order(_monotons(each)) for each in journals),
        "displacement_published": _mean(displacement(_monotons(each)) for each in journals),
        "repeated_calls": dict(sorted(repeated.items())),
        "deaths": sum(journal.deaths for journal in journals),
    }


def _received(journal: Journal) -> list[Received]:
    return [arrival.received for arrival in _in_order(journal)]


def _tags(journal: Journal) -> list[int]:
    return firsts(_received(journal))


def _monotons(journal: Journal) -> list[int]:
    return list(dict.fromkeys(arrival.monoton for arrival in _in_order(journal)))


def _in_order(journal: Journal) -> list[Arrival]:
    return sorted(journal.arrivals, key=attrgetter("at"))


def _rate(begun: Sequence[Call], ended: Sequence[Call]) -> float:
    """Messages of ``ended`` per second, from the first beginning to the last end."""
    if not begun or not ended:
        return 0.0
    seconds = max(call.ended for call in ended) - min(call.began for call in begun)
    return sum(call.count for call in ended) / seconds


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return fmean(every) if every else 0.0
