from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest

from cassieq_spark.consumer.heartbeat import (
    EXTENSION_FAILED,
    LEASE_LOST,
    LEASE_TAKEN_UP,
    Heartbeat,
)
from cassieq_spark.errors import NotAppliedError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.testing.faults import FaultyStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_queue,
    make_request,
)
from tests.support.faults import FakeClock

THIRD = LEASE / 3
MOMENT = timedelta(milliseconds=1)


class ScriptedCondition:
    """Waits by doing what the script says; when it is done, the heartbeat is stopped."""

    def __init__(self, heartbeat: Heartbeat, *script: Callable[[], bool]) -> None:
        self.pauses: list[float | None] = []
        self._heartbeat = heartbeat
        self._script = list(script)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def notify(self) -> None:
        pass

    def wait(self, pause: float | None) -> bool:
        self.pauses.append(pause)
        if self._script:
            return self._script.pop(0)()
        self._heartbeat.stop()
        return True


class Scene:
    """A group with a batch leased, and a heartbeat whose waiting is scripted."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.store = FaultyStore(memory)
        self.group: ConsumerGroup = make_group(self.store, make_queue(self.store, [10]).queue_id)
        lease = self.group.lease(make_request(stop=10))
        self.lease, self.leased = lease.token, lease.leased
        self.heartbeat = Heartbeat(self.group, LEASE)

    def run(self, *script: Callable[[], bool]) -> list[float | None]:
        condition = ScriptedCondition(self.heartbeat, *script)
        self.heartbeat._changed = condition  # type: ignore[assignment]
        self.heartbeat._held = (self.lease, self.leased)
        self.heartbeat._run()
        return condition.pauses

    def a_third_passes(self) -> bool:
        self.clock.advance(THIRD)
        return False

    def due_at(self) -> timedelta:
        return self.group.read().slots[0].due_at - FakeClock().now


@pytest.fixture
def scene() -> Scene:
    return Scene()


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.action for record in caplog.records]  # type: ignore[attr-defined]


def test_a_lease_is_extended_at_every_third_of_its_length(scene: Scene):
    pauses = scene.run(scene.a_third_passes, scene.a_third_passes)

    assert pauses == [THIRD.total_seconds()] * 3
    assert scene.due_at() == 2 * THIRD + LEASE


def test_nothing_held_is_waited_for_without_end(scene: Scene):
    def pause() -> bool:
        scene.heartbeat.pause()
        return True

    assert scene.run(pause) == [THIRD.total_seconds(), None]
    assert scene.due_at() == LEASE


def test_what_is_held_next_is_extended_a_third_after_that(scene: Scene):
    second = uuid4()

    def hold_another() -> bool:
        scene.heartbeat._set((second, scene.leased))
        return True

    scene.run(hold_another)

    assert scene.heartbeat._held == (second, scene.leased)
    assert scene.due_at() == LEASE


def test_a_lost_lease_is_told_once_and_extended_no_more(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    def lose() -> bool:
        scene.clock.advance(2 * LEASE)
        scene.group.lease(make_request(stop=10))
        return False

    pauses = scene.run(lose)

    assert pauses == [THIRD.total_seconds(), None]
    assert actions(caplog) == [LEASE_LOST]
    assert "leaseSeconds" in caplog.text


def test_a_lease_that_a_restarted_query_has_taken_up_is_neither_held_on_nor_called_lost(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)

    def take_again() -> bool:
        scene.clock.advance(THIRD)
        scene.group.take_again(make_request(held=scene.lease))
        scene.clock.advance(MOMENT)
        return False

    pauses = scene.run(take_again)

    assert pauses == [THIRD.total_seconds(), None]
    assert actions(caplog) == [LEASE_TAKEN_UP]
    assert scene.due_at() == THIRD + LEASE


def test_a_lease_acked_while_it_was_being_extended_is_not_lost(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    def ack() -> None:
        scene.heartbeat.pause()
        scene.group.lease(make_request(held=scene.lease, stop=10))

    scene.store.interrupt(ack, after=0)
    scene.run(scene.a_third_passes)

    assert actions(caplog) == []


def test_an_extension_that_fails_is_tried_again(scene: Scene, caplog: pytest.LogCaptureFixture):
    def fail() -> None:
        raise NotAppliedError("no quorum")

    scene.store.interrupt(fail, after=0)
    scene.run(scene.a_third_passes, scene.a_third_passes)

    assert actions(caplog) == [EXTENSION_FAILED]
    assert "no quorum" in caplog.text
    assert scene.due_at() == 2 * THIRD + LEASE


def test_nothing_is_extended_after_the_stop(scene: Scene):
    def stop_at_the_last_moment() -> bool:
        scene.clock.advance(THIRD)
        scene.heartbeat.stop()
        return False

    scene.run(stop_at_the_last_moment)

    assert scene.due_at() == LEASE


def test_the_thread_begins_with_the_first_batch_and_ends_with_the_stop(scene: Scene):
    heartbeat = Heartbeat(scene.group, LEASE)
    assert not heartbeat._thread.is_alive()

    heartbeat.hold(scene.lease, scene.leased)
    heartbeat.hold(scene.lease, scene.leased)
    assert heartbeat._thread.is_alive()
    assert heartbeat._thread in threading.enumerate()
    heartbeat.stop()
    heartbeat._thread.join(10)

    assert not heartbeat._thread.is_alive()


def test_a_heartbeat_stopped_before_its_first_batch_is_no_error(scene: Scene):
    Heartbeat(scene.group, LEASE).stop()
