"""The verdict on the history that the queue has kept in a chaos run. Pure.

The history is best effort: an event may be missing, but none may be wrong. Clerks have told what
they did (see the table of `client_checker`), and `receiving`, that they were about to receive.
All times are seconds by the clock of the machine that nobody sets. An event is wrong if

- it is of a message that was never published, or comes before the first put of the message began;
- nobody of that name reads for the group;
- the reader was not doing such a thing at that time: no receive, and no settlement of the message;
- the reader has the answer, and the message is not in it, or its number of deliveries is another;
- it is before the lease began under which it was done;
- it is an ack, and the message was acked before.

A receive that cannot read what it has leased releases it, and hands over what it can read.

What is not certain, as an answer was lost or a client was killed, counts in favour of the queue.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trials.chaos.checker import Message
from trials.chaos.client_checker import Event, Place, message_of

#: How much the clocks of clerks may be off, beyond what the trial has set.
CLOCKS_SECONDS = 2.0

_DONE_BY = {"ack": "acked", "release": "released", "extend": "extended"}
#: What a receive does with messages, besides handing them over; those that it cannot read are
#: released.
_BESIDE = ("returned", "dead")
_UNREADABLE = "released"


@dataclass(frozen=True, slots=True)
class Entry:
    """An event of one message in the history.

    Attributes:
        group, place: Of which group, and of which message.
        did: What was done.
        by: Who did it.
        at: When; in the group of the clerks, what the clock of the clerk is off is taken away.
        lease: The token of the lease.
        deliveries: How often the message had been delivered; None if unknown.
    """

    group: str
    place: Place
    did: str
    by: str | None
    at: float
    lease: str
    deliveries: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """The verdict on the history.

    Attributes:
        history_events: Events, each counted for each of its messages.
        history_wrong: Those that contradict what clerks and scribes have told.
        history_missing: What clerks certainly did to messages, and the history does not have.
    """

    history_events: int
    history_wrong: int
    history_missing: int

    @property
    def is_fine(self) -> bool:
        return not self.history_wrong and self.history_events > 0


@dataclass(slots=True)
class _Deed:
    """A call of a clerk.

    Attributes:
        verbs: What it may have done to messages.
        began, until: When.
        places: The messages that it may have concerned; None: any.
        sure: Those that it certainly concerned, and how often they had been delivered; None if
            the clerk does not know.
    """

    verbs: tuple[str, ...]
    began: float
    until: float = math.inf
    places: set[Place] | None = None
    sure: dict[Place, int | None] = field(default_factory=dict)

    def covers(self, at: float) -> bool:
        return self.began - CLOCKS_SECONDS <= at <= self.until + CLOCKS_SECONDS

    def fits(self, entry: Entry) -> bool:
        """True if the entry may come from this call."""
        if entry.did not in self.verbs or not self.covers(entry.at):
            return False
        told = self.sure.get(entry.place)
        alike = told is None or entry.deliveries in (None, told)
        return alike and (self.places is None or entry.place in self.places)


def judge_history(
    entries: Sequence[Entry],
    told: Mapping[str, Sequence[Event]],
    puts: Iterable[Event],
    *,
    group: str,
    ends: Mapping[int, int],
) -> HistoryVerdict:
    """Compare the history with what clerks and scribes have told.

    Args:
        entries: The history, of all groups; of others than that of the clerks, acks are enough.
        told: The events of each clerk.
        puts: The events of all scribes.
        group: The group of the clerks; of other groups nobody has told anything.
        ends: The monoton that the next message of each partition would get.
    """
    deeds = {name: _deeds_of(events) for name, events in told.items()}
    published = _published(told.values(), puts)
    again = _acked_again(entries)
    of_clerks = [each for each in entries if each.group == group]
    explained = _Explained(deeds, of_clerks)

    def is_early(entry: Entry) -> bool:
        return entry.at < published.get(entry.place, -math.inf) - CLOCKS_SECONDS

    wrong = sum(
        entry.place[1] >= ends.get(entry.place[0], 0)
        or number in again
        or (entry.group == group and is_early(entry))
        or (entry.group == group and not explained.may_be(entry))
        for number, entry in enumerate(entries)
    )
    return HistoryVerdict(len(entries), wrong, _missing(deeds, of_clerks))


class _Explained:
    """Says which entries the calls of clerks explain."""

    def __init__(self, deeds: Mapping[str, Sequence[_Deed]], entries: Iterable[Entry]) -> None:
        self._receives = {
            name: [deed for deed in some if "leased" in deed.verbs] for name, some in deeds.items()
        }
        self._by_place: defaultdict[tuple[str, Place], list[_Deed]] = defaultdict(list)
        self._of_any: defaultdict[str, list[_Deed]] = defaultdict(list)
        for name, some in deeds.items():
            for deed in some:
                if deed.places is None:
                    self._of_any[name].append(deed)
                for place in deed.places or ():
                    self._by_place[name, place].append(deed)
        #: When each lease of a message began, and which messages it gave back unread.
        self._began: dict[tuple[str, Place], float] = {}
        self._unread: set[tuple[str, Place]] = set()
        for each in entries:
            if each.did == "leased":
                key = (each.lease, each.place)
                self._began[key] = min(each.at, self._began.get(key, math.inf))
            elif each.did in _BESIDE or (each.did == _UNREADABLE and self._is_of_receive(each)):
                self._unread.add((each.lease, each.place))

    def may_be(self, entry: Entry) -> bool:
        if entry.by not in self._receives:
            return False
        if entry.at < self._began.get((entry.lease, entry.place), -math.inf) - CLOCKS_SECONDS:
            return False
        is_beside = entry.did in _BESIDE
        was_unread = entry.did == "leased" and (entry.lease, entry.place) in self._unread
        if is_beside or was_unread:
            return any(deed.covers(entry.at) for deed in self._receives[entry.by])
        if entry.did == _UNREADABLE and self._is_of_receive(entry):
            return True
        candidates = (*self._by_place[entry.by, entry.place], *self._of_any[entry.by])
        return any(deed.fits(entry) for deed in candidates)

    def _is_of_receive(self, entry: Entry) -> bool:
        """True if a receive that has not handed the message over may have done it."""
        receives = self._receives.get(entry.by or "", ())
        return any(
            deed.covers(entry.at) and entry.place not in (deed.places or ()) for deed in receives
        )


def _deeds_of(events: Iterable[Event]) -> list[_Deed]:
    """The calls of a clerk, which does one after the other."""
    deeds: list[_Deed] = []
    receives: dict[str, _Deed] = {}
    rows: dict[str, Sequence[Place]] = {}
    under_way: _Deed | None = None
    has_failed = False
    for event in events:
        match event["event"]:
            case "receiving" | "settling":
                if under_way is not None:
                    # It has failed, or its process was killed.
                    under_way.until = event["at"]
                has_failed = False
                if event["event"] == "receiving":
                    under_way = _Deed(("leased", "replayed"), event["at"])
                    receives[event["call"]] = under_way
                else:
                    named = {rows[event["call"]][nth] for nth in event["messages"]}
                    under_way = _Deed((_DONE_BY[event["verb"]],), event["at"], places=named)
                deeds.append(under_way)
            case "failed":
                has_failed = True
            case "received":
                received = receives[event["call"]]
                places = [(partition, monoton) for _, partition, monoton, _ in event["messages"]]
                rows[event["call"]] = places
                received.until = event["at"]
                counts = [deliveries for *_, deliveries in event["messages"]]
                received.sure = dict(zip(places, counts, strict=True))
                # An attempt that failed may have leased others.
                received.places = None if has_failed else {*places}
                under_way = None
            case "settled" if under_way is not None:
                done = {rows[event["call"]][nth] for nth in event["messages"]}
                under_way.until, under_way.places = event["at"], done
                under_way.sure = dict.fromkeys(done)
                under_way = None
    return deeds


def _published(told: Iterable[Sequence[Event]], puts: Iterable[Event]) -> Mapping[Place, float]:
    """When the first put of the message at each place began, as far as a scribe has put it."""
    began: dict[Message, float] = {}
    for event in puts:
        if event["event"] == "putting":
            for number in range(*event["numbers"]):
                message = Message(event["producer"], number)
                began[message] = min(event["at"], began.get(message, math.inf))
    return {place: began[message] for message, place in _delivered(told) if message in began}


def _delivered(told: Iterable[Sequence[Event]]) -> Iterator[tuple[Message, Place]]:
    for events in told:
        for event in events:
            for name, partition, monoton, _ in (
                event["messages"] if event["event"] == "received" else ()
            ):
                if name is not None:
                    yield message_of(name), (partition, monoton)


def _acked_again(entries: Sequence[Entry]) -> set[int]:
    """The numbers of the acks of messages that their group had acked before."""
    acked: set[tuple[str, Place]] = set()
    again = set()
    for number, entry in sorted(enumerate(entries), key=lambda each: each[1].at):
        if entry.did == "acked":
            if (entry.group, entry.place) in acked:
                again.add(number)
            acked.add((entry.group, entry.place))
    return again


def _missing(deeds: Mapping[str, Sequence[_Deed]], entries: Iterable[Entry]) -> int:
    found: defaultdict[tuple[str | None, Place], list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.by, entry.place].append(entry)
    return sum(
        not any(deed.fits(entry) for entry in found[name, place])
        for name, some in deeds.items()
        for deed in some
        for place in deed.sure
    )
