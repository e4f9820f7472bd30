from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cassieq_spark.errors import InvariantError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import block_key
from cassieq_spark.model import QueueId, Range
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Delete, Update, When, partition_of_ledger
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    last_batch,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
)

SECOND = timedelta(seconds=1)


class Crash(BaseException):
    """The process ends: nothing may catch it."""


def crash() -> None:
    raise Crash


@pytest.mark.parametrize(
    ("monotons", "blocks"),
    [
        (Range(0, 1), [Range(0, 3)]),
        (Range(2, 3), [Range(0, 3)]),
        (Range(3, 4), [Range(3, 4)]),
        (Range(1, 5), [Range(0, 3), Range(3, 4), Range(4, 9)]),
        (Range(8, 9), [Range(4, 9)]),
        (Range(4, 4), []),
    ],
)
def test_messages_are_located_in_their_blocks(monotons: Range, blocks: list[Range]):
    store = CountingStore(MemoryStore())
    queue = make_queue(store, [3, 1, 5])
    store.reset()

    assert [block.monotons for block in Ledger(store, queue.queue_id).locate(monotons)] == blocks
    assert store.read_count <= 2


@pytest.mark.parametrize("draws", ["s", "sf", "fs"])
@pytest.mark.parametrize("limit", [None, 1, 5])
@pytest.mark.parametrize("monotons", [Range(2, 9), Range(4, 9), Range(4, 5), Range(8, 9)])
def test_blocks_that_the_head_has_shown_are_found_though_one_replica_has_them(
    monotons: Range, limit: int | None, draws: str
):
    store = FaultyStore(MemoryStore())
    queue = make_queue(store, [3, 1])
    one_after_another = [*make_pending([2]), *make_pending([3])]
    store.interrupt(crash, after=2, bit_by_bit=True)
    with pytest.raises(Crash):
        publish(Ledger(store, queue.queue_id), one_after_another)
    store.replicas.draw("f")
    assert Ledger(store, queue.queue_id).read_head().next == 9
    store.replicas.draw(draws)

    blocks = Ledger(store, queue.queue_id).locate(monotons, limit=limit)

    assert monotons.start in blocks[0].monotons
    assert limit is not None or blocks[-1].monotons.stop >= monotons.stop


@pytest.mark.parametrize("monotons", [Range(2, 5), Range(3, 4), Range(3, 9), Range(8, 10)])
def test_a_hole_in_the_ledger_is_never_passed_over(monotons: Range):
    store = MemoryStore()
    queue = make_queue(store, [3, 1, 5])
    store.cas(partition_of_ledger(queue.queue_id), [Delete(("block", 3, ""))])

    with pytest.raises(InvariantError, match="I1"):
        Ledger(store, queue.queue_id).locate(monotons)


@pytest.mark.parametrize(
    ("monoton", "block"),
    [(0, Range(0, 3)), (2, Range(0, 3)), (3, None), (4, Range(4, 9)), (9, None)],
)
def test_the_block_of_a_message_is_found_unless_trimmed(monoton: int, block: Range | None):
    store = MemoryStore()
    queue = make_queue(store, [3, 1, 5])
    store.cas(partition_of_ledger(queue.queue_id), [Delete(("block", 3, ""))])

    found = Ledger(store, queue.queue_id).read_block_of(monoton)

    assert (found and found.monotons) == block


def test_a_new_ledger_is_empty_and_opened_once():
    store = MemoryStore()
    queue_id = QueueId("q@1")

    assert Ledger(store, queue_id).create()
    assert not Ledger(store, queue_id).create()
    assert (
        Ledger(store, queue_id).read_head().next,
        Ledger(store, queue_id).read_head().finalised,
    ) == (0, 0)
    assert last_batch(store, queue_id, "s") is None


def test_reading_a_ledger_that_is_not_there_says_how_to_make_it():
    with pytest.raises(QueueStateError, match="cassieq queue create"):
        Ledger(MemoryStore(), QueueId("q@1")).read_head()


def test_the_newest_blocks_are_read_in_order_by_one_read():
    store = CountingStore(MemoryStore())
    ledger = Ledger(store, make_queue(store, [3, 2, 4]).queue_id)
    head = ledger.read_head()
    store.reset()

    newest = ledger.read_newest_blocks(head, 2)

    assert [block.monotons for block in newest] == [Range(3, 5), Range(5, 9)]
    assert store.read_count == 1
    assert len(ledger.read_newest_blocks(head, 9)) == 3


