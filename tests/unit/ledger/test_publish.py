from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark import backoff
from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    ConnectError,
    ContentionError,
    NotAppliedError,
    OutcomeUnknownError,
    QueueStateError,
    StoreError,
    TooLargeError,
)
from cassieq_spark.ledger.decide import Publication, decide_publish
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Once
from cassieq_spark.ledger.publish import (
    ALREADY_PUBLISHED,
    CHANGED,
    MOST_BLOCKS,
    Published,
    publish,
)
from cassieq_spark.ledger.state import LedgerHead, UniqueRow
from cassieq_spark.ledger.unique import ID_BYTES
from cassieq_spark.ledger.window import UniqueIds
from cassieq_spark.model import QueueId, Range, SinkBatch
from cassieq_spark.queues import purge_queue
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, MOST_OPS, Partition, Rows, Slice
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.builders import BEGUN_AT, make_pending, make_queue


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def queue_id(store: FaultyStore) -> QueueId:
    return make_queue(store).queue_id


@pytest.mark.parametrize("batch", [None, SinkBatch("s", 0)])
def test_a_publish_costs_one_lwt_and_one_read(
    batch: SinkBatch | None, queue_id: QueueId, store: FaultyStore
):
    counting = CountingStore(store)

    publish(Ledger(counting, queue_id), make_pending([3] * 100), batch=batch)

    assert (counting.cas_count, counting.read_count, counting.serial_read_count) == (1, 1, 0)


def test_nothing_to_publish_asks_nothing(queue_id: QueueId, store: FaultyStore):
    counting = CountingStore(store)

    assert publish(Ledger(counting, queue_id), make_pending([0, 0])) == Published(Range(0, 0))
    assert (counting.cas_count, counting.read_count) == (0, 0)


def test_empty_blocks_get_no_monotons(queue_id: QueueId, store: FaultyStore):
    pending = make_pending([0, 2, 0, 3])

    assert publish(Ledger(store, queue_id), pending).monotons == Range(0, 5)
    assert [block.block for block in Ledger(store, queue_id).read_blocks()] == [
        pending[1].block,
        pending[3].block,
    ]


