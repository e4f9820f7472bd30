"""What a process remembers of unique ids, and reads of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid1

import pytest

from cassieq_spark.errors import InvariantError, NotAppliedError
from cassieq_spark.ledger import publish as publishing
from cassieq_spark.ledger import window as window_module
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import Published, publish
from cassieq_spark.ledger.state import HEAD
from cassieq_spark.ledger.unique import ID_BYTES
from cassieq_spark.ledger.window import UniqueIds, UniqueWindow, UniqueWindows
from cassieq_spark.model import PendingBlock, QueueDefinition, QueueId, Range, SinkBatch
from cassieq_spark.producer.publisher import positions_in
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Op,
    Partition,
    Rows,
    Slice,
    partition_of_ledger,
)
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.faults import FakeClock, make_block_id

DEFINITION = QueueDefinition("q", 1)
QUEUE = DEFINITION.queue_id
LASTS = timedelta(minutes=5)
SECOND = timedelta(seconds=1)


class Scene:
    """A ledger, and processes that publish to it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock, here=self.clock.here)
        self.store = CountingStore(self.memory)
        self.ledger = Ledger(self.store, QUEUE)
        self.ledger.create()
        self.clock.advance(SECOND)

    def process(self) -> UniqueWindow:
        return UniqueWindow(LASTS, UniqueIds(self.clock.seconds))

    def publish(self, by: UniqueWindow, ids: str, ledger: Ledger | None = None) -> Published:
        """Publish messages with these ids, each a letter."""
        self.clock.advance(timedelta(milliseconds=1))
        digests = b"".join(each.encode() * ID_BYTES for each in ids)
        block = PendingBlock(make_block_id(self.clock.now), len(ids), ids=digests)
        return publish(ledger or self.ledger, [block], window=by)

    def positions(self, by: UniqueWindow, ids: str) -> list[int]:
        return list(positions_in(DEFINITION, self.publish(by, ids), len(ids)))

    @property
    def rows(self) -> int:
        return len(self.ledger.read(Slice(kinds=("unique",))).rows)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_message_whose_id_another_process_has_published_is_left_out(scene: Scene):
    one, other = scene.process(), scene.process()

    assert scene.positions(one, "ab") == [0, 1]
    assert scene.positions(other, "bc") == [1, 2]
    assert scene.positions(one, "cad") == [2, 0, 3]


def test_a_process_that_publishes_alone_reads_the_head_and_nothing_more(scene: Scene):
    one = scene.process()
    scene.publish(one, "a")
    scene.store.reset()

    scene.publish(one, "b")

    assert (scene.store.read_count, scene.store.cas_count) == (1, 1)
    assert scene.store.serial_read_count == 0