def test_what_is_stored_is_counted_by_two_reads_from_the_first_block_that_is_not_settled():
    store = CountingStore(MemoryStore())
    ledger = Ledger(store, make_queue(store).queue_id)
    sizes = [100, 10, 1]
    for size in sizes:
        (pending,) = make_pending([5])
        publish(ledger, [replace(pending, size=size)])
    head = ledger.read_head()
    store.reset()

    assert ledger.read_stored() == (15, 111)
    assert store.read_count == 2
    for floor, left in ((3, (12, 111)), (5, (10, 11)), (14, (1, 1)), (15, (0, 0))):
        assert ledger.finalise(ledger.read_head(), floor)
        assert ledger.read_stored() == left
    assert head.size == ledger.read_head().size == 111


def test_what_an_earlier_release_published_has_no_bytes():
    store = MemoryStore()
    ledger = Ledger(store, make_queue(store).queue_id)
    for size in (100, 10):
        (pending,) = make_pending([5])
        publish(ledger, [replace(pending, size=size)])
    # As a release published it that knew no sizes of ledgers.
    ledger.cas([Update(block_key(0), {"size_before": None}, when=(When("stop", "=", 5),))])

    assert ledger.read_stored() == (10, 110)


def test_groups_are_read_by_name():
    store = MemoryStore()
    queue = make_queue(store)
    for name in ("b", "a"):
        make_group(store, queue.queue_id, name)

    assert [group.name for group in Ledger(store, queue.queue_id).read_groups()] == ["a", "b"]


@pytest.mark.parametrize(("count", "reads"), [(0, 1), (999, 1), (1000, 2), (2500, 3)])
def test_blocks_are_read_a_thousand_at_a_time(count: int, reads: int):
    store = CountingStore(MemoryStore())
    queue_id = make_queue(store, [2] * count).queue_id
    store.reset()

    blocks = list(Ledger(store, queue_id).stream_blocks())

    assert [block.monotons.start for block in blocks] == list(range(0, 2 * count, 2))
    assert store.read_count == reads


def test_blocks_are_read_from_the_first_that_begins_there():
    store = MemoryStore()
    queue_id = make_queue(store, [3, 1, 5, 2]).queue_id

    found = list(Ledger(store, queue_id).stream_blocks(start=1, stop=9, serial=True))

    assert [block.monotons for block in found] == [Range(3, 4), Range(4, 9)]


def test_whoever_reads_few_of_many_blocks_pays_for_few():
    store = CountingStore(MemoryStore())
    queue_id = make_queue(store, [1] * 3000).queue_id
    store.reset()

    assert next(Ledger(store, queue_id).stream_blocks(start=500)).monotons == Range(500, 501)
    assert store.read_count == 1


def test_messages_of_thousands_of_blocks_are_located():
    store = MemoryStore()
    queue_id = make_queue(store, [2] * 3000).queue_id

    blocks = Ledger(store, queue_id).locate(Range(1, 5999))

    assert (len(blocks), blocks[0].monotons.start, blocks[-1].monotons.stop) == (3000, 0, 6000)


def test_an_instant_is_found_among_hundreds_of_blocks_by_a_few_reads():
    memory, clock = make_clocked_store()
    store = CountingStore(memory)
    queue_id = make_queue(store).queue_id
    begun = clock.now
    for _ in range(700):
        publish(Ledger(store, queue_id), make_pending([2]))
        clock.advance(SECOND)
    head = Ledger(store, queue_id).read_head()
    store.reset()

    assert Ledger(store, queue_id).find_position(head, begun + 234 * SECOND) == 468
    assert store.read_count <= 7


def test_an_instant_is_found_by_as_few_reads_after_months_of_publishes():
    memory, clock = make_clocked_store()
    store = CountingStore(memory)
    queue_id = make_queue(store).queue_id
    begun = clock.now
    for _ in range(4_000):
        publish(Ledger(store, queue_id), make_pending([2]))
        clock.advance(1800 * SECOND)
    head = Ledger(store, queue_id).read_head()
    store.reset()

    assert Ledger(store, queue_id).find_position(head, begun + 1234 * 1800 * SECOND) == 2468
    assert store.read_count <= 10


@pytest.mark.parametrize("ahead", [0, 59, 60])
def test_an_instant_is_found_where_one_coordinators_clock_was_ahead(ahead: int):
    store, clock = make_clocked_store()
    queue_id = make_queue(store).queue_id
    begun = clock.now
    clock.advance(ahead * SECOND)
    publish(Ledger(store, queue_id), make_pending([4]))
    for _ in range(8):
        clock.now = begun
        publish(Ledger(store, queue_id), make_pending([4]))
    head = Ledger(store, queue_id).read_head()

    assert Ledger(store, queue_id).find_position(head, begun + ahead * SECOND) == 0
    assert Ledger(store, queue_id).find_position(head, begun + (ahead + 1) * SECOND) == head.next
