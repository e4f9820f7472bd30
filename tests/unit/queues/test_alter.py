from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.queues import (
    alter_queue,
    create_queue,
    delete_queue,
    list_queues,
    purge_queue,
    read_queue,
)
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.stores import CountingStore
from tests.unit.queues.scene import Scene

MINUTE = timedelta(minutes=1)
WEEK = timedelta(days=7)


def test_what_is_given_is_altered_and_the_rest_stays(scene: Scene):
    alter_queue(scene.store, "q", max_deliveries=4, dead_letter_queue="d", expire_after=WEEK)
    altered = alter_queue(scene.store, "q", lease=3 * MINUTE)

    assert altered == read_queue(scene.store, "q")
    assert (altered.version, altered.created_at) == (1, scene.old.created_at)
    assert (altered.bucket_size, altered.chunk_size) == (8, 4)
    assert (altered.lease, altered.max_deliveries) == (3 * MINUTE, 4)
    assert (altered.dead_letter_queue, altered.expire_after) == ("d", WEEK)
    assert "d" in {queue.name for queue in list_queues(scene.store)}


def test_what_may_be_left_out_can_be_taken_away_again(scene: Scene):
    alter_queue(scene.store, "q", max_deliveries=4, dead_letter_queue="d", expire_after=WEEK)

    altered = alter_queue(scene.store, "q", dead_letter_queue="", expire_after=timedelta(0))

    assert (altered.dead_letter_queue, altered.expire_after) == (None, None)
    assert alter_queue(scene.store, "q", max_deliveries=0).max_deliveries == 0


def test_nothing_to_alter_is_nothing_to_do(scene: Scene):
    store = CountingStore(scene.store)

    assert alter_queue(store, "q", lease=scene.old.lease) == scene.old

    assert store.cas_count == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lease": timedelta(0)}, "lease must be whole seconds, at least a second"),
        ({"lease": timedelta(days=20_001)}, "at most 20000 days"),
        ({"max_deliveries": -1}, "at least 0, not -1"),
        ({"max_deliveries": 0}, "leave out 'd'"),
        ({"dead_letter_queue": "q"}, "its own dead-letter queue"),
        ({"dead_letter_queue": "no spaces"}, "queue name"),
        ({"expire_after": timedelta(seconds=0.5)}, "expire_after must be whole seconds"),
        ({"expire_after": -MINUTE}, "expire_after must be whole seconds"),
        ({"keep_settled": timedelta(seconds=0.5)}, "keep_settled must be whole seconds"),
        ({"keep_settled": -MINUTE}, "keep_settled must be whole seconds"),
    ],
)
def test_what_a_queue_cannot_be_is_refused_before_anything_is_written(
    scene: Scene, changes: dict[str, object], problem: str
):
    alter_queue(scene.store, "q", max_deliveries=4, dead_letter_queue="d")
    store = CountingStore(scene.store)

    with pytest.raises(OptionError, match=problem):
        alter_queue(store, "q", **changes)  # type: ignore[arg-type]
    assert store.cas_count == 0


def test_two_alterations_at_once_are_both_made(scene: Scene):
    scene.store.interrupt(lambda: alter_queue(scene.store, "q", expire_after=WEEK), after=2)

    alter_queue(scene.store, "q", lease=3 * MINUTE)

    queue = read_queue(scene.store, "q")
    assert (queue.lease, queue.expire_after) == (3 * MINUTE, WEEK)


def test_of_two_alterations_that_contradict_each_other_one_is_refused(scene: Scene):
    alter_queue(scene.store, "q", max_deliveries=4, dead_letter_queue="")
    scene.store.interrupt(lambda: alter_queue(scene.store, "q", dead_letter_queue="d"), after=2)

    with pytest.raises(OptionError, match="leave out 'd'"):
        alter_queue(scene.store, "q", max_deliveries=0)
    assert read_queue(scene.store, "q").max_deliveries == 4


@pytest.mark.parametrize("fault", Fault)
def test_an_alteration_that_arrives_late_does_not_undo_a_later_one(scene: Scene, fault: Fault):
    scene.store.fault = fault
    altered = alter_queue(scene.store, "q", lease=3 * MINUTE)
    assert altered.lease == 3 * MINUTE

    alter_queue(scene.store, "q", lease=MINUTE)
    scene.store.arrive()

    assert read_queue(scene.store, "q").lease == MINUTE


def test_a_queue_that_is_gone_or_being_purged_is_not_altered(scene: Scene):
    with scene.broken_off(before_call=8):
        purge_queue(scene.store, "q", force=True)
    with pytest.raises(QueueStateError, match="is being purged"):
        alter_queue(scene.store, "q", lease=MINUTE)
    delete_queue(scene.store, "q", force=True)
    with pytest.raises(QueueStateError, match="there is no queue 'q'"):
        alter_queue(scene.store, "q", lease=MINUTE)


def test_the_settings_of_a_queue_are_read_as_it_was_created(scene: Scene):
    created = create_queue(scene.store, "f", order="strict", expire_after=WEEK)

    assert read_queue(scene.store, "f") == created
    assert (created.order, created.expire_after) == ("strict", WEEK)
    assert (scene.old.order, scene.old.expire_after) == ("none", None)
