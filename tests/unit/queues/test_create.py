from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId
from cassieq_spark.queues import create_queue, list_queues, read_queue
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store


def test_a_queue_is_read_as_it_was_created():
    store, clock = make_clocked_store()

    created = create_queue(store, "q", bucket_size=40, chunk_size=8, lease=timedelta(seconds=7))

    assert read_queue(store, "q") == created
    assert (created.version, created.bucket_size, created.chunk_size) == (1, 40, 8)
    assert (created.lease, created.created_at) == (timedelta(seconds=7), clock.now)
    assert Ledger(store, created.queue_id).read_head().next == 0


def test_creating_costs_two_lwts_and_reading_one_read():
    store = CountingStore(MemoryStore())

    create_queue(store, "q")
    assert store.cas_count == 2
    store.reset()
    read_queue(store, "q")

    assert (store.cas_count, store.read_count) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "no spaces"}, "queue name"),
        ({"bucket_size": 10, "chunk_size": 4}, "multiple"),
        ({"bucket_size": 0, "chunk_size": 4}, "bucket size must be at least 1"),
        ({"chunk_size": 0}, "chunk size must be at least 1"),
        ({"lease": timedelta(milliseconds=999)}, "at least a second"),
        ({"lease": timedelta(seconds=1.5)}, "whole seconds"),
        ({"max_deliveries": -1}, "at least 0, not -1"),
        ({"max_deliveries": 2**31}, "at most 2147483647"),
        ({"max_deliveries": 5, "dead_letter_queue": "q"}, "its own dead-letter queue"),
        ({"dead_letter_queue": "d"}, "a dead-letter queue needs a limit"),
    ],
)
def test_values_out_of_range_are_refused_before_anything_is_written(
    changes: dict[str, object], problem: str
):
    store = CountingStore(MemoryStore())

    with pytest.raises(OptionError, match=problem):
        create_queue(store, **({"name": "q"} | changes))  # type: ignore[arg-type]
    assert store.cas_count == 0


def test_a_queue_has_no_limit_of_deliveries_unless_it_is_given_one():
    created = create_queue(MemoryStore(), "q")

    assert (created.max_deliveries, created.dead_letter_queue) == (0, None)


@pytest.mark.parametrize("dead_letter_queue", [None, "d"])
def test_a_limit_of_deliveries_is_read_as_it_was_created(dead_letter_queue: str | None):
    store = MemoryStore()
    create_queue(store, "d")

    created = create_queue(store, "q", max_deliveries=5, dead_letter_queue=dead_letter_queue)

    assert read_queue(store, "q") == created
    assert (created.max_deliveries, created.dead_letter_queue) == (5, dead_letter_queue)


def test_a_dead_letter_queue_is_made_with_its_queue_and_only_then():
    store = MemoryStore()
    for _ in range(2):
        with pytest.raises(OptionError):
            create_queue(store, "q", bucket_size=1, max_deliveries=5, dead_letter_queue="d")
    assert list_queues(store) == []

    create_queue(store, "q", max_deliveries=5, dead_letter_queue="d")
    assert read_queue(store, "d").max_deliveries == 0

    with pytest.raises(QueueStateError, match="'q' exists already"):
        create_queue(store, "q", max_deliveries=5, dead_letter_queue="e")
    assert [queue.name for queue in list_queues(store)] == ["d", "q"]


@pytest.mark.parametrize("after", range(7))
def test_two_queues_that_are_created_at_once_share_a_new_dead_letter_queue(after: int):
    """The other one is created between two calls of this one; from 2 on this one found no 'd'."""
    store = FaultyStore(MemoryStore())

    def create(name: str, columns: str) -> None:
        limits = {"max_deliveries": 5, "dead_letter_queue": "d"}
        create_queue(store, name, schema=columns, **limits)

    store.interrupt(lambda: create("a", "x int"), after=after)
    create("b", "y string")

    assert store.troubles == 1
    assert [queue.name for queue in list_queues(store)] == ["a", "b", "d"]
    assert read_queue(store, "d").schema in {"x int, y string", "y string, x int"}


def test_a_lost_answer_does_not_make_a_queue_with_another_limit_ours():
    store = FaultyStore(MemoryStore())
    create_queue(store, "q", max_deliveries=4)
    store.interrupt(lambda: setattr(store, "fault", Fault.ANSWER_LOST), after=1)

    with pytest.raises(QueueStateError, match="exists already"):
        create_queue(store, "q", max_deliveries=5)


def test_a_queue_is_created_once():
    store = MemoryStore()
    first = create_queue(store, "q")

    with pytest.raises(QueueStateError, match="exists already"):
        create_queue(store, "q", bucket_size=512)
    assert read_queue(store, "q") == first


def test_a_creation_broken_off_half_way_can_be_repeated():
    store = MemoryStore()
    Ledger(store, QueueId("q@1")).create()

    assert create_queue(store, "q").queue_id == "q@1"


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_is_resolved(fault: Fault, after: int):
    store = FaultyStore(MemoryStore())
    store.interrupt(lambda: setattr(store, "fault", fault), after=after)

    created = create_queue(store, "q")

    assert store.troubles == 2, "interrupted, and troubled"
    assert created == read_queue(store, "q")


def test_a_lost_answer_does_not_make_anothers_queue_ours():
    store = FaultyStore(MemoryStore())
    create_queue(store, "q", bucket_size=512)
    store.interrupt(lambda: setattr(store, "fault", Fault.ANSWER_LOST), after=1)

    with pytest.raises(QueueStateError, match="exists already"):
        create_queue(store, "q")


def test_a_queue_that_is_not_there_says_how_to_make_it():
    with pytest.raises(QueueStateError, match="cassieq queue create q"):
        read_queue(MemoryStore(), "q")


def test_queues_are_listed_by_name():
    store = MemoryStore()
    for name in ("b", "c", "a"):
        create_queue(store, name)

    assert [queue.name for queue in list_queues(store)] == ["a", "b", "c"]
