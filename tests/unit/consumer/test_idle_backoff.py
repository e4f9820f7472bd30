from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.idle_backoff import LONGEST_PAUSE, RECHECK, SHORTEST_PAUSE
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock
from cassieq_spark.spark.source import queue_reader
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_pending, make_queue
from tests.support.faults import make_block_id

FIRST = initial_offset("q", "g")
SECOND = timedelta(seconds=1)
#: Seconds, with what floats make of them.
LONGEST = LONGEST_PAUSE.total_seconds() + 1e-6
SOON = RECHECK.total_seconds() + LONGEST


class Scene:
    """A queue, and readers of one group whose sleeps move the server's clock as well as theirs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        self.queue = make_queue(self.store, [20])
        self.seconds = 1000.0
        self.pauses: list[float] = []
        self.readers: list[QueueReader] = []
        clock = SimpleNamespace(sleep=self.sleep, monotonic=lambda: self.seconds)
        monkeypatch.setattr(idle_backoff, "time", clock)
        monkeypatch.setattr(queue_reader, "time", clock)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.pass_by(timedelta(seconds=seconds))

    def pass_by(self, time: timedelta) -> None:
        self.seconds += time.total_seconds()
        self.clock.advance(time)

    def reader(self) -> QueueReader:
        reader = QueueReader(
            self.store, self.queue, "g", starting="earliest", request=LeaseRequest(lease=LEASE)
        )
        self.readers.append(reader)
        return reader

    def idle_reader(self) -> tuple[QueueReader, Mapping[str, Any]]:
        """One that has consumed everything and has been idle for a long time."""
        reader = self.reader()
        done = reader.next_batch(FIRST, limit=None)
        self.idle(reader, done, for_=10 * SECOND)
        return reader, done

    def idle(self, reader: QueueReader, done: Mapping[str, Any], *, for_: timedelta) -> int:
        """Let it look until so much time is over; how often it did."""
        until, looks = self.seconds + for_.total_seconds(), 0
        while self.seconds < until:
            assert reader.next_batch(done, limit=None) is done
            looks += 1
        return looks

    def delay_until_found(self, reader: QueueReader, done: Mapping[str, Any]) -> float:
        """Seconds until it has a batch."""
        began = self.seconds
        while reader.next_batch(done, limit=None) is done:
            assert self.seconds < began + 60
        return self.seconds - began


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(monkeypatch)
    yield scene
    for reader in scene.readers:
        reader.stop()


def test_an_idle_reader_costs_at_most_five_reads_a_second_and_no_lwt(scene: Scene):
    reader, done = scene.idle_reader()
    scene.store.reset()

    looks = scene.idle(reader, done, for_=60 * SECOND)

    assert looks >= 2 * 60, "it still looks several times a second"
    assert scene.store.read_count + scene.store.serial_read_count <= 5 * 60
    assert scene.store.cas_count == 0


def test_a_reader_that_is_busy_does_not_pause(scene: Scene):
    reader = scene.reader()
    end = reader.next_batch(FIRST, limit=10)
    end = reader.next_batch(end, limit=10)
    assert reader.next_batch(end, limit=10) is end

    assert scene.pauses == []


def test_pauses_grow_with_the_time_without_messages_and_begin_anew_with_each_batch(scene: Scene):
    reader, done = scene.idle_reader()

    assert scene.pauses[0] == pytest.approx(SHORTEST_PAUSE.total_seconds())
    assert scene.pauses == sorted(scene.pauses)
    assert scene.pauses[-1] == pytest.approx(LONGEST_PAUSE.total_seconds())

    publish(Ledger(scene.store, scene.queue.queue_id), make_pending([5]))
    end = reader.next_batch(done, limit=None)
    assert end is not done
    scene.pauses.clear()
    scene.idle(reader, end, for_=SHORTEST_PAUSE)
    assert scene.pauses == [pytest.approx(SHORTEST_PAUSE.total_seconds())]


def test_what_is_published_is_found_with_the_next_look(scene: Scene):
    reader, done = scene.idle_reader()
    publish(Ledger(scene.store, scene.queue.queue_id), make_pending([5]))

    assert scene.delay_until_found(reader, done) <= LONGEST


def test_what_another_reader_releases_is_found_soon(scene: Scene):
    other = scene.reader()
    other.next_batch(FIRST, limit=None)
    reader = scene.reader()
    scene.idle(reader, FIRST, for_=10 * SECOND)
    other.stop()

    assert scene.delay_until_found(reader, FIRST) <= SOON


def test_a_lease_that_runs_out_is_found_with_the_next_look(scene: Scene):
    scene.reader().next_batch(FIRST, limit=None)
    reader = scene.reader()
    began = scene.seconds

    scene.delay_until_found(reader, FIRST)

    late = scene.seconds - began - LEASE.total_seconds()
    assert 0 <= late <= LONGEST + 0.001


def test_a_delayed_message_is_found_with_the_next_look_after_its_time(scene: Scene):
    reader, done = scene.idle_reader()
    began = scene.seconds
    delayed = PendingBlock(make_block_id(scene.clock.now), 1, 10, 7 * SECOND)
    publish(Ledger(scene.store, scene.queue.queue_id), [delayed])

    scene.delay_until_found(reader, done)

    late = scene.seconds - began - 7
    assert 0 <= late <= LONGEST + 0.001


def test_a_group_that_was_moved_back_is_noticed(scene: Scene):
    reader, done = scene.idle_reader()
    assert ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g").read().head.pointer == 20
    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g"), 5)

    assert scene.delay_until_found(reader, done) <= SOON
