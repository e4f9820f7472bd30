from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest

from cassieq_spark import backoff, combining
from cassieq_spark.backoff import Backoff
from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import Published
from cassieq_spark.ledger.unique import ID_BYTES
from cassieq_spark.model import QueueDefinition, QueueId, Range, SinkBatch
from cassieq_spark.producer import group_commit
from cassieq_spark.producer.group_commit import GroupCommit, _Commit
from cassieq_spark.producer.partitioned import Publish
from cassieq_spark.producer.publisher import Written, positions_in, publish_written
from cassieq_spark.queues import create_queue, purge_queue
from cassieq_spark.store.protocol import Op, Partition
from tests.support.builders import BEGUN_AT, make_pending
from tests.support.threads import PATIENCE, GatedStore, Interrupted, until


class Scene:
    """A thread publishes two messages and is held up; others wait behind it."""

    def __init__(self) -> None:
        self.store = GatedStore()
        self.queue = self.create("q")
        self.commits = GroupCommit(self.store)
        self.pool = ThreadPoolExecutor(16)

    def create(self, name: str) -> QueueDefinition:
        return create_queue(self.store, name)

    def publish(self, written: Written) -> Future[Published]:
        return self.pool.submit(self.commits.publish, [written])

    def written(self, *counts: int, **changes: Any) -> Written:
        return Written(self.queue.queue_id, blocks=tuple(make_pending(counts)), **changes)

    @contextmanager
    def busy(self) -> Iterator[Future[Published]]:
        """While the first one publishes; the others wait until the end of the block."""
        self.store.reset()
        self.store.shut()
        first = self.publish(self.written(2))
        assert self.store.reached.wait(PATIENCE)
        yield first

    def wait_for(self, *written: Written) -> list[Future[Published]]:
        """Let threads wait behind the first one, in this order."""
        waiting = []
        for each in written:
            before = self.waiting
            waiting.append(self.publish(each))
            until(lambda before=before: self.waiting > before)
        return waiting

    @property
    def waiting(self) -> int:
        return waiting_in(self.commits, self.queue.queue_id)

    def has_waiting(self, written: Written) -> bool:
        waiting = commits_that_wait(self.commits, self.queue.queue_id)
        return any(written is each.written[0] for each in waiting)

    def blocks(self) -> list[tuple[object, int, int]]:
        found = Ledger(self.store, self.queue.queue_id).read_blocks()
        return [(each.block, each.monotons.start, each.monotons.stop) for each in found]


def waiting_in(commits: GroupCommit, queue_id: QueueId) -> int:
    return len(commits_that_wait(commits, queue_id))


def commits_that_wait(commits: GroupCommit, queue_id: QueueId) -> list[_Commit]:
    line = commits._combining.here.lines.get(queue_id)
    return [] if line is None else [each for each in line.waiting if not each.is_over]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.pool.shutdown()
    # Nobody is left who would have to publish.
    assert not scene.commits._combining.here.lines


def monotons(futures: Sequence[Future[Published]]) -> list[Range | None]:
    return [future.result(PATIENCE).monotons for future in futures]


