from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from cassieq_spark import Client, backoff
from cassieq_spark.arrow.chunks import decode
from cassieq_spark.dead_letters import dead_letter
from cassieq_spark.dead_letters.dead_letter import (
    DEAD_LETTERED,
    DEAD_LETTERING_FAILED,
    DROPPED,
    RETRY_AFTER,
    dead_letter_messages,
)
from cassieq_spark.errors import ContentionError, NotAppliedError
from cassieq_spark.fetch.find import Piece, bucket_slices
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.groups.state import Settlement, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import alter_queue, create_queue, purge_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import partition_of_queue
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import LEASE, make_clocked_store, make_group, make_request

HEADERS = pa.map_(pa.string(), pa.string())
MOMENT = timedelta(milliseconds=1)


class Scene:
    """Twelve messages in three blocks, some of them handed out for the last time."""

    def __init__(self, *, dropping: bool = False, count: int = 6) -> None:
        self.memory, self.clock = make_clocked_store()
        self.store = FaultyStore(self.memory)
        self.target = create_queue(self.memory, "q.dead", bucket_size=8, chunk_size=4)
        self.queue = create_queue(
            self.memory,
            "q",
            bucket_size=8,
            chunk_size=4,
            lease=LEASE,
            max_deliveries=1,
            dead_letter_queue=None if dropping else "q.dead",
        )
        self.published_at: list[str] = []
        for block in range(3):
            self.publish([str(number) for number in range(4 * block, 4 * block + 4)])
        self.group = make_group(self.store, self.queue.queue_id)
        self.hand_out(count)

    def publish(self, values: list[str]) -> UUID:
        batch = pa.record_batch(
            {
                "key": pa.array([f"k{each}" for each in values]),
                "value": pa.array(values),
                "headers": pa.array([[("own", f"h{each}")] for each in values], HEADERS),
            }
        )
        written = write_block(self.memory, self.queue, [batch], SinkOptions(queue="q"))
        publish(Ledger(self.memory, self.queue.queue_id), [written])
        self.published_at.append(self.clock.now.isoformat(timespec="milliseconds"))
        self.clock.advance(timedelta(seconds=1))
        return written.block

    def hand_out(self, limit: int) -> UUID:
        """Let the next messages be leased by a reader that dies of them."""
        lease = self.group.lease(self.request(max_messages=limit)).token
        self.clock.advance(LEASE + MOMENT)
        return lease

    def request(self, **changes: object) -> Any:
        return make_request(**({"stop": 12, "max_deliveries": 1} | changes))

    def dead(self) -> tuple[Waiting, ...]:
        """What another reader finds."""
        return self.group.lease(self.request(stop=1)).dead

    def dead_letter(self, dead: tuple[Waiting, ...] | None = None) -> None:
        dead_letter_messages(
            self.store, self.queue, self.group, self.dead() if dead is None else dead
        )

    def copies(self) -> list[dict[str, Any]]:
        """All of the dead-letter queue."""
        found: list[dict[str, Any]] = []
        for block in Ledger(self.memory, self.target.queue_id).read_blocks():
            offsets = block.offsets(block.monotons)
            piece = Piece(block.block, offsets, block.monotons.start, block.published_at, None)
            slices = bucket_slices(piece, self.target)
            for _, chunk in self.memory.read_chunks(self.target.queue_id, slices):
                found += decode(chunk, Range(0, 100)).to_pylist()
        return found

    def values(self) -> list[str]:
        return [copy["value"].decode() for copy in self.copies()]

    def outstanding(self) -> list[str]:
        state = self.group.read(every_waiting=True)
        return [str(each.monotons) for each in (*state.slots, *state.waiting) if each.monotons]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, int]]:
    """Level, action and count of what was told about dead messages."""
    return [
        (record.levelno, record.action, record.count)  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name == dead_letter.__name__
    ]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_dead_messages_are_copied_and_removed(scene: Scene, caplog: pytest.LogCaptureFixture):
    scene.dead_letter()

    assert scene.values() == numbers(6)
    assert scene.outstanding() == []
    assert scene.group.read().floor == 6
    assert told(caplog) == [(logging.WARNING, DEAD_LETTERED, 6)]
    assert "moved to queue 'q.dead'" in caplog.text


