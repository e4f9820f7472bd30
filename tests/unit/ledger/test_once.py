"""What is published once under a name that is remembered for a time only."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from cassieq_spark.errors import NotAppliedError
from cassieq_spark.ledger.ledger import Ledger, LedgerStatus
from cassieq_spark.ledger.lifecycle import close_ledger, open_next
from cassieq_spark.ledger.once import Mark, Once, once_key, once_of_key, read_mark
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueId, SinkBatch
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Insert, partition_of_ledger
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.faults import FakeClock, make_block_id

QUEUE = QueueId("q@1")
LIFE = timedelta(hours=24)
MOMENT = timedelta(milliseconds=1)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
#: By the server's clock a row may vanish up to a second early.
SECOND = timedelta(seconds=1)


class Scene:
    """A queue, and attempts to publish under one name."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock)
        self.store = FaultyStore(self.memory)
        Ledger(self.memory, QUEUE).create()

    def attempt(self, begun_at: datetime | None = None, block_at: datetime | None = None) -> bool:
        """Publish a message under the name; whether it went in."""
        begun_at = begun_at or self.clock.now
        written = PendingBlock(make_block_id(block_at or begun_at), 1)
        once = Once("key:k", LIFE, begun_at)
        return publish(Ledger(self.store, QUEUE), [written], batch=once).monotons is not None

    @property
    def count(self) -> int:
        """How many messages are published."""
        return Ledger(self.memory, QUEUE).read_head().next


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_name_is_used_once_while_it_is_remembered(scene: Scene):
    assert scene.attempt()
    scene.clock.advance(LIFE - SECOND)

    assert not scene.attempt()
    assert scene.count == 1
    assert read_mark(Ledger(scene.memory, QUEUE), Once("key:k", LIFE)) is Mark.PUBLISHED
    assert read_mark(Ledger(scene.memory, QUEUE), Once("key:l", LIFE)) is None


def test_a_name_is_forgotten_by_itself_and_may_be_used_again(scene: Scene):
    scene.attempt()
    scene.clock.advance(LIFE)

    assert read_mark(Ledger(scene.memory, QUEUE), Once("key:k", LIFE)) is None
    assert scene.attempt()
    assert scene.count == 2


def test_it_costs_one_lwt_and_one_read():
    clock = FakeClock()
    store = CountingStore(MemoryStore(clock))
    Ledger(store, QUEUE).create()
    store.reset()

    publish(
        Ledger(store, QUEUE),
        [PendingBlock(make_block_id(clock.now), 1)],
        batch=Once("k", LIFE, clock.now),
    )

    assert (store.cas_count, store.read_count, store.serial_read_count) == (1, 1, 0)


@pytest.mark.parametrize("what", ["begun", "written"])
def test_who_began_so_long_ago_that_the_name_may_be_forgotten_is_refused(scene: Scene, what: str):
    """I4: another one has published under it meanwhile, and that is forgotten by now."""
    began = scene.clock.now
    assert scene.attempt()
    scene.clock.advance(LIFE)
    attempt = {"begun" if what == "begun" else "block": began}

    with pytest.raises(NotAppliedError, match=r"began at 2026-11-20 12:00:00.*, more than 12:00"):
        scene.attempt(
            begun_at=attempt.get("begun", scene.clock.now),
            block_at=attempt.get("block", scene.clock.now),
        )

    assert scene.count == 1


@pytest.mark.parametrize("behind", [3 * MINUTE, 13 * HOUR, 25 * HOUR, 30 * LIFE])
def test_a_name_is_remembered_for_its_time_by_right_clocks_if_the_server_is_behind(
    scene: Scene, behind: timedelta
):
    scene.clock.ahead = -behind
    assert scene.attempt(scene.clock.now)
    scene.clock.ahead = timedelta(0)

    for _ in range(2):
        scene.clock.advance(LIFE / 2 - SECOND)
        assert not scene.attempt()
    scene.clock.advance(3 * SECOND)
    assert scene.attempt()
    assert scene.count == 2


@pytest.mark.parametrize("is_behind", [3 * MINUTE, 25 * HOUR])
def test_nothing_is_published_by_a_server_that_is_further_behind_than_the_one_that_was_read(
    scene: Scene, is_behind: timedelta
):
    """It would forget the name too early. Here it is read next, and is the same for the LWT."""
    scene.store.interrupt(lambda: setattr(scene.clock, "ahead", -is_behind), after=1)

    assert scene.attempt(scene.clock.now)
    scene.clock.ahead = timedelta(0)
    scene.clock.advance(LIFE - SECOND)
    assert not scene.attempt()
    assert scene.count == 1


