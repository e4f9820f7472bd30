from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cassieq_spark.arrow.chunks import decode
from cassieq_spark.errors import MessageError, SchemaError
from cassieq_spark.ledger.publish import MOST_BLOCKS
from cassieq_spark.model import BucketSlice, PendingBlock, Range, block_time
from cassieq_spark.producer import blocks
from cassieq_spark.producer.blocks import MOST_TIMES, times_of_task, write_block, write_blocks
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_queue

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
OPTIONS = SinkOptions(queue="q")


class Scene:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.queue = make_queue(self.store)

    def write(self, *batches: pa.RecordBatch, **options: Any) -> list[PendingBlock]:
        given = SinkOptions(queue="q", **options)
        return write_blocks(self.store, self.queue, batches, given)

    def values(self, written: PendingBlock) -> list[str]:
        buckets = -(-written.count // self.queue.bucket_size)
        slices = [
            BucketSlice(written.block, bucket, bucket * self.queue.bucket_size, written.count)
            for bucket in range(buckets)
        ]
        return [
            value.decode()
            for _, chunk in self.store.read_chunks(self.queue.queue_id, slices)
            for value in decode(chunk, Range(0, written.count)).column("value").to_pylist()
        ]

    def contents(self, pending: Sequence[PendingBlock]) -> list[tuple[object, list[str]]]:
        return [(each.visible, self.values(each)) for each in pending]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def delayed(*delays: float | None) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "value": pa.array([str(number) for number in range(len(delays))]),
            "delay": pa.array(
                [None if each is None else timedelta(seconds=each) for each in delays],
                pa.duration("us"),
            ),
        }
    )


def timed(*instants: datetime | None) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "value": pa.array([str(number) for number in range(len(instants))]),
            "visible_at": pa.array(instants, pa.timestamp("us", "UTC")),
        }
    )


def test_without_a_time_of_delivery_there_is_one_block_of_all(scene: Scene):
    values = pa.array([str(number) for number in range(11)])

    pending = scene.write(pa.record_batch({"value": values}), pa.record_batch({"value": values}))

    assert scene.contents(pending) == [(None, [*values.to_pylist(), *values.to_pylist()])]


def test_there_is_a_block_for_each_delay_those_at_once_first(scene: Scene):
    pending = scene.write(delayed(10, 0, 5, None, 10), delayed(5))

    assert scene.contents(pending) == [
        (None, ["1", "3"]),
        (5 * SECOND, ["2", "0"]),
        (10 * SECOND, ["0", "4"]),
    ]


@pytest.mark.parametrize(
    "column", [pa.array([1.5]), pa.array([2], pa.int16()), pa.array([2], pa.int64())]
)
def test_a_delay_may_be_a_number_of_seconds_and_is_never_rounded_down(
    scene: Scene, column: pa.Array
):
    batch = pa.record_batch({"value": pa.array(["a"]), "delay": column})

    assert scene.contents(scene.write(batch)) == [(2 * SECOND, ["a"])]


@pytest.mark.parametrize(
    ("unit", "count"), [("s", 2), ("ms", 1_001), ("us", 1_000_001), ("ns", 1_000_000_001)]
)
def test_a_delay_may_be_a_duration_of_any_unit_and_is_never_rounded_down(
    scene: Scene, unit: str, count: int
):
    delay = pa.array([count]).cast(pa.duration(unit))
    batch = pa.record_batch({"value": pa.array(["a"]), "delay": delay})

    assert scene.contents(scene.write(batch)) == [(2 * SECOND, ["a"])]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_longest_delay_is_a_year_in_any_unit(scene: Scene, unit: str):
    year = timedelta(days=365)
    delay = pa.array([365 * 86400]).cast(pa.duration("s")).cast(pa.duration(unit))
    longer = pc.add(delay.cast(pa.int64()), 1).cast(pa.duration(unit))
    values = pa.array(["a"])

    (block,) = scene.write(pa.record_batch({"value": values, "delay": delay}))

    assert block.visible == year
    with pytest.raises(MessageError, match=r"^row 0 .* more than 365 days"):
        scene.write(pa.record_batch({"value": values, "delay": longer}))


@pytest.mark.parametrize(
    "delay",
    [
        pa.array([None, 1_700_000_000_000_000_000]),
        pa.array([None, 2**63], pa.uint64()),
        pa.array([None, 2**62]).cast(pa.duration("s")),
        pa.array([None, float("nan")]),
        pa.array([None, float("inf")]),
    ],
    ids=["nanoseconds of today", "uint64", "seconds", "nan", "inf"],
)
def test_a_delay_of_more_than_a_year_is_refused_by_its_row_however_long_it_is(
    scene: Scene, delay: pa.Array
):
    batch = pa.record_batch({"value": pa.array(["a", "b"]), "delay": delay})

    with pytest.raises(MessageError, match=r"^row 3 .* no number, or more than 365 days"):
        scene.write(batch.slice(0, 1), batch.slice(0, 1), batch)


def test_instants_are_rounded_up_to_whole_seconds(scene: Scene):
    pending = scene.write(timed(SOON, SOON + timedelta(microseconds=1), None))

    assert scene.contents(pending) == [(None, ["2"]), (SOON, ["0"]), (SOON + SECOND, ["1"])]


def test_what_was_to_be_visible_long_ago_is_visible_at_once(scene: Scene):
    pending = scene.write(timed(EPOCH - SECOND, EPOCH, datetime(2020, 1, 1, tzinfo=UTC)))

    assert scene.contents(pending) == [(None, ["0", "1", "2"])]


def test_what_was_to_be_visible_just_now_keeps_its_instant_for_clocks_may_differ(scene: Scene):
    recent = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)

    assert scene.contents(scene.write(timed(recent))) == [(recent, ["0"])]


