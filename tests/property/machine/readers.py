"""Who reads: processes that lease, ack, settle, crash, replay, and dead-letter what is dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from cassieq_spark.consumer.consumer import Consumer, StateCache
from cassieq_spark.dead_letters import dead_letter
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.errors import OutcomeUnknownError, QueueStateError
from cassieq_spark.groups import lease as group_lease
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeasedSlot, LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Ranges
from tests.property.machine.declared import Delivered, beyond
from tests.property.machine.group import RETRY_MS, GroupModel
from tests.property.machine.offers import Offers
from tests.property.machine.rows import MILLISECOND, Outcome, Place, members, ranges_of
from tests.property.machine.world import World

#: What may become of a message that a receipt names; None: nothing, it is not named.
Fate = tuple[str, Any] | None


@dataclass(frozen=True, slots=True)
class Lease:
    """Ack the batch before, and lease the next; see `LeaseRequest`.

    With ``by_memory``, without reading the group if the reader remembers how it has left it. A
    client (``as_client``) acks no batch: it settles message by message.
    """

    reader: int
    limit: int | None = None
    prefer_fresh: bool = False
    least: int = 0
    max_bytes: int | None = None
    skip_older: timedelta | None = None
    paused: bool = False
    dead_queue_is_gone: bool = False
    by_memory: bool = False
    as_client: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """Take up the lease of the batch in hand again; ``by_other``: another driver does so."""

    reader: int
    limit: int | None = None
    by_other: bool = False


@dataclass(frozen=True, slots=True)
class HoldOn:
    """Extend the lease of the batch in hand; with ``late``, by the process before the replay."""

    reader: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Stop: what the batch in hand has left is due at once; ``late`` as above."""

    reader: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """Crash before the batch in hand was written down."""

    reader: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle messages by receipts.

    Attributes:
        reader: Whose.
        lease: Of which of its leases: 0 for the last one, 1 for the one before.
        fates: What becomes of its messages, in turn.
        with_batch: Not before their batch is acked.
        by_client: Another process does it that has the receipts, whatever the reader does.
        late: The receipts are those of the first delivery, whatever was taken up since.
    """

    reader: int
    lease: int
    fates: Sequence[Fate]
    with_batch: bool = False
    by_client: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class KeepWhole:
    """The sink of a query has published the batch in hand: it is replayed whole from now on."""

    reader: int


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Another reader takes and acks all there is, twice."""

    group: str


_FOR_EVER = timedelta(days=365)


class GroupRemovedError(Exception):
    """Somebody has removed the group since the reader looked for it."""


@dataclass(eq=False)
class Reader:
    """A process that reads for a group, and what it remembers.

    Attributes:
        token: The lease of the batch in hand.
        leased: Where that is.
        former: Where the process before it has it, if the batch was replayed.
        had: The messages of all leases that it ever had, oldest first.
        counts: Which delivery each of these was, and became when it was taken up.
        last: How it has left its group.
    """

    group: str
    token: UUID | None = None
    leased: Sequence[LeasedSlot] = ()
    former: Sequence[LeasedSlot] = ()
    had: dict[UUID, list[int]] = field(default_factory=dict)
    counts: dict[UUID, list[int]] = field(default_factory=dict)
    busy: bool = False
    last: StateCache = field(default_factory=lambda: StateCache(_FOR_EVER))


