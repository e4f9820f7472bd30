"""A checkpoint is rewound and mended by renaming, also if the process is killed in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trials.chaos.records import Checkpoint


def spark(
    checkpoint: Path, committed: int, *, logged: int | None = None, query: str = "a"
) -> None:
    """Leave what Spark leaves after so many batches."""
    last = committed if logged is None else logged
    for log, batches in (("offsets", last), ("commits", committed)):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        for number in range(batches + 1):
            (checkpoint / log / str(number)).write_text(f"{query}{number}")
    (checkpoint / "metadata").write_text(f'{{"id":"{query}"}}')


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoint:
    """Copies after batches 1 and 4, and then batches up to 6."""
    (tmp_path / "copies").mkdir()
    kept = Checkpoint(tmp_path)
    for committed in (1, 4):
        spark(kept.path, committed)
        kept.copy()
    spark(kept.path, 6)
    return kept


def test_what_is_a_replay_or_might_be_one_is_no_choice(kept: Checkpoint):
    assert kept.choices() == [1, 4]

    spark(kept.path, 6, logged=7)
    kept.copy()
    assert kept.choices() == [1, 4]

    spark(kept.path, 8)
    assert kept.choices() == [1, 4]

    spark(kept.path, 9)
    assert kept.choices() == [1, 4, 7]


def test_before_the_first_batch_there_is_nothing_to_copy(tmp_path: Path):
    kept = Checkpoint(tmp_path)

    kept.copy()

    assert (kept.query, kept.last_committed, kept.choices()) == ("", -1, [])


def test_an_older_copy_takes_the_place_and_the_newest_one_stands_aside(kept: Checkpoint):
    kept.rewind(4)

    assert kept.is_rewound
    assert (kept.last_committed, kept.query, kept.choices()) == (4, "a", [])
    assert (kept.newest / "commits" / "6").exists()


def test_a_rewound_checkpoint_is_not_copied(kept: Checkpoint, tmp_path: Path):
    kept.rewind(4)
    spark(kept.path, 5)

    kept.copy()

    assert sorted(path.name for path in (tmp_path / "copies").iterdir()) == ["1", "4"]


def test_the_query_goes_on_with_the_newest_one(kept: Checkpoint):
    kept.rewind(1)

    kept.go_on()

    assert not kept.is_rewound
    assert (kept.newest, kept.last_committed) == (kept.path, 6)


def test_a_new_checkpoint_knows_nothing_of_the_others(kept: Checkpoint):
    kept.rewind(1)

    kept.begin_anew()

    assert not kept.path.exists()
    assert (kept.is_rewound, kept.query, kept.last_committed, kept.choices()) == (
        False,
        "",
        -1,
        [],
    )
    spark(kept.path, 0, query="b")
    assert kept.query == "b"


def test_it_can_be_rewound_again(kept: Checkpoint):
    for copy in (4, 1, 4):
        kept.rewind(copy)
        assert kept.last_committed == copy
        kept.go_on()

    assert kept.last_committed == 6


def test_whoever_is_killed_before_a_copy_is_in_place_leaves_the_newest_one(
    kept: Checkpoint, tmp_path: Path
):
    kept.path.rename(tmp_path / "newest")

    again = Checkpoint(tmp_path)
    again.recover()

    assert not again.is_rewound
    assert again.last_committed == 6


def test_whoever_is_killed_while_it_begins_anew_goes_on_with_the_newest_one(
    kept: Checkpoint, tmp_path: Path
):
    kept.rewind(1)
    shutil.rmtree(kept.path)

    again = Checkpoint(tmp_path)
    again.recover()

    assert (again.is_rewound, again.last_committed) == (False, 6)


def test_a_successor_knows_that_a_checkpoint_is_rewound(kept: Checkpoint, tmp_path: Path):
    kept.rewind(4)

    again = Checkpoint(tmp_path)
    again.recover()

    assert again.is_rewound


def test_a_copy_that_was_being_made_is_made_anew(kept: Checkpoint, tmp_path: Path):
    (tmp_path / "copies" / ".6").mkdir()
    (tmp_path / "copies" / ".6" / "torn").touch()

    kept.copy()

    assert not (tmp_path / "copies" / "6" / "torn").exists()
    assert (tmp_path / "copies" / "6" / "commits" / "6").exists()
