"""What the state machine of tests/property has found, each in its smallest form."""

from __future__ import annotations

from datetime import timedelta

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range, Ranges
from cassieq_spark.testing.faults import FaultyStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_queue,
    make_request,
    monotons_of,
)

MOMENT = timedelta(milliseconds=1)


def test_in_strict_order_a_lease_with_a_gap_waits_for_what_is_in_the_gap():
    store, clock = make_clocked_store()
    group = make_group(store, make_queue(store, [5]).queue_id)
    lease = group.lease(make_request(stop=5, strict_fifo=True)).token
    group.settle(lease, Settlement(released={timedelta(0): Ranges.of(Range(2, 3))}))
    clock.advance(LEASE + MOMENT)

    again = group.lease(make_request(stop=5, strict_fifo=True))

    assert monotons_of(again.leased) == [Ranges.of(Range(0, 2))]
    ahead = group.lease(make_request(stop=5, strict_fifo=True, held=again.token))
    assert monotons_of(ahead.leased) == [Ranges.of(Range(2, 3))]


def test_two_readers_at_once_hold_no_more_than_the_limit_in_flight():
    memory, clock = make_clocked_store()
    group = make_group(memory, make_queue(memory, [4]).queue_id)
    group.lease(make_request(stop=4, max_messages=2, max_in_flight=2))
    clock.advance(LEASE + MOMENT)
    store = FaultyStore(memory)
    fresh = make_request(stop=4, max_messages=2, max_in_flight=2, prefer_fresh=True)
    store.interrupt(lambda: group.lease(fresh), after=2)

    ConsumerGroup(Ledger(store, group.queue_id), "g").lease(make_request(stop=4, max_in_flight=2))

    held = [slot.monotons.count for slot in group.read().slots if slot.due_at >= clock.now]
    assert sum(held) <= 2
