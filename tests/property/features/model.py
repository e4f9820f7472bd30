"""What a group is owed, message by message: compared with what is stored after every action.

Nothing of the code under test is asked but the rows: the ledger, the group's state, the messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.consumer.message import Message, StoredMessage, stored_messages
from cassieq_spark.errors import QueueStateError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import OnDead, Order, QueueDefinition, Range, Ranges
from cassieq_spark.queues import read_queue
from cassieq_spark.store.memory import MemoryStore
from tests.support.faults import FakeClock

QUEUE, GROUP = "acme:q", "g"
REDRIVES = "cassieq.redrives"

#: Where a message is: its partition and its monoton.
At = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Content:
    """What is put: it must come out of the queue unchanged, whatever happens."""

    value: bytes | Mapping[str, Any]
    key: bytes | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)

    def is_in(self, stored: StoredMessage, columns: Collection[str]) -> bool:
        """Whether this is what was stored.

        Args:
            stored: A message as it is read.
            columns: Those of the queue now; of others, what was put may be lost.
        """
        found, put = stored.value, self.value
        if isinstance(put, bytes):
            same = found == put
        else:
            same = found["number"] == put["number"] and all(
                value == put.get(name) or (value is None and name not in columns)
                for name, value in found.items()
            )
        return same and stored.key == self.key and stored.headers == self.headers

    @property
    def number(self) -> str:
        """What tells it from all others."""
        value = self.value
        return value.decode() if isinstance(value, bytes) else str(value["number"])


@dataclass(slots=True)
class Put:
    """A message that is published.

    Attributes:
        content: What was put.
        published_at: When.
        visible_from: Until then it may not be delivered.
        touched: The features that had to do with it.
    """

    content: Content
    published_at: datetime
    visible_from: datetime
    touched: set[str]


@dataclass(frozen=True, slots=True)
class Stored:
    """The state of the group, message by message, as it is stored.

    Attributes:
        alive: What the group is owed.
        marked: What is marked dead, and is in nobody's way or stops the group.
        finalised: Below it everything is deleted, by partition.
        deliveries: How often what was handed out and is owed was handed out.
    """

    alive: set[At]
    marked: set[At]
    finalised: list[int]
    deliveries: dict[At, int]


class Model:
    """The messages of one queue, and of its dead-letter queue.

    Args:
        memory: Where the queue is kept.
        clock: What tells the time.
        name: The queue.

    Attributes:
        puts: All messages of this version of the queue.
        owed: What the group has neither settled nor lost to the dead.
        marked: What is marked dead, and not dead-lettered yet.
        held: Who holds a message, by receipt, and until when at least.
        attempts: The messages that each receive with a name has got, with all of their receipts.
        extended: Receipts of messages whose lease was extended.
        may_die: Rejected messages.
        waits: Until when a message waits that was released.
        letters: All dead letters, by their monoton; ``open_letters`` are those not redriven.
        features: Features that had to do with the queue as a whole.
        crossed: Pairs of features that had to do with the same message.
    """

    def __init__(self, memory: MemoryStore, clock: FakeClock, name: str = QUEUE) -> None:
        self.memory, self.clock, self.name = memory, clock, name
        self.letters: dict[int, Put] = {}
        self.open_letters: set[int] = set()
        self.features: set[str] = set()
        self.touched_ever: list[set[str]] = []
        self.begin_version()

    def begin_version(self) -> None:
        """The queue is made, or purged: nothing of before is there."""
        self.puts: dict[At, Put] = {}
        self.owed: set[At] = set()
        self.marked: set[At] = set()
        self.held: dict[At, tuple[str, datetime]] = {}
        self.attempts: dict[str, dict[At, set[str]]] = {}
        self.extended: set[str] = set()
        self.may_die: set[At] = set()
        self.deliveries: dict[At, int] = {}
        self.waits: dict[At, datetime] = {}

    @property
    def queue(self) -> QueueDefinition:
        """The queue as it is now."""
        return read_queue(self.memory, self.name)

    @property
    def columns(self) -> list[str]:
        """The columns of the queue now; none if messages are bytes."""
        schema = self.queue.schema
        return [] if schema is None else [each.split()[0] for each in schema.split(", ")]

    # -- what is published ----------------------------------------------------------------------

    def publish(
        self,
        expected: Sequence[Content],
        *,
        delay: timedelta = timedelta(0),
        touched: Sequence[Iterable[str]] = (),
        in_order: bool = True,
    ) -> list[At]:
        """Check that exactly this was published since, each message once.

        Args:
            expected: The messages.
            delay: How long after that they may be delivered.
            touched: The features that had to do with each message before.
            in_order: Whether they are in this order in each partition.
        """
        queue = self.queue
        delay = delay or queue.delay or timedelta(0)
        new: dict[At, StoredMessage] = {}
        for number, part in enumerate(queue.by_partition):
            known = sum(1 for at in self.puts if at[0] == number)
            stop = Ledger(self.memory, part.queue_id).read_head().next
            for found in self._read(part, Range(known, stop)):
                new[number, found.monoton] = found
        by_number: defaultdict[str, list[int]] = defaultdict(list)
        for place, each in reversed([*enumerate(expected)]):
            by_number[each.number].append(place)
        places: list[tuple[At, int]] = []
        for at, found in new.items():
            assert by_number[_number(found)], (found, "nobody has put it")
            place = by_number[_number(found)].pop()
            assert expected[place].is_in(found, self.columns), (
                found,
                expected[place],
                "is not as it was put",
            )
            places.append((at, place))
        assert Counter(place for _, place in places) == Counter(range(len(expected))), "not once"
        for number in range(queue.partitions):
            order = [place for at, place in places if at[0] == number]
            assert not in_order or order == sorted(order), (
                "not in the order in which they were put"
            )
        for at, place in places:
            key = expected[place].key
            there = {other for other, put in self.puts.items() if put.content.key == key}
            assert key is None or {other[0] for other in there} <= {at[0]}, "a key has moved"
            published = new[at].published_at
            touches = {*touched[place]} if touched else set[str]()
            touches |= {"delays"} if delay else set()
            self.puts[at] = Put(expected[place], published, published + delay, touches)
            self.touched_ever.append(touches)
            # A group is owed whatever is put after it was made.
            self.owed.add(at)
        return [at for at, _ in places]

    def _read(self, part: QueueDefinition, which: Range) -> Iterator[StoredMessage]:
        if len(which):
            ledger = Ledger(self.memory, part.queue_id)
            pieces = find_pieces(ledger, Ranges.of(which), deliveries=None)
            yield from stored_messages(fetch(self.memory, part, pieces))

    # -- what is handed out ---------------------------------------------------------------------

    def hand_out(self, found: Sequence[StoredMessage], receipts: Sequence[str], by: str) -> None:
        """Check what somebody is given, in its order.

        Args:
            found: The messages.
            receipts: The receipt of each.
            by: The feature by which they are handed out; empty if by the client.
        """
        queue, now = self.queue, self.clock.now
        here: set[At] = set()
        # What has died or expired by this call is in nobody's way; `look` asks why it is gone.
        stored = None if queue.order is Order.NONE else self.stored()
        for message, receipt in zip(found, receipts, strict=True):
            at = (message.partition, message.monoton)
            assert at in self.owed, (at, "is settled, dead, or of nobody")
            put = self.puts[at]
            assert put.content.is_in(message, self.columns), (message, put, "is not as it was put")
            assert max(put.visible_from, self.waits.get(at, now)) <= now, (at, "is early")
            _, until = self.held.get(at, ("", now - timedelta(seconds=1)))
            assert until < now, (at, "somebody holds it")
            if isinstance(message, Message):
                assert message.delivery_count == self.deliveries.get(at, 0) + 1, (at, "I8")
            if stored is not None:
                standing = stored.marked if queue.on_dead is OnDead.STOP else set[At]()
                owed = stored.alive | standing
                earlier = {each for each in owed if each[0] == at[0] and each < at}
                if queue.has_lanes and by != "streams":
                    # A stream has all keys of a partition; others have keys, if there are any.
                    key = put.content.key
                    earlier = {each for each in earlier if self.puts[each].content.key == key}
                    earlier = earlier if key is not None else set()
                assert earlier <= here, (at, "came before", earlier - here)
            here.add(at)
            self.held[at] = (receipt, now + queue.lease)
            put.touched |= {by} if by else set()
        if found:
            self.features |= {"schema"} if queue.schemas else set()
            self.features |= {"order by key"} if queue.order is Order.KEY else set()
            self.features |= {"partitions"} if queue.partitions > 1 else set()

    def is_handed_over_again(self, found: Sequence[Message], attempt: str) -> bool:
        """True if an earlier receive of this attempt holds messages: then these must be found.

        Args:
            found: The messages that were received now.
            attempt: The name of the receive.
        """
        now, mine = self.clock.now, self.attempts.get(attempt, {})
        there = {
            at: receipt
            for at, (receipt, until) in self.held.items()
            if at in self.owed and at in mine and receipt in mine[at] and until >= now
        }
        # An extension takes some messages out of the lease of the others.
        must = {
            at
            for at, receipt in there.items()
            if self.held[at][1] > now and receipt not in self.extended
        }
        told = {(each.partition, each.monoton): each for each in found}
        if not must and not (told.keys() & there.keys()):
            return False
        assert must <= told.keys() <= there.keys(), (attempt, must, told.keys(), there)
        assert len(told) == len(found), "a message is there twice"
        for at, each in told.items():
            assert each.delivery_count == self.deliveries[at], (at, "counts twice")
            assert each.receipt not in mine[at], (at, "is not leased anew")
            self.held[at] = (each.receipt, now + self.queue.lease)
            mine[at].add(each.receipt)
        return True

    def live(self, chosen: Sequence[Message], stale: Collection[str]) -> list[At]:
        """What of ``chosen`` was held still, given which of their receipts were stale."""
        found = []
        assert {*stale} <= {each.receipt for each in chosen}
        for message in chosen:
            at = (message.partition, message.monoton)
            receipt, until = self.held.get(at, ("", self.clock.now))
            if not self.is_of_now(message) or receipt != message.receipt:
                assert message.receipt in stale, (message, "was settled twice, or by another")
            elif until >= self.clock.now:
                assert message.receipt not in stale, (message, "is held, and was refused")
            if message.receipt not in stale:
                found.append(at)
        return found

    def is_of_now(self, message: Message) -> bool:
        """Whether a message is of this version of the queue."""
        return f"{self.queue.queue_id}" == message.receipt.split("/")[0].partition(".")[0]

    # -- what is stored -------------------------------------------------------------------------

    def stored(self) -> Stored:
        """Read where every message is."""
        found = Stored(set(), set(), [], {})
        for number, part in enumerate(self.queue.by_partition):
            ledger = Ledger(self.memory, part.queue_id)
            head = ledger.read_head()
            found.finalised.append(head.finalised)
            rows: list[tuple[Ranges, int, str | None]] = []
            pointer = 0
            # After a purge the first reader makes it again.
            with suppress(QueueStateError):
                state = ConsumerGroup(ledger, GROUP).read(every_waiting=True)
                rows += [(each.monotons, each.deliveries, None) for each in state.slots]
                rows += [(each.monotons, each.deliveries, each.reason) for each in state.waiting]
                pointer = state.head.pointer
            rows.append((Ranges.of(Range(pointer, head.next)), 0, None))
            for monotons, deliveries, reason in rows:
                places = {(number, at) for each in monotons for at in range(*_ends(each))}
                assert not places & (found.alive | found.marked), "I5: in two places"
                (found.alive if reason is None else found.marked).update(places)
                found.deliveries.update(dict.fromkeys(places, deliveries))
        return found

    def look(self, must: Iterable[At] = (), may: Iterable[At] = ()) -> None:
        """Compare what is stored with what is owed.

        Args:
            must: What was settled just now.
            may: What may have been settled just now.
        """
        queue, stored = self.queue, self.stored()
        must, may = {*must}, {*may}
        copied = self._new_letters(queue)
        assert stored.alive <= self.owed, (stored.alive - self.owed, "came back by itself")
        assert not must & stored.alive, (must & stored.alive, "is settled, and is there")
        for at in self.owed - stored.alive:
            is_spent = 0 < queue.max_deliveries <= self.deliveries.get(at, 0)
            if at in stored.marked or at in copied:
                assert at in self.may_die or is_spent, (at, "died without a reason")
                assert at not in must, (at, "was settled, and died")
            elif at not in must | may and not (
                queue.dead_letter_queue is None and (at in self.may_die or is_spent)
            ):
                assert self._is_old(queue, at), (at, "is lost")
                self.features.add("retention")
                self.puts[at].touched.add("retention")
        gone = self.marked - stored.marked - copied - may
        assert not gone or queue.dead_letter_queue is None, (gone, "died without a letter")
        assert copied <= self.owed | self.marked, (copied - self.owed, "I9: died twice")
        if queue.on_dead is OnDead.STOP and stored.marked:
            self.features.add("on-dead stop")
        for number, finalised in enumerate(stored.finalised):
            deleted = {(number, monoton) for monoton in range(finalised)}
            assert not deleted & (stored.alive | stored.marked), (finalised, "I7")
        self.owed, self.marked = stored.alive, stored.marked
        self.deliveries = stored.deliveries
        for at in [at for at in self.held if at not in self.owed]:
            del self.held[at]
        self.may_die &= self.owed | self.marked

    def _is_old(self, queue: QueueDefinition, at: At) -> bool:
        limit = queue.expire_after
        return limit is not None and self.puts[at].visible_from < self.clock.now - limit

    def _new_letters(self, queue: QueueDefinition) -> set[At]:
        if queue.dead_letter_queue is None:
            return set()
        dead = read_queue(self.memory, f"{self.name}.dead")
        (part,) = dead.by_partition
        copied: set[At] = set()
        stop = Ledger(self.memory, part.queue_id).read_head().next
        for letter in self._read(part, Range(len(self.letters), stop)):
            headers = dict(letter.headers)
            number = headers.get("cassieq.origin-partition") or "0"
            at = (int(number), int(headers["cassieq.origin-monoton"] or -1))
            assert (headers["cassieq.origin-queue"], headers["cassieq.origin-group"]) == (
                self.name,
                GROUP,
            )
            own = {name: text for name, text in headers.items() if not _is_added(name)}
            put = self.puts[at]
            as_put = StoredMessage(
                self.name, letter.monoton, letter.key, letter.value, own, letter.published_at
            )
            assert put.content.is_in(as_put, self.columns), (letter, put, "another message died")
            assert at not in copied, (at, "I9: dead-lettered twice")
            copied.add(at)
            put.touched.add("dead letters")
            self.letters[letter.monoton] = Put(
                put.content, letter.published_at, letter.published_at, {*put.touched}
            )
            self.open_letters.add(letter.monoton)
        return copied

    # -- what was crossed -----------------------------------------------------------------------

    def crossed(self) -> set[frozenset[str]]:
        """Pairs of features that had to do with one message, or with this queue as a whole."""
        pairs: set[frozenset[str]] = set()
        for touched in [*self.touched_ever, set[str]()]:
            every = sorted(touched | self.features)
            pairs |= {frozenset({one, other}) for one in every for other in every if one < other}
        return pairs


def _is_added(name: str) -> bool:
    return name.startswith("cassieq.") and name != REDRIVES


def _number(message: StoredMessage) -> str:
    value = message.value
    return value.decode() if isinstance(value, bytes) else str(value["number"])


def _ends(each: Range) -> tuple[int, int]:
    return each.start, each.stop
