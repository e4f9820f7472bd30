"""The whole queue against a model: publishers, readers, sweeps, faults, in any order.

Every compare-and-set that is applied is checked by `QueueModel`, also those in the middle of an
operation; what operations return, the figures and the chunks are checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cassieq_spark.delivery.groups import (
    StartingPosition,
    delete_group,
    ensure_group,
    read_group_states,
    seek_group,
)
from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.plan import Leased, Wish
from cassieq_spark.delivery.state import slot_key
from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError, QueueStateError
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.ledger.sweep import finalise, raise_fence, trim
from cassieq_spark.model import Chunk, Draft, LedgerBlock, Range, Ranges, SinkBatch, block_time
from cassieq_spark.queues import create_queue
from cassieq_spark.stats import queue_stats
from cassieq_spark.store import race
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Update, When, partition_of_delivery
from tests.support.faults import FakeClock, Fault, TroubledStore, make_block_id
from tests.support.queue_model import QueueModel, members

LEASE = timedelta(seconds=3)
BUCKET = 4
CHUNK = 2

READERS = st.integers(0, 3)
PAIRS = st.permutations(range(3)).map(lambda numbers: numbers[:2])
LIMITS = st.none() | st.integers(1, 7)
COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=3)
BATCHES = st.none() | st.builds(SinkBatch, st.sampled_from(["left", "right"]), st.integers(0, 3))
POSITIONS = st.sampled_from(["earliest", "latest"]) | st.integers(0, 40)
GROUPS = st.sampled_from(["one", "two"])
PAUSES = st.sampled_from([timedelta(0), timedelta(milliseconds=1), LEASE, 2 * LEASE])


@dataclass(eq=False)
class ReaderModel:
    """A process that reads for a group; what it remembers of the batch that it has."""

    group: str
    token: UUID | None = None
    slots: Sequence[int] = ()


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock)
        queue = create_queue(self.memory, "q", bucket_size=BUCKET, chunk_size=CHUNK, lease=LEASE)
        self.queue_id = queue.queue_id
        self.model = QueueModel(self.memory, self.queue_id, self.clock, LEASE)
        self.store = TroubledStore(self.memory, self.model.watch)
        self.readers = [ReaderModel(group) for group in ("one", "one", "one", "two")]
        self.busy: list[ReaderModel] = []
        self.abandoned: list[Sequence[Draft]] = []

    # -- publishers ---------------------------------------------------------------------------

    @rule(counts=COUNTS, batch=BATCHES)
    def publish(self, counts: Sequence[int], batch: SinkBatch | None) -> None:
        self._publish(self._write(counts), batch)

    @rule(
        counts=COUNTS,
        batch=BATCHES,
        fault=st.none() | st.sampled_from(Fault),
        after=st.integers(0, 6),
        meanwhile=st.sampled_from(["publish", "sweep", "arrive", "fence"]),
    )
    def publish_in_trouble(
        self,
        counts: Sequence[int],
        batch: SinkBatch | None,
        fault: Fault | None,
        after: int,
        meanwhile: str,
    ) -> None:
        actions: dict[str, Callable[[], None]] = {
            "publish": lambda: self._publish(self._write([1, 5]), batch),
            "sweep": self.sweep,
            "arrive": self.store.arrive,
            "fence": lambda: self.raise_fence(timedelta(0)),
        }
        drafts = self._write(counts)
        self.store.fault = fault
        self.store.interrupt(actions[meanwhile], after=after)
        self._publish(drafts, batch)

    @rule(counts=COUNTS)
    def abandon_a_write(self, counts: Sequence[int]) -> None:
        self.abandoned.append(self._write(counts))

    @precondition(lambda self: self.abandoned)
    @rule(batch=BATCHES)
    def publish_what_was_written_long_ago(self, batch: SinkBatch | None) -> None:
        self._publish(self.abandoned.pop(0), batch)

    def _write(self, counts: Sequence[int]) -> Sequence[Draft]:
        drafts = [Draft(make_block_id(self.clock.now), count) for count in counts]
        for draft in drafts:
            starts = range(0, draft.count, CHUNK)
            chunks = [Chunk(at // BUCKET, at, min(at + CHUNK, draft.count), b"") for at in starts]
            self.store.write_chunks(self.queue_id, draft.block, chunks)
        return drafts

    def _publish(self, drafts: Sequence[Draft], batch: SinkBatch | None) -> None:
        trying = (drafts, batch)
        troubles, last = self.store.troubles, self.model.sinks.copy()
        published = self.model.published
        self.model.publishing.append(trying)
        try:
            monotons = publish(self.store, self.queue_id, drafts, batch=batch).monotons
        except NotAppliedError:
            assert min(block_time(draft.block) for draft in drafts) <= self.model.head.fence
            assert not any(draft.block in published for draft in drafts)
        except OutcomeUnknownError:
            assert troubles < self.store.troubles
            return  # it may still arrive
        else:
            if monotons is None:
                assert batch is not None
                assert self.model.sinks[batch.sink] >= batch.batch_id
            else:
                found = [published[draft.block].monotons for draft in drafts]
                assert (found[0].start, found[-1].stop) == (monotons.start, monotons.stop)
            if troubles == self.store.troubles and batch is not None:
                again = last.get(batch.sink, -1) >= batch.batch_id
                assert again == (monotons is None)
        self.model.publishing.remove(trying)

    # -- readers ------------------------------------------------------------------------------

    @rule(group=GROUPS, starting=POSITIONS)
    def make_a_group(self, group: str, starting: StartingPosition) -> None:
        if isinstance(starting, int):
            starting = min(starting, self.model.head.next)
        ensure_group(self.store, self.queue_id, group, starting=starting, fail_on_data_loss=False)
        assert self.model.groups[group].head is not None

    @rule(number=READERS, limit=LIMITS, prefer_fresh=st.booleans(), pause=PAUSES)
    def ack_and_lease(
        self, number: int, limit: int | None, *, prefer_fresh: bool, pause: timedelta
    ) -> None:
        self.clock.advance(pause)
        self._as_reader(
            number, lambda reader: self._lease(reader, limit, prefer_fresh=prefer_fresh)
        )

    @rule(
        numbers=PAIRS,
        limit=LIMITS,
        pause=st.sampled_from([timedelta(0), 2 * LEASE]),
        after=st.integers(2, 4),
        meanwhile=st.sampled_from(["lease", "lease one", "replay", "extend", "release", "settle"]),
    )
    def two_readers_at_once(
        self,
        numbers: Sequence[int],
        limit: int | None,
        pause: timedelta,
        after: int,
        meanwhile: str,
    ) -> None:
        one, other = numbers
        self.clock.advance(pause)
        if meanwhile in ("lease", "lease one"):
            most = None if meanwhile == "lease" else 1
            self.store.interrupt(lambda: self._lease_now(other, most), after=after)
        else:
            self.store.interrupt(lambda: self._something_else(other, meanwhile), after=after)
        self._lease_now(one, limit)

    def _lease_now(self, number: int, limit: int | None) -> None:
        self._as_reader(number, lambda reader: self._lease(reader, limit, prefer_fresh=False))

    @rule(number=READERS, what=st.sampled_from(["crash", "replay", "extend", "release", "settle"]))
    def something_else_happens_to_a_reader(self, number: int, what: str) -> None:
        self._something_else(number, what)

    def _something_else(self, number: int, what: str) -> None:
        happens = {
            "crash": self._forget,
            "replay": self._replay,
            "extend": self._extend,
            "release": self._release,
            "settle": self._settle_every_second,
        }
        self._as_reader(number, happens[what])

    def _as_reader(self, number: int, act: Callable[[ReaderModel], None]) -> None:
        reader = self.readers[number]
        if reader in self.busy:
            return
        self.busy.append(reader)
        ensure_group(self.store, self.queue_id, reader.group, starting="earliest")
        act(reader)
        self.busy.remove(reader)

    def _delivery(self, reader: ReaderModel) -> Delivery:
        return Delivery(self.store, self.queue_id, reader.group)

    def _lease(self, reader: ReaderModel, limit: int | None, *, prefer_fresh: bool) -> None:
        group, done = self.model.groups[reader.group], reader.token
        if done is not None:
            self.model.finished.add(done)
        troubles, held = self.store.troubles, len(group.held_by(done))
        before = group.tokens
        due = {
            at for at in group.due(self.model.now) if group.places[at].token != done or not done
        }
        fresh = range(group.pointer, self.model.head.next)
        stop = read_head(self.store, self.queue_id).next
        batch = self._delivery(reader).ack_and_lease(
            Wish(done, uuid4(), LEASE, limit, stop, prefer_fresh=prefer_fresh)
        )
        self._check_batch(reader, batch.lease, batch.leased)
        if troubles == self.store.troubles:
            assert batch.acked == held
            again = bool(due) and not (prefer_fresh and fresh)
            offered = [min(due)] if again else fresh[:1]
            assert [each.monotons.start for each in batch.leased] == [*offered]
        assert limit is None or sum(each.monotons.count for each in batch.leased) <= limit
        known = {batch.lease, *(each.token for each in self.readers)}
        assert self.store.delayed or group.tokens <= before | known, "a lease nobody knows of"
        if batch.leased:
            reader.token, reader.slots = batch.lease, [each.slot for each in batch.leased]

    def _check_batch(self, reader: ReaderModel, lease: UUID, batch: Sequence[Leased]) -> None:
        held = self.model.groups[reader.group].held_by(lease)
        leased = {at: each.deliveries for each in batch for at in members(each.monotons)}
        assert leased == {at: place.deliveries for at, place in held.items()}

    def _forget(self, reader: ReaderModel) -> None:
        reader.token, reader.slots = None, ()

    def _replay(self, reader: ReaderModel) -> None:
        if reader.token is None:
            return
        self.model.retaken.add(reader.token)
        # What was handed out more than once is cut to the limit; the rest waits.
        again = self._delivery(reader).take_again(Wish(reader.token, uuid4(), LEASE, 3, 0))
        self._check_batch(reader, reader.token, again)
        reader.slots = [each.slot for each in again]

    def _extend(self, reader: ReaderModel) -> None:
        if reader.token is None:
            return
        held = self.model.groups[reader.group].held_by(reader.token)
        kept = self._delivery(reader).extend(reader.token, reader.slots, by=LEASE)
        assert kept or not self.model.groups[reader.group].held_by(reader.token)
        assert kept or not held or self.store.troubles

    def _release(self, reader: ReaderModel) -> None:
        if reader.token is None:
            return
        troubles = self.store.troubles
        released = self._delivery(reader).release(reader.token)
        held = self.model.groups[reader.group].held_by(reader.token)
        if troubles == self.store.troubles:
            assert released == len(held)
            assert all(place.due == self.model.now for place in held.values())
        self._forget(reader)

    def _settle_every_second(self, reader: ReaderModel) -> None:
        """What is left has gaps."""
        if reader.token is None:
            return
        partition = partition_of_delivery(self.queue_id, reader.group)
        for slot in self.model.groups[reader.group].slots:
            if slot.lease == reader.token and slot.monotons:
                done = members(slot.monotons)[::2]
                self.model.settled |= {(reader.token, at) for at in done}
                left = slot.monotons - Ranges.of(*(Range(at, at + 1) for at in done))
                still = (
                    When("lease", "=", reader.token),
                    When("ranges", "=", str(slot.monotons)),
                )
                op = Update(slot_key(slot.number), {"ranges": str(left)}, when=still)
                assert self.memory.cas(partition, [op])
                self.model.watch(partition)

    # -- groups that move ---------------------------------------------------------------------

    @rule(group=GROUPS, position=POSITIONS, force=st.booleans(), pause=PAUSES)
    def seek(
        self, group: str, position: StartingPosition, *, force: bool, pause: timedelta
    ) -> None:
        self.clock.advance(pause)
        self._seek(group, position, force=force)

    def _seek(self, name: str, position: StartingPosition, *, force: bool) -> None:
        troubles, group = self.store.troubles, self.model.groups.get(name)
        now, head = self.model.now, self.model.head
        refused = group is None or (
            isinstance(position, int) and not head.finalised <= position <= head.next
        )
        if group is not None and not force:
            due = group.due(now)
            refused |= any(each.token and at not in due for at, each in group.places.items())
        try:
            target = seek_group(self.store, self.queue_id, name, position, force=force)
        except QueueStateError:
            assert refused or self.store.troubles > troubles
            return
        if troubles == self.store.troubles:
            assert not refused
            assert self.model.groups[name].pointer == target
            assert name not in {hold.group for hold in self.model.holds.values()}

    @rule(group=GROUPS, force=st.booleans())
    def delete(self, group: str, *, force: bool) -> None:
        self._delete(group, force=force)

    def _delete(self, name: str, *, force: bool) -> None:
        troubles, known = self.store.troubles, name in self.model.groups
        try:
            found = delete_group(self.store, self.queue_id, name, force=force)
        except QueueStateError:
            assert not force or self.store.troubles > troubles
            return
        if troubles == self.store.troubles:
            assert found or not known
            assert name not in self.model.groups
            assert not self.memory.read_rows(partition_of_delivery(self.queue_id, name)).rows

    @rule(
        what=st.sampled_from(["seek", "delete", "sweep", "make"]),
        group=GROUPS,
        positions=st.tuples(POSITIONS, POSITIONS),
        force=st.booleans(),
        pause=PAUSES,
        fault=st.none() | st.sampled_from(Fault),
        after=st.integers(0, 14),
        meanwhile=st.sampled_from(
            ["seek", "delete", "sweep", "make", "lease", "publish", "arrive", "fault"]
        ),
    )
    def groups_change_in_trouble(  # noqa: PLR0913 (what, to whom, and in which trouble)
        self,
        *,
        what: str,
        group: str,
        positions: tuple[StartingPosition, StartingPosition],
        force: bool,
        pause: timedelta,
        fault: Fault | None,
        after: int,
        meanwhile: str,
    ) -> None:
        one, other = positions
        actions: dict[str, Callable[[], None]] = {
            "seek": lambda: self._seek(group, other, force=True),
            "delete": lambda: self._delete(group, force=True),
            "sweep": self.sweep,
            "make": lambda: ensure_group(
                self.store, self.queue_id, group, starting="earliest", fail_on_data_loss=False
            ),
            "lease": lambda: self._lease_now(0 if group == "one" else 3, 3),
            "publish": lambda: self._publish(self._write([5, 1]), None),
            "arrive": self.store.arrive,
            "fault": lambda: setattr(self.store, "fault", fault),
        }
        self.clock.advance(pause)
        self.store.calm()
        if meanwhile != "fault":
            self.store.fault = fault
        self.store.interrupt(actions[meanwhile], after=after)
        if what == "seek":
            self._seek(group, one, force=force)
        elif what == "delete":
            self._delete(group, force=force)
        else:
            actions[what]()
        self.store.calm()

    # -- the sweep ----------------------------------------------------------------------------

    @rule()
    def sweep(self) -> None:
        head = read_head(self.store, self.queue_id)
        floors = [each.floor for each in read_group_states(self.store, self.queue_id).values()]
        try:
            if floors and finalise(self.store, self.queue_id, head, min(floors)):
                self._delete_below(min(floors))
        except OutcomeUnknownError:
            return  # the next sweep goes on

    @rule(
        number=READERS,
        limit=LIMITS,
        pause=PAUSES,
        after=st.integers(0, 8),
        meanwhile=st.sampled_from(["lease", "group", "publish", "sweep"]),
    )
    def sweep_in_trouble(
        self, number: int, limit: int | None, pause: timedelta, after: int, meanwhile: str
    ) -> None:
        actions: dict[str, Callable[[], None]] = {
            "lease": lambda: self._lease_now(number, limit),
            "group": lambda: self.make_a_group("two", "earliest"),
            "publish": lambda: self._publish(self._write([5, 1]), None),
            "sweep": self.sweep,
        }
        self.clock.advance(pause)
        self.store.interrupt(actions[meanwhile], after=after)
        self.sweep()

    def _delete_below(self, finalised: int) -> None:
        blocks = read_blocks(self.store, self.queue_id)
        for block in blocks:
            self.store.delete_buckets(self.queue_id, _buckets_below(block, finalised))
        whole = [block for block in blocks if block.monotons.stop <= finalised]
        if whole:
            below = whole[-1].monotons.stop
            trim(self.store, self.queue_id, finalised=finalised, below=below)

    @rule(age=PAUSES)
    def raise_fence(self, age: timedelta) -> None:
        head = read_head(self.store, self.queue_id)
        try:
            raise_fence(self.store, self.queue_id, head, max(head.fence, self.clock.now - age))
        except OutcomeUnknownError:
            return

    # -- trouble ------------------------------------------------------------------------------

    @rule(fault=st.sampled_from(Fault))
    def arm_a_fault(self, fault: Fault) -> None:
        self.store.fault = fault

    @rule()
    def a_late_request_arrives(self) -> None:
        self.store.arrive()

    # -- what always holds --------------------------------------------------------------------

    @invariant()
    def figures_are_exact(self) -> None:
        stats = queue_stats(self.memory, self.queue_id)
        assert (stats.finalised, stats.next) == (self.model.head.finalised, self.model.head.next)
        assert list(stats.groups) == [
            self.model.stats_of(name) for name in sorted(self.model.groups)
        ]

    @invariant()
    def no_message_owed_is_deleted(self) -> None:
        self.model.check_chunks()

    def teardown(self) -> None:
        """At last everything is delivered, settled and deleted: nothing was ever lost."""
        self.store.calm()
        while self.store.late:
            self.store.arrive()
        self.clock.advance(2 * LEASE)
        # What a seek left that broke off, another one clears away.
        for name in {hold.group for hold in self.model.holds.values()}:
            seek_group(self.store, self.queue_id, name, "earliest", force=True)
        assert not self.model.holds
        for name, group in self.model.groups.items():
            reader = ReaderModel(name)
            ensure_group(self.store, self.queue_id, name, starting="earliest")
            self._lease(reader, None, prefer_fresh=False)
            while group.places:
                self._lease(reader, None, prefer_fresh=False)
            assert group.pointer == self.model.head.next
            assert group.everything_done
        self.sweep()
        if self.model.groups:
            assert self.model.head.finalised == self.model.head.next
            assert not read_blocks(self.memory, self.queue_id)


def _buckets_below(block: LedgerBlock, finalised: int) -> list[tuple[UUID, int]]:
    settled = min(finalised, block.monotons.stop) - block.monotons.start
    whole = -(-settled // BUCKET) if finalised >= block.monotons.stop else settled // BUCKET
    return [(block.block, bucket) for bucket in range(whole)]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_LONGEST_PAUSE", 0.0)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    stateful_step_count=60, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