def test_a_writer_that_is_ahead_keeps_the_name_longer(scene: Scene):
    assert scene.attempt(scene.clock.now + 30 * 365 * LIFE, scene.clock.now)
    scene.clock.advance(LIFE)

    assert not scene.attempt()


@pytest.mark.parametrize("stalls_before_call", range(2))
@pytest.mark.parametrize("by", [LIFE, LIFE / 2 + MOMENT])
def test_who_stalls_anywhere_while_another_one_publishes_and_is_forgotten_publishes_nothing(
    scene: Scene, stalls_before_call: int, by: timedelta
):
    def stall() -> None:
        other = Once("key:k", LIFE, scene.clock.now)
        publish(
            Ledger(scene.memory, QUEUE),
            [PendingBlock(make_block_id(scene.clock.now), 1)],
            batch=other,
        )
        scene.clock.advance(by)

    scene.store.interrupt(stall, after=stalls_before_call)

    if stalls_before_call == 0 and by < LIFE:
        assert not scene.attempt()
    elif by < LIFE:
        assert not scene.attempt(), "it has read before, and is refused by the row itself"
    else:
        with pytest.raises(NotAppliedError, match="forgotten"):
            scene.attempt()

    assert scene.count == 1
    assert scene.store.troubles == 1


@pytest.mark.parametrize("stalls_before_call", range(4))
def test_who_stalls_anywhere_after_another_one_has_published_publishes_nothing(
    scene: Scene, stalls_before_call: int
):
    """Head and name are of one moment: the name is not forgotten between the two."""
    began = scene.clock.now
    scene.clock.advance(MOMENT)
    scene.attempt()
    scene.store.interrupt(lambda: scene.clock.advance(LIFE), after=stalls_before_call)

    with suppress(NotAppliedError):
        assert not scene.attempt(begun_at=began)

    assert scene.count == 1


def test_who_has_half_of_the_time_has_it_whole(scene: Scene):
    began = scene.clock.now
    scene.clock.advance(LIFE / 2)

    assert scene.attempt(begun_at=began)


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_is_resolved_and_the_name_used_once(scene: Scene, fault: Fault):
    scene.store.fault = fault

    went_in = scene.attempt()
    scene.store.arrive()

    assert went_in
    assert scene.count == 1
    assert not scene.attempt()


def test_a_purge_carries_over_what_streams_have_published_and_no_names(scene: Scene):
    scene.attempt()
    written = PendingBlock(make_block_id(scene.clock.now), 1)
    publish(Ledger(scene.memory, QUEUE), [written], batch=SinkBatch("app:a", 7))
    close_ledger(Ledger(scene.memory, QUEUE), LedgerStatus.PURGED, bucket_size=8)

    open_next(
        Ledger(scene.memory, QueueId("q@2")), after=Ledger(scene.memory, QUEUE), paused=False
    )

    kinds = {str(row["kind"]) for row in rows_of(scene, "q@2")}
    assert kinds == {"head", "sink"}
    assert read_mark(Ledger(scene.memory, QueueId("q@2")), once_of_key("k")) is None


def rows_of(scene: Scene, queue_id: str) -> list[dict[str, object]]:
    found = scene.memory.read_rows(partition_of_ledger(QueueId(queue_id))).rows
    return [dict(row) for row in found]


def test_rows_of_earlier_versions_are_in_nobodys_way(scene: Scene):
    """They kept such names as sinks, and a repair run deleted them."""
    ledger = partition_of_ledger(QUEUE)
    names = ("once:k", "dead:q@1:g:3:0123456789abcdef", "redrive:q@1:not-even-a-uuid")
    for name in names:
        scene.memory.cas(ledger, [Insert(("sink", 0, name), {"batch_id": 0}, if_absent=True)])

    assert scene.attempt()
    close_ledger(Ledger(scene.memory, QUEUE), LedgerStatus.PURGED, bucket_size=8)
    open_next(
        Ledger(scene.memory, QueueId("q@2")), after=Ledger(scene.memory, QUEUE), paused=False
    )
    assert Ledger(scene.memory, QueueId("q@2")).read_head().status is LedgerStatus.OPEN


def test_names_of_different_kinds_do_not_meet():
    assert once_key(once_of_key("dead:x").name) != ("once", 0, "dead:x")
