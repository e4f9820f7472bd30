"""docs/capacity.md has the coefficients of the package, and plans as the command prints them."""

from __future__ import annotations

import re

import pytest

from benchmarks.capacity.check import STEPS, WANTED
from benchmarks.capacity.report import PAGE, tables
from cassieq_spark.planning.coefficients import MEANINGS, read_coefficients

TEXT = PAGE.read_text(encoding="utf-8")


def part_of_page(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", TEXT, re.DOTALL)
    assert found is not None, name
    return found[1]


@pytest.mark.parametrize("name", tables(read_coefficients()))
def test_a_table_of_the_page_is_what_the_package_says(name: str):
    assert part_of_page(name) == tables(read_coefficients())[name], "make bench-capacity"


def test_the_formulas_name_coefficients_that_there_are():
    formulas = TEXT.partition("## The formulas")[2].partition("## The coefficients")[0]
    named = re.findall(r"`([a-z]+(?:\.[a-z]+)+(?:\.\*)?)`", formulas)

    assert len(named) > 10
    for name in named:
        assert any(known.startswith(name.removesuffix("*")) for known in MEANINGS), name


def test_the_ratios_of_the_check_and_their_verdicts_follow_from_its_figures():
    rows = [line.strip("| ").split(" | ") for line in part_of_page("check").splitlines()[4:]]

    *_, (cluster, _, what, *_) = rows
    assert (cluster, what) == ("all", STEPS)
    of_loads = {"1 node(s), 1 replica(s)", "3 node(s), 3 replica(s)"}
    assert {row[0] for row in rows[:-1]} == of_loads
    for cluster, _, what, predicted, measured, ratio, verdict in rows:
        figures = [float(each.split()[0].replace(",", "")) for each in (predicted, measured)]
        assert float(ratio) == pytest.approx(figures[0] / figures[1], rel=0.02, abs=0.01)
        judged = "yes" if abs(float(ratio) - 1) <= WANTED + 1e-9 else "**no**"
        assert verdict == ("in the sum" if what == STEPS and cluster in of_loads else judged)
