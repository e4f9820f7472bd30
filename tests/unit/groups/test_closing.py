from __future__ import annotations

import contextlib

import pytest

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import (
    check_unleased,
    close_groups,
    delete_group,
    ensure_group,
    read_group_states,
)
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import close_ledger
from cassieq_spark.ledger.state import LedgerStatus
from cassieq_spark.model import QueueId, Range, Ranges
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_queue,
    make_request,
)

END = 10


class Scene:
    """A closed ledger of ten messages; of group ``g``, two are leased and two wait."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.store = FaultyStore(memory)
        self.queue_id: QueueId = make_queue(self.store, [END]).queue_id
        self.g = make_group(self.store, self.queue_id)
        self.batch = self.g.lease(make_request(stop=END, max_messages=4))
        released = Settlement(released={LEASE: Ranges.of(Range(1, 3))})
        self.g.settle(self.batch.token, released)

    def close(self) -> None:
        close_ledger(Ledger(self.store, self.queue_id), LedgerStatus.DELETED, bucket_size=8)
        close_groups(Ledger(self.store, self.queue_id), end=END)

    def check(self) -> None:
        for name, state in read_group_states(Ledger(self.store, self.queue_id)).items():
            assert (state.floor, state.slots, state.waiting) == (END, (), ())
            group = ConsumerGroup(Ledger(self.store, self.queue_id), name)
            self.clock.advance(3 * LEASE)
            assert not group.lease(make_request(stop=END)).leased


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_everything_is_settled_and_nothing_can_be_leased(scene: Scene):
    scene.close()

    scene.check()
    assert not scene.g.extend(scene.batch.token, scene.batch.leased, by=LEASE)
    assert scene.g.settle(scene.batch.token, Settlement(acked=Ranges.of(Range(0, 4)))).count == 0


def test_groups_that_are_closed_cost_reads_only(scene: Scene):
    scene.close()
    store = CountingStore(scene.store)

    close_groups(Ledger(store, scene.queue_id), end=END)

    assert store.cas_count == 0


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_does_not_matter(scene: Scene, fault: Fault):
    close_ledger(Ledger(scene.store, scene.queue_id), LedgerStatus.DELETED, bucket_size=8)
    scene.store.fault = fault

    close_groups(Ledger(scene.store, scene.queue_id), end=END)

    scene.store.arrive()
    assert scene.store.troubles == 1
    scene.check()


@pytest.mark.parametrize("after", range(6))
def test_a_reader_that_has_seen_the_group_before_it_was_closed_leases_nothing(
    scene: Scene, after: int
):
    scene.clock.advance(2 * LEASE)
    scene.store.interrupt(scene.close, after=after)

    lease = scene.g.lease(make_request(stop=END))

    assert bool(lease.leased) is (after >= 3), "two reads, then the compare-and-set"
    scene.store.calm()
    scene.close()
    scene.check()


@pytest.mark.parametrize("after", range(9))
def test_a_group_that_is_being_made_is_closed_as_well(scene: Scene, after: int):
    scene.store.interrupt(scene.close, after=after)

    with contextlib.suppress(QueueStateError, ContentionError):
        ensure_group(
            ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting="earliest"
        )

    scene.store.calm()
    scene.close()
    scene.check()


@pytest.mark.parametrize("after", range(16))
def test_a_group_that_comes_after_one_that_was_removed_is_closed_as_well(scene: Scene, after: int):
    delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), force=True)
    scene.store.interrupt(scene.close, after=after)

    with contextlib.suppress(QueueStateError, ContentionError):
        ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), starting="earliest")

    scene.store.calm()
    scene.close()
    scene.check()


def test_only_leases_that_run_keep_a_queue_from_being_closed(scene: Scene):
    with pytest.raises(
        QueueStateError, match=r"readers of group 'g' of queue q@1 hold messages 0, 3"
    ):
        check_unleased(Ledger(scene.store, scene.queue_id))

    scene.clock.advance(2 * LEASE)

    check_unleased(Ledger(scene.store, scene.queue_id))