def test_a_dead_letter_is_the_message_with_headers_that_say_where_it_comes_from(scene: Scene):
    scene.dead_letter()

    copy = scene.copies()[5]
    headers = dict(copy["headers"])
    assert (copy["key"], copy["value"]) == (b"k5", b"5")
    assert headers.pop("cassieq.dead-lettered-at")
    handed_out = (scene.clock.now - LEASE - MOMENT).isoformat(timespec="milliseconds")
    assert headers.pop("cassieq.first-delivered-at") == handed_out
    assert headers.pop("cassieq.last-delivered-at") == handed_out
    assert headers == {
        "own": "h5",
        "cassieq.origin-queue": "q",
        "cassieq.origin-group": "g",
        "cassieq.origin-monoton": "5",
        "cassieq.first-position": "q@1/5",
        "cassieq.deliveries": "1",
        "cassieq.reason": "not settled in 1 deliveries, which is the limit",
        "cassieq.published-at": scene.published_at[1],
    }


def test_a_letter_that_dies_again_says_where_it_was_published_first(scene: Scene):
    create_queue(scene.memory, "q.worse")
    alter_queue(scene.memory, "q.dead", max_deliveries=1, dead_letter_queue="q.worse")
    scene.dead_letter()
    client = Client.from_store(scene.memory)

    (letter,) = client.receive("q.dead", "h")
    client.release(letter)
    assert [each.value for each in client.receive("q.dead", "h")] == [b"1"]
    (again,) = client.receive("q.worse", "h")

    headers = again.headers
    assert (headers["cassieq.origin-queue"], headers["cassieq.origin-monoton"]) == ("q.dead", "0")
    assert headers["cassieq.first-position"] == "q@1/0"


def test_a_dead_letter_without_key_and_headers_has_those_of_its_origin_only():
    scene = Scene(count=12)
    written = write_block(
        scene.memory,
        scene.queue,
        [pa.record_batch({"value": pa.array(["bare"])})],
        SinkOptions(queue="q"),
    )
    publish(Ledger(scene.memory, scene.queue.queue_id), [written])
    scene.dead_letter()
    scene.group.lease(scene.request(stop=13))
    scene.clock.advance(LEASE + MOMENT)

    scene.dead_letter(scene.group.lease(scene.request(stop=13)).dead)

    copy = scene.copies()[-1]
    assert (copy["key"], copy["value"]) == (None, b"bare")
    assert all(name.startswith("cassieq.") for name, _ in copy["headers"])


def test_only_what_is_dead_is_copied_of_ranges_with_gaps():
    scene = Scene(count=0)
    lease = scene.hand_out(12)
    scene.group.settle(lease, Settlement(acked=Ranges.parse("1-3,5-9")))

    scene.dead_letter()

    assert scene.values() == ["0", "3", "4", "9", "10", "11"]
    monotons = [dict(copy["headers"])["cassieq.origin-monoton"] for copy in scene.copies()]
    assert monotons == scene.values()


def test_chunks_before_the_first_dead_message_have_none_of_it():
    scene = Scene(count=12)
    scene.dead_letter()
    small = SinkOptions(queue="q", chunk_bytes=1)
    batch = pa.record_batch({"value": pa.array(["12", "13", "14"])})
    written = write_block(scene.memory, scene.queue, [batch], small)
    publish(Ledger(scene.memory, scene.queue.queue_id), [written])
    lease = scene.group.lease(scene.request(stop=15)).token
    scene.group.settle(lease, Settlement(acked=Ranges.parse("12-14")))
    scene.clock.advance(LEASE + MOMENT)

    scene.dead_letter(scene.group.lease(scene.request(stop=15)).dead)

    assert scene.values() == [*numbers(12), "14"]
    assert dict(scene.copies()[-1]["headers"])["cassieq.origin-monoton"] == "14"


