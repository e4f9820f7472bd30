"""Where messages are, and what is remembered of that."""

from __future__ import annotations

import pytest

from cassieq_spark.errors import InvariantError
from cassieq_spark.fetch.find import Finder
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, Range
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_pending, make_queue

BLOCKS = [10, 10, 10, 10]


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
def queue(store: CountingStore) -> QueueDefinition:
    return make_queue(store, BLOCKS)


@pytest.fixture
def finder(store: CountingStore, queue: QueueDefinition) -> Finder:
    return Finder(Ledger(store, queue.queue_id))


@pytest.mark.parametrize(
    ("first", "then", "reads"),
    [
        (Range(0, 4), Range(4, 10), 0),
        (Range(0, 25), Range(12, 30), 0),
        (Range(0, 10), Range(10, 12), 1),
        (Range(0, 5), Range(5, 40), 1),
        (Range(0, 10), Range(11, 12), 2),
        (Range(15, 25), Range(0, 5), 2),
    ],
)
def test_blocks_that_were_found_need_no_read_and_those_that_follow_one(
    finder: Finder, store: CountingStore, first: Range, then: Range, reads: int
):
    finder.covering(first)
    store.reset()

    found = finder.covering(then)

    assert store.read_count == reads
    finder.forget()
    assert found == finder.covering(then)


def test_what_is_published_later_is_found(
    finder: Finder, store: CountingStore, queue: QueueDefinition
):
    finder.covering(Range(30, 40))
    publish(Ledger(store, queue.queue_id), make_pending([5]))

    assert [block.monotons for block in finder.covering(Range(38, 45))] == [
        Range(30, 40),
        Range(40, 45),
    ]


def test_what_follows_and_is_on_one_replica_only_is_found():
    torn = FaultyStore(MemoryStore())
    queue = make_queue(torn, BLOCKS)
    finder = Finder(Ledger(torn, queue.queue_id))
    finder.covering(Range(30, 40))
    with torn.replicas.tearing():
        publish(Ledger(torn, queue.queue_id), make_pending([5]))
    torn.replicas.draw("s")

    assert [block.monotons for block in finder.covering(Range(40, 45))] == [Range(40, 45)]


def test_a_hole_behind_what_is_known_is_told(finder: Finder):
    finder.covering(Range(30, 40))

    with pytest.raises(InvariantError, match="none covers 40"):
        finder.covering(Range(35, 41))


def test_what_is_forgotten_is_read(finder: Finder, store: CountingStore):
    finder.covering(Range(0, 5))
    finder.forget()
    store.reset()

    finder.covering(Range(0, 5))

    assert store.read_count == 2