def test_a_replayed_batch_is_published_once_also_with_other_tasks(
    queue_id: QueueId, store: FaultyStore, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    publish(Ledger(store, queue_id), make_pending([2, 2]), batch=SinkBatch("s", 5))

    again = publish(Ledger(store, queue_id), make_pending([7]), batch=SinkBatch("s", 5))

    assert again == Published(None)
    assert Ledger(store, queue_id).read_head().next == 4
    assert [record.action for record in caplog.records] == [ALREADY_PUBLISHED]  # type: ignore[attr-defined]


def test_a_batch_below_the_last_one_is_refused_with_what_may_have_happened(
    queue_id: QueueId, store: FaultyStore
):
    publish(Ledger(store, queue_id), make_pending([2]), batch=SinkBatch("s", 5))

    with pytest.raises(
        BatchOrderError, match=r"up to batch 5, .* batch 4; .* older copy"
    ) as error:
        publish(Ledger(store, queue_id), make_pending([7]), batch=SinkBatch("s", 4))
    assert not error.value.retryable
    assert Ledger(store, queue_id).read_head().next == 2


def test_a_batch_with_another_content_is_refused_or_skipped_with_an_error_in_the_log(
    queue_id: QueueId, store: FaultyStore, caplog: pytest.LogCaptureFixture
):
    publish(Ledger(store, queue_id), make_pending([2]), batch=SinkBatch("s", 5, "one"))
    other = SinkBatch("s", 5, "other")

    with pytest.raises(BatchChangedError, match=r"\(one, here other\).*'failOnChangedBatch'"):
        publish(Ledger(store, queue_id), make_pending([7]), batch=other)
    skipped = publish(
        Ledger(store, queue_id), make_pending([7]), batch=other, fail_on_changed=False
    )

    assert skipped == Published(None)
    assert Ledger(store, queue_id).read_head().next == 2
    (record,) = caplog.records
    assert (record.action, record.levelno) == (CHANGED, logging.ERROR)  # type: ignore[attr-defined]


def test_a_fingerprint_that_is_not_known_is_not_compared(queue_id: QueueId, store: FaultyStore):
    publish(Ledger(store, queue_id), make_pending([2]), batch=SinkBatch("s", 5, "one"))
    # As an earlier release does: it knows of no fingerprint, and leaves that of batch 5.
    publish(Ledger(store, queue_id), make_pending([2]), batch=SinkBatch("s", 6))

    again = publish(Ledger(store, queue_id), make_pending([7]), batch=SinkBatch("s", 6, "other"))

    assert again == Published(None)
    assert Ledger(store, queue_id).read_sink("s") == SinkBatch("s", 6)


@pytest.mark.parametrize("batch", [None, SinkBatch("s", 0)])
@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_is_resolved_and_the_write_published_once(
    queue_id: QueueId, store: FaultyStore, fault: Fault, batch: SinkBatch | None
):
    pending = make_pending([2, 3])
    store.fault = fault

    published = publish(Ledger(store, queue_id), pending, batch=batch)
    store.arrive()

    assert published.monotons == Range(0, 5)
    assert [block.block for block in Ledger(store, queue_id).read_blocks()] == [
        each.block for each in pending
    ]


@pytest.mark.parametrize("after", range(5))
def test_a_request_that_arrives_late_at_any_moment_is_published_once(
    queue_id: QueueId, store: FaultyStore, after: int
):
    # I1: arriving between the serial read and the next look at the head, it was published twice.
    store.fault = Fault.REQUEST_LATE
    store.interrupt(store.arrive, after=2 + after)

    published = publish(Ledger(store, queue_id), make_pending([2]))
    store.calm()
    store.arrive()

    assert published.monotons == Range(0, 2)
    assert len(Ledger(store, queue_id).read_blocks()) == 1


def test_another_write_in_place_of_the_lost_one_does_not_count_as_it(
    queue_id: QueueId, store: FaultyStore
):
    store.fault = Fault.REQUEST_LOST
    other = make_pending([4])
    store.interrupt(lambda: publish(Ledger(store, queue_id), other) and None, after=2)

    assert publish(Ledger(store, queue_id), make_pending([2])).monotons == Range(4, 6)


class Rivalled(WrappedStore):
    """Another process publishes during every serial read: such reads are slow under contention."""

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        if serial:
            publish(Ledger(self._store, QueueId(*partition.key)), make_pending([4]))
        return super().read_rows(partition, which, serial=serial)


def test_a_writer_whose_request_was_lost_is_as_fast_as_its_rivals_afterwards(
    queue_id: QueueId, store: FaultyStore
):
    rivalled = CountingStore(Rivalled(store))
    store.fault = Fault.REQUEST_LOST

    # Once a rival has the monotons of the lost request, that one is refused for good.
    assert publish(Ledger(rivalled, queue_id), make_pending([2])).monotons == Range(4, 6)
    assert (rivalled.cas_count, rivalled.serial_read_count) == (2, 1)


def test_trimmed_before_the_answer_could_be_resolved_is_an_unknown_outcome(
    queue_id: QueueId, store: FaultyStore
):
    store.fault = Fault.ANSWER_LOST

    def repair() -> None:
        Ledger(store, queue_id).finalise(Ledger(store, queue_id).read_head(), 2)
        Ledger(store, queue_id).trim(finalised=2, below=2)

    store.interrupt(repair, after=2)

    with pytest.raises(OutcomeUnknownError, match="trimmed"):
        publish(Ledger(store, queue_id), make_pending([2]))


@pytest.mark.parametrize("error", [NotAppliedError, ConnectError])
def test_an_error_after_a_lost_answer_does_not_claim_that_nothing_was_applied(
    queue_id: QueueId, store: FaultyStore, error: type[StoreError]
):
    def fail() -> None:
        raise error("the read timed out")

    store.fault = Fault.ANSWER_LOST
    store.interrupt(fail, after=2)

    with pytest.raises(OutcomeUnknownError, match="the read timed out"):
        publish(Ledger(store, queue_id), make_pending([2]))


@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.parametrize(
    "batch",
    [None, SinkBatch("s", 0), Once("key:k", timedelta(days=1))],
    ids=["unnamed", "batch", "key"],
)
def test_when_a_purge_removes_every_trace_of_a_publish_it_is_not_called_not_applied(
    queue_id: QueueId, store: FaultyStore, batch: SinkBatch | Once | None, after: int
):
    ledger, applied = Ledger(store, queue_id), []

    def purge() -> None:
        purge_queue(store, queue_id.partition("@")[0], force=True)
        head = ledger.read_head()
        applied.append(head.next == 2)
        # As the repair does with a version that is over.
        assert ledger.finalise(head, head.next)
        assert ledger.empty(end=head.next)

    store.fault = Fault.ANSWER_LOST
    store.interrupt(purge, after=after)

    try:
        publish(ledger, make_pending([2], datetime.now(UTC)), batch=batch)
    except OutcomeUnknownError:
        was_refused = False
    except QueueStateError:
        was_refused = True
    else:
        was_refused = False

    assert not (was_refused and applied == [True])
    assert was_refused or applied != [False]


def test_a_batch_may_be_retried_after_any_error(queue_id: QueueId, store: FaultyStore):
    def fail() -> None:
        raise NotAppliedError("the read timed out")

    store.fault = Fault.ANSWER_LOST
    store.interrupt(fail, after=3)
    pending, batch = make_pending([2]), SinkBatch("s", 0)

    with pytest.raises(NotAppliedError):
        publish(Ledger(store, queue_id), pending, batch=batch)
    publish(Ledger(store, queue_id), pending, batch=batch)

    assert Ledger(store, queue_id).read_head().next == 2


def test_a_write_slower_than_the_fence_is_refused_with_advice(
    queue_id: QueueId, store: FaultyStore
):
    pending = make_pending([2])
    Ledger(store, queue_id).raise_fence(
        Ledger(store, queue_id).read_head(), BEGUN_AT + timedelta(hours=1)
    )

    with pytest.raises(NotAppliedError, match="longer --write-timeout"):
        publish(Ledger(store, queue_id), pending)
    assert Ledger(store, queue_id).read_head().next == 0


def test_as_many_blocks_as_one_publish_takes_fill_one_compare_and_set():
    head = LedgerHead(next=0, finalised=0, fence=BEGUN_AT - timedelta(days=1), groups_version=0)
    (one,) = make_pending([1])
    pending = [replace(one, ids=bytes([number]) * ID_BYTES) for number in range(1, 3)]
    pending += [one] * (MOST_BLOCKS - len(pending))
    ids = UniqueIds()
    for at in range(1000):
        before = at - 1 if at else None
        ids.add(UniqueRow(at, b"", BEGUN_AT, BEGUN_AT, before), {}, has_deleted=False)
    ids.catch_up(Ledger(MemoryStore(), QueueId("q@1")), head, BEGUN_AT, timedelta(seconds=0))
    batch = SinkBatch("s", 0)

    decision = decide_publish(head, pending, batch=batch, last=None, now=BEGUN_AT, ids=ids)

    assert isinstance(decision, Publication)
    assert len(decision.ops) == MOST_OPS


def test_more_blocks_than_one_publish_takes_are_refused_with_advice(
    queue_id: QueueId, store: FaultyStore
):
    pending = make_pending([1]) * (MOST_BLOCKS + 1)

    with pytest.raises(TooLargeError, match=f"has {MOST_BLOCKS + 1} blocks.*coalesce"):
        publish(Ledger(store, queue_id), pending)
    assert Ledger(store, queue_id).read_head().next == 0


def test_a_lost_request_behind_the_fence_is_certainly_not_applied(
    queue_id: QueueId, store: FaultyStore
):
    store.fault = Fault.REQUEST_LATE
    head = Ledger(store, queue_id).read_head()
    store.interrupt(
        lambda: Ledger(store, queue_id).raise_fence(head, BEGUN_AT + timedelta(hours=1)) and None,
        after=2,
    )

    with pytest.raises(NotAppliedError):
        publish(Ledger(store, queue_id), make_pending([2]))
    store.arrive()

    assert Ledger(store, queue_id).read_head().next == 0


def test_a_queue_that_is_not_there_is_said_so(store: FaultyStore):
    with pytest.raises(QueueStateError, match="cassieq queue create"):
        publish(Ledger(store, QueueId("none@1")), make_pending([1]))


def test_losing_every_race_ends_in_advice(
    queue_id: QueueId, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backoff, "ATTEMPTS", 2)
    monkeypatch.setattr(store, "cas", lambda *_: False)

    with pytest.raises(ContentionError, match="gather them"):
        publish(Ledger(store, queue_id), make_pending([1]))


def test_racing_publishers_leave_no_gap_and_publish_everything_once():
    store = MemoryStore()
    queue_id = make_queue(store).queue_id
    writes = [make_pending([1 + number % 3, 2]) for number in range(40)]

    with ThreadPoolExecutor(4) as pool:
        published = list(
            pool.map(lambda pending: publish(Ledger(store, queue_id), pending), writes)
        )

    blocks = Ledger(store, queue_id).locate(Range(0, Ledger(store, queue_id).read_head().next))
    assert [block.block for block in blocks] == [
        each.block
        for _, pending in sorted(zip([each.monotons for each in published], writes, strict=True))
        for each in pending
    ]