def test_dead_messages_that_wait_are_copied_and_removed():
    scene = Scene(count=0)
    lease = scene.hand_out(12)
    released = {timedelta(0): Ranges.parse("2-4")}
    settlement = Settlement(acked=Ranges.parse("0-2,4-12"), released=released)
    scene.group.settle(lease, settlement)
    (dead,) = scene.group.lease(scene.request()).dead
    assert isinstance(dead, Waiting)

    scene.dead_letter((dead,))

    assert scene.values() == ["2", "3"]
    assert scene.outstanding() == []


@pytest.mark.parametrize("after", range(12))
def test_a_reader_with_a_higher_limit_gets_nothing_that_is_copied(after: int):
    scene = Scene(count=0)
    lease = scene.hand_out(12)
    released = {timedelta(0): Ranges.parse("2-4")}
    settlement = Settlement(acked=Ranges.parse("0-2,4-12"), released=released)
    scene.group.settle(lease, settlement)
    dead = scene.group.lease(scene.request()).dead
    other, got = make_group(scene.memory, scene.queue.queue_id), Ranges()

    def read() -> None:
        nonlocal got
        # As it was before an alter.
        lease = other.lease(scene.request(max_deliveries=9))
        got = Ranges.union(each.monotons for each in lease.leased)

    scene.store.interrupt(read, after=after)
    scene.dead_letter(dead)

    copied = Ranges.of(*(Range(int(each), int(each) + 1) for each in scene.values()))
    assert not got & copied
    assert Ranges.union([got, copied]) == Ranges.parse("2-4")


def test_several_that_are_dead_are_each_copied():
    scene = Scene(count=2)
    scene.hand_out(3)

    dead = scene.group.lease(scene.request(stop=5)).dead
    scene.dead_letter(dead)

    assert len(dead) == 2
    assert sorted(scene.values()) == numbers(5)
    assert scene.outstanding() == []


def calls_of_a_dead_lettering() -> int:
    """How often dead-lettering calls the store if all goes well; the last call settles."""
    scene = Scene()
    dead = scene.dead()
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        scene.store.interrupt(count, after=0)

    scene.store.interrupt(count, after=0)
    scene.dead_letter(dead)
    return calls


CALLS = calls_of_a_dead_lettering()


@pytest.mark.parametrize("after", range(CALLS))
def test_two_readers_that_race_make_one_copy(
    scene: Scene, caplog: pytest.LogCaptureFixture, after: int
):
    # I9
    dead = scene.dead()
    other = ConsumerGroup(Ledger(scene.memory, scene.queue.queue_id), "g")
    scene.store.interrupt(
        lambda: dead_letter_messages(scene.memory, scene.queue, other, dead), after=after
    )

    scene.dead_letter(dead)

    assert scene.store.troubles == 1
    assert scene.values() == numbers(6)
    assert scene.outstanding() == []
    assert told(caplog) == [(logging.WARNING, DEAD_LETTERED, 6)], "one of them tells"


@pytest.mark.parametrize("after", range(CALLS))
def test_a_crash_anywhere_is_made_good_by_the_next_reader_without_a_second_copy(
    scene: Scene, after: int
):
    # I9: between the publish and the settling, too.
    dead = scene.dead()

    def crash() -> None:
        raise KeyboardInterrupt

    scene.store.interrupt(crash, after=after)
    with pytest.raises(KeyboardInterrupt):
        scene.dead_letter(dead)
    assert scene.outstanding() == ["0-6"]
    assert scene.values() in ([], numbers(6))

    scene.dead_letter()

    assert scene.values() == numbers(6)
    assert scene.outstanding() == []