class Readers:
    """All who read.

    Args:
        world: Where.
        groups: The group of each of them.
    """

    def __init__(self, world: World, groups: Sequence[str]) -> None:
        self._world = world
        self._model = world.queue
        self._declared = world.queue.declared
        self._readers = [Reader(group) for group in groups]

    def receive_from(self, others: Readers) -> None:
        """Have the receipts of all messages that these have got, as if they had passed them on."""
        for mine, theirs in zip(self._readers, others._readers, strict=True):
            mine.had |= theirs.had
            mine.counts |= {lease: list(counts) for lease, counts in theirs.counts.items()}

    def restart(self, others: Readers) -> None:
        """Have the batches in hand that these have logged, as their restarted selves do."""
        self.receive_from(others)
        for mine, theirs in zip(self._readers, others._readers, strict=True):
            mine.token, mine.leased = theirs.token, theirs.leased

    def lease(self, action: Lease) -> None:
        with self._as(action.reader) as reader:
            if reader is not None:
                self.lease_as(reader, action)

    def replay(self, action: Replay) -> None:
        whose = self._readers[action.reader]
        if action.by_other:
            whose = Reader(whose.group, token=whose.token)
        with self._acting(whose) as reader:
            if reader is None or reader.token is None:
                return
            self._declared.retaken.add(reader.token)
            request = replace(self._request(reader.token), max_messages=action.limit)
            troubles = self._world.store.unrest
            held = self._group(reader).held_by(reader.token).keys()
            is_published = self._group(reader).is_published(reader.token)
            again = self._real_group(reader).take_again(request)
            reader.last.clear()
            calm = troubles == self._world.store.unrest
            self._check_batch(reader, reader.token, again, alone=calm)
            if calm and is_published and not self._world.is_shared:
                assert {*_monotons(again)} == held, "a published batch was not replayed whole"
            theirs = _named(reader.token, again)
            assert not theirs & self._declared.told, (theirs, "I6: two processes have it")
            self._declared.told |= theirs
            reader.former, reader.leased = reader.leased, again
            reader.counts.setdefault(reader.token, []).extend(each.deliveries for each in again)

    def keep_whole(self, action: KeepWhole) -> None:
        with self._as(action.reader) as reader:
            if reader is None or reader.token is None:
                return
            self._declared.published.add(reader.token)
            troubles = self._world.store.unrest
            is_kept = self._real_group(reader).keep_whole(reader.token)
            if troubles == self._world.store.unrest and not self._world.is_shared:
                held = self._group(reader).held_by(reader.token)
                assert is_kept == bool(held)
                of_batch = reader.token not in self._declared.by_receipts
                assert self._group(reader).is_published(reader.token) == bool(held and of_batch)

    def hold_on(self, action: HoldOn) -> None:
        with self._as(action.reader) as reader:
            if reader is None or reader.token is None:
                return
            leased = reader.former if action.late else reader.leased
            self._declared.beaten |= _named(reader.token, leased)
            troubles = self._world.store.unrest
            held = self._held(reader, leased)
            kept = self._real_group(reader).extend(
                reader.token, leased, by=self._model.terms.lease
            )
            calm = troubles == self._world.store.unrest
            assert kept or not held or not calm, "a lease was lost that nobody took"
            if calm and kept:
                until = self._model.now + self._model.terms.lease // MILLISECOND
                assert all(self._group(reader).places[at].due == until for at in held)

    def give_back(self, action: GiveBack) -> None:
        with self._as(action.reader) as reader:
            if reader is None or reader.token is None:
                return
            leased = reader.former if action.late else reader.leased
            self._declared.given_back |= _named(reader.token, leased)
            troubles = self._world.store.unrest
            released = self._real_group(reader).release(reader.token, leased)
            held = self._held(reader, leased)
            if troubles == self._world.store.unrest:
                assert released == len(held)
                assert all(place.due == self._model.now for place in held.values())
            if not action.late:
                self._forget(reader)

    def forget(self, action: Forget) -> None:
        with self._as(action.reader) as reader:
            if reader is not None:
                self._forget(reader)

    def catch_up(self, action: CatchUp) -> None:
        with self._acting(Reader(action.group)) as reader:
            for _ in range(3):
                if reader is not None:
                    self.lease_as(reader, Lease(0))

    def settle(self, action: Settle) -> None:
        whose = self._readers[action.reader]
        if action.by_client:
            whose = Reader(whose.group, had=whose.had, counts=whose.counts)
        with self._acting(whose) as reader:
            leases = list(reversed(reader.had)) if reader is not None else []
            if reader is not None and action.lease < len(leases):
                lease = leases[action.lease]
                fates = dict(_deal(reader.had[lease], action.fates))
                # A client's lease is handed out once, so its receipts do not say for which time.
                counts = reader.counts.get(lease) or [None]
                deliveries = counts[0 if action.late else -1]
                self._settle(reader, lease, fates, deliveries, with_batch=action.with_batch)

    # -- leasing ------------------------------------------------------------------------------

    def lease_as(self, reader: Reader, action: Lease) -> None:
        """Ack and lease, dead-letter what is dead, and look whether all of that was right."""
        group, store = self._group(reader), self._world.store
        happened = self._world.happened
        done = None if action.as_client else reader.token
        if done is not None:
            self._declared.finished.add(done)
        if action.skip_older is not None:
            self._declared.skipped.add(action.skip_older // MILLISECOND)
        troubles, held = store.unrest, group.held_by(done).keys()
        held -= group.recorded_for(done).keys()
        before = {place.token for place in group.places.values()}
        expected = Offers.of(group, self._model, action, done)
        request = self._request(done, action)
        by_memory = action.by_memory and not action.as_client
        known = reader.last.get(stop=request.stop) if by_memory else None
        lease = self._real_group(reader).lease(request, known)
        reader.last.put(lease, known)
        if action.as_client:
            self._declared.by_receipts.add(lease.token)
        if lease.leased:
            reader.token, reader.leased, reader.former = lease.token, lease.leased, ()
            reader.had[lease.token] = _monotons(lease.leased)
            if not action.as_client:
                reader.counts[lease.token] = [each.deliveries for each in lease.leased]
        group = self._group(reader)
        is_alone = happened == self._world.happened
        self._check_batch(reader, lease.token, lease.leased, alone=is_alone)
        assert action.limit is None or len(_monotons(lease.leased)) <= action.limit
        calm = troubles == store.unrest
        if calm and lease.state is known:
            expected.check_at_most(lease.leased)
        elif calm:
            assert lease.acked == len(held)
            check = expected.check_singly if action.as_client else expected.check
            check(lease.leased, action)
        known_tokens = {
            lease.token,
            None,
            *(token for each in self._readers for token in each.had),
        }
        known_tokens |= set(group.kept)
        now = {place.token for place in group.places.values()}
        alone = not (store.delayed or self._world.is_shared)
        assert not alone or now <= before | known_tokens, "a lease nobody knows of"
        self._dead_letter(reader, lease, action, happened=happened)
        settled = calm and troubles == store.unrest and lease.state is not known
        if settled and not (self._world.is_shared or lease.leased or lease.dead):
            self._check_idle(reader, action)

    def _dead_letter(
        self, reader: Reader, lease: group_lease.Lease, action: Lease, *, happened: int
    ) -> None:
        queue, store = self._world.definition, self._world.store
        if action.dead_queue_is_gone and queue.dead_letter_queue:
            queue = replace(queue, dead_letter_queue="gone")
        else:
            action = replace(action, dead_queue_is_gone=False)
        troubles, now = store.unrest, self._model.now
        with pytest.MonkeyPatch.context() as patch:
            if action.dead_queue_is_gone:
                # The queue is read anew before each row.
                patch.setattr(dead_letter, "_definition_now", lambda *_: queue)
            dead_letter_messages(store, queue, self._real_group(reader), lease.dead)
        if troubles != store.unrest or happened != self._world.happened:
            return
        places = self._group(reader).places
        for at in (at for each in lease.dead for at in members(str(each.monotons))):
            if action.dead_queue_is_gone:
                assert places[at].due >= now + RETRY_MS, (at, "in the way of others")
            elif at in places:
                assert not self._group(reader).is_dead(places[at]), (at, "not dead-lettered")

    def _check_idle(self, reader: Reader, action: Lease) -> None:
        """Who finds nothing finds nothing again, and changes nothing."""
        self._world.store.calm()
        self._world.counting.reset()
        again = self._real_group(reader).lease(self._request(None, action))
        assert not again.leased
        assert not again.dead
        assert self._world.counting.cas_count == 0, "an idle reader costs an LWT"

    def _request(self, held: UUID | None, action: Lease | None = None) -> LeaseRequest:
        action, terms = action or Lease(0), self._model.terms
        head = Ledger(self._world.store, self._world.definition.queue_id).read_head()
        return LeaseRequest(
            held=held,
            token=uuid4(),
            lease=terms.lease,
            max_messages=action.limit,
            stop=0 if action.paused else head.next,
            prefer_fresh=action.prefer_fresh,
            max_deliveries=terms.max_deliveries,
            delayed_stop=head.delayed_stop,
            min_messages=action.least,
            max_bytes=action.max_bytes,
            skip_older_than=action.skip_older,
            max_in_flight=terms.max_in_flight,
            retry_backoff=terms.backoff,
            strict_fifo=terms.strict,
            by_receipts=action.as_client,
        )

    def _check_batch(
        self, reader: Reader, lease: UUID, batch: Sequence[LeasedSlot], *, alone: bool = True
    ) -> None:
        """A reader is told what it holds, no more and no less."""
        held = self._group(reader).held_by(lease)
        told = {at: each.deliveries for each in batch for at in members(str(each.monotons))}
        has = {at: place.deliveries for at, place in held.items()}
        # Others may have taken some of it before the answer came, or taken the batch up.
        alone = alone and not self._world.is_shared
        assert told == has or not alone
        assert all(at in told and told[at] <= count for at, count in has.items())

    # -- settling -----------------------------------------------------------------------------

    def _settle(
        self,
        reader: Reader,
        lease: UUID,
        fates: dict[int, Fate],
        deliveries: int | None,
        *,
        with_batch: bool,
    ) -> None:
        # Nobody acks the batch of a client: all of it is settled at once.
        is_recorded = with_batch and lease not in self._declared.by_receipts
        of_batch = self._group(reader).held_by(lease).keys() if is_recorded else set()
        settlement = self._declare(lease, fates, of_batch, deliveries)
        named = {at for at, fate in fates.items() if fate is not None}
        reached = {
            at
            for at, place in self._group(reader).reached_by(lease).items()
            if at in named and (place.token != lease or deliveries in {None, place.deliveries})
        }
        store = self._world.store
        troubles, now = store.unrest, self._model.now
        self._world.counting.reset()
        consumer = Consumer(store, self._world.definition, reader.group)
        found = consumer.settle(lease, settlement, deliveries=deliveries, with_batch=with_batch)
        if troubles != store.unrest:
            return
        assert found.count == len(reached)
        assert set(members(str(found.stale))) == named - reached
        assert self._world.counting.cas_count <= 1 or settlement.rejected, "one LWT for all of it"
        recorded = self._group(reader).recorded_for(lease)
        for at in reached & of_batch:
            assert recorded.get(at) == _outcome(fates[at]), (at, fates[at], "not recorded")
        for at in reached - of_batch:
            self._check_settled(reader, lease, at, fates[at], now)

    def _declare(
        self,
        lease: UUID,
        fates: dict[int, Fate],
        of_batch: AbstractSet[int],
        deliveries: int | None,
    ) -> Settlement:
        """Say what is to become of which message; see `Declared`.

        Of those ``of_batch``, nothing before their batch is acked, unless they are held beyond it.
        """
        now = self._model.now
        acked, rejected, released, extended = [], {}, {}, {}
        for at, fate in fates.items():
            # An extension may come before it, and then it takes effect at once.
            declared, whose = self._declared, beyond(lease) if at in of_batch else lease
            if at in of_batch and fate is not None:
                self._declared.recorded[lease, at, deliveries].add(_outcome(fate))
            match fate:
                case ("ack" | "ack and release" as what, by):
                    acked.append(at)
                    declared.acked.add((whose, at))
                    if what != "ack":
                        released.setdefault(by, []).append(at)
                case ("reject", reason):
                    rejected.setdefault(reason, []).append(at)
                    declared.rejected[whose, at].add(reason)
                case ("release", by):
                    released.setdefault(by, []).append(at)
                    declared.released[whose, at].append((now, by // MILLISECOND))
                case ("extend", by):
                    extended.setdefault(by, []).append(at)
                    declared.extended[whose, at].add(by // MILLISECOND)
        return Settlement(
            acked=_ranges(acked),
            rejected={reason: _ranges(every) for reason, every in rejected.items()},
            released={by: _ranges(every) for by, every in released.items()},
            extended={by: _ranges(every) for by, every in extended.items()},
        )

    def _check_settled(self, reader: Reader, lease: UUID, at: int, fate: Fate, now: int) -> None:
        group = self._group(reader)
        place = group.places.get(at)
        match fate:
            case ("ack" | "ack and release", _):
                assert group.fates[at] == "acked"
            case ("reject", _):
                assert group.fates[at] == "dead-lettered"
            case ("release", by):
                assert place is not None
                assert place.token is None
                assert place.due >= now + by // MILLISECOND
            case ("extend", by):
                assert place is not None
                assert place.token is not None
                assert place.token != lease, "an ack of the batch would reach it"
                assert place.due == now + by // MILLISECOND

    # -- who they are -------------------------------------------------------------------------

    def _as(self, number: int) -> AbstractContextManager[Reader | None]:
        return self._acting(self._readers[number])

    @contextmanager
    def _acting(self, reader: Reader) -> Iterator[Reader | None]:
        """Act as a reader; None if it is in the middle of something else."""
        if reader.busy:
            yield None
            return
        reader.busy = True
        store = self._world.store
        troubles, unrest = store.troubles, store.unrest
        try:
            queue_id = self._world.definition.queue_id
            ensure_group(
                ConsumerGroup(Ledger(self._world.store, queue_id), reader.group),
                starting="earliest",
            )
            yield reader
        except (QueueStateError, OutcomeUnknownError, GroupRemovedError):
            assert unrest < store.unrest
            assert troubles < store.troubles or reader.group not in self._model.groups, (
                "it is there"
            )
        finally:
            reader.busy = False

    def _real_group(self, reader: Reader) -> ConsumerGroup:
        return ConsumerGroup(
            Ledger(self._world.store, self._world.definition.queue_id), reader.group
        )

    def _held(self, reader: Reader, leased: Sequence[LeasedSlot]) -> dict[int, Place]:
        """What a process holds that knows of this; not what was handed out again since."""
        known = {(each.slot, each.deliveries) for each in leased}
        held = self._group(reader).held_by(reader.token)
        return {at: each for at, each in held.items() if (each.row[1], each.deliveries) in known}

    def _group(self, reader: Reader) -> GroupModel:
        group = self._model.groups.get(reader.group)
        if group is None:
            raise GroupRemovedError
        return group

    def _forget(self, reader: Reader) -> None:
        reader.token, reader.leased, reader.former = None, (), ()
        reader.last.clear()


def _outcome(fate: Fate) -> Outcome | None:
    """What is recorded for it; nothing, if that is what an ack does anyway."""
    match fate:
        case ("reject", reason):
            return "reject", reason
        case ("release" | "extend" as what, by):
            return what, by // MILLISECOND
    return None


def _deal(monotons: Sequence[int], fates: Sequence[Fate]) -> Iterator[tuple[int, Fate]]:
    yield from ((at, fates[number % len(fates)]) for number, at in enumerate(monotons))


def _named(token: UUID, leased: Sequence[LeasedSlot]) -> set[Delivered]:
    return {(token, each.deliveries) for each in leased}


def _monotons(leased: Sequence[LeasedSlot]) -> list[int]:
    return [at for each in leased for at in members(str(each.monotons))]


def _ranges(monotons: Sequence[int]) -> Ranges:
    return Ranges.parse(ranges_of(monotons))
