from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.consumer.heartbeat import LEASE_LOST
from cassieq_spark.errors import InvariantError, NotAppliedError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Order, QueueDefinition, Range, Ranges
from cassieq_spark.queues.stats import GroupStats, queue_stats
from cassieq_spark.spark.source.offsets import decode, initial_offset
from cassieq_spark.spark.source.partition_reader import (
    BEHIND_GROUP,
    LEFT_OUT,
    RELEASE_FAILED,
    RELEASED,
)
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
)
from tests.support.faults import FakeClock

FIRST = initial_offset("q", "g")
MOMENT = timedelta(milliseconds=1)


class Scene:
    """A queue of twenty messages in two blocks, and readers of one group."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.queue: QueueDefinition = make_queue(self.store, [13, 7])
        self.readers: list[QueueReader] = []

    def reader(self, group: str = "g", **changes: Any) -> QueueReader:
        request = LeaseRequest(lease=LEASE, **changes)
        reader = QueueReader(self.store, self.queue, group, starting="earliest", request=request)
        self.readers.append(reader)
        return reader

    def stats(self) -> GroupStats:
        (group,) = queue_stats(Ledger(self.trouble, self.queue.queue_id)).groups
        return group


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(idle_backoff, "LONGEST_PAUSE", timedelta(0))
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(0))
    scene = Scene()
    yield scene
    scene.trouble.calm()
    for reader in scene.readers:
        reader.stop()


@pytest.fixture
def clock(scene: Scene) -> FakeClock:
    return scene.clock


def monotons_of(reader: QueueReader, end: Mapping[str, Any], *, messages_per_task: int = 100):
    return [
        monoton
        for parts in reader.tasks(end, messages_per_task=messages_per_task)
        for part in parts
        for piece in part.pieces
        for monoton in range(piece.first_monoton, piece.first_monoton + len(piece.offsets))
    ]


def test_a_queue_is_drained_in_order_batch_by_batch(scene: Scene):
    reader, done, batches = scene.reader(), FIRST, []

    while (end := reader.next_batch(done, limit=8)) is not done:
        batches.append(monotons_of(reader, end))
        done = end

    assert batches == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]
    assert scene.stats().depth == 0


def test_aimed_at_what_is_there_nothing_later_is_delivered(scene: Scene):
    reader = scene.reader()
    reader.aim()
    publish(Ledger(scene.store, scene.queue.queue_id), make_pending([5]))

    end = reader.next_batch(FIRST, limit=None)

    assert monotons_of(reader, end) == [*range(20)]
    assert reader.next_batch(end, limit=None) is end
    assert scene.stats().depth == 5


def test_the_end_of_a_batch_is_text_with_keys_in_order(scene: Scene):
    end = scene.reader().next_batch(FIRST, limit=3)

    assert json.dumps(end) == json.dumps(end, sort_keys=True)


def test_a_batch_costs_one_lwt_the_last_ack_one_and_idling_none(scene: Scene):
    reader = scene.reader()
    scene.store.reset()

    first = reader.next_batch(FIRST, limit=10)
    assert (scene.store.cas_count, scene.store.read_count) == (1, 3)
    second = reader.next_batch(first, limit=10)
    assert (scene.store.cas_count, scene.store.read_count) == (2, 6)
    assert reader.next_batch(second, limit=10) is second
    assert scene.store.cas_count == 3
    assert reader.next_batch(second, limit=10) is second
    assert reader.next_batch(second, limit=10) is second
    assert scene.store.cas_count == 3


def test_a_reader_on_its_own_reads_the_head_for_each_batch_and_the_rest_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(minutes=1))
    reader, done, costs, found = scene.reader(), FIRST, [], []
    for _ in range(4):
        scene.store.reset()
        done = reader.next_batch(done, limit=4)
        found += monotons_of(reader, done)
        costs.append((scene.store.cas_count, scene.store.read_count))

    # The head; once the group, and where the messages are, and at 12 what follows the first block.
    assert costs == [(1, 5), (1, 1), (1, 1), (1, 2)]
    assert found == [*range(16)]


def test_in_strict_order_a_reader_on_its_own_reads_the_group_once_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(minutes=1))
    scene.queue = replace(scene.queue, order=Order.STRICT)
    reader, done, costs, found = scene.reader(), FIRST, [], []
    for _ in range(3):
        scene.store.reset()
        done = reader.next_batch(done, limit=4)
        store = scene.store
        costs.append((store.cas_count, store.read_count, store.serial_read_count))
        found += monotons_of(reader, done)

    # Before the first one, slots are read serially, and then what waits.
    assert costs == [(1, 2, 1), (1, 1, 0), (1, 1, 0)]
    assert found == [*range(12)]


def test_in_strict_order_what_others_settle_makes_way_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(minutes=1))
    scene.queue = replace(scene.queue, order=Order.STRICT)
    other, reader = scene.reader(), scene.reader()
    end = other.next_batch(FIRST, limit=6)
    for _ in range(3):
        assert reader.next_batch(FIRST, limit=None) is FIRST

    assert other.next_batch(end, limit=0) is end

    assert monotons_of(reader, reader.next_batch(FIRST, limit=None)) == [*range(6, 20)]


def test_what_another_reader_releases_waits_no_longer_than_the_next_look_at_the_group(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(seconds=1.5))
    now = [0.0]
    monkeypatch.setattr(consumer_module, "monotonic", lambda: now[0])
    other, reader = scene.reader(), scene.reader()
    other.next_batch(FIRST, limit=2)
    done = reader.next_batch(FIRST, limit=2)
    other.stop()

    done = reader.next_batch(done, limit=2)
    assert monotons_of(reader, done) == [4, 5]
    now[0] += 1.5
    scene.clock.advance(MOMENT)
    done = reader.next_batch(done, limit=2)
    assert monotons_of(reader, done) == [0, 1]


def test_what_others_ack_makes_room_at_once_below_a_limit_of_the_group(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(minutes=1))
    other = scene.reader()
    theirs = decode(other.next_batch(FIRST, limit=6), queue_id=scene.queue.queue_id, group="g")
    reader = scene.reader(max_in_flight=6)
    for _ in range(3):
        assert reader.next_batch(FIRST, limit=None) is FIRST

    acked = Settlement(acked=Ranges.of(Range(0, 6)))
    Consumer(scene.store, scene.queue, "g").settle(theirs.lease, acked)

    done = reader.next_batch(FIRST, limit=None)
    assert monotons_of(reader, done) == [*range(6, 12)]


def test_finding_the_tasks_of_a_batch_costs_no_lwt(scene: Scene):
    reader = scene.reader()
    end = reader.next_batch(FIRST, limit=None)
    scene.store.reset()

    tasks = reader.tasks(end, messages_per_task=8)

    assert (scene.store.cas_count, scene.store.read_count) == (0, 2)
    assert [[piece.offsets for piece in part.pieces] for (part,) in tasks] == [
        [Range(0, 8)],
        [Range(8, 13), Range(0, 4)],
        [Range(4, 7)],
    ]


def test_the_first_offset_has_no_messages(scene: Scene):
    assert scene.reader().tasks(FIRST, messages_per_task=8) == []


def test_a_replayed_batch_has_the_rows_that_it_had(scene: Scene):
    """Also the count of deliveries: what Spark repeats, it must be able to compare."""
    end = scene.reader().next_batch(FIRST, limit=6)
    restarted = scene.reader()

    tasks = restarted.tasks(end, messages_per_task=100)

    ((part,),) = tasks
    assert [(piece.offsets, piece.deliveries) for piece in part.pieces] == [(Range(0, 6), 1)]
    assert part.receipt_prefix.endswith(".2/"), "a receipt names the delivery that it is of"
    (slot,) = make_group(scene.store, scene.queue.queue_id).read().slots
    assert slot.deliveries == 2
    following = restarted.next_batch(end, limit=6)
    assert monotons_of(restarted, following) == [*range(6, 12)]
    assert scene.stats().floor == 6


def test_a_replay_asked_for_twice_is_taken_up_once(scene: Scene):
    end = scene.reader().next_batch(FIRST, limit=6)
    restarted = scene.reader()
    scene.store.reset()

    first = restarted.tasks(end, messages_per_task=100)

    assert restarted.tasks(end, messages_per_task=100) == first
    assert scene.store.cas_count == 1


def test_a_replay_leaves_out_and_tells_what_others_took(
    scene: Scene, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    end = scene.reader().next_batch(FIRST, limit=6)
    clock.advance(LEASE + MOMENT)
    scene.reader().next_batch(FIRST, limit=2)
    restarted = scene.reader()

    assert monotons_of(restarted, end) == []
    (record,) = (each for each in caplog.records if each.action != BEHIND_GROUP)  # type: ignore[attr-defined]
    assert (record.action, record.count) == (LEFT_OUT, 6)  # type: ignore[attr-defined]
    assert monotons_of(restarted, restarted.next_batch(end, limit=9)) == [*range(2, 6)]


def test_a_lease_lost_while_its_batch_ran_is_told_at_the_ack(
    scene: Scene, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    slow, end = scene.reader(), FIRST
    end = slow.next_batch(FIRST, limit=6)
    clock.advance(LEASE + MOMENT)
    scene.reader().next_batch(FIRST, limit=2)

    slow.next_batch(end, limit=6)

    (record,) = (each for each in caplog.records if each.action != BEHIND_GROUP)  # type: ignore[attr-defined]
    assert (record.action, record.count) == (LEASE_LOST, 6)  # type: ignore[attr-defined]
    assert "duplicates" in caplog.text


def test_a_restarted_query_whose_batch_was_done_acks_it_silently(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    end = scene.reader().next_batch(FIRST, limit=6)
    restarted = scene.reader()

    following = restarted.next_batch(end, limit=6)

    assert monotons_of(restarted, following) == [*range(6, 12)]
    assert caplog.records == []


def test_after_a_batch_of_messages_due_again_fresh_ones_have_their_turn(
    scene: Scene, clock: FakeClock
):
    scene.reader().next_batch(FIRST, limit=6)
    clock.advance(LEASE + MOMENT)
    reader, done, batches = scene.reader(), FIRST, []

    for _ in range(4):
        done = reader.next_batch(done, limit=3)
        batches.append(monotons_of(reader, done))

    assert batches == [[0, 1, 2], [6, 7, 8], [3, 4, 5], [9, 10, 11]]


def test_two_readers_of_a_group_share_and_two_groups_do_not(scene: Scene):
    one, other, stranger = scene.reader(), scene.reader(), scene.reader("h")

    got = [
        monotons_of(one, one.next_batch(FIRST, limit=3)),
        monotons_of(other, other.next_batch(FIRST, limit=3)),
    ]
    apart = stranger.next_batch(initial_offset("q", "h"), limit=3)

    assert got == [[0, 1, 2], [3, 4, 5]]
    assert monotons_of(stranger, apart) == [0, 1, 2]


def test_stopping_makes_what_is_held_due_at_once(
    scene: Scene, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    reader = scene.reader()
    reader.next_batch(FIRST, limit=6)

    reader.stop()
    reader.stop()
    clock.advance(MOMENT)

    assert (scene.stats().leased, scene.stats().due) == (0, 6)
    assert [record.action for record in caplog.records] == [RELEASED]  # type: ignore[attr-defined]
    assert "6 messages" in caplog.text


def test_a_process_that_stops_late_releases_nothing_that_its_restarted_query_has_taken_up(
    scene: Scene, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    # I6: the old one was cut off; both have the token that Spark has logged.
    caplog.set_level(logging.INFO)
    old, new = scene.reader(), scene.reader()
    end = old.next_batch(FIRST, limit=None)
    assert monotons_of(new, end) == [*range(20)]

    old.stop()
    clock.advance(MOMENT)

    assert (scene.stats().leased, scene.stats().due) == (20, 0)
    assert scene.reader().next_batch(FIRST, limit=None) is FIRST
    assert "released 0 messages" in caplog.text


def test_a_process_that_goes_on_late_acks_nothing_that_its_restarted_query_has_taken_up(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    # Neither what it did nor what it recorded counts: the batch has come again, whole.
    old, new = scene.reader(), scene.reader()
    end = old.next_batch(FIRST, limit=10)
    offset = decode(end, queue_id=scene.queue.queue_id, group="g")
    assert offset is not None
    recorded = Settlement(released={timedelta(0): Ranges.parse("5-6")})
    Consumer(scene.store, scene.queue, "g").settle(offset.lease, recorded, with_batch=True)
    assert monotons_of(new, end) == [*range(10)]

    after = old.next_batch(end, limit=5)

    assert monotons_of(old, after) == [*range(10, 15)]
    assert (scene.stats().leased, scene.stats().depth) == (15, 20)
    assert [record.action for record in caplog.records] == [LEASE_LOST]  # type: ignore[attr-defined]


def test_a_process_that_goes_on_late_acks_nothing_however_often_it_is_asked(scene: Scene):
    # I6: as nothing is left to lease, Spark asks it again with the same offset.
    old, new = scene.reader(), scene.reader()
    end = old.next_batch(FIRST, limit=None)
    assert monotons_of(new, end) == [*range(20)]

    assert old.next_batch(end, limit=None) is end
    assert old.next_batch(end, limit=None) is end
    publish(Ledger(scene.store, scene.queue.queue_id), make_pending([5]))
    theirs = old.next_batch(end, limit=3)

    # Each goes on with what it holds.
    assert monotons_of(old, theirs) == [20, 21, 22]
    assert (scene.stats().leased, scene.stats().depth) == (23, 25)
    assert monotons_of(new, new.next_batch(end, limit=None)) == [23, 24]
    assert old.next_batch(theirs, limit=None) is theirs
    assert (scene.stats().leased, scene.stats().depth) == (2, 2)


def test_a_process_that_goes_on_late_takes_its_batch_when_the_lease_of_its_restarted_query_ends(
    scene: Scene, clock: FakeClock
):
    old, new = scene.reader(), scene.reader()
    end = old.next_batch(FIRST, limit=None)
    assert monotons_of(new, end) == [*range(20)]
    assert old.next_batch(end, limit=None) is end
    clock.advance(LEASE + MOMENT)

    after = old.next_batch(end, limit=None)

    assert len(monotons_of(old, after)) > 0
    assert old.next_batch(after, limit=0) is after
    assert scene.stats().leased == 0


def test_stopping_an_idle_reader_costs_nothing(scene: Scene):
    reader = scene.reader()
    reader.next_batch(reader.next_batch(FIRST, limit=None), limit=None)
    scene.store.reset()

    reader.stop()

    assert (scene.store.cas_count, scene.store.read_count) == (0, 0)


@pytest.mark.parametrize(
    "error",
    [NotAppliedError("no quorum"), QueueStateError("gone"), InvariantError("a row can't be read")],
)
def test_stopping_never_fails(scene: Scene, caplog: pytest.LogCaptureFixture, error: Exception):
    def fail() -> None:
        raise error

    reader = scene.reader()
    reader.next_batch(FIRST, limit=6)
    scene.trouble.interrupt(fail, after=0)

    reader.stop()

    assert [record.action for record in caplog.records] == [RELEASE_FAILED]  # type: ignore[attr-defined]
    assert str(error) in caplog.text


def test_a_checkpoint_of_another_group_is_refused_before_anything_is_leased(scene: Scene):
    reader = scene.reader()
    scene.store.reset()

    with pytest.raises(QueueStateError, match="not to group 'g'"):
        reader.next_batch(initial_offset("q", "other"), limit=3)
    assert scene.store.cas_count == 0


def test_a_reader_makes_its_group(scene: Scene):
    scene.reader()

    assert ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g").read().head.pointer == 0


# -- what the checkpoint knows -----------------------------------------------------------------


def behind(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [each.count for each in caplog.records if each.action == BEHIND_GROUP]  # type: ignore[attr-defined]


def test_a_new_checkpoint_of_a_group_that_was_given_messages_is_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    first = scene.reader()
    end = first.next_batch(FIRST, limit=6)
    first.next_batch(end, limit=4)
    assert behind(caplog) == []

    scene.reader().next_batch(FIRST, limit=5)

    assert behind(caplog) == [10]
    assert "new, or an older copy" in caplog.text


def test_an_older_copy_of_a_checkpoint_is_told_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    reader = scene.reader()
    old = reader.next_batch(FIRST, limit=6)
    reader.next_batch(reader.next_batch(old, limit=4), limit=3)

    restarted = scene.reader()
    restarted.next_batch(restarted.next_batch(old, limit=3), limit=3)

    assert behind(caplog) == [7]


def test_a_query_that_goes_on_where_it_was_is_told_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    end = FIRST
    for limit in (6, 4, 3):
        reader = scene.reader()
        end = reader.next_batch(end, limit=limit)

    assert behind(caplog) == []