def test_a_copy_that_is_visible_is_not_written_again(scene: Scene):
    def crash() -> None:
        raise KeyboardInterrupt

    dead = scene.dead()
    scene.store.interrupt(crash, after=CALLS - 1)
    with pytest.raises(KeyboardInterrupt):
        scene.dead_letter(dead)
    written = list(scene.memory.scan(Table.CHUNK))

    scene.dead_letter()

    assert list(scene.memory.scan(Table.CHUNK)) == written


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("letting_go", [False, True])
def test_a_lost_answer_makes_no_second_copy(scene: Scene, fault: Fault, letting_go: bool):
    dead = scene.dead()
    scene.store.interrupt(
        lambda: setattr(scene.store, "fault", fault), after=CALLS - 1 if letting_go else 0
    )

    scene.dead_letter(dead)
    scene.store.arrive()
    scene.dead_letter()

    assert scene.store.troubles == 2, "interrupted, and troubled"
    assert scene.values() == numbers(6)
    assert scene.outstanding() == []


def test_what_is_dead_can_not_be_settled_any_more():
    # I9
    scene = Scene(count=0)
    lease = scene.hand_out(6)
    dead = scene.dead()

    settled = scene.group.settle(lease, Settlement(acked=Ranges.parse("0-1")))

    assert (settled.count, str(settled.stale)) == (0, "0-1")
    scene.dead_letter(dead)
    assert scene.values() == numbers(6)


def test_what_is_rejected_is_dead_at_once_with_its_reason():
    scene = Scene(count=0)
    lease = scene.hand_out(6)
    rejected = {"no such customer": Ranges.parse("1-3"), "too late": Ranges.parse("4-5")}

    settled = scene.group.settle(lease, Settlement(rejected=rejected))
    scene.dead_letter(settled.dead)

    assert scene.values() == ["1", "2", "4"]
    reasons = [dict(copy["headers"])["cassieq.reason"] for copy in scene.copies()]
    assert reasons == ["no such customer", "no such customer", "too late"]
    assert scene.outstanding() == ["0-1,3-4,5-6"]


def test_a_reason_forges_no_line_of_a_log(caplog: pytest.LogCaptureFixture):
    scene = Scene(count=0)
    lease = scene.hand_out(1)
    forged = {"x\n2026-11-29 INFO all is well \x1b[2J": Ranges.parse("0-1")}

    scene.dead_letter(scene.group.settle(lease, Settlement(rejected=forged)).dead)

    (record,) = [it for it in caplog.records if getattr(it, "action", "") == DEAD_LETTERED]
    assert record.getMessage().isprintable()
    reason = dict(scene.copies()[0]["headers"])["cassieq.reason"]
    assert reason == next(iter(forged)), "the letter has it as it was given"


def test_a_late_dead_lettering_removes_nothing_that_died_since(scene: Scene):
    # After a seek, other messages may be dead in the same millisecond, from the same one on.
    (dead,) = scene.dead()
    seek_group(
        ConsumerGroup(Ledger(scene.memory, scene.queue.queue_id), "g"), "earliest", force=True
    )
    lease = scene.group.lease(scene.request(max_messages=3)).token
    since = {"bad": Ranges.parse("0-3")}
    (other,) = scene.group.settle(lease, Settlement(rejected=since)).dead
    assert (other.due, other.monotons.start) == (dead.due, dead.monotons.start)

    assert not scene.group.remove_dead(dead)
    assert not scene.group.defer_dead(dead, by=LEASE)

    assert scene.outstanding() == ["0-3"]


def test_what_can_not_be_dead_lettered_waits_a_minute_and_hides_nothing(scene: Scene):
    scene.memory.delete_buckets(
        scene.queue.queue_id,
        [(each.block, 0) for each in Ledger(scene.memory, scene.queue.queue_id).read_blocks()],
    )
    scene.dead_letter()

    assert scene.dead() == ()
    scene.clock.advance(RETRY_AFTER)
    assert [each.monotons for each in scene.dead()] == [Ranges.parse("0-6")]


def test_without_a_dead_letter_queue_messages_are_dropped_with_an_error(
    caplog: pytest.LogCaptureFixture,
):
    scene = Scene(dropping=True)

    scene.dead_letter()

    assert scene.values() == []
    assert scene.outstanding() == []
    assert told(caplog) == [(logging.ERROR, DROPPED, 6)]
    assert "messages 0 to 5 are dead (not settled in 1 deliveries" in caplog.text
    assert "dropped, as the queue has no dead-letter queue" in caplog.text