class Listening(WrappedStore):
    """Notes what is read of a ledger: its head, or unique ids."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.heard: list[str] = []

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self.heard.append("ids" if which.kinds == ("unique",) else "head")
        return super().read_rows(partition, which, serial=serial)


def test_what_others_publish_at_the_same_time_is_read_before_the_head(scene: Scene):
    one, other = scene.process(), scene.process()
    scene.publish(one, "a")
    scene.publish(other, "b")
    store = Listening(scene.memory)
    ledger = Ledger(store, QUEUE)

    scene.publish(one, "c", ledger)
    assert store.heard == ["head", "ids"]
    scene.publish(other, "d")
    store.heard.clear()

    assert scene.publish(one, "xd", ledger).repeats == {1: 3}
    assert store.heard == ["ids", "head"]


def test_once_others_have_ceased_to_publish_only_the_head_is_read(scene: Scene):
    one, other = scene.process(), scene.process()
    scene.publish(one, "a")
    scene.publish(other, "b")
    scene.publish(one, "c")
    scene.clock.advance(2 * SECOND)
    store = Listening(scene.memory)

    scene.publish(one, "d", Ledger(store, QUEUE))

    assert store.heard == ["head"]


class Behind(WrappedStore):
    """The next plain read of a head shows the head as it was."""

    old: Rows | None = None

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        found = super().read_rows(partition, which, serial=serial)
        if serial or which.kinds == ("unique",) or self.old is None:
            return found
        old, self.old = self.old, None
        return old


@pytest.mark.parametrize(("ids", "expected"), [("b", [1]), ("be", [1, 2]), ("e", [2])])
def test_ids_that_are_seen_before_their_head_are_decided_already(
    scene: Scene, ids: str, expected: list[int]
):
    one, other = scene.process(), scene.process()
    scene.publish(other, "a")
    scene.positions(one, "a")
    store = Behind(scene.memory)
    ledger = Ledger(store, QUEUE)
    store.old = scene.memory.read_rows(partition_of_ledger(QUEUE), Slice(row=HEAD))
    scene.publish(other, "b")

    told = scene.publish(one, ids, ledger)

    assert list(positions_in(DEFINITION, told, len(ids))) == expected
    assert scene.positions(scene.process(), "ab") == [0, 1]


def test_what_is_there_already_takes_no_lwt(scene: Scene):
    one = scene.process()
    scene.publish(one, "ab")
    scene.store.reset()

    assert scene.positions(one, "ba") == [1, 0]
    assert (scene.store.read_count, scene.store.cas_count) == (1, 0)


@pytest.mark.parametrize("is_new", [True, False])
def test_an_id_is_forgotten_when_the_window_is_over(scene: Scene, is_new: bool):
    one = scene.process()
    scene.publish(one, "a")

    def by() -> UniqueWindow:
        return scene.process() if is_new else one

    scene.clock.advance(LASTS - timedelta(milliseconds=2))
    assert scene.positions(by(), "a") == [0]
    scene.clock.advance(timedelta(milliseconds=2))
    assert scene.positions(by(), "a") == [1]
    assert scene.positions(by(), "a") == [1]


def test_an_id_that_was_published_again_outlives_the_first_time(scene: Scene):
    one = scene.process()
    scene.publish(one, "ax")
    scene.clock.advance(LASTS)
    assert scene.positions(one, "a") == [2]
    scene.clock.advance(SECOND)

    assert scene.positions(one, "ax") == [2, 3]


def test_rows_whose_window_is_over_are_deleted_and_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(window_module, "_EXPIRED_ROWS", 4)
    one = scene.process()
    letters = [chr(ord("a") + number) for number in range(30)]
    for number in range(3, 30):
        scene.publish(one, letters[number])
        # Another process finds what is known still.
        last = range(max(3, number - 2), number + 1)
        known = "".join(letters[each] for each in last)
        assert scene.positions(scene.process(), known) == [each - 3 for each in last]
        scene.clock.advance(LASTS / 3 - SECOND)

    assert scene.rows <= 3 + 4
    assert scene.ledger.read_head().ids_from >= 27 - 7


def test_rows_are_deleted_only_by_what_others_lose_the_race_to(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    one = scene.process()
    for each in "abcdef":
        scene.publish(one, each)
    scene.clock.advance(LASTS)
    assert scene.positions(scene.process(), "x") == [6]
    monkeypatch.setattr(window_module, "_EXPIRED_ROWS", 4)
    # All of it is there: `next` stays, so a publish that is under way goes on.
    block = PendingBlock(make_block_id(scene.clock.now), 1, ids=b"x" * ID_BYTES)
    batch = SinkBatch("sink", 0)

    told = publish(scene.ledger, [block], batch=batch, window=scene.process())

    assert (told.monotons, dict(told.repeats)) == (Range(7, 7), {0: 6})
    assert (scene.rows, scene.ledger.read_head().ids_from) == (7, 0)
    assert scene.positions(scene.process(), "y") == [7]
    assert scene.rows == 2


DAY = timedelta(days=1)


@pytest.mark.parametrize("by", [-DAY, DAY], ids=str)
@pytest.mark.parametrize("whose", ["server", "writer"])
def test_one_wrong_clock_changes_nothing(scene: Scene, by: timedelta, whose: str):
    one = scene.process()
    if whose == "server":
        scene.clock.ahead = by
        scene.publish(one, "a")
        scene.clock.ahead = timedelta(0)
    else:
        block = PendingBlock(make_block_id(scene.clock.now + by), 1, ids=b"a" * ID_BYTES)
        publish(scene.ledger, [block], window=one)

    scene.clock.advance(LASTS - SECOND)
    assert scene.positions(scene.process(), "a") == [0]
    assert scene.positions(one, "a") == [0]
    scene.clock.advance(2 * SECOND)
    assert scene.positions(scene.process(), "a") == [1]


class Forgetful(WrappedStore):
    """Plain reads of unique ids miss the newest row, or all, as those of other replicas may."""

    def __init__(self, store: MemoryStore, keeps: slice, *, serially: bool = False) -> None:
        super().__init__(store)
        self.keeps, self.serially = keeps, serially

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        found = super().read_rows(partition, which, serial=serial)
        if which.kinds != ("unique",) or (serial and not self.serially):
            return found
        return replace(found, rows=found.rows[self.keeps])


@pytest.mark.parametrize("keeps", [slice(0), slice(1), slice(1, None), slice(0, None, 2)], ids=str)
def test_a_row_that_a_plain_read_misses_is_read_serially(scene: Scene, keeps: slice):
    one = scene.process()
    for each in "abcd":
        scene.publish(one, each)
    torn = Ledger(Forgetful(scene.memory, keeps), QUEUE)

    assert scene.publish(scene.process(), "abcd", torn).repeats == {0: 0, 1: 1, 2: 2, 3: 3}


def test_a_row_that_is_missed_before_the_head_is_read_is_found_after_it(scene: Scene):
    one, other = scene.process(), scene.process()
    scene.publish(other, "a")
    scene.publish(one, "x")
    for each in "bc":
        scene.publish(other, each)
    torn = Ledger(Forgetful(scene.memory, slice(1, None)), QUEUE)

    assert scene.publish(one, "bc", torn).repeats == {0: 2, 1: 3}


def test_rows_that_are_gone_are_an_error(scene: Scene):
    one = scene.process()
    scene.publish(one, "a")
    scene.publish(one, "b")
    torn = Ledger(Forgetful(scene.memory, slice(1), serially=True), QUEUE)

    with pytest.raises(InvariantError, match="rows of unique ids are missing"):
        scene.publish(scene.process(), "c", torn)


class Slow(WrappedStore):
    """A compare-and-set takes a minute."""

    def __init__(self, store: MemoryStore, clock: FakeClock) -> None:
        super().__init__(store)
        self.clock = clock

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self.clock.advance(timedelta(minutes=1))
        return super().cas(partition, ops)


def test_an_id_is_known_for_as_long_from_when_the_message_became_visible(scene: Scene):
    one = scene.process()
    scene.publish(one, "a", Ledger(Slow(scene.memory, scene.clock), QUEUE))

    scene.clock.advance(LASTS - SECOND)

    assert scene.positions(one, "a") == [0]


@pytest.mark.parametrize("fault", list(Fault))
def test_a_lost_answer_publishes_each_id_once(scene: Scene, fault: Fault):
    one = scene.process()
    scene.publish(one, "x")
    faulty = FaultyStore(scene.memory)
    faulty.fault = fault

    told = positions_in(DEFINITION, scene.publish(one, "axb", Ledger(faulty, QUEUE)), 3)

    assert told == [1, 0, 2]
    assert scene.ledger.read_head().next == 3
    assert scene.positions(one, "ab") == [1, 2]
    assert scene.positions(scene.process(), "axb") == [1, 0, 2]


def test_more_ids_than_a_process_can_remember_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(publishing, "MOST_IDS", 3)
    one = scene.process()
    scene.publish(one, "ab")

    with pytest.raises(NotAppliedError, match="2 unique ids were published within the last") as it:
        scene.publish(one, "cd")

    assert it.value.retryable
    assert scene.positions(one, "bc") == [1, 2]


def test_unique_ids_need_a_window(scene: Scene):
    block = PendingBlock(uuid1(), 1, ids=b"a" * ID_BYTES)

    with pytest.raises(InvariantError, match="without a window"):
        publish(scene.ledger, [block])


def test_the_ids_of_the_queues_that_are_used_least_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(window_module, "_MOST_WINDOWS", 2)
    windows = UniqueWindows()
    first = [windows.of(QueueId(name)) for name in ("a@1", "b@1")]
    windows.of(QueueId("a@1"))
    windows.of(QueueId("c@1"))

    found = [windows.of(QueueId(name)) for name in ("a@1", "b@1")]

    assert found[0] is first[0]
    assert found[1] is not first[1]


def test_the_ids_of_all_queues_together_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(window_module, "_MOST_REMEMBERED", 3)
    windows = UniqueWindows()
    large = windows.of(QUEUE)
    scene.publish(UniqueWindow(LASTS, large), "abcdef")

    assert windows.of(QUEUE) is large, "a single one may have more"
    windows.of(QueueId("other@1"))
    assert windows.of(QUEUE) is not large
