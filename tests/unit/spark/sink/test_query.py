from __future__ import annotations

from pathlib import Path

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.spark.sink.query import check_task_messages, check_trigger


def make_checkpoint(folder: Path, *, planned: int, committed: int) -> str:
    (folder / "metadata").write_text("{}")
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
        check_trigger(path)


@pytest.mark.parametrize("committed", [0, 1, 12])
def test_a_writer_that_is_made_before_is_for_a_continuous_trigger(tmp_path: Path, committed: int):
    checkpoint = make_checkpoint(tmp_path, planned=committed, committed=committed)

    with pytest.raises(OptionError, match="continuous trigger"):
        check_trigger(checkpoint)


def test_before_its_logs_are_there_a_query_has_planned_nothing(tmp_path: Path):
    (tmp_path / "metadata").write_text("{}")

    with pytest.raises(OptionError, match="continuous trigger"):
        check_trigger(str(tmp_path))


@pytest.mark.parametrize("checkpoint", [None, "hdfs://host/checkpoint", "nowhere", ""])
def test_a_checkpoint_that_is_not_a_folder_of_this_machine_tells_nothing(checkpoint: str | None):
    check_trigger(checkpoint)


def test_a_commit_without_what_the_tasks_have_written_is_refused():
    check_task_messages([object()])
    check_task_messages([])

    with pytest.raises(OptionError, match="continuous trigger"):
        check_task_messages([None, None])