def test_threads_that_come_while_one_backs_off_share_its_lwt(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    """Other processes publish, so this one has to wait before it publishes again."""
    waits, goes_on = threading.Event(), threading.Event()

    @contextmanager
    def paced(_: Backoff) -> Iterator[None]:
        waits.set()
        assert goes_on.wait(PATIENCE)
        yield

    monkeypatch.setattr(Backoff, "paced", paced)
    scene.store.reset()
    first = scene.publish(scene.written(2))
    assert waits.wait(PATIENCE)
    others = scene.wait_for(scene.written(3), scene.written(1))
    goes_on.set()

    assert monotons([first, *others]) == [Range(0, 2), Range(2, 5), Range(5, 6)]
    assert scene.store.cas_count == 1


def test_a_thread_that_is_interrupted_while_it_backs_off_lets_the_next_one_publish(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    calm = Backoff.paced
    waits, goes_on = threading.Event(), threading.Event()

    @contextmanager
    def interrupted(_: Backoff) -> Iterator[None]:
        monkeypatch.setattr(Backoff, "paced", calm)
        waits.set()
        assert goes_on.wait(PATIENCE)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(Backoff, "paced", interrupted)
    first = scene.publish(scene.written(2))
    assert waits.wait(PATIENCE)
    others = scene.wait_for(scene.written(3), scene.written(1))
    goes_on.set()

    with pytest.raises(KeyboardInterrupt):
        first.result(PATIENCE)
    assert monotons(others) == [Range(0, 3), Range(3, 4)]


def test_what_a_process_remembers_of_lost_races_is_forgotten_when_it_loses_no_more(scene: Scene):
    process = scene.commits._combining.here
    publish = scene.store.cas

    def beaten(partition: Partition, ops: Sequence[Op]) -> bool:
        """Another process publishes first."""
        scene.store.cas = publish  # type: ignore[method-assign]
        publish_written(scene.store, [scene.written(1)])
        return publish(partition, ops)

    scene.store.cas = beaten  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.003)
        assert scene.publish(scene.written(1)).result(PATIENCE).monotons == Range(1, 2)
        assert list(process.backoffs) == ["q"]

        for _ in range(20):
            scene.publish(scene.written(1)).result(PATIENCE)

    assert process.backoffs == {}


def test_threads_that_wait_for_another_one_share_an_lwt(scene: Scene):
    writes = [scene.written(3), scene.written(1, 4), scene.written(2)]
    with scene.busy() as first:
        waiting = scene.wait_for(*writes)
        scene.store.open()

    assert monotons([first, *waiting]) == [Range(0, 2), Range(2, 5), Range(5, 10), Range(10, 12)]
    assert scene.store.cas_count == 2
    written = [block.block for each in writes for block in each.blocks]
    assert scene.blocks()[1:] == [
        (block, *bounds)
        for block, bounds in zip(written, [(2, 5), (5, 6), (6, 10), (10, 12)], strict=True)
    ]


def test_one_that_comes_later_publishes_at_once(scene: Scene):
    scene.store.reset()

    assert monotons([scene.publish(scene.written(1)), scene.publish(scene.written(2))]) in (
        [Range(0, 1), Range(1, 3)],
        [Range(2, 3), Range(0, 2)],
    )
    assert scene.commits.publish([scene.written(1)]).monotons == Range(3, 4)


def test_no_queue_waits_for_another_one(scene: Scene):
    other = scene.create("other")
    with scene.busy() as first:
        written = Written(other.queue_id, blocks=tuple(make_pending([5])))
        assert scene.commits.publish([written]).monotons == Range(0, 5)
        scene.store.open()

    assert monotons([first]) == [Range(0, 2)]


def test_a_batch_with_a_name_waits_for_nobody(scene: Scene):
    with scene.busy() as first:
        named = scene.written(3, batch=SinkBatch("app:a", 0))
        assert scene.commits.publish([named]).monotons == Range(0, 3)
        scene.store.open()

    assert monotons([first]) == [Range(3, 5)]


def test_a_write_without_messages_waits_for_nobody(scene: Scene):
    with scene.busy():
        assert scene.commits.publish([scene.written()]).monotons == Range(0, 0)
        assert scene.commits.publish([scene.written(0)]).monotons == Range(0, 0)
        scene.store.open()


def test_one_that_is_fenced_off_is_refused_alone(scene: Scene):
    ledger = Ledger(scene.store, scene.queue.queue_id)
    fresh = tuple(make_pending([2], BEGUN_AT + timedelta(hours=2)))
    with scene.busy():
        waiting = scene.wait_for(
            Written(scene.queue.queue_id, blocks=fresh), scene.written(1), scene.written(3)
        )
        ledger.raise_fence(ledger.read_head(), BEGUN_AT + timedelta(hours=1))
        scene.store.open(lambda cas: cas())

    assert waiting[0].result(PATIENCE).monotons == Range(0, 2)
    for each in waiting[1:]:
        with pytest.raises(NotAppliedError, match="fence"):
            each.result(PATIENCE)


def test_an_lwt_whose_answer_was_lost_is_found_for_each_of_them(scene: Scene):
    def lose_answer(cas: Callable[[], bool]) -> bool:
        cas()
        raise OutcomeUnknownError("lost")

    with scene.busy():
        waiting = scene.wait_for(scene.written(1), scene.written(3))
        gate_of_first = scene.store.gate
        scene.store.shut()
        gate_of_first.set_result(lambda cas: cas())
        assert scene.store.reached.wait(PATIENCE)
        scene.store.open(lose_answer)

    assert monotons(waiting) == [Range(2, 3), Range(3, 6)]
    assert scene.store.cas_count == 2


def test_all_of_them_hear_that_the_queue_was_purged(scene: Scene):
    with scene.busy() as first:
        waiting = scene.wait_for(scene.written(1), scene.written(3))
        purge_queue(scene.store, "q", force=True)
        scene.store.open()

    for each in [first, *waiting]:
        with pytest.raises(QueueStateError, match="purged"):
            each.result(PATIENCE)


def test_those_for_which_an_interrupted_thread_published_do_not_know_the_outcome(scene: Scene):
    def interrupt(_: Callable[[], bool]) -> bool:
        raise KeyboardInterrupt

    with scene.busy() as first:
        waiting = scene.wait_for(scene.written(1), scene.written(3))
        gate_of_first = scene.store.gate
        scene.store.shut()
        gate_of_first.set_result(lambda cas: cas())
        assert scene.store.reached.wait(PATIENCE)
        late = scene.wait_for(scene.written(5))
        scene.store.open(interrupt)

    assert monotons([first]) == [Range(0, 2)]
    with pytest.raises(KeyboardInterrupt):
        waiting[0].result(PATIENCE)
    with pytest.raises(OutcomeUnknownError, match="KeyboardInterrupt"):
        waiting[1].result(PATIENCE)
    assert monotons(late) == [Range(2, 7)]


def test_a_thread_that_is_interrupted_while_it_tells_the_others_leaves_nobody_waiting(
    scene: Scene,
):
    class Interrupting(SimpleQueue):
        def put(self, outcome: object) -> None:
            if not isinstance(outcome, Exception):
                raise KeyboardInterrupt
            super().put(outcome)

    group = [_Commit([scene.written(1)], scene.queue.queue_id) for _ in range(3)]
    group[1].outcome = Interrupting()

    with pytest.raises(KeyboardInterrupt):
        scene.commits._publish(group, Backoff())

    for each in group[1:]:
        assert isinstance(each.outcome.get_nowait(), OutcomeUnknownError)


@pytest.mark.parametrize("victim", [0, 1], ids=["the first", "one that waits"])
def test_wherever_a_thread_is_interrupted_no_other_one_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch, victim: int
):
    monkeypatch.setattr(combining, "_PATIENCE", 0.01)
    for before in count():
        scene = Scene()
        interrupted = Interrupted(before, group_commit, combining)
        writes = [scene.written(each) for each in (2, 3, 1, 4)]
        scene.store.shut()
        futures: list[Future[Published]] = []
        for index, each in enumerate(writes[:3]):
            publish = scene.commits.publish
            if index == victim:
                publish = partial(interrupted.call, publish)
            futures.append(publishes_or_waits(scene, publish, each))
        scene.store.open()
        wait(futures, PATIENCE)
        futures.append(scene.publish(writes[3]))
        wait(futures, PATIENCE)

        found = {block: Range(*bounds) for block, *bounds in scene.blocks()}
        places = [found.get(each.blocks[0].block) for each in writes]
        errors = [future.exception(0) for future in futures]
        for future, error, place in zip(futures, errors, places, strict=True):
            assert error is not None or future.result().monotons == place
        assert isinstance(errors.pop(victim), KeyboardInterrupt) is interrupted.happened
        assert errors.pop() is None
        assert all(each is None or isinstance(each, OutcomeUnknownError) for each in errors)
        assert scene.commits._combining.here.lines == {}
        if not interrupted.happened:
            break
    assert before > 30, "it was interrupted at each line"


