from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from cassieq_spark.errors import QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import LedgerStatus
from cassieq_spark.model import QueueId, SinkBatch
from cassieq_spark.queues import (
    Status,
    alter_queue,
    create_queue,
    delete_queue,
    is_paused,
    list_queues,
    pause_queue,
    purge_queue,
    read_queue,
)
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import last_batch, make_pending
from tests.unit.queues.scene import BATCH, Scene

#: Calls of the store that a purge of the scene makes, and a few more.
CALLS = 40


def test_a_purged_queue_goes_on_empty_as_a_new_version(scene: Scene):
    scene.run_out()

    purged = purge_queue(scene.store, "q")

    assert purged.queue_id == "q@2"
    assert purged.created_at == scene.old.created_at
    scene.check_over(scene.old)
    scene.check_purged(purged)


def test_a_purge_costs_five_lwts_and_one_for_each_group(scene: Scene):
    scene.run_out()
    store = CountingStore(scene.store)

    purge_queue(store, "q")

    sinks, groups = 1, 2
    assert store.cas_count == 5 + sinks + groups


def test_a_queue_whose_readers_hold_messages_is_purged_by_force_only(scene: Scene):
    with pytest.raises(
        QueueStateError, match=r"readers of group 'g' of queue q@1 hold messages 0 to 4"
    ):
        purge_queue(scene.store, "q")
    assert read_queue(scene.store, "q") == scene.old
    scene.publish(scene.old)

    scene.check_purged(purge_queue(scene.store, "q", force=True))


def test_a_writer_that_knew_the_version_before_is_told_of_the_purge(scene: Scene):
    pending = make_pending([2])
    purge_queue(scene.store, "q", force=True)

    with pytest.raises(QueueStateError, match=r"queue q@1 was purged.*restart writers"):
        publish(Ledger(scene.store, scene.old.queue_id), pending)
    assert Ledger(scene.store, QueueId("q@2")).read_blocks() == []


@pytest.mark.parametrize("fault", Fault)
def test_a_publish_whose_answer_the_purge_overtakes_is_resolved(scene: Scene, fault: Fault):
    scene.store.fault = fault
    pending = make_pending([2])

    def purge() -> None:
        purge_queue(scene.store, "q", force=True)

    # After the head is read and the request sent, before the answer is looked for.
    scene.store.interrupt(purge, after=2)
    is_decided = fault in {Fault.ANSWER_LOST, Fault.REACHED_ONE}
    if is_decided:
        assert publish(Ledger(scene.store, scene.old.queue_id), pending).monotons is not None
    else:
        with pytest.raises(QueueStateError, match="purged"):
            publish(Ledger(scene.store, scene.old.queue_id), pending)
    scene.store.arrive()

    went_in = pending[0].block in {
        each.block for each in Ledger(scene.store, QueueId("q@1")).read_blocks()
    }
    assert went_in is is_decided


def test_a_batch_that_was_published_before_the_purge_is_not_published_after_it(scene: Scene):
    purged = purge_queue(scene.store, "q", force=True)

    again = publish(Ledger(scene.store, purged.queue_id), make_pending([5]), batch=BATCH)
    later = publish(
        Ledger(scene.store, purged.queue_id), make_pending([5]), batch=SinkBatch(BATCH.sink, 8)
    )

    assert again.monotons is None
    assert str(later.monotons) == "[0, 5)"


def test_all_sinks_are_carried_over_however_many(scene: Scene):
    for number in range(450):
        publish(
            Ledger(scene.store, scene.old.queue_id),
            make_pending([1]),
            batch=SinkBatch(f"s{number}", number),
        )

    purged = purge_queue(scene.store, "q", force=True)

    last = [last_batch(scene.store, purged.queue_id, f"s{n}") for n in range(450)]
    assert last == list(range(450))


def test_a_queue_is_purged_again_and_again(scene: Scene):
    for version in (2, 3, 4):
        purged = purge_queue(scene.store, "q", force=True)
        assert purged.version == version
        scene.check_purged(purged)
    scene.check_over(scene.old)


def test_a_purge_keeps_the_settings_and_the_pause(scene: Scene):
    alter_queue(scene.store, "q", max_deliveries=3)
    pause_queue(scene.store, "q")

    purged = purge_queue(scene.store, "q", force=True)

    assert purged.max_deliveries == 3
    assert is_paused(scene.store, "q")


