from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from cassieq_spark.errors import (
    InvariantError,
    NotFoundError,
    OptionError,
    QueueStateError,
    SchemaError,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueId
from cassieq_spark.queues import (
    Status,
    alter_queue,
    close_versions,
    create_queue,
    delete_queue,
    list_queues,
    mark_retired,
    purge_queue,
    read_queue,
)
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_pending
from tests.unit.queues.scene import Scene, retire

#: Calls of the store that a deletion of the scene makes, and a few more.
CALLS = 26


def test_a_deleted_queue_is_gone_for_those_who_know_it_too(scene: Scene):
    scene.run_out()

    delete_queue(scene.store, "q")

    assert scene.record.status is Status.DELETING
    assert list_queues(scene.store) == []
    with pytest.raises(QueueStateError, match="there is no queue 'q'"):
        read_queue(scene.store, "q")
    with pytest.raises(NotFoundError, match="queue q@1 was deleted"):
        publish(Ledger(scene.store, scene.old.queue_id), make_pending([1], scene.clock.now))
    scene.check_over(scene.old)


def test_a_deletion_costs_two_lwts_and_one_for_each_group(scene: Scene):
    scene.run_out()
    store = CountingStore(scene.store)

    delete_queue(store, "q")

    assert store.cas_count == 2 + 2


def test_a_queue_whose_readers_hold_messages_is_deleted_by_force_only(scene: Scene):
    with pytest.raises(
        QueueStateError, match=r"readers of group 'g' of queue q@1 hold messages 0 to 4"
    ):
        delete_queue(scene.store, "q")
    assert read_queue(scene.store, "q") == scene.old

    delete_queue(scene.store, "q", force=True)

    scene.check_over(scene.old)


def test_a_queue_that_takes_dead_letters_is_deleted_by_force_only(scene: Scene):
    scene.run_out()
    for name in ("a", "b"):
        create_queue(scene.store, name, max_deliveries=3, dead_letter_queue="q")
    delete_queue(scene.store, "b")

    with pytest.raises(
        QueueStateError, match="'q' is the dead-letter queue of a; alter or delete"
    ):
        delete_queue(scene.store, "q")
    alter_queue(scene.store, "a", dead_letter_queue="")
    delete_queue(scene.store, "q")

    assert read_queue(scene.store, "a").dead_letter_queue is None


def test_a_queue_that_is_not_there_is_not_deleted(scene: Scene):
    with pytest.raises(QueueStateError, match="there is no queue 'nobody'"):
        delete_queue(scene.store, "nobody")
    delete_queue(scene.store, "q", force=True)
    delete_queue(scene.store, "q")  # finished once more, as long as something is left
    retire(scene.store)
    with pytest.raises(QueueStateError, match="there is no queue 'q'"):
        delete_queue(scene.store, "q")


def test_a_queue_made_anew_is_another_one(scene: Scene):
    delete_queue(scene.store, "q", force=True)

    anew = create_queue(scene.store, "q", bucket_size=16, chunk_size=4)

    assert (anew.queue_id, anew.bucket_size) == ("q@2", 16)
    assert read_queue(scene.store, "q") == anew
    assert scene.groups(anew.queue_id) == []
    scene.publish(anew)
    scene.check_over(scene.old)
    assert Ledger(scene.store, scene.old.queue_id).read_head().bucket_size == 8


def test_a_queue_is_made_and_deleted_again_and_again(scene: Scene):
    for version in range(2, 6):
        delete_queue(scene.store, "q", force=True)
        if version % 2:
            retire(scene.store)
        scene.old = create_queue(scene.store, "q")
        assert scene.old.version == version
        scene.publish(scene.old)
    assert len(Ledger(scene.store, scene.old.queue_id).read_blocks()) == 1


def test_a_dead_letter_queue_that_was_deleted_is_made_anew_for_its_next_queue(scene: Scene):
    create_queue(scene.store, "a", max_deliveries=3, dead_letter_queue="d")
    delete_queue(scene.store, "d", force=True)

    create_queue(scene.store, "b", max_deliveries=3, dead_letter_queue="d")

    assert read_queue(scene.store, "d").version == 2


@pytest.mark.parametrize("is_retired", [False, True])
@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"partitions": 4}, OptionError, "'d' has 4 partitions, so it can't be the .* of 'a'"),
        ({"schema": "a int"}, SchemaError, "'d' has a schema and 'a' has none"),
    ],
)
def test_a_dead_letter_queue_is_not_made_anew_so_that_dead_messages_do_not_fit(
    scene: Scene, settings: dict[str, Any], error: type[Exception], told: str, *, is_retired: bool
):
    create_queue(scene.store, "a", max_deliveries=3, dead_letter_queue="d")
    delete_queue(scene.store, "d", force=True)
    if is_retired:
        retire(scene.store)

    with pytest.raises(error, match=told):
        create_queue(scene.store, "d", max_deliveries=3, dead_letter_queue="e", **settings)

    assert {each.name for each in list_queues(scene.store)} == {"a", "q"}
    assert create_queue(scene.store, "d").version == 2


