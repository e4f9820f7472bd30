from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import cassieq

LOAD = ("plan", "--rate", "2k/s", "--size", "1kB")


def test_a_plan_says_what_each_figure_follows_from_and_what_was_measured():
    ended = cassieq(*LOAD, "--groups", "3", "--keep", "7d", "--rf", "3")

    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["part", "figure", "value", "follows", "from", "basis"]
    assert {line.split()[-1] for line in lines[1:-1]} == {"measured", "paper"}
    assert "2,000/s x 7 d x 1 kB x 3 replicas" in ended.out
    assert lines[-1].startswith("measured: on ")


def test_a_plan_is_an_object_for_programs():
    ended = cassieq(*LOAD, "--order", "key", "--batch", "10000", "--json")

    read = json.loads(ended.out)
    assert set(read) == {"measured", "lines"}
    assert set(read["lines"][0]) == {"part", "name", "value", "text", "follows", "basis"}
    values = {(each["part"], each["name"]): each["value"] for each in read["lines"]}
    assert values["load", "messages/s"] == 4000
    assert values["load", "between micro-batches"] == 2.5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--rate", "fast"],
            "--rate must be a rate such as 200k/s, 5000/m or 12M/day, not 'fast'",
        ),
        (["--size", "1000"], "--size must be a size such as 300B, 1kB (1000 bytes)"),
        (["--size", "9MB"], "--size 9 MB is larger than the largest message"),
        (["--keep", "for ever"], "--keep must be a length of time such as 10s"),
        (["--headroom", "100%"], "--headroom must be a share such as 40%, at most 90%"),
        (["--network", "10"], "--network must be a rate of data such as 10Gbit/s"),
        (["--order", "any"], "--order must be none, key or strict"),
        (["--interval", "1ms"], "--interval gives a micro-batch each 1 ms, but a query runs one"),
        (["--order", "strict", "--batch", "7"], "--batch gives a micro-batch each 1.75 ms, but"),
        (["--batch", "0"], "--batch must be a whole number of at least 1"),
        (["--keep", "3650d", "--disk-per-node", "1GB"], "2,000 nodes are not enough"),
    ],
)
def test_values_that_cannot_be_are_wrong_usage(arguments: list[str], complaint: str):
    ended = cassieq(*LOAD, *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"cassieq: {complaint}")
    assert ended.err.count("\n") == 1


def test_coefficients_of_another_machine_take_the_place_of_those_of_the_package(tmp_path: Path):
    own = tmp_path / "own.json"
    missing = cassieq(*LOAD, "--coefficients", str(own))
    own.write_text("{}")
    wrong = cassieq(*LOAD, "--coefficients", str(own))

    assert missing.code == wrong.code == 2
    assert missing.err.startswith(f"cassieq: coefficients {own} can't be read")
    assert wrong.err.startswith(f"cassieq: {own} is not a file of coefficients")
