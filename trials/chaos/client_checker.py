"""The verdict on the clients of a chaos run, by what each of them has told. Pure.

Scribes put messages, and repeat puts; clerks receive all messages of the queue, in order by key.
All times are seconds by the clock of the machine that nobody sets, which all processes share. What
is not certain, as an answer was lost or a client was killed, counts in favour of the queue.

========== ===========================================================================
putting    A scribe was about to put messages: ``producer``, ``numbers`` (a range), ``at``.
put        It has the answer: also ``place`` (partition and monoton), if it was one message.
receiving  A clerk was about to receive by the ``call``, ``at``.
received   It has got ``messages`` (name, partition, monoton, deliveries) by the
           ``call``, which ``began`` then, for ``lease`` seconds.
processed  It has processed the ``nth`` message of a call while the lease certainly ran.
settling   It was about to settle ``messages`` (which of the call) by a ``verb``.
settled    It has the answer: ``messages`` without the stale ones, extended ``by`` seconds.
trouble    A client ended with this ``error``.
========== ===========================================================================
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from trials.chaos.checker import KEYS, Message, Row, Sent, count_late, read_message, was_sent

Event = Mapping[str, Any]
Place = tuple[int, int]

#: The clocks of nodes are those of the machine, unless they are set wrong on purpose.
MARGIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ClientVerdict:
    """The verdict on what clerks received, and on what scribes put.

    Attributes:
        client_deliveries: Messages that were handed out, with repetitions.
        client_redelivered: Those of second and later deliveries.
        client_acked: Messages whose ack was confirmed.
        client_repeats: Puts of messages that had been put before, or tried.
        client_dead: Messages in the dead-letter queue.
        client_lost: Published messages that were neither processed nor dead-lettered.
        client_damaged: Deliveries that differ from what was sent.
        client_invented: Messages that nobody has sent to the queue.
        client_reordered: Messages that were processed first after a later one of their key.
        client_early: Deliveries of a message while an earlier one of its key was not settled, and
            did not come before it in the same call.
        client_held_twice: Deliveries of a message while another call certainly held it.
        client_again: Deliveries by a receive that began when the ack was confirmed.
        client_visible_twice: Messages that were published twice within the window.
    """

    client_deliveries: int
    client_redelivered: int
    client_acked: int
    client_repeats: int
    client_dead: int
    client_lost: int
    client_damaged: int
    client_invented: int
    client_reordered: int
    client_early: int
    client_held_twice: int
    client_again: int
    client_visible_twice: int

    @property
    def is_fine(self) -> bool:
        wrong = (self.client_lost, self.client_damaged, self.client_invented)
        order = (self.client_reordered, self.client_early, self.client_held_twice)
        return not any((*wrong, *order, self.client_again, self.client_visible_twice)) and (
            self.client_acked > 0
        )


@dataclass(slots=True)
class _Hold:
    """One delivery of a message.

    Attributes:
        message, place: Which message, and where it is in the queue.
        call, nth: The receive that got it, and the place in its answer.
        began, since: When that receive began, and when it had returned.
        until: Its client certainly held it until then, if it did not come too late.
        acking: When it may have been settled by its client at the earliest.
        acked: When its client knew that it was.
    """

    message: Message
    place: Place
    call: str
    nth: int
    began: float
    since: float
    until: float
    acking: float = math.inf
    acked: float = math.inf


def judge_clients(
    sent: Iterable[Sent],
    puts: Sequence[Event],
    told: Iterable[Sequence[Event]],
    dead: Iterable[Row],
    *,
    window: float,
    is_elsewhere: Callable[[Message], bool] = lambda _: False,
) -> ClientVerdict:
    """Compare what was sent with what clerks received, and when.

    Args:
        sent: All who have sent messages.
        puts: The events of all scribes.
        told: The events of each clerk.
        dead: The dead letters of the clerks' group.
        window: For how long a unique id is unique, in seconds.
        is_elsewhere: Which messages were sent to a queue that the clerks do not read.
    """
    producers = {each.producer: each for each in sent}
    holds: list[_Hold] = []
    processed: dict[Message, float] = {}
    damaged = redelivered = 0
    for events in told:
        some, first = _holds_of(events)
        holds += some
        for message, at in first.items():
            processed[message] = min(at, processed.get(message, math.inf))
        rows = [
            row for event in events if event["event"] == "received" for row in event["messages"]
        ]
        damaged += sum(name is None for name, *_ in rows)
        redelivered += sum(deliveries > 1 for *_, deliveries in rows)
    letters = [read_message(row.key, row.body) for row in dead]
    dead_lettered = {letter for letter in letters if letter is not None}
    attempts = _attempts(puts)
    there = processed.keys() | dead_lettered
    return ClientVerdict(
        client_deliveries=len(holds) + damaged,
        client_redelivered=redelivered,
        client_acked=len({each.message for each in holds if each.acked < math.inf}),
        client_repeats=sum(len(each.began) - 1 for each in attempts.values()),
        client_dead=len(dead_lettered),
        client_lost=sum(
            message not in there and not is_elsewhere(message)
            for each in producers.values()
            for message in (Message(each.producer, number) for number in range(each.acknowledged))
        ),
        client_damaged=damaged + letters.count(None),
        client_invented=len(
            {
                each.message
                for each in holds
                if not was_sent(each.message, producers) or is_elsewhere(each.message)
            }
        ),
        client_reordered=count_late(processed),
        client_early=_early(holds, dead_lettered),
        client_held_twice=_held_twice(holds),
        client_again=_again(holds),
        client_visible_twice=_visible_twice(holds, attempts, put_anew(puts, window)),
    )


def put_anew(puts: Iterable[Event], window: float) -> AbstractSet[Message]:
    """Messages of which the queue may have several, as the window was over for their later puts.

    Args:
        puts: The events of all scribes.
        window: For how long a unique id is unique, in seconds.
    """
    surely = window - MARGIN_SECONDS
    return {
        message
        for message, attempts in _attempts(puts).items()
        if attempts.ended - min(attempts.began) >= surely
    }


def sent_by(scribe: str, events: Iterable[Event]) -> Sent:
    """What a scribe has sent, by its own events."""
    stops = {"putting": 0, "put": 0}
    for event in events:
        if event["event"] in stops and event["producer"] == scribe:
            stops[event["event"]] = max(stops[event["event"]], event["numbers"][1])
    return Sent(scribe, acknowledged=stops["put"], attempted=stops["putting"])


def name_of(message: Message) -> str:
    return f"{message.producer}:{message.number}"


def message_of(name: str) -> Message:
    """The message of a `name_of`."""
    producer, _, number = name.rpartition(":")
    return Message(producer, int(number))


def _holds_of(events: Iterable[Event]) -> tuple[Iterable[_Hold], Mapping[Message, float]]:
    """What a clerk held, and when it processed each message first."""
    holds: dict[tuple[str, int], _Hold] = {}
    first: dict[Message, float] = {}
    for event in events:
        match event["event"]:
            case "received":
                until = event["began"] + event["lease"] - MARGIN_SECONDS
                for nth, (name, partition, monoton, _) in enumerate(event["messages"]):
                    if name is not None:
                        times = (event["began"], event["at"], until)
                        place = (partition, monoton)
                        hold = _Hold(message_of(name), place, event["call"], nth, *times)
                        holds[event["call"], nth] = hold
            case "processed":
                first.setdefault(holds[event["call"], event["nth"]].message, event["at"])
            case "settling" if event["verb"] != "extend":
                for hold in (holds[event["call"], nth] for nth in event["messages"]):
                    hold.until = min(hold.until, event["at"])
                    hold.acking = event["at"] if event["verb"] == "ack" else math.inf
            case "settled":
                _note_answer(
                    event, [each for each in holds.values() if each.call == event["call"]]
                )
    return holds.values(), first


def _note_answer(event: Event, of_call: Iterable[_Hold]) -> None:
    for hold in of_call:
        is_live = hold.nth in event["messages"]
        if event["verb"] == "extend" and is_live:
            hold.until = event["began"] + event["by"] - MARGIN_SECONDS
        elif event["verb"] == "ack" and is_live:
            hold.acked = event["at"]
        elif event["verb"] == "ack":
            # Stale: whatever settled it, this has not.
            hold.acking = math.inf


def _early(holds: Sequence[_Hold], dead: Iterable[Message]) -> int:
    """Count deliveries before an earlier message of the key was settled."""
    settled: dict[Message, float] = dict.fromkeys(dead, -math.inf)
    nth: dict[tuple[str, Message], int] = {}
    for hold in holds:
        settled[hold.message] = min(hold.acking, settled.get(hold.message, math.inf))
        nth[hold.call, hold.message] = hold.nth
    count = 0
    for hold in holds:
        producer, number = hold.message.producer, hold.message.number
        for earlier in (Message(producer, each) for each in range(number % KEYS, number, KEYS)):
            is_with_it = nth.get((hold.call, earlier), hold.nth) < hold.nth
            if not is_with_it and settled.get(earlier, math.inf) > hold.since:
                count += 1
                break
    return count


def _held_twice(holds: Iterable[_Hold]) -> int:
    count = 0
    for same in _by_place(holds):
        until = -math.inf
        for hold in sorted(same, key=lambda each: each.since):
            if hold.since < hold.until:
                count += hold.since < until
                until = max(until, hold.until)
    return count


def _again(holds: Iterable[_Hold]) -> int:
    count = 0
    for same in _by_place(holds):
        acked = min(each.acked for each in same)
        count += sum(each.began > acked for each in same)
    return count


def _by_place(holds: Iterable[_Hold]) -> Iterable[Sequence[_Hold]]:
    found: defaultdict[Place, list[_Hold]] = defaultdict(list)
    for hold in holds:
        found[hold.place].append(hold)
    return found.values()


@dataclass(slots=True)
class _Attempts:
    """The puts of one message: when each began, when the last one ended, and where it is."""

    began: list[float] = field(default_factory=list)
    ended: float = -math.inf
    places: set[Place] = field(default_factory=set)


def _attempts(puts: Iterable[Event]) -> Mapping[Message, _Attempts]:
    found: defaultdict[Message, _Attempts] = defaultdict(_Attempts)
    for event in puts:
        if event["event"] not in {"putting", "put"}:
            continue
        for number in range(*event["numbers"]):
            attempts = found[Message(event["producer"], number)]
            attempts.ended = max(attempts.ended, event["at"])
            if event["event"] == "putting":
                attempts.began.append(event["at"])
            elif event["place"] is not None:
                attempts.places.add(tuple(event["place"]))
    return found


def _visible_twice(
    holds: Iterable[_Hold], attempts: Mapping[Message, _Attempts], several: AbstractSet[Message]
) -> int:
    places: defaultdict[Message, set[Place]] = defaultdict(set)
    for hold in holds:
        places[hold.message].add(hold.place)
    for message, puts in attempts.items():
        places[message] |= puts.places
    return sum(len(some) > 1 and message not in several for message, some in places.items())