def test_a_queue_that_took_dead_letters_is_made_anew_as_it_likes_once_none_come(scene: Scene):
    create_queue(scene.store, "a", max_deliveries=3, dead_letter_queue="d")
    delete_queue(scene.store, "d", force=True)
    alter_queue(scene.store, "a", dead_letter_queue="")

    assert create_queue(scene.store, "d", partitions=4).partitions == 4


@pytest.mark.parametrize("before_call", range(CALLS))
def test_a_deletion_that_broke_off_is_finished_by_repeating_it(scene: Scene, before_call: int):
    with scene.broken_off(before_call=before_call):
        delete_queue(scene.store, "q", force=True)

    delete_queue(scene.store, "q", force=True)

    assert scene.record.status is Status.DELETING
    scene.check_over(scene.old)


@pytest.mark.parametrize("before_call", range(CALLS))
@pytest.mark.parametrize("again", [create_queue, lambda store, _: retire(store)])
def test_a_deletion_that_broke_off_is_finished_by_whoever_comes_next(
    scene: Scene, again: Callable[..., object], before_call: int
):
    with scene.broken_off(before_call=before_call):
        delete_queue(scene.store, "q", force=True)
    if scene.record.status is Status.ACTIVE:
        delete_queue(scene.store, "q", force=True)

    again(scene.store, "q")

    scene.check_over(scene.old)


@pytest.mark.parametrize("before_call", range(CALLS))
def test_a_creation_that_broke_off_is_finished_by_repeating_it(scene: Scene, before_call: int):
    delete_queue(scene.store, "q", force=True)
    with scene.broken_off(before_call=before_call):
        create_queue(scene.store, "q")

    if scene.record.is_gone:
        create_queue(scene.store, "q")

    assert read_queue(scene.store, "q").version == 2
    scene.publish(read_queue(scene.store, "q"))
    scene.check_over(scene.old)


@pytest.mark.parametrize("before_call", range(CALLS))
@pytest.mark.parametrize("fault", Fault)
def test_an_answer_that_is_lost_while_deleting_changes_nothing(
    scene: Scene, fault: Fault, before_call: int
):
    scene.store.interrupt(lambda: setattr(scene.store, "fault", fault), after=before_call)

    delete_queue(scene.store, "q", force=True)
    anew = create_queue(scene.store, "q")
    scene.store.calm()
    while scene.store.late:
        scene.store.arrive()

    assert read_queue(scene.store, "q") == anew
    scene.publish(anew)
    scene.check_over(scene.old)


@pytest.mark.parametrize("before_call", range(CALLS))
def test_two_delete_at_once(scene: Scene, before_call: int):
    scene.store.interrupt(lambda: delete_queue(scene.store, "q", force=True), after=before_call)

    delete_queue(scene.store, "q", force=True)

    assert scene.record.version == 1
    scene.check_over(scene.old)


