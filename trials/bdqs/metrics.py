"""The paper's measures of what came of a queue's messages. Pure.

A sequence is the tags of one queue, numbered as they were sent, in the order of their arrival.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Received:
    """One arrival of one message.

    Attributes:
        tag: Number of the message in its queue.
        intact: Whether its checksum is that of its body.
    """

    tag: int
    intact: bool = True


def loss(sent: Iterable[int], received: Iterable[Received]) -> float:
    """Share of the messages that nobody received, or only damaged ones; 0 if none was sent.

    >>> loss([1, 2, 3, 4], [Received(1), Received(2, intact=False), Received(3)])
    0.5
    """
    wanted = set(sent)
    lost = wanted - {each.tag for each in received if each.intact}
    return len(lost) / len(wanted) if wanted else 0.0


def duplication(sent: Iterable[int], received: Sequence[Received]) -> float:
    """Arrivals of messages that had arrived before, for each message sent; 0 if none was.

    >>> duplication([1, 2], [Received(1), Received(1), Received(2), Received(1)])
    1.0
    """
    count = len(set(sent))
    again = len(received) - len({each.tag for each in received})
    return again / count if count else 0.0


def firsts(received: Iterable[Received]) -> list[int]:
    """The tags in the order of their first arrival; the measures of order take no duplicates.

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
    """Mean distance of a message from its place among those that came; 0 if none came.

    >>> displacement([2, 3, 4, 5, 1])
    1.6
    """
    if not sequence:
        return 0.0
    places = {tag: place for place, tag in enumerate(sorted(sequence))}
    return sum(abs(at - places[tag]) for at, tag in enumerate(sequence)) / len(sequence)


def longest_increasing(sequence: Iterable[int]) -> int:
    """Length of the longest strictly increasing subsequence, in n log n steps.

    By patience sorting: each number goes onto the leftmost pile whose top is not below it, and
    there are as many piles as the subsequence is long.

    >>> longest_increasing([3, 1, 4, 1, 5, 9, 2, 6])
    4
    """
    tops: list[int] = []
    for number in sequence:
        pile = bisect_left(tops, number)
        tops[pile : pile + 1] = [number]
    return len(tops)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least ``share`` of them do not exceed; 0 if none.

    >>> percentile([5.0, 1.0, 3.0, 2.0, 4.0], 0.8)
    4.0
    """
    if not values:
        return 0.0
    rank = -int(-share * len(values) // 1)
    return sorted(values)[max(0, rank - 1)]
