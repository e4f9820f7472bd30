from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.groups import registration
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group, read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueId
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
    register_half,
)


def test_earliest_is_owed_what_still_exists_and_latest_what_comes():
    store = MemoryStore()
    queue_id = make_queue(store, [5]).queue_id
    Ledger(store, queue_id).finalise(Ledger(store, queue_id).read_head(), 2)

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "e"), starting="earliest")
    ensure_group(ConsumerGroup(Ledger(store, queue_id), "l"), starting="latest")

    pointers = {
        name: state.head.pointer
        for name, state in read_group_states(Ledger(store, queue_id)).items()
    }
    assert pointers == {"e": 2, "l": 5}


def test_a_group_that_is_there_costs_two_reads_and_keeps_its_place():
    store = CountingStore(MemoryStore())
    queue_id = make_queue(store, [5]).queue_id
    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="earliest")
    store.reset()

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="latest")

    assert (store.cas_count, store.read_count) == (0, 2)
    assert ConsumerGroup(Ledger(store, queue_id), "g").read().head.pointer == 0


def test_a_new_group_costs_two_lwts():
    store = CountingStore(MemoryStore())
    queue_id = make_queue(store, [5]).queue_id
    store.reset()

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="earliest")

    assert store.cas_count == 2


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("at", ["registration", "state"])
def test_lost_answers_do_not_matter(fault: Fault, at: str):
    store = FaultyStore(MemoryStore())
    queue_id = make_queue(store, [5]).queue_id
    if at == "registration":
        store.fault = fault
    else:
        store.interrupt(lambda: setattr(store, "fault", fault), after=4)

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="earliest")
    store.arrive()

    assert Ledger(store, queue_id).read_head().groups_version == 1
    assert [
        state.head.pointer for state in read_group_states(Ledger(store, queue_id)).values()
    ] == [0]


def test_a_group_is_not_given_what_was_finalised_while_it_registered():
    store = FaultyStore(MemoryStore())
    queue_id = make_queue(store, [5]).queue_id
    head = Ledger(store, queue_id).read_head()
    store.interrupt(lambda: Ledger(store, queue_id).finalise(head, 4) and None, after=3)

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="earliest")

    assert ConsumerGroup(Ledger(store, queue_id), "g").read().head.pointer == 4


def test_a_queue_that_is_not_there_has_no_groups():
    with pytest.raises(QueueStateError, match="cassieq queue create"):
        ensure_group(
            ConsumerGroup(Ledger(MemoryStore(), QueueId("q@1")), "g"), starting="earliest"
        )
    assert read_group_states(Ledger(MemoryStore(), QueueId("q@1"))) == {}


def test_losing_every_race_is_contention(monkeypatch: pytest.MonkeyPatch):
    store = MemoryStore()
    queue_id = make_queue(store).queue_id
    monkeypatch.setattr(registration, "attempts", lambda: range(2))
    monkeypatch.setattr(store, "cas", lambda *_: False)

    with pytest.raises(ContentionError, match="try again"):
        ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="earliest")


def test_a_group_registered_only_half_is_owed_everything_from_its_start():
    store = MemoryStore()
    queue_id = make_queue(store, [5]).queue_id
    register_half(Ledger(store, queue_id), "half")

    (state,) = read_group_states(Ledger(store, queue_id)).values()

    assert [group.name for group in Ledger(store, queue_id).read_groups()] == ["half"]
    assert (state.floor, state.slots, state.waiting) == (0, (), ())


@pytest.mark.parametrize("after", range(6))
def test_what_moves_between_the_reads_of_a_state_is_seen_once(after: int):
    # I7: a range leased between the reads of the slots and of what waits was in neither.
    memory, clock = make_clocked_store()
    store = FaultyStore(memory)
    queue_id = make_queue(store, [10]).queue_id
    group = make_group(store, queue_id)
    publish(Ledger(store, queue_id), make_pending([1]))
    group.lease(make_request(stop=10))
    clock.advance(2 * LEASE)
    first = group.lease(make_request(stop=10, max_messages=4))
    group.lease(make_request(held=first.token, stop=0))
    clock.advance(timedelta(seconds=1))
    store.interrupt(
        lambda: group.lease(make_request(stop=10, max_messages=4)) and None, after=after
    )

    (state,) = read_group_states(Ledger(store, queue_id)).values()

    owed = sum(slot.monotons.count for slot in state.slots)
    owed += sum(waiting.monotons.count for waiting in state.waiting)
    assert (state.floor, owed) == (4, 6)


def test_waiting_messages_that_never_stand_still_are_contention(monkeypatch: pytest.MonkeyPatch):
    store = MemoryStore()
    group = make_group(store, make_queue(store).queue_id)
    head = group.read().head
    moved = replace(head, waiting_version=-1)
    monkeypatch.setattr(ConsumerGroup, "_read_head", lambda _: moved)

    with pytest.raises(ContentionError, match="too fast"):
        group.read(every_waiting=True)
