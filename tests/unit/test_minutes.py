"""The table of minutes at the end of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.minutes import BUDGET, Minutes


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(title)

    def write_line(self, line: str, **_: bool) -> None:
        self.lines.append(line)


def told_of(*tests: tuple[str, float], budget: int | None = BUDGET) -> list[str]:
    """The lines about tests that took these minutes."""
    minutes, terminal = Minutes(budget), Terminal()
    for test, taken in tests:
        for when in ("setup", "call", "teardown"):
            values: dict[str, Any] = {"nodeid": test, "when": when, "duration": 20 * taken}
            report = pytest.TestReport(
                location=("", None, ""), keywords={}, outcome="passed", longrepr=None, **values
            )
            minutes.pytest_runtest_logreport(report)
    minutes.pytest_terminal_summary(terminal)  # type: ignore[arg-type] # as much as it needs
    return terminal.lines


def test_the_table_has_the_minutes_of_each_folder_longest_first():
    title, *rows, total = told_of(
        ("tests/unit/cli/test_a.py::test_a", 1.5),
        ("tests/integration/spark/test_b.py::test_b[1]", 30),
        ("tests/integration/spark/test_b.py::test_b[2]", 10),
        ("tests/unit/queues/test_c.py::test_c", 0.01),
    )

    assert title == "minutes of workers by folder"
    assert [row.split() for row in rows] == [
        ["40.0", "2", "tests", "tests/integration/spark"],
        ["1.5", "1", "tests", "tests/unit/cli"],
    ]
    assert total.split()[:3] == ["41.5", "4", "tests"]


def test_a_run_beyond_its_budget_is_told_and_a_short_one_needs_no_table():
    *_, last = told_of(("tests/unit/cli/test_a.py::test_a", BUDGET + 2))

    assert f"take {BUDGET + 2} minutes of workers instead of {BUDGET}" in last
    assert told_of(("tests/unit/cli/test_a.py::test_a", 0.5)) == []


def test_a_run_by_night_has_no_budget():
    *_, last = told_of(("tests/property/test_a.py::test_a", 250), budget=None)

    assert last.split() == ["250.0", "1", "tests", "in", "all"]
