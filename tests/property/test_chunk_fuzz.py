"""Whatever bytes a chunk has: no crash, no memory without bound, and an error of its own."""

from __future__ import annotations

import json

import pytest

from tests.fuzz import chunks


@pytest.mark.timeout(600)
def test_two_thousand_altered_chunks_neither_crash_nor_stop_a_queue(
    capfd: pytest.CaptureFixture[str],
):
    status = chunks.main(["--mutants", "2000", "--seed", "20261122"])

    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert status == 0, told
    # Enough of them are read, and refused, for that to mean something.
    assert (told["read"] > 120, told["refused"] > 1_200) == (True, True)


@pytest.mark.timeout(600)
def test_two_thousand_altered_typed_chunks_are_refused_or_hold_valid_arrays(
    capfd: pytest.CaptureFixture[str],
):
    status = chunks.main(["--typed", "--mutants", "2000", "--seed", "20261122"])

    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert status == 0, told
    assert (told["read"] > 120, told["refused"] > 1_200) == (True, True)


def test_a_crash_of_the_child_is_a_failure_that_can_be_repeated(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CASSIEQ_FUZZ_CRASH_AT", "3")

    status = chunks.main(["--mutants", "5", "--seed", "1"])

    assert status == 1
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (told["exit"], told["last"]) == (-11, "at: --seed 1 --first 3 --mutants 1")