def publishes_or_waits(scene: Scene, publish: Publish, written: Written) -> Future[Published]:
    """Let a thread publish, until it is held up, waits for another one, or has ended."""
    publishes = scene.store.reached.is_set()
    future = scene.pool.submit(publish, [written])
    # Not by their number: one that waits may be interrupted at the same moment.
    until(
        lambda: (
            future.done() or scene.store.reached.is_set() > publishes or scene.has_waiting(written)
        )
    )
    return future


def test_a_thread_that_is_interrupted_while_it_waits_publishes_nothing(scene: Scene):
    def interrupt() -> None:
        until(lambda: scene.waiting == 1)
        # Python may overlook a signal that comes just before it waits for a lock.
        while scene.waiting:
            os.kill(os.getpid(), signal.SIGINT)
            with suppress(AssertionError):
                until(lambda: not scene.waiting, patience=10)

    with scene.busy() as first:
        scene.pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            scene.commits.publish([scene.written(1)])
        assert scene.waiting == 0
        waiting = scene.wait_for(scene.written(3))
        scene.store.open()

    assert monotons([first, *waiting]) == [Range(0, 2), Range(2, 5)]


def test_a_publish_has_no_more_blocks_than_the_store_takes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_commit, "MOST_BLOCKS", 3)
    with scene.busy() as first:
        waiting = scene.wait_for(scene.written(1, 1), scene.written(1, 1), scene.written(1))
        scene.store.open()

    assert monotons([first, *waiting]) == [Range(0, 2), Range(2, 4), Range(4, 6), Range(6, 7)]
    assert scene.store.cas_count == 3


def test_a_child_does_not_wait_for_a_thread_of_its_parent(scene: Scene):
    with scene.busy() as first:
        pid = os.fork()
        if pid == 0:
            # The memory is a copy, and so is what the child publishes into.
            published = scene.commits.publish([scene.written(4)])
            os._exit(0 if published.monotons == Range(0, 4) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        scene.store.open()

    assert monotons([first]) == [Range(0, 2)]


def with_ids(scene: Scene, ids: str) -> Written:
    """A block of messages with these unique ids, each a letter."""
    (block,) = make_pending([len(ids)])
    digests = b"".join(each.encode() * ID_BYTES for each in ids)
    blocks = (replace(block, ids=digests),)
    return Written(scene.queue.queue_id, blocks=blocks, deduplicate=timedelta(minutes=5))


def test_threads_that_share_a_publish_are_told_their_own_repeats(scene: Scene):
    with scene.busy() as first:
        waiting = scene.wait_for(*(with_ids(scene, each) for each in ("ab", "cad", "e", "ea")))
        scene.store.open()

    assert positions_in(scene.queue, first.result(), 2) == [0, 1]
    told = [
        positions_in(scene.queue, each.result(), count)
        for each, count in zip(waiting, (2, 3, 1, 2), strict=True)
    ]
    assert told == [[2, 3], [4, 2, 5], [6], [6, 2]]