def test_a_reader_of_before_the_queue_had_a_dead_letter_queue_drops_nothing(
    caplog: pytest.LogCaptureFixture,
):
    scene = Scene(dropping=True)
    alter_queue(scene.memory, "q", dead_letter_queue="q.dead")

    scene.dead_letter()

    assert scene.values() == numbers(6)
    assert scene.outstanding() == []
    assert told(caplog) == [(logging.WARNING, DEAD_LETTERED, 6)]


def test_nothing_is_dropped_while_the_row_of_the_queue_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
):
    scene = Scene(dropping=True)
    dead = scene.dead()
    scene.memory._rows[partition_of_queue("q")][()]["on_dead"] = "of a newer release"

    scene.dead_letter(dead)

    assert scene.outstanding() == ["0-6"]
    assert told(caplog) == [(logging.ERROR, DEAD_LETTERING_FAILED, 6)]


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
@pytest.mark.parametrize("waits", [False, True])
def test_what_is_dropped_is_told_also_if_the_answer_is_lost(
    caplog: pytest.LogCaptureFixture, fault: Fault, waits: bool
):
    scene = Scene(dropping=True, count=0)
    lease = scene.hand_out(6)
    if waits:
        released = {timedelta(0): Ranges.parse("0-6")}
        scene.group.settle(lease, Settlement(released=released))
    scene.store.fault = fault

    scene.dead_letter()
    scene.dead_letter()

    assert scene.outstanding() == []
    assert told(caplog) == [(logging.ERROR, DROPPED, 6)]


