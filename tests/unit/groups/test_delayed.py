"""Delayed messages, and what else a reader passes over on its way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark.errors import InvariantError
from cassieq_spark.groups import group as group_module
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, Ranges, from_millis
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    BEGUN_AT,
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
)

SECOND = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=1)
Blocks = Sequence[tuple[int, timedelta | None]]


class Scene:
    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.queue_id = make_queue(self.store).queue_id
        self.group = make_group(self.store, self.queue_id)

    def publish(self, *blocks: tuple[int, timedelta | None], size: int = 0) -> None:
        """Blocks of so many messages, to be delivered so much later."""
        pending = make_pending([count for count, _ in blocks], self.clock.now)
        publish(
            Ledger(self.store, self.queue_id),
            [
                PendingBlock(written.block, written.count, size, delay)
                for written, (_, delay) in zip(pending, blocks, strict=True)
            ],
        )

    def take(self, group: ConsumerGroup | None = None, **changes: Any) -> Lease:
        head = Ledger(self.store, self.queue_id).read_head()
        request = {"stop": head.next, "delayed_stop": head.delayed_stop} | changes
        return (group or self.group).lease(make_request(**request))

    def taken(self, **changes: Any) -> str:
        """What a reader gets who is done with it at once."""
        batch = self.take(**changes)
        self.take(held=batch.token, stop=0)
        return ",".join(str(each.monotons) for each in batch.leased)

    @property
    def waiting(self) -> list[tuple[timedelta, str]]:
        """What waits, and until how long after the beginning."""
        rows = self.group.read(every_waiting=True).waiting
        return [(from_millis(each.due) - BEGUN_AT, str(each.monotons)) for each in rows]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_delayed_message_is_never_early_and_comes_when_it_is_time(scene: Scene):
    scene.publish((3, 10 * SECOND))

    assert scene.taken() == ""
    scene.clock.advance(10 * SECOND - MOMENT)
    assert scene.taken() == ""
    scene.clock.advance(MOMENT)
    assert scene.taken() == "0-3"
    assert scene.taken() == ""


def test_other_messages_are_not_held_up(scene: Scene):
    scene.publish((3, None), (2, 10 * SECOND), (4, None), (1, 5 * SECOND), (2, None))

    assert scene.taken() == "0-3,5-9,10-12"
    scene.clock.advance(5 * SECOND)
    assert scene.taken() == "9-10"
    scene.clock.advance(5 * SECOND)
    assert scene.taken() == "3-5"
    assert scene.group.read().floor == 12


def test_a_limit_counts_only_what_is_handed_out(scene: Scene):
    scene.publish((3, None), (2, 10 * SECOND), (4, None), (1, 10 * SECOND), (2, None))

    assert scene.taken(max_messages=5) == "0-3,5-7"
    assert scene.taken(max_messages=2) == "7-9"
    assert scene.waiting == [(10 * SECOND, "3-5"), (10 * SECOND, "9-10")]
    assert scene.taken(max_messages=5) == "10-12"


def test_what_was_delayed_is_handed_out_together_with_fresh_messages(scene: Scene):
    scene.publish((2, SECOND), (2, 2 * SECOND))
    scene.taken()
    scene.publish((3, None))
    scene.clock.advance(2 * SECOND)

    (leased,) = scene.take().leased

    assert (str(leased.monotons), leased.deliveries) == ("0-7", 1)


def test_what_was_delayed_is_cut_to_the_limit_and_the_rest_goes_on_waiting(scene: Scene):
    scene.publish((5, SECOND), (1, None))
    assert scene.taken() == "5-6"
    scene.clock.advance(SECOND)

    assert scene.taken(max_messages=2) == "0-2"
    assert scene.waiting == [(SECOND, "2-5")]
    assert scene.taken(max_messages=9) == "2-5"


def test_a_block_whose_time_has_come_before_anyone_looked_is_fresh(scene: Scene):
    scene.publish((2, SECOND), (2, None))
    scene.clock.advance(SECOND)

    assert scene.taken() == "0-4"
    assert scene.waiting == []


def test_each_group_waits_by_itself(scene: Scene):
    other = make_group(scene.store, scene.queue_id, "other")
    scene.publish((2, SECOND))
    scene.take()
    scene.clock.advance(SECOND)

    assert [str(each.monotons) for each in scene.take(other).leased] == ["0-2"]
    assert scene.taken() == "0-2"


def test_an_idle_reader_steps_over_once_and_then_costs_no_lwt(scene: Scene):
    scene.publish((3, 10 * SECOND))
    scene.store.reset()
    scene.take()
    assert scene.store.cas_count == 1

    scene.store.reset()
    for _ in range(5):
        scene.clock.advance(SECOND)
        scene.take()

    assert (scene.store.cas_count, scene.store.serial_read_count) == (0, 0)
    assert scene.store.read_count == 5 * 3, "the ledger's head, the group, and what waits"


def test_beyond_the_last_delayed_message_no_block_is_read(scene: Scene):
    scene.publish((1, SECOND))
    scene.take()
    scene.publish((5, None))
    scene.store.reset()

    scene.take()

    assert (scene.store.cas_count, scene.store.read_count) == (1, 3)


def test_more_delayed_blocks_than_are_read_at_a_time_are_stepped_over_in_one_call(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_module, "_BLOCKS_READ", 3)
    scene.publish(*((1, (1 + number) * SECOND) for number in range(20)), (2, None))

    assert scene.taken() == "20-22"
    assert len(scene.waiting) == 20
    scene.clock.advance(20 * SECOND)
    assert scene.taken() == "0-20"


def test_the_batch_before_is_acked_although_there_is_only_to_step_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_module, "_BLOCKS_READ", 3)
    scene.publish((2, None))
    held = scene.take().token
    scene.publish(*((1, SECOND) for _ in range(10)))

    batch = scene.take(held=held)

    assert (batch.acked, batch.acked_slots, batch.leased) == (2, frozenset({0}), ())
    assert batch.pointer == 12


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", range(6))
def test_whatever_is_lost_on_the_way_all_is_delivered_once(
    scene: Scene, fault: Fault, after: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_module, "_BLOCKS_READ", 2)
    scene.publish((2, SECOND), (2, None), (2, 2 * SECOND), (1, SECOND), (1, None))
    scene.trouble.interrupt(lambda: setattr(scene.trouble, "fault", fault), after=after)

    taken = [scene.taken()]
    scene.trouble.arrive()
    scene.clock.advance(2 * LEASE)
    scene.trouble.calm()
    taken += [scene.taken() for _ in range(4)]

    found = Ranges.of(*(part for each in taken for part in Ranges.parse(each)))
    assert str(found) == "0-8"
    assert scene.group.read(every_waiting=True).floor == 8


def test_two_readers_step_over_the_same_block_once(scene: Scene):
    scene.publish((2, SECOND), (2, None))
    scene.trouble.interrupt(lambda: scene.take() and None, after=2)

    assert scene.taken() == ""
    assert scene.waiting == [(SECOND, "0-2")]


def test_a_reader_that_read_the_pointer_before_others_finished_and_trimmed_looks_again(
    scene: Scene,
):
    scene.publish((2, None), (2, SECOND))

    def others_finish() -> None:
        scene.clock.advance(SECOND)
        assert scene.taken() == "0-4"
        head = Ledger(scene.store, scene.queue_id).read_head()
        Ledger(scene.store, scene.queue_id).finalise(head, 4)
        Ledger(scene.store, scene.queue_id).trim(finalised=4, below=4)

    scene.trouble.interrupt(others_finish, after=3)

    assert scene.taken() == ""


def test_a_hole_in_the_ledger_is_told(scene: Scene):
    scene.publish((2, None), (2, SECOND))
    Ledger(scene.store, scene.queue_id).trim(finalised=0, below=2)

    with pytest.raises(InvariantError, match="I1"):
        scene.take()


def test_delayed_messages_count_as_waiting_before_anyone_comes_to_them_and_after(scene: Scene):
    scene.publish((2, 10 * SECOND), (3, None))
    scene.clock.advance(3 * SECOND)

    def figures() -> tuple[int, int, timedelta | None]:
        (group,) = queue_stats(Ledger(scene.store, scene.queue_id)).groups
        return group.depth, group.waiting, group.oldest_age

    assert figures() == (5, 2, 3 * SECOND)
    assert scene.taken() == "2-5"
    assert figures() == (2, 2, None)
    scene.clock.advance(9 * SECOND)
    assert figures() == (2, 0, 2 * SECOND)


# -- what else limits a batch -----------------------------------------------------------------


def test_messages_that_have_been_visible_for_too_long_are_skipped_and_count_as_settled(
    scene: Scene,
):
    scene.publish((3, None), (2, 20 * SECOND))
    scene.clock.advance(30 * SECOND)
    scene.publish((4, None))

    batch = scene.take(skip_older_than=15 * SECOND)

    assert [str(each.monotons) for each in batch.leased] == ["3-9"]
    assert batch.skipped == 3
    assert scene.group.read().floor == 3


def test_a_queue_of_old_messages_only_is_skipped_without_a_batch(scene: Scene):
    scene.publish((3, None), (2, None))
    scene.clock.advance(30 * SECOND)

    batch = scene.take(skip_older_than=15 * SECOND)

    assert (batch.leased, batch.skipped) == ((), 5)
    assert scene.group.read().floor == 5


def test_a_limit_of_bytes_takes_that_share_of_a_block_and_a_message_at_least(scene: Scene):
    scene.publish((10, None), (10, None), size=1000)

    assert scene.taken(max_bytes=1500) == "0-15"
    assert scene.taken(max_bytes=1) == "15-16"
    assert scene.taken(max_bytes=1_000_000) == "16-20"


def test_the_smaller_of_both_limits_holds(scene: Scene):
    scene.publish((10, None), (10, None), size=1000)

    assert scene.taken(max_bytes=500, max_messages=8) == "0-5"
    assert scene.taken(max_bytes=5000, max_messages=8) == "5-13"


def test_too_few_messages_are_no_batch_but_what_is_done_is_acked(scene: Scene):
    scene.publish((3, None))
    held = scene.take(max_messages=1).token

    batch = scene.take(held=held, min_messages=3)

    assert (batch.acked, batch.leased) == (1, ())
    assert scene.taken(min_messages=2) == "1-3"


def test_what_is_due_again_counts_among_what_is_to_be_had(scene: Scene):
    scene.publish((3, None))
    scene.take(max_messages=1)
    scene.clock.advance(LEASE + MOMENT)

    assert [str(each.monotons) for each in scene.take(min_messages=3).leased] == ["0-1"]


def test_readers_together_hold_no_more_than_the_limit_in_flight(scene: Scene):
    scene.publish((10, None))
    first = scene.take(max_in_flight=6, max_messages=4).token
    assert [str(each.monotons) for each in scene.take(max_in_flight=6, max_messages=4).leased] == [
        "4-6"
    ]
    assert scene.take(max_in_flight=6, max_messages=4).leased == ()

    batch = scene.take(max_in_flight=6, max_messages=9, held=first)

    assert [str(each.monotons) for each in batch.leased] == ["6-10"]


def test_a_lease_that_ran_out_is_not_in_flight(scene: Scene):
    scene.publish((10, None))
    scene.take(max_messages=6)
    scene.clock.advance(LEASE + MOMENT)

    assert [each.monotons.count for each in scene.take(max_in_flight=6).leased] == [6]


# -- strict order -----------------------------------------------------------------------------


def test_in_strict_order_nothing_is_offered_while_anything_earlier_is_outstanding(scene: Scene):
    scene.publish((10, None))
    first = scene.take(max_messages=3, strict_fifo=True).token

    assert scene.take(max_messages=3, strict_fifo=True).leased == ()
    assert scene.taken(max_messages=3, strict_fifo=True, held=first) == "3-6"


def test_in_strict_order_what_failed_comes_again_before_all_else_lowest_first(scene: Scene):
    scene.publish((10, None))
    scene.take(max_messages=4, strict_fifo=True)
    scene.clock.advance(LEASE + MOMENT)

    assert scene.taken(max_messages=2, strict_fifo=True, prefer_fresh=True) == "0-2"
    assert scene.taken(max_messages=9, strict_fifo=True, prefer_fresh=True) == "2-4"
    assert scene.taken(max_messages=9, strict_fifo=True) == "4-10"


def test_in_strict_order_a_release_with_a_delay_holds_up_the_rest(scene: Scene):
    scene.publish((4, None))
    batch = scene.take(max_messages=2, strict_fifo=True)
    scene.group.release(batch.token, batch.leased)
    scene.clock.advance(MOMENT)
    assert scene.taken(max_messages=1, strict_fifo=True) == "0-1"

    assert scene.taken(max_messages=9, strict_fifo=True) == "1-2"
    assert scene.taken(max_messages=9, strict_fifo=True) == "2-4"


# -- back-off ---------------------------------------------------------------------------------


def test_messages_that_failed_are_left_alone_for_longer_each_time(scene: Scene):
    scene.publish((2, None))
    pauses = []
    batch = scene.take()
    scene.group.release(batch.token, batch.leased)
    for _ in range(3):
        waited = 0
        while not (batch := scene.take(retry_backoff=10 * SECOND)).leased:
            scene.clock.advance(SECOND)
            waited += 1
        pauses.append(waited)
        scene.group.release(batch.token, batch.leased)

    assert pauses == [11, 21, 41]


def test_others_are_delivered_meanwhile(scene: Scene):
    scene.publish((2, None))
    batch = scene.take()
    scene.group.release(batch.token, batch.leased)
    scene.publish((3, None))
    scene.clock.advance(SECOND)

    assert scene.taken(retry_backoff=10 * SECOND) == "2-5"


def test_a_batch_is_replayed_at_once_the_first_time_and_given_back_the_second(scene: Scene):
    scene.publish((2, None))
    lease = scene.take().token
    request = make_request(held=lease, retry_backoff=10 * SECOND, max_deliveries=5)

    assert [each.deliveries for each in scene.group.take_again(request)] == [2]
    assert scene.group.take_again(request) == ()

    assert scene.waiting == [(20 * SECOND, "0-2")]
    scene.clock.advance(20 * SECOND)
    (again,) = scene.take(max_deliveries=5, max_messages=9).leased
    assert again.deliveries == 3