def test_a_queue_that_is_not_there_is_not_purged(scene: Scene):
    with pytest.raises(QueueStateError, match="there is no queue 'nobody'"):
        purge_queue(scene.store, "nobody")
    delete_queue(scene.store, "q", force=True)
    with pytest.raises(QueueStateError, match="there is no queue 'q'"):
        purge_queue(scene.store, "q")


@pytest.mark.parametrize("before_call", range(CALLS))
def test_a_purge_that_broke_off_is_finished_by_repeating_it(scene: Scene, before_call: int):
    with scene.broken_off(before_call=before_call):
        purge_queue(scene.store, "q", force=True)

    if scene.record.status is Status.PURGING:
        with pytest.raises(QueueStateError, match=r"is being purged.*cassieq queue purge q"):
            read_queue(scene.store, "q")
        assert list_queues(scene.store) == []
    if scene.record.status is not Status.ACTIVE or scene.record.version == 1:
        assert purge_queue(scene.store, "q", force=True).version == 2
    scene.check_over(scene.old)
    scene.check_purged(read_queue(scene.store, "q"))


@pytest.mark.parametrize("before_call", range(CALLS))
def test_a_purge_that_broke_off_does_not_keep_the_queue_from_being_deleted(
    scene: Scene, before_call: int
):
    with scene.broken_off(before_call=before_call):
        purge_queue(scene.store, "q", force=True)

    delete_queue(scene.store, "q", force=True)
    anew = create_queue(scene.store, "q")

    assert anew.version in (2, 3)
    assert scene.groups(anew.queue_id) == []
    for version in range(1, anew.version):
        assert Ledger(scene.store, QueueId(f"q@{version}")).read_head().is_closed
    scene.check_over(scene.old)
    scene.publish(anew)


@pytest.mark.parametrize("before_call", range(CALLS))
@pytest.mark.parametrize("fault", Fault)
def test_an_answer_that_is_lost_while_purging_changes_nothing(
    scene: Scene, fault: Fault, before_call: int
):
    scene.store.interrupt(lambda: setattr(scene.store, "fault", fault), after=before_call)

    purged = purge_queue(scene.store, "q", force=True)

    scene.store.calm()
    while scene.store.late:
        scene.store.arrive()
    assert purged.version == 2
    scene.check_over(scene.old)
    scene.check_purged(purged)


def purge(scene: Scene) -> None:
    purge_queue(scene.store, "q", force=True)


def delete(scene: Scene) -> None:
    with contextlib.suppress(QueueStateError):
        delete_queue(scene.store, "q", force=True)


def recreate(scene: Scene) -> None:
    delete(scene)
    create_queue(scene.store, "q")


def register(scene: Scene) -> None:
    with contextlib.suppress(QueueStateError):
        scene.lease(scene.old, "new")


def use(scene: Scene) -> None:
    with contextlib.suppress(QueueStateError):
        scene.publish(scene.old)
        scene.lease(scene.old, "idle")


def pause(scene: Scene) -> None:
    with contextlib.suppress(QueueStateError):
        pause_queue(scene.store, "q")


@pytest.mark.parametrize("before_call", range(CALLS))
@pytest.mark.parametrize("other", [purge, delete, recreate, register, use, pause])
def test_whatever_others_do_meanwhile_the_messages_from_before_are_gone(
    scene: Scene, other: Callable[[Scene], None], before_call: int
):
    before = {block.block for block in Ledger(scene.store, scene.old.queue_id).read_blocks()}
    scene.store.interrupt(lambda: other(scene), after=before_call)

    with contextlib.suppress(QueueStateError):
        purge_queue(scene.store, "q", force=True)
        assert other is not delete or not scene.store.troubles
    scene.store.calm()

    record = scene.record
    assert record.status is (
        Status.DELETING if other is delete and scene.store.troubles else Status.ACTIVE
    )
    if record.status is Status.ACTIVE:
        head = Ledger(scene.store, record.definition.queue_id).read_head()
        assert head.status is LedgerStatus.OPEN
        now = {
            block.block for block in Ledger(scene.store, record.definition.queue_id).read_blocks()
        }
        assert not now & before
        if other is register:
            kept = scene.groups(record.definition.queue_id)
            assert kept == scene.groups(scene.old.queue_id)
        scene.publish(record.definition)
    for version in range(1, record.version):
        assert Ledger(scene.store, QueueId(f"q@{version}")).read_head().is_closed
    scene.check_over(scene.old)
