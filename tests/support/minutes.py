"""Where the time of a run of tests goes: worker-minutes by folder, printed at its end."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import PurePosixPath

import pytest

#: Worker-minutes of all tests on two usual processors; more means that `.ci/run` takes more than
#: the twenty minutes that people wait.
BUDGET = 68
#: A run of fewer minutes needs no table.
_SHORT = 1
_SECONDS = 60


def folder_of(test: str) -> str:
    """The folder, or package, of a test.

    >>> folder_of("tests/integration/spark/test_sink.py::test_a_batch[1]")
    'tests/integration/spark'
    >>> folder_of("tests/docs/test_readme.py::test_it"), folder_of("cassieq_spark/model.py::x")
    ('tests/docs', 'cassieq_spark')
    """
    return _folder_of_file(test.partition("::")[0])


@cache
def _folder_of_file(name: str) -> str:
    parts = PurePosixPath(name).parts[:-1]
    depth = {"tests": 2, "cassieq_spark": 1}.get(parts[0], 1) if parts else 0
    if parts[:2] in {("tests", "unit"), ("tests", "integration")}:
        depth = 3
    return "/".join(parts[:depth])


class Minutes:
    """Adds up the seconds of each phase of each test, in whichever process it ran.

    Args:
        budget: The worker-minutes that the run may take; None for any number, as by night.
    """

    def __init__(self, budget: int | None) -> None:
        self._budget = budget
        self._seconds: Counter[str] = Counter()
        self._count: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test."""
        folder = folder_of(report.nodeid)
        self._seconds[folder] += report.duration
        self._count[folder] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, longest first."""
        total = sum(self._seconds.values()) / _SECONDS
        if total < _SHORT:
            return
        write = terminalreporter.write_line
        terminalreporter.section("minutes of workers by folder")
        for folder, seconds in self._seconds.most_common():
            if seconds >= _SECONDS / 10:
                write(f"{seconds / _SECONDS:6.1f}  {self._count[folder]:6,} tests  {folder}")
        in_all = f"{total:6.1f}  {sum(self._count.values()):6,} tests  in all"
        if self._budget is None:
            write(in_all)
            return
        write(f"{in_all}; {self._budget} are allowed")
        if total > self._budget:
            write(
                f"These tests take {total:.0f} minutes of workers instead of {self._budget}: see "
                "the table, and --durations=30; CONTRIBUTING.md says what to do",
                yellow=True,
            )