@pytest.mark.parametrize("before_call", range(CALLS))
def test_who_deletes_a_queue_that_others_purge_is_told(scene: Scene, before_call: int):
    def purge() -> None:
        with contextlib.suppress(QueueStateError):
            purge_queue(scene.store, "q", force=True)

    scene.store.interrupt(purge, after=before_call)
    try:
        delete_queue(scene.store, "q", force=True)
    except QueueStateError as error:
        assert "has become version 2 at the same time" in str(error)  # noqa: PT017
        scene.check_purged(read_queue(scene.store, "q"))
    else:
        assert scene.record.is_gone
    scene.check_over(scene.old)


def test_a_queue_that_others_made_anew_is_not_deleted_for_a_lost_answer(scene: Scene):
    def others() -> None:
        create_queue(scene.store, "q")

    scene.store.fault = Fault.ANSWER_LOST
    scene.store.interrupt(others, after=3)

    with pytest.raises(QueueStateError, match="has become version 2 at the same time"):
        delete_queue(scene.store, "q", force=True)
    scene.publish(read_queue(scene.store, "q"))
    scene.check_over(scene.old)


@pytest.mark.parametrize("before_call", range(CALLS))
def test_who_creates_a_queue_that_others_delete_gets_a_new_one_or_is_told(
    scene: Scene, before_call: int
):
    delete_queue(scene.store, "q", force=True)

    def others() -> None:
        create_queue(scene.store, "q", bucket_size=16, chunk_size=4)
        delete_queue(scene.store, "q")

    scene.store.interrupt(others, after=before_call)
    with contextlib.suppress(QueueStateError):
        create_queue(scene.store, "q", bucket_size=32, chunk_size=4)
    scene.store.calm()

    record = scene.record
    for version in range(1, record.version):
        assert Ledger(scene.store, QueueId(f"q@{version}")).read_head().is_closed
    if not record.is_gone:
        assert record.definition.bucket_size == 32
        scene.publish(record.definition)


# -- what is left for the repair ------------------------------------------------------------------


def test_old_versions_are_retired_in_order_and_only_their_heads_are_left(scene: Scene):
    purge_queue(scene.store, "q", force=True)
    assert scene.record.to_retire == ("q@1",)
    delete_queue(scene.store, "q")
    assert scene.record.to_retire == ("q@1", "q@2")

    retire(scene.store)

    assert scene.record.to_retire == ()
    assert scene.record.status is Status.DELETED
    assert Ledger(scene.store, scene.old.queue_id).read_blocks() == []
    assert not Ledger(scene.store, scene.old.queue_id).create(), "no id is ever opened again"
    scene.check_over(scene.old)
    assert create_queue(scene.store, "q").version == 3
    assert scene.record.to_retire == ()


def test_a_version_is_retired_once_its_successor_is_there_and_not_before(scene: Scene):
    with scene.broken_off(before_call=8):
        purge_queue(scene.store, "q", force=True)
    assert scene.record.status is Status.PURGING
    assert scene.record.to_retire == (), "the purge still reads it"

    purge_queue(scene.store, "q")

    assert scene.record.to_retire == ("q@1",)


def test_only_the_next_version_to_retire_is_marked(scene: Scene):
    with pytest.raises(InvariantError, match="version 1 of queue 'q' is not the next"):
        mark_retired(scene.store, "q", 1)
    for _ in range(2):
        purge_queue(scene.store, "q", force=True)
    with pytest.raises(InvariantError, match="version 2 of queue 'q' is not the next"):
        mark_retired(scene.store, "q", 2)
    for version in (1, 1, 2):
        mark_retired(scene.store, "q", version)
    assert (scene.record.retired, scene.record.status) == (2, Status.ACTIVE)


def test_an_active_queue_has_nothing_to_close(scene: Scene):
    store = CountingStore(scene.store)

    close_versions(store, scene.record)

    assert (store.cas_count, store.serial_read_count) == (0, 0)
