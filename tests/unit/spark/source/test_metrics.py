from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.queues import read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.spark.source import metrics
from cassieq_spark.spark.source.metrics import AGE_PAUSE, SourceMetrics, count_metrics
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
)

SECOND = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=1)


def report_of(metrics: SourceMetrics) -> dict[str, int] | None:
    """The metrics as `QueueReader.report` asks for them."""
    if metrics.is_to_read:
        metrics.read_oldest()
    return metrics.report()


class Scene:
    """A queue of 20 messages in two blocks, the first a second older; and their metrics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        self.queue_id = make_queue(self.store, [13]).queue_id
        self.clock.advance(SECOND)
        publish(Ledger(self.store, self.queue_id), make_pending([7]))
        self.group = make_group(self.store, self.queue_id)
        self.metrics = SourceMetrics(Ledger(self.store, self.queue_id))
        self.seconds = 0.0
        monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: self.seconds))

    def lease(self, **request: object) -> Lease:
        end = Ledger(self.store, self.queue_id).read_head().next
        lease_request = make_request(stop=end, **request)
        lease = self.group.lease(lease_request)
        self.metrics.observe(lease, end)
        return lease

    def report_reads(self) -> tuple[dict[str, int] | None, int]:
        self.store.reset()
        return report_of(self.metrics), self.store.read_count

    def age(self) -> int | None:
        report = report_of(self.metrics)
        assert report is not None
        return report.get("oldest_age_ms")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def agrees_with_stats(scene: Scene, lease: Lease) -> bool:
    """What was counted on the way is what exact metrics say, the batch apart."""
    (exact,) = queue_stats(Ledger(scene.store, scene.queue_id)).groups
    counted = count_metrics(lease, Ledger(scene.store, scene.queue_id).read_head().next)
    batch = lease.count
    expected = (exact.depth, exact.leased, exact.waiting, exact.pointer)
    got = (counted["backlog"] + batch, *(counted[k] for k in ("leased", "waiting", "pointer")))
    return got == expected


def test_before_the_first_batch_there_is_nothing_to_report(scene: Scene):
    assert scene.metrics.report() is None


def test_figures_are_whole_numbers_with_keys_in_order(scene: Scene):
    scene.lease(max_messages=5)
    scene.metrics.lost += 2
    scene.metrics.lost += 1

    report = report_of(scene.metrics)

    assert report == {
        "backlog": 15,
        "dead": 0,
        "leased": 5,
        "lost_leases": 3,
        "next": 20,
        "oldest_age_ms": 1000,
        "pointer": 5,
        "skipped": 0,
        "v": 1,
        "waiting": 0,
    }
    assert list(report) == sorted(report)


def test_figures_agree_with_the_exact_ones_through_leases_acks_and_redelivery(scene: Scene):
    mine = scene.lease(max_messages=6)
    assert agrees_with_stats(scene, mine)
    theirs = scene.lease(max_messages=4)
    assert agrees_with_stats(scene, theirs)
    mine = scene.lease(held=mine.token, max_messages=2)
    assert agrees_with_stats(scene, mine)

    scene.clock.advance(LEASE + MOMENT)
    again = scene.lease(max_messages=3)
    assert agrees_with_stats(scene, again)
    assert [str(each.monotons) for each in again.leased] == ["6-9"]
    rest = scene.lease(held=again.token)
    assert agrees_with_stats(scene, rest)
    last = scene.lease(held=rest.token)
    assert agrees_with_stats(scene, last)


def test_an_ack_with_nothing_to_lease_leaves_nothing(scene: Scene):
    done = scene.lease()
    idle = scene.lease(held=done.token)

    assert agrees_with_stats(scene, idle)
    report, reads = scene.report_reads()
    assert report is not None
    assert (report["backlog"], report["leased"], report["oldest_age_ms"]) == (0, 0, 0)
    assert reads == 0


def test_the_age_costs_one_read_for_a_block_and_none_while_that_is_the_oldest(scene: Scene):
    first = scene.lease(max_messages=5)
    assert scene.report_reads()[1] == 1
    assert scene.age() == 1000

    scene.clock.advance(SECOND)
    scene.lease(held=first.token, max_messages=5)

    assert scene.report_reads()[1] == 0
    assert scene.age() == 2000


def test_another_block_is_asked_for_only_after_a_pause(scene: Scene):
    first = scene.lease(max_messages=13)
    assert scene.age() == 1000
    second = scene.lease(held=first.token, max_messages=2)

    scene.seconds = AGE_PAUSE.total_seconds() - 0.1
    assert scene.report_reads()[1] == 0
    assert scene.age() == 1000, "a second too much, until the ledger is asked"
    scene.seconds = AGE_PAUSE.total_seconds()
    assert scene.report_reads()[1] == 1
    assert scene.age() == 0
    assert second.leased


def test_an_idle_reader_asks_nothing_and_soon_does_not_know_the_age(scene: Scene):
    mine = scene.lease(max_messages=13)
    assert scene.age() == 1000
    scene.lease()  # another reader's
    scene.lease(held=mine.token)
    scene.seconds = AGE_PAUSE.total_seconds()

    report, reads = scene.report_reads()

    assert reads == 0
    assert report is not None
    assert (report["backlog"], report["leased"]) == (7, 7)
    assert "oldest_age_ms" not in report


def test_a_block_that_a_repair_has_deleted_meanwhile_has_no_age(scene: Scene):
    scene.lease(max_messages=5)
    Ledger(scene.store, scene.queue_id).finalise(
        Ledger(scene.store, scene.queue_id).read_head(), 13
    )
    Ledger(scene.store, scene.queue_id).trim(finalised=13, below=13)

    assert scene.age() is None


def test_a_reader_notes_what_it_leases_and_what_it_lost(scene: Scene):
    definition = read_queue(scene.store, "q")
    slow, other = (
        QueueReader(
            scene.store, definition, "g", starting="earliest", request=LeaseRequest(lease=LEASE)
        )
        for _ in range(2)
    )
    first = initial_offset("q", "g")
    end = slow.next_batch(first, limit=6)
    assert slow.report() == {
        "backlog": 14,
        "dead": 0,
        "leased": 6,
        "lost_leases": 0,
        "next": 20,
        "oldest_age_ms": 1000,
        "pointer": 6,
        "skipped": 0,
        "v": 1,
        "waiting": 0,
    }
    scene.clock.advance(LEASE + MOMENT)
    other.next_batch(first, limit=None)

    slow.next_batch(end, limit=6)

    report = slow.report()
    assert report is not None
    assert (report["lost_leases"], report["leased"], report["backlog"]) == (6, 12, 14)
    slow.stop()
    other.stop()
