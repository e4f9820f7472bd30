"""Readers of a group divide the partitions among them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cassieq_spark.client import LeaseRequest
from cassieq_spark.errors import OutcomeUnknownError, StoreError
from cassieq_spark.groups import presence
from cassieq_spark.groups.presence import (
    LATEST,
    LONGEST,
    Presence,
    Presences,
    read_presences,
    share_of,
)
from cassieq_spark.model import QueueDefinition
from cassieq_spark.spark.progress import progress
from cassieq_spark.spark.source.metrics import NO_METRICS
from cassieq_spark.spark.source.queue_reader import LOOK_AT_OTHERS, QueueReader
from cassieq_spark.spark.watch import BatchHistory
from cassieq_spark.store.protocol import EVERYTHING, Partition, Rows, Slice
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import LEASE
from tests.unit.partitions.scene import FIRST, KEYS, PARTITIONS, PartitionedQueue, Time

ALL = [key for keys in KEYS.values() for key in keys]
ANY = frozenset(range(PARTITIONS))
SECOND = timedelta(seconds=1)


@pytest.fixture
def queue():
    queue = PartitionedQueue("key")
    yield queue
    for reader in queue.readers:
        reader.stop()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch, queue: PartitionedQueue) -> Time:
    return Time(monkeypatch, queue)


class Query:
    """A streaming query that reads batch after batch, and what it has got."""

    def __init__(self, queue: PartitionedQueue, reader: QueueReader | None = None) -> None:
        self.queue = queue
        self.reader = reader or queue.reader()
        self.done: Mapping[str, Any] = FIRST

    def batch(self, limit: int | None = None) -> set[int]:
        """Read a batch; the partitions that it has messages of."""
        end = self.reader.next_batch(self.done, limit=limit)
        if end is self.done:
            return set()
        self.done = end
        parts = self.reader.tasks(end, messages_per_task=100)
        return {part.queue.partition or 0 for each in parts for part in each}


def make_presence(queue: PartitionedQueue, lease: timedelta = LEASE) -> Presence:
    return Presence(queue.store, queue.definition, "billing", lease=lease)


# -- shares -----------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 2, 5, 16])
@pytest.mark.parametrize("readers", [1, 2, 3, 16, 17])
def test_each_partition_is_in_one_share_and_shares_are_even(partitions: int, readers: int):
    ids = [UUID(int=7 * number % 31) for number in range(readers)]

    shares = [share_of(each, ids, partitions) for each in ids]

    assert sorted(number for share in shares for number in share) == list(range(partitions))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_reader_counts_even_if_it_does_not_find_itself():
    assert share_of(UUID(int=2), [UUID(int=1)], 4) == {1, 3}
    assert share_of(UUID(int=1), [], 4) == ANY


def test_a_reader_alone_has_all_and_a_newcomer_has_half_at_once(
    queue: PartitionedQueue, time: Time
):
    first, second = make_presence(queue), make_presence(queue)
    assert first.share() == ANY

    newcomer = second.share()

    assert len(newcomer) == PARTITIONS // 2
    assert first.share() == ANY
    time.sleep(LATEST.total_seconds())
    assert first.share() == ANY - newcomer


def test_who_leaves_is_missed_at_the_next_look_and_who_dies_after_a_lease(
    queue: PartitionedQueue, time: Time
):
    readers = [make_presence(queue) for _ in range(3)]
    for _ in range(2):
        time.sleep(LATEST.total_seconds())
        shares = [each.share() for each in readers]
    assert sorted(number for share in shares for number in share) == sorted(ANY)

    readers[0].leave()
    time.sleep(LATEST.total_seconds())
    shares = [each.share() for each in readers[1:]]
    assert sorted(map(len, shares)) == [2, 2]

    # Of the two that are left, one says nothing any more.
    began = time.monotonic()
    while readers[2].share() != ANY:
        time.sleep(0.1)
    assert LEASE.total_seconds() - 6 < time.monotonic() - began < 2 * LEASE.total_seconds()
    assert readers[1].share() == shares[0]


def test_a_reader_is_there_for_a_minute_however_long_it_leases(
    queue: PartitionedQueue, time: Time
):
    make_presence(queue, timedelta(hours=12)).share()
    other = make_presence(queue, timedelta(hours=12))
    assert other.share() != ANY

    time.sleep((LONGEST + LATEST + 2 * SECOND).total_seconds())

    assert other.share() == ANY


@pytest.mark.parametrize("ahead", [timedelta(days=30), timedelta(days=-30)])
def test_a_clock_that_is_wrong_leaves_no_partition_to_nobody(
    queue: PartitionedQueue, time: Time, ahead: timedelta
):
    wrong, right = make_presence(queue), make_presence(queue)
    for _ in range(3):
        time.ahead = ahead
        theirs = wrong.share()
        time.ahead = timedelta(0)
        assert theirs | right.share() == ANY
        time.sleep(LATEST.total_seconds())


def test_readers_of_other_groups_and_of_queues_before_do_not_count(
    queue: PartitionedQueue, time: Time
):
    Presence(queue.store, queue.definition, "audit", lease=LEASE).share()
    make_presence(queue).share()
    queue.client.purge_queue("orders")

    assert make_presence(queue).share() == ANY


def test_what_readers_that_are_gone_have_left_is_not_read_for_long(
    queue: PartitionedQueue, time: Time
):
    slices: list[Slice] = []

    class Watched(WrappedStore):
        def read_rows(
            self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
        ) -> Rows:
            slices.append(which)
            return super().read_rows(partition, which, serial=serial)

    reader = Presence(Watched(queue.memory), queue.definition, "billing", lease=LEASE)
    reader.share()
    time.sleep(1800)
    reader.share()

    assert slices[1].start is not None
    assert slices[0].start is not None
    assert slices[1].start - slices[0].start == 3


class RefusingStore(WrappedStore):
    """Writes no rows for a time; whether they are written is not known."""

    def write_row(self, *_: Any, **__: Any) -> None:
        raise OutcomeUnknownError("no answer")

    def delete_row(self, *_: Any, **__: Any) -> None:
        raise StoreError("no answer")


def test_who_cannot_say_that_it_is_there_takes_all_and_says_so(
    queue: PartitionedQueue, time: Time, caplog: pytest.LogCaptureFixture
):
    make_presence(queue).share()
    reader = Presence(RefusingStore(queue.memory), queue.definition, "billing", lease=LEASE)

    assert reader.share() == ANY
    reader.leave()

    (record,) = caplog.records
    assert record.action == presence.PRESENCE_FAILED  # type: ignore[attr-defined]
    assert "takes all partitions: no answer" in record.message


def test_a_queue_of_one_partition_is_not_shared(queue: PartitionedQueue, time: Time):
    plain = queue.client.create_queue("plain")
    queue.store.reset()

    assert Presences(queue.store).share(plain, "g") == {0}
    assert Presence(queue.store, plain, "g", lease=LEASE).share() == {0}
    assert queue.store.read_count == 0


# -- streams ----------------------------------------------------------------------------------


def test_two_queries_get_half_of_the_partitions_each(queue: PartitionedQueue, time: Time):
    first, second = Query(queue), Query(queue)
    for turn in range(3):
        queue.put(*ALL, of=str(turn))
        theirs = [query.batch() for query in (first, second)]
        time.sleep(LATEST.total_seconds())

    assert [len(each) for each in theirs] == [2, 2]
    assert theirs[0] | theirs[1] == ANY


def test_what_was_leased_of_a_partition_that_is_anothers_now_is_acked_and_no_more_is_leased(
    queue: PartitionedQueue, time: Time
):
    queue.put(*ALL, *ALL)
    first = Query(queue)
    assert first.batch(limit=4) == ANY
    second = Query(queue)
    theirs = second.reader._members["orders"].presence.share()
    time.sleep(LATEST.total_seconds())

    assert first.batch() == ANY - theirs

    # And in order by key, the other one gets what comes next there.
    assert second.batch() == theirs
    assert first.batch() == second.batch() == set()
    assert queue.client.stats("orders").groups[0].depth == 0


def test_after_the_ack_a_partition_that_is_anothers_costs_nothing(
    queue: PartitionedQueue, time: Time
):
    queue.put(*ALL)
    first = Query(queue)
    first.batch()
    Query(queue).reader._members["orders"].presence.share()
    time.sleep(LATEST.total_seconds())
    queue.store.reset()
    assert first.batch() == set()
    assert queue.store.cas_count == PARTITIONS
    queue.store.reset()

    for _ in range(10):
        assert first.batch() == set()

    assert queue.store.cas_count == 0


def test_the_messages_of_a_query_that_hangs_are_found_by_another_one(
    queue: PartitionedQueue, time: Time
):
    hanging, other = Query(queue), Query(queue)
    share = hanging.reader._members["orders"].presence.share()
    queue.put(*ALL)
    began = time.monotonic()
    got: list[int] = []

    while sorted(got) != sorted(ANY):
        got += other.batch()

    assert set(got[-len(share) :]) == share
    assert time.monotonic() - began <= 1.5 * LOOK_AT_OTHERS.total_seconds() + 2


def test_a_query_that_reads_what_is_there_leaves_nothing_to_others(
    queue: PartitionedQueue, time: Time
):
    make_presence(queue).share()
    queue.put(*ALL)
    query = Query(queue)
    query.reader.aim()

    got = [query.batch(), query.batch()]

    assert got[0] | got[1] == ANY
    assert query.batch() == set()
    assert queue.client.stats("orders").groups[0].depth == 0


@pytest.mark.parametrize("limit", [1, 4, 7])
def test_a_query_that_reads_what_is_there_batch_by_batch_leaves_nothing_to_others(
    queue: PartitionedQueue, time: Time, limit: int
):
    make_presence(queue).share()
    queue.put(*(3 * ALL))
    query = Query(queue)
    query.reader.aim()

    while query.batch(limit):
        pass

    assert queue.client.stats("orders").groups[0].depth == 0


def test_a_query_that_reads_what_is_there_finds_what_it_has_lost_and_others_gave_back(
    queue: PartitionedQueue, time: Time
):
    other, query = make_presence(queue), Query(queue)
    other.share()
    partition = min(ANY - query.reader._members["orders"].presence.share())
    queue.put(*KEYS[partition])
    query.reader.aim()
    assert query.batch() == {partition}
    time.sleep((LEASE + SECOND).total_seconds())
    other.share()
    queue.client.release(*queue.receive())
    time.sleep(0.001)

    assert query.batch() == {partition}


def test_a_query_without_a_partition_waits_and_takes_over(queue: PartitionedQueue, time: Time):
    readers = sorted((make_presence(queue) for _ in range(4)), key=lambda each: each._reader)
    for each in readers:
        each.share()
    query = Query(queue)
    query.reader._members["orders"].presence._reader = UUID(int=2**128 - 1)
    queue.store.reset()

    began = time.monotonic()
    assert query.batch() == set()
    assert time.monotonic() > began
    assert queue.store.read_count <= 1

    for each in readers:
        each.leave()
    queue.put(*ALL)
    time.sleep(LATEST.total_seconds())
    assert query.batch() == ANY


def test_of_partitions_that_are_anothers_now_a_query_reports_no_old_figures(
    queue: PartitionedQueue, time: Time
):
    queue.put(*ALL, *ALL)
    first, second = Query(queue), Query(queue)
    # Alone, it leases one message of each partition.
    assert first.batch(limit=4) == ANY
    theirs = second.reader._members["orders"].presence.share()
    time.sleep(LATEST.total_seconds())
    for _ in range(2):
        first.batch(limit=2)
        second.batch(limit=2)

    told = [query.reader.report() for query in (first, second)]

    def total(name: str) -> int:
        return sum(each[name] for each in told if each)

    (billing,) = queue.client.stats("orders").groups
    assert total("next") == 2 * len(ALL)
    assert total("pointer") == billing.pointer
    assert {tuple(each["partitions"]) for each in told if each} == {(0, 2), (1, 3)}
    # The messages of the two batches in hand are no backlog.
    assert total("backlog") == billing.depth - 4
    assert len(theirs) == PARTITIONS // 2


def test_a_query_counts_what_it_has_dead_lettered_in_partitions_that_are_anothers_now(
    monkeypatch: pytest.MonkeyPatch,
):
    queue = PartitionedQueue(max_deliveries=1)
    time = Time(monkeypatch, queue)
    first = Query(queue)
    queue.put(*ALL)
    assert first.batch() == ANY
    time.sleep((LEASE + SECOND).total_seconds())
    first.done = FIRST
    while first.batch():
        pass
    told = first.reader.report()
    assert told is not None
    assert told["dead"] == len(ALL)
    make_presence(queue).share()
    time.sleep(LATEST.total_seconds())

    first.batch()

    told = first.reader.report()
    assert told is not None
    assert told["dead"] == len(ALL)
    assert told["next"] == len(ALL) // 2
    first.reader.stop()


def test_a_query_that_has_no_partition_any_more_reports_no_figures_of_others(
    queue: PartitionedQueue, time: Time
):
    query = Query(queue)
    queue.put(*ALL)
    assert query.batch() == ANY
    query.reader._members["orders"].presence._reader = UUID(int=2**128 - 1)
    for _ in range(PARTITIONS):
        make_presence(queue).share()
    time.sleep(LATEST.total_seconds())
    assert query.batch() == set()

    assert query.reader.report() == NO_METRICS | {"partitions": []}


def test_a_query_that_never_had_a_partition_is_not_said_to_be_replayed(
    queue: PartitionedQueue, time: Time
):
    for _ in range(PARTITIONS):
        make_presence(queue).share()
    query = Query(queue)
    query.reader._members["orders"].presence._reader = UUID(int=2**128 - 1)
    assert query.reader.report() is None

    assert query.batch() == set()

    told = query.reader.report()
    source = {"startOffset": FIRST, "endOffset": FIRST, "latestOffset": told}
    history = BatchHistory()
    history.add({"batchId": 7, "timestamp": "2026-11-20T12:00:00", "sources": [source]})
    (gauge,) = history.gauges
    assert (gauge.backlog, gauge.oldest_age, history.lacks_figures) == (0, timedelta(0), False)


def test_figures_are_those_of_the_share_also_while_messages_of_another_one_are_in_hand(
    queue: PartitionedQueue, time: Time
):
    make_presence(queue).share()
    other = Query(queue)
    partition = min(ANY - other.reader._members["orders"].presence.share())
    queue.put(*KEYS[partition])
    before = other.done
    while not other.batch():
        pass

    told = other.reader.report()
    assert told is not None
    assert told["partitions"] == sorted(other.reader._members["orders"].presence.share())
    assert told["next"] == told["leased"] == 0
    (found,) = progress(
        {"sources": [{"startOffset": before, "endOffset": other.done, "latestOffset": told}]}
    )
    assert found.partitions == tuple(told["partitions"])
    assert (found.messages, found.borrowed) == (2, 2)


def test_a_query_that_stops_leaves(queue: PartitionedQueue, time: Time):
    first, second = Query(queue), Query(queue)
    first.batch()
    second.batch()
    first.reader.stop()
    time.sleep(LATEST.total_seconds())
    queue.put(*ALL)

    assert second.batch() == ANY


def test_an_idle_query_that_shares_16_partitions_makes_ten_reads_a_second_and_no_lwt(
    queue: PartitionedQueue, time: Time
):
    definition: QueueDefinition = queue.client.create_queue("wide", partitions=16)
    others = [Presence(queue.memory, definition, "g", lease=LEASE) for _ in range(3)]
    reader = QueueReader(queue.store, definition, "g", starting="earliest")
    done = {"group": "g", "queue": "wide", "v": 1}

    def idle(until: float) -> None:
        while time.monotonic() < until:
            assert reader.next_batch(done, limit=None) is done
            for each in others:
                each.share()

    idle(60)
    queue.store.reset()
    idle(160)

    assert queue.store.cas_count == 0
    assert queue.store.read_count <= 1000
    reader.stop()


# -- clients ----------------------------------------------------------------------------------


def test_a_client_takes_its_share_first_and_then_the_others(queue: PartitionedQueue, time: Time):
    other = make_presence(queue)
    other.share()
    queue.put(*ALL)

    first = queue.receive(4)
    rest = queue.receive()

    time.sleep(LATEST.total_seconds())
    theirs = other.share()
    assert {each.partition for each in first} == ANY - theirs
    assert {each.partition for each in rest} == theirs


def test_an_exchange_takes_its_share_first_and_then_the_others(
    queue: PartitionedQueue, time: Time
):
    exchange = queue.client.exchange("orders", "billing")
    exchange.round([], LeaseRequest(max_messages=1))
    other = make_presence(queue)
    theirs = other.share()
    time.sleep(LATEST.total_seconds())
    queue.put(*ALL)

    messages = exchange.round([], LeaseRequest(max_messages=10)).messages

    got = list(dict.fromkeys(each.partition for each in messages))
    assert set(got[:2]) == ANY - theirs
    assert set(got[2:]) == theirs


def test_a_client_that_is_closed_leaves(queue: PartitionedQueue, time: Time):
    queue.receive()
    other = make_presence(queue)
    assert other.share() != ANY

    queue.client.close()

    time.sleep(LATEST.total_seconds())
    assert other.share() == ANY


def test_a_client_forgets_groups_that_it_does_not_receive_for_any_more(
    queue: PartitionedQueue, time: Time
):
    presences = Presences(queue.store)
    for number in range(100):
        presences.share(queue.definition, f"group-{number}")
        time.sleep(LONGEST.total_seconds() / 10)

    assert len(presences._known) <= 12
    assert presences.share(queue.definition, "group-99") == ANY


def test_a_forked_client_is_a_reader_of_its_own(
    queue: PartitionedQueue, time: Time, monkeypatch: pytest.MonkeyPatch
):
    presences = Presences(queue.store)
    assert presences.share(queue.definition, "billing") == ANY

    with monkeypatch.context() as child:
        child.setattr(presence.os, "getpid", lambda: -1)
        share = presences.share(queue.definition, "billing")
        presences.leave()

    assert len(share) == PARTITIONS // 2
    # Its parent has not left.
    assert make_presence(queue).share() != ANY


def test_who_is_there_can_be_looked_up(time: Time, queue: PartitionedQueue):
    first, second = (Presence(queue.store, queue.definition, "g", lease=LEASE) for _ in range(2))
    first.share()
    second.share()

    found = read_presences(queue.store, queue.definition, "g")

    assert set(found) == {first._reader, second._reader}
    second.leave()
    assert set(read_presences(queue.store, queue.definition, "g")) == {first._reader}
    assert read_presences(queue.store, QueueDefinition("one", 1), "g") == {}
