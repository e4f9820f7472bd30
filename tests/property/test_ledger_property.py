"""A ledger amid publishes and repair runs that break off: every answer from it is right.

Also that no read begins among deleted rows, through which Cassandra would have to wade.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.ledger import ledger as ledger_module
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import LedgerBlock, Range
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import partition_of_ledger
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import make_pending, make_queue
from tests.support.dry_store import DryStore
from tests.support.faults import FakeClock

#: Seconds.
CLOCKS_APART = 60
FAULTS = st.none() | st.sampled_from([Fault.REQUEST_LOST, Fault.ANSWER_LOST])


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "_BLOCKS_AT_ONCE", 3)
        yield


@dataclass
class World:
    """A ledger, and all that was ever published to it."""

    clock: FakeClock = field(default_factory=FakeClock)
    blocks: list[LedgerBlock] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = self.clock.now
        self.dry = DryStore(MemoryStore(self.clock))
        self.store = FaultyStore(self.dry)
        self.queue_id = make_queue(self.store).queue_id

    def publish(self, counts: list[int], skew: timedelta, fault: Fault | None) -> None:
        self.clock.now = self.now + skew
        pending = make_pending(counts, self.clock.now)
        self.store.fault = fault
        published = publish(Ledger(self.store, self.queue_id), pending).monotons
        assert published is not None
        start = published.start
        for each in pending:
            monotons = Range(start, start + each.count)
            self.blocks.append(LedgerBlock(monotons, each.block, self.clock.now))
            start = monotons.stop

    def repair(self, part: float, fault: Fault | None, *, breaks_off: bool) -> None:
        head = Ledger(self.store, self.queue_id).read_head()
        floor = head.finalised + int((head.next - head.finalised) * part)
        assert Ledger(self.store, self.queue_id).finalise(head, floor)
        done = [each for each in self.alive if each.monotons.stop <= floor]
        if breaks_off or not done:
            return
        self.store.fault = fault
        with suppress(OutcomeUnknownError):
            Ledger(self.store, self.queue_id).trim(finalised=floor, below=done[-1].monotons.stop)

    @property
    def alive(self) -> list[LedgerBlock]:
        """Those whose rows nobody has deleted."""
        deleted = self.dry.deleted(partition_of_ledger(self.queue_id))
        return [each for each in self.blocks if each.monotons.start not in deleted]

    def check(self, wanted: Range, instant: datetime) -> None:
        store, queue_id, alive = self.store, self.queue_id, self.alive
        head = Ledger(store, queue_id).read_head()
        assert head.trimmed == max(
            (each.monotons.stop for each in self.blocks if each not in alive), default=0
        )
        assert Ledger(store, queue_id).read_blocks(start=head.trimmed) == alive
        for each in self.blocks:
            found = Ledger(store, queue_id).read_block_at(each.monotons.start)
            assert found == (each if each in alive else None)
        wanted = Range(head.finalised, head.next) & wanted
        holders = [each for each in alive if each.monotons & wanted]
        assert Ledger(store, queue_id).locate(wanted) == holders
        assert Ledger(store, queue_id).locate(wanted, limit=2) == holders[:3]
        for monoton in range(wanted.start, wanted.stop):
            found = Ledger(store, queue_id).read_block_of(monoton)
            assert found is not None
            assert monoton in found.monotons
        later = (each.monotons.start for each in alive if each.published_at >= instant)
        assert Ledger(store, queue_id).find_position(head, instant) == next(later, head.next)


#: Seconds between publishes: even ones, and now and then hours.
PAUSES = st.integers(0, 40) | st.integers(0, 4_000)


@given(st.data())
def test_a_ledger_answers_as_if_it_were_a_list_and_never_reads_what_was_trimmed(
    data: st.DataObject,
):
    world = World()
    for _ in range(data.draw(st.integers(1, 8), label="steps")):
        world.now += timedelta(seconds=data.draw(PAUSES, label="time passes"))
        if data.draw(st.booleans(), label="publish"):
            world.publish(
                data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=9), label="counts"),
                timedelta(seconds=data.draw(st.integers(0, CLOCKS_APART), label="clock ahead")),
                data.draw(FAULTS, label="fault"),
            )
        else:
            world.repair(
                data.draw(st.floats(0, 1), label="part"),
                data.draw(FAULTS, label="fault"),
                breaks_off=data.draw(st.booleans(), label="breaks off"),
            )
        start = data.draw(st.integers(0, 60), label="start")
        since = data.draw(st.integers(-5, 400) | st.integers(-5, 12_000), label="instant")
        world.check(
            Range(start, start + data.draw(st.integers(0, 60), label="length")),
            FakeClock().now + timedelta(seconds=since),
        )
