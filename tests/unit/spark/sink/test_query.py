from __future__ import annotations

from pathlib import Path

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.spark.checkpoint import PLAN_UNREADABLE, read_plan
from cassieq_spark.spark.sink.query import check_task_messages, check_trigger


def make_checkpoint(folder: Path, *, planned: int, committed: int) -> str:
    (folder / "metadata").write_text('{"id":"q1"}')
    for log, count in (("offsets", planned), ("commits", committed)):
        (folder / log).mkdir()
        for number in range(count):
            (folder / log / str(number)).write_text("")
            (folder / log / f".{number}.crc").write_text("")
    (folder / "offsets" / ".99.tmp").write_text("")
    return str(folder)


@pytest.mark.parametrize("committed", [0, 1, 12])
def test_a_micro_batch_is_planned_when_its_end_is_logged(tmp_path: Path, committed: int):
    checkpoint = make_checkpoint(tmp_path, planned=committed + 1, committed=committed)

    for path in (checkpoint, f"file://{checkpoint}", f"file:{checkpoint}"):
        check_trigger(read_plan(path))


@pytest.mark.parametrize("committed", [0, 1, 12])
def test_a_writer_that_is_made_before_is_for_a_continuous_trigger(tmp_path: Path, committed: int):
    checkpoint = make_checkpoint(tmp_path, planned=committed, committed=committed)

    with pytest.raises(OptionError, match="continuous trigger"):
        check_trigger(read_plan(checkpoint))


def test_before_its_logs_are_there_a_query_has_planned_nothing(tmp_path: Path):
    (tmp_path / "metadata").write_text('{"id":"q1"}')

    with pytest.raises(OptionError, match="continuous trigger"):
        check_trigger(read_plan(str(tmp_path)))


@pytest.mark.parametrize("checkpoint", ["hdfs://host/checkpoint", "odd://x", "nowhere", ""])
def test_a_checkpoint_that_cannot_be_read_tells_nothing_and_is_left_alone(
    checkpoint: str, caplog: pytest.LogCaptureFixture
):
    """Some file systems take seconds to fail, and a sink looks once per batch."""
    for _ in range(3):
        check_trigger(read_plan(checkpoint))

    (record,) = caplog.records
    assert record.action == PLAN_UNREADABLE  # type: ignore[attr-defined]
    assert "known by its content" in caplog.text


def test_a_plan_is_what_spark_has_logged_for_its_last_batch(tmp_path: Path):
    checkpoint = make_checkpoint(tmp_path, planned=12, committed=11)
    (tmp_path / "offsets" / "11").write_text('v1\n{"batchWatermarkMs":0}\n{"a":1}\n7\n-')

    plan = read_plan(checkpoint)

    assert plan is not None
    assert (plan.query, plan.batch_id, plan.committed) == ("q1", 11, 10)
    assert [*plan.offsets()] == [{"batchWatermarkMs": 0}, {"a": 1}]
    (tmp_path / "offsets" / "11").write_text('v1\n{"batchWatermarkMs":0}\n{"a":1}\n8\n-')
    other = read_plan(checkpoint)
    assert other is not None
    assert other.digest != plan.digest


def test_a_commit_without_what_the_tasks_have_written_is_refused():
    check_task_messages([object()])
    check_task_messages([])

    with pytest.raises(OptionError, match="continuous trigger"):
        check_task_messages([None, None])
