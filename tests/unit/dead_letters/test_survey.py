from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from cassieq_spark.dead_letters.letters import DeadLetterGroup, Filter
from cassieq_spark.dead_letters.purge import purge
from cassieq_spark.dead_letters.survey import read_message, survey
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.fetch.read import SMALL_COUNT
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import create_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Ranges
from cassieq_spark.queues import create_queue
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_request
from tests.unit.dead_letters.dead_queue import NOON, DeadQueue

HOUR = timedelta(hours=1)


def found(queue: DeadQueue, name: str, criteria: Filter | None = None) -> dict[str | None, str]:
    groups = survey(queue.memory, name, criteria).groups
    return {group.origin_queue: str(group.monotons) for group in groups}


def test_a_queue_stands_for_its_own_letters_and_a_dead_letter_queue_for_all():
    queue = DeadQueue(["orders", "payments", "orders", None])

    assert found(queue, "orders") == {"orders": "0-1,2-3"}
    assert found(queue, "payments") == {"payments": "1-2"}
    assert found(queue, "dead") == {None: "3-4", "orders": "0-1,2-3", "payments": "1-2"}


def test_a_pile_tells_how_many_why_and_since_when():
    queue = DeadQueue(["orders"] * 3)

    (group,) = survey(queue.memory, "orders").groups

    assert group == DeadLetterGroup(
        "orders", "g", "too often", Ranges.parse("0-3"), first=NOON, last=NOON + 2 * HOUR
    )


def test_only_what_is_meant_is_found():
    queue = DeadQueue(["orders", "payments"] * 3)
    criteria = Filter(since=NOON + HOUR, until=NOON + 4 * HOUR)

    assert found(queue, "orders", criteria) == {"orders": "2-3"}
    assert survey(queue.memory, "dead", criteria, limit=2).monotons == Ranges.parse("1-3")
    with pytest.raises(OptionError, match="limit must be at least 1, not 0"):
        survey(queue.memory, "dead", limit=0)


def test_no_more_are_read_than_are_to_be_examined():
    queue = DeadQueue(["orders", "payments", "orders", "orders"])

    few = survey(queue.memory, "dead", examine=3)
    mine = survey(queue.memory, "orders", examine=2)

    assert str(few.monotons) == "0-3"
    assert str(mine.monotons) == "0-1"
    with pytest.raises(OptionError, match="examine"):
        survey(queue.memory, "dead", examine=0)


def test_what_is_settled_is_left_out_and_what_is_held_is_not():
    queue = DeadQueue(["orders"] * 9)
    purge(queue.memory, survey(queue.memory, "dead", limit=2))
    group = ConsumerGroup(Ledger(queue.memory, queue.dead.queue_id), ADMIN_GROUP)
    group.lease(make_request(max_messages=3, stop=9))

    assert survey(queue.memory, "orders").monotons == Ranges.parse("2-9")


def test_what_is_finalised_is_left_out():
    queue = DeadQueue(["orders"] * 9)
    Ledger(queue.memory, queue.dead.queue_id).finalise(
        Ledger(queue.memory, queue.dead.queue_id).read_head(), 4
    )

    assert survey(queue.memory, "orders").monotons == Ranges.parse("4-9")


def test_groups_of_others_change_nothing():
    queue = DeadQueue(["orders"] * 3)
    create_group(ConsumerGroup(Ledger(queue.memory, queue.dead.queue_id), "etl"), "latest")

    assert survey(queue.memory, "orders").monotons == Ranges.parse("0-3")


def test_a_queue_with_dead_letters_is_one_even_if_no_queue_sends_them_there_any_more():
    queue = DeadQueue(["orders"])
    letters = dict(queue.memory._rows)
    forgotten = [key for key in letters if key.key in (("orders",), ("payments",))]
    for key in forgotten:
        del queue.memory._rows[key]

    assert found(queue, "dead") == {"orders": "0-1"}


def test_an_empty_dead_letter_queue_is_one():
    assert found(DeadQueue(), "dead") == found(DeadQueue(), "orders") == {}


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_queue_that_has_nothing_to_do_with_dead_letters_is_told_so(partitions: int):
    store = MemoryStore()
    with pytest.raises(QueueStateError, match="no queue 'plain'"):
        survey(store, "plain")
    create_queue(store, "plain", partitions=partitions)

    for look in (survey, partial(read_message, monoton=0)):
        with pytest.raises(QueueStateError, match="'plain' has no dead-letter queue, and is not"):
            look(store, "plain")


def test_progress_is_told():
    queue = DeadQueue(["orders"] * 600)
    seen: list[tuple[str, int, int]] = []

    survey(queue.memory, "orders", watch=lambda *told: seen.append(told))

    assert seen == [("reading", at, 600) for at in range(0, 600, SMALL_COUNT)]


def test_a_message_is_shown_as_it_is():
    queue = DeadQueue(["orders", "payments"])

    message = read_message(queue.memory, "orders", 1)

    assert (message.queue, message.monoton) == ("dead", 1)
    assert (message.key, message.value) == (b"k1", b"1")
    assert dict(message.headers or ())["cassieq.origin-queue"] == "payments"
    assert message.published_at == queue.clock.now


@pytest.mark.parametrize("monoton", [-1, 0, 2])
def test_a_message_that_is_not_there_is_told(monoton: int):
    queue = DeadQueue(["orders", "orders"])
    purge(queue.memory, survey(queue.memory, "dead", limit=1))

    with pytest.raises(QueueStateError, match=f"no dead letter {monoton}: .*list orders"):
        read_message(queue.memory, "orders", monoton)
