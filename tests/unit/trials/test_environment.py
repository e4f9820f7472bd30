"""A trial ends with a report and an exit code, and leaves its folder where something is wrong."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest

from trials.environment import Report, carry_out


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("fine", "code"), [(True, 0), (False, 1)])
def test_the_last_line_is_the_report_and_the_exit_code_says_whether_it_is_fine(
    fine: bool, code: int, folders: Path, capsys: pytest.CaptureFixture[str]
):
    def play(folder: Path) -> Report:
        (folder / "log").touch()
        return {"fine": fine}

    assert carry_out("test", play, fine=itemgetter("fine")) == code

    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"fine": fine}
    assert len(list(folders.glob("cassieq-test-*/log"))) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_trial_that_is_stopped_leaves_nothing(number: int, folders: Path):
    def play(_: Path) -> Report:
        os.kill(os.getpid(), number)
        return {}

    assert carry_out("test", play, fine=bool) == 130
    assert list(folders.iterdir()) == []


def test_a_trial_that_breaks_off_leaves_its_folder(folders: Path):
    def play(_: Path) -> Report:
        raise ValueError("no node")

    with pytest.raises(ValueError, match="no node"):
        carry_out("test", play, fine=bool)

    assert len(list(folders.iterdir())) == 1
