"""What programs leave on disk is read as it was meant, whatever has killed them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from trials.chaos.checker import Result, Row, Sent, Try
from trials.chaos.records import STOP, Notebook


def table(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([b"%d" % number for number in numbers], pa.binary()),
            "value": pa.array([b"\xff%d" % number for number in numbers], pa.binary()),
            "delivery_count": [1] * len(numbers),
        }
    )


def test_a_batch_that_is_stored_again_replaces_itself(tmp_path: Path):
    notebook = Notebook(tmp_path / "left")

    notebook.stored.store(3, table(1, 2))
    notebook.stored.store(3, table(2))

    row = Row("2", "\N{REPLACEMENT CHARACTER}2", 1)
    stored_at = notebook.stored.stored_at("3")
    assert notebook.results() == [Result("left", 3, [row], False, stored_at)]
    assert notebook.stored.count() == 1


def test_what_was_being_stored_when_a_program_was_killed_is_no_result(tmp_path: Path):
    notebook = Notebook(tmp_path / "left")

    (tmp_path / "left" / "results" / ".4").write_bytes(b"PAR1 and so on")

    assert notebook.results() == []


def test_a_successor_goes_on_with_what_was_told(tmp_path: Path):
    Notebook(tmp_path / "left").tell("stored", batch=0)
    Notebook(tmp_path / "left").tell("progress", batch=1, lost=0)
    notebook = Notebook(tmp_path / "left")

    notebook.stored.store(0, table(1))

    assert [event["event"] for event in notebook.events()] == ["stored", "progress"]
    assert notebook.results()[0].acked


def test_what_was_sent_is_told_by_the_logs_of_the_checkpoint(tmp_path: Path):
    notebook = Notebook(tmp_path / "tick")
    for log, batches in (("offsets", 12), ("commits", 11)):
        (notebook.checkpoint / log).mkdir(parents=True)
        for number in range(batches):
            (notebook.checkpoint / log / str(number)).touch()
        (notebook.checkpoint / log / f".{batches}.tmp.crc").touch()

    assert notebook.sent(100) == Sent("tick", acknowledged=1100, attempted=1200)


def test_while_an_older_copy_is_in_its_place_the_newest_checkpoint_tells_what_was_sent(
    tmp_path: Path,
):
    notebook = Notebook(tmp_path / "tick")
    _log(notebook.checkpoint, 2)
    notebook.kept.copy()
    _log(notebook.checkpoint, 12)

    notebook.kept.rewind(1)

    assert notebook.sent(100) == Sent("tick", acknowledged=1200, attempted=1200)


def _log(checkpoint: Path, batches: int) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        for number in range(batches):
            (checkpoint / log / str(number)).touch()
    (checkpoint / "metadata").write_text('{"id":"q"}')


def test_each_try_of_a_batch_is_kept_with_its_query(tmp_path: Path):
    notebook = Notebook(tmp_path / "onward")
    _log(notebook.checkpoint, 1)
    notebook.kept.copy()
    _log(notebook.checkpoint, 5)

    notebook.try_batch(5, table(1))
    notebook.try_batch(5, table(1, 2))
    notebook.kept.rewind(0)
    notebook.try_batch(1, table(3))

    one, two, three = (
        Row(f"{number}", f"\N{REPLACEMENT CHARACTER}{number}", 1) for number in (1, 2, 3)
    )
    assert sorted(notebook.tries(), key=lambda each: (each.rewound, len(each.rows))) == [
        Try("q", 5, [one], rewound=False),
        Try("q", 5, [one, two], rewound=False),
        Try("q", 1, [three], rewound=True),
    ]


def test_a_program_that_has_not_begun_has_sent_nothing(tmp_path: Path):
    assert Notebook(tmp_path / "tick").sent(100) == Sent("tick", 0, 0)


def test_programs_are_asked_to_end_together(tmp_path: Path):
    notebooks = [Notebook(tmp_path / "left"), Notebook(tmp_path / "right")]
    assert not any(notebook.is_over for notebook in notebooks)

    (tmp_path / STOP).touch()

    assert all(notebook.is_over for notebook in notebooks)
