"""The figures of each partition: in the snapshot, for Prometheus, and on the board."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from rich.console import Console

from cassieq_spark.cli.top import TopFrame, TopView, render
from cassieq_spark.monitoring.board import lines
from cassieq_spark.monitoring.metrics import LastRuns, families
from cassieq_spark.monitoring.snapshot import Snapshot
from tests.support.snapshots import read_snapshot
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue

#: How many messages each partition has; the group holds those of partition 1.
COUNTS = (2, 4, 0, 1)


def filled() -> PartitionedQueue:
    queue = PartitionedQueue("key")
    queue.client.create_queue("plain")
    queue.client.create_group("orders", "billing")
    queue.put(*KEYS[1], *KEYS[1])
    queue.receive()
    queue.put(*KEYS[0], KEYS[3][0])
    return queue


def samples(snapshot: Snapshot, name: str) -> Mapping[tuple[str, ...], float]:
    found = {each.name: each for each in families(snapshot, LastRuns(), {})}
    return {tuple(sample.labels.values()): sample.value for sample in found[name].samples}


def test_a_snapshot_has_the_figures_of_each_partition_and_their_sum():
    queue = filled()

    orders, plain = read_snapshot(queue.store, ["orders", "plain"]).queues

    assert [each.name for each in orders.partitions] == [f"orders/{n}" for n in range(PARTITIONS)]
    assert [each.stats for each in orders.partitions] == list(orders.stats.partitions)
    assert [each.leases["billing"] for each in orders.partitions] == [0, 1, 0, 0]
    assert orders.leases["billing"] == 1
    assert orders.stats.next == sum(COUNTS)
    assert plain.partitions == ()


def test_partitions_are_exported_where_there_are_several():
    queue = filled()
    queue.clock.advance(timedelta(seconds=7))

    snapshot = read_snapshot(queue.store, ["orders", "plain"])

    numbers = [str(number) for number in range(PARTITIONS)]
    published = {
        ("orders", number): float(count) for number, count in zip(numbers, COUNTS, strict=True)
    }
    assert samples(snapshot, "cassieq_partition_messages_published") == published
    assert samples(snapshot, "cassieq_partition_stored_messages") == published
    depths = {(*labels, "billing"): count for labels, count in published.items()}
    assert samples(snapshot, "cassieq_partition_depth_messages") == depths
    ages = samples(snapshot, "cassieq_partition_oldest_age_seconds")
    assert ages == {labels: 7.0 if count else 0.0 for labels, count in depths.items()}


def test_the_board_has_a_line_for_a_queue_or_for_each_of_its_partitions():
    queue = filled()
    queue.client.create_queue("wide", partitions=11)
    snapshot = read_snapshot(queue.store, ["wide", "orders", "plain"])

    assert [line.queue for line in lines(None, snapshot)] == ["orders", "plain", "wide"]
    by_partition = lines(None, snapshot, by_partition=True)
    assert [line.queue for line in by_partition] == [
        *(f"orders/{number}" for number in range(PARTITIONS)),
        "plain",
        *(f"wide/{number}" for number in range(11)),
    ]
    depths = [line.group.depth for line in by_partition if line.group is not None]
    assert depths == list(COUNTS)
    assert [line.readers for line in by_partition[:PARTITIONS]] == [0, 1, 0, 0]


def test_rates_are_of_each_partition():
    queue = filled()
    before = read_snapshot(queue.store, ["orders"])
    queue.put(*KEYS[3])
    now = read_snapshot(queue.store, ["orders"])

    rates = [line.published for line in lines(before, now, by_partition=True)]

    assert [rate is not None and rate > 0 for rate in rates] == [False, False, False, True]


def test_top_counts_queues_not_partitions():
    queue = filled()
    frame = TopFrame(read_snapshot(queue.store, ["orders"]))
    console = Console(width=120, record=True)

    console.print(render(frame, TopView(by_partition=True), 120, None))

    text = console.export_text()
    assert "1 queue(s)" in text
    assert [f"orders/{number}" in text for number in range(PARTITIONS)] == [True] * PARTITIONS