def test_missing_messages_are_told_and_nothing_is_removed(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    first = Ledger(scene.memory, scene.queue.queue_id).read_blocks()[0]
    scene.memory.delete_buckets(scene.queue.queue_id, [(first.block, 0)])

    scene.dead_letter()

    (record,) = caplog.records
    assert (record.action, record.levelname) == (DEAD_LETTERING_FAILED, "ERROR")  # type: ignore[attr-defined]
    assert "of the dead messages 0 to 5 only 2 are in the store" in record.getMessage()

    assert scene.values() == []
    assert scene.outstanding() == ["0-6"]


def test_messages_that_go_missing_as_another_reader_dead_letters_them_are_nothing_to_worry_about(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    dead = scene.dead()
    group = ConsumerGroup(Ledger(scene.memory, scene.queue.queue_id), "g")
    read_chunks = MemoryStore.read_chunks

    def repaired(store: MemoryStore, queue_id: Any, slices: Any) -> Any:
        monkeypatch.setattr(MemoryStore, "read_chunks", read_chunks)
        dead_letter_messages(scene.memory, scene.queue, group, dead)
        for block in Ledger(store, queue_id).read_blocks():
            store.delete_buckets(queue_id, [(block.block, 0)])
        return read_chunks(store, queue_id, slices)

    monkeypatch.setattr(MemoryStore, "read_chunks", repaired)
    scene.dead_letter(dead)

    assert scene.values() == numbers(6)
    assert scene.outstanding() == []


def test_a_message_as_large_as_any_may_be_has_room_for_its_headers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    largest = SinkOptions(queue="q").max_message_bytes
    written = write_block(
        scene.memory,
        scene.queue,
        [pa.record_batch({"value": pa.array(["x" * largest])})],
        SinkOptions(queue="q"),
    )
    publish(Ledger(scene.memory, scene.queue.queue_id), [written])
    scene.group.lease(scene.request(max_messages=6))
    scene.group.lease(scene.request(stop=13))
    scene.clock.advance(LEASE + MOMENT)

    scene.dead_letter(scene.group.lease(scene.request(stop=13)).dead)

    assert scene.outstanding() == []
    assert max(len(copy["value"]) for copy in scene.copies()) == largest


def test_what_dies_again_after_a_seek_is_not_lost_for_the_copy_of_a_smaller_range():
    scene = Scene(count=1)
    scene.dead_letter()
    assert scene.values() == ["0"]
    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g"), 0)
    scene.hand_out(3)

    scene.dead_letter()

    assert set(scene.values()) == {"0", "1", "2"}
    assert scene.outstanding() == []


def test_what_dies_again_after_a_seek_is_copied_again_as_the_first_copy_may_be_gone():
    scene = Scene(count=2)
    scene.dead_letter()
    scene.target = purge_queue(scene.memory, "q.dead", force=True)
    assert scene.values() == []
    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g"), 0)
    scene.hand_out(2)
    scene.dead_letter()
    assert scene.values() == ["0", "1"]
    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g"), 0)
    scene.hand_out(2)

    scene.dead_letter()

    assert scene.values() == ["0", "1", "0", "1"]
    assert scene.outstanding() == []


def test_a_dead_lettering_that_was_deferred_still_makes_one_copy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(ConsumerGroup, "remove_dead", failing)
        scene.dead_letter()
    assert (scene.values(), scene.outstanding()) == (numbers(6), ["0-6"])
    scene.clock.advance(RETRY_AFTER)

    scene.dead_letter()

    assert scene.values() == numbers(6)
    assert scene.outstanding() == []


def failing(group: ConsumerGroup, dead: Waiting) -> bool:
    raise NotAppliedError(f"{group}: {dead.monotons} can't be removed")


def test_while_others_win_each_race_one_removal_is_tried_and_all_stays_due(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(backoff, "ATTEMPTS", 3)
    scene = Scene(count=0)
    rejected = {"bad": Ranges.parse("0-6"), "worse": Ranges.parse("6-9")}
    dead = scene.group.settle(scene.hand_out(9), Settlement(rejected=rejected)).dead
    races = []

    def lose(*_: object) -> bool:
        races.append("lost")
        return False

    with monkeypatch.context() as patch:
        patch.setattr(ConsumerGroup, "carry_out", lose)
        scene.dead_letter(dead)

    assert len(races) == backoff.ATTEMPTS
    assert told(caplog) == [(logging.ERROR, DEAD_LETTERING_FAILED, 6)]
    assert scene.group.read().waiting == dead
    scene.dead_letter(dead)
    assert scene.values() == numbers(9)


def test_while_others_win_each_race_for_the_dead_letter_queue_messages_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    def lose(*_: object, **__: object) -> None:
        raise ContentionError("too many publish")

    with monkeypatch.context() as patch:
        patch.setattr(dead_letter, "publish", lose)
        scene.dead_letter()

    assert scene.dead() == ()
    scene.clock.advance(RETRY_AFTER)
    scene.dead_letter()
    assert scene.values() == numbers(6)


def test_a_reader_dead_letters_what_it_finds_and_goes_on_with_what_is_alive(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    reader = QueueReader(
        scene.store, scene.queue, "g", starting="earliest", request=LeaseRequest(lease=LEASE)
    )
    try:
        end = reader.next_batch(initial_offset("q", "g"), limit=2)
        ((part,),) = reader.tasks(end, messages_per_task=100)
    finally:
        reader.stop()

    assert [piece.first_monoton for piece in part.pieces] == [6]
    assert scene.values() == numbers(6)
    assert Ledger(scene.memory, scene.target.queue_id).read_head().next == 6
    assert told(caplog) == [(logging.WARNING, DEAD_LETTERED, 6)]


def test_a_letter_that_dies_again_does_not_say_in_which_partition_it_died_first():
    client = Client.from_store(MemoryStore())
    client.create_queue("graves", drop_dead=True)
    client.create_queue("dead", dead_letter_queue="graves")
    client.create_queue("orders", partitions=4, dead_letter_queue="dead")
    client.put("orders", "v", key="k")
    deaths = []
    for queue, letters in (("orders", "dead"), ("dead", "graves")):
        client.reject(*client.receive(queue, "g"), reason="bad")
        (letter,) = client.peek(letters)
        deaths.append(letter.headers or {})

    first, again = deaths
    assert (again["cassieq.origin-queue"], "cassieq.origin-partition" in first) == ("dead", True)
    assert "cassieq.origin-partition" not in again, "its queue has no partitions"
    assert again["cassieq.first-position"] == first["cassieq.first-position"]