@pytest.mark.parametrize("spread", [MOST_TIMES, 10 * MOST_TIMES, 1000 * MOST_TIMES])
def test_many_times_are_rounded_to_few_and_no_message_is_early_or_much_too_late(
    scene: Scene, spread: int
):
    delays = [1 + number * spread / 1000 for number in range(1000)]

    pending = scene.write(*(delayed(*delays[at : at + 100]) for at in range(0, 1000, 100)))

    assert sum(each.count for each in pending) == 1000
    assert len(pending) < 6 * MOST_TIMES
    most_late = max(1, spread / 50)
    late: list[float] = []
    for block in pending:
        assert isinstance(block.visible, timedelta)
        for value in scene.values(block):
            # Values count within their batch; any batch's delay of that place will do.
            wanted = [delays[at + int(value)] for at in range(0, 1000, 100)]
            late += [
                min(
                    block.visible.total_seconds() - each
                    for each in wanted
                    if each <= block.visible.total_seconds()
                )
            ]
    assert max(late) <= most_late


def test_the_blocks_of_ten_thousand_tasks_go_into_one_publish():
    times = [times_of_task(partition) for partition in range(10_000)]

    assert sum(times) <= MOST_BLOCKS
    assert sum(times[:1000]) < MOST_BLOCKS / 2, "and a thousand may have twice as many"
    assert times == sorted(times, reverse=True)
    assert (times[0], times[59], times[999]) == (MOST_TIMES, MOST_TIMES, 6)


@pytest.mark.parametrize("most", [3, 6, 50])
def test_a_task_of_many_keeps_fewer_times(scene: Scene, most: int):
    delays = [float(1 + number) for number in range(1000)]
    batches = [delayed(*delays[at : at + 10]) for at in range(0, 1000, 10)]

    pending = write_blocks(scene.store, scene.queue, batches, OPTIONS, most_times=most)

    assert sum(each.count for each in pending) == 1000
    assert len(pending) <= most


def test_what_was_written_before_times_were_rounded_more_has_blocks_of_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    early, late = delayed(1, 2, 3), delayed(4, 5, 6, 7, 8)
    monkeypatch.setattr(blocks, "_HELD_BYTES", early.nbytes + 1)

    pending = write_blocks(scene.store, scene.queue, [early, early, late], OPTIONS, most_times=3)

    assert scene.contents(pending) == [
        (2 * SECOND, ["0", "0"]),
        (4 * SECOND, ["2", "2", "0"]),
        (4 * SECOND, ["1", "1"]),
        (8 * SECOND, ["1", "2", "3", "4"]),
    ]


def test_a_negative_delay_is_refused_by_its_row(scene: Scene):
    with pytest.raises(MessageError, match=r"^row 4 .* negative delay"):
        scene.write(delayed(1, 2), delayed(0, None, -1))


@pytest.mark.parametrize(
    "delay",
    [
        pa.array([-(2**63)]),
        pa.array([-1]).cast(pa.duration("ns")),
        pa.array([-(2**62)]).cast(pa.duration("s")),
    ],
    ids=lambda delay: str(delay.type),
)
def test_a_negative_delay_is_refused_however_large_or_small_it_is(scene: Scene, delay: pa.Array):
    with pytest.raises(MessageError, match=r"^row 0 .* negative delay"):
        scene.write(pa.record_batch({"value": pa.array(["a"]), "delay": delay}))


def test_two_columns_that_say_when_a_message_is_delivered_are_refused(scene: Scene):
    batch = delayed(1).append_column("visible_at", timed(SOON).column("visible_at"))

    with pytest.raises(SchemaError, match=r"'delay' and 'visible_at', .* keep one of them"):
        scene.write(batch)


def test_a_null_value_is_refused_by_its_row_of_the_task(scene: Scene):
    batch = delayed(1, 2, 3).set_column(0, "value", pa.array(["a", None, "c"]))

    with pytest.raises(MessageError, match=r"^row 4 .* has no value"):
        scene.write(delayed(1, 2, 3), batch)


def test_large_messages_are_written_as_they_come(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blocks, "_HELD_BYTES", 1)

    pending = scene.write(delayed(1, 2, 1, 2, 1), delayed(1, 1, 1, 2, 2), chunk_bytes=1)

    assert scene.contents(pending) == [
        (SECOND, ["0", "2", "4", "0", "1", "2"]),
        (2 * SECOND, ["1", "3", "3", "4"]),
    ]


def test_a_pending_block_tells_what_its_block_takes_in_the_store(scene: Scene):
    batch = pa.record_batch({"value": pa.array(["x" * 100] * 20)})

    (at_once,) = scene.write(batch)
    (later,) = scene.write(
        batch.append_column("delay", pa.array([SECOND] * 20, pa.duration("us")))
    )

    written = write_block(scene.store, scene.queue, [batch], OPTIONS)
    assert at_once.size == later.size == written.size > 0


def test_nothing_is_no_block(scene: Scene):
    assert scene.write() == []
    assert [each.count for each in scene.write(delayed())] in ([], [0])


def test_after_a_clock_was_ahead_a_block_has_the_right_time_again(monkeypatch: pytest.MonkeyPatch):
    now = datetime(2026, 11, 20, tzinfo=UTC)
    times = []
    for ahead in (timedelta(days=30), timedelta(0)):
        nanoseconds = int((now + ahead).timestamp()) * 10**9
        monkeypatch.setattr(blocks, "time_ns", lambda at=nanoseconds: at)
        block = blocks.new_block_id()
        assert block.version == 1
        times.append(block_time(block))

    assert times == [now + timedelta(days=30), now]


def test_blocks_of_one_moment_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blocks, "time_ns", lambda: 1)

    assert len({blocks.new_block_id() for _ in range(1000)}) == 1000
