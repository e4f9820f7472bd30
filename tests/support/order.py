"""Which tests begin first, so that no worker is left alone with a long one at the end."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

import pytest

#: Their single tests take a minute or more.
_FIRST = ("tests/docs", "tests/integration/node")
#: Their modules take a second: whoever is done early finds one.
_LAST = ("cassieq_spark", "tests/unit")


def turn_of(test: str) -> int:
    """Where a test comes in: 0 for the first ones.

    >>> turn_of("tests/docs/test_pages.py::test_it"), turn_of("tests/property/test_x.py::test_it")
    (0, 1)
    >>> turn_of("tests/unit/arrow/test_x.py::test_it"), turn_of("cassieq_spark/model.py::model")
    (2, 2)
    """
    return _turn_of_file(test.partition("::")[0])


@cache
def _turn_of_file(name: str) -> int:
    file = PurePosixPath(name)
    if any(file.is_relative_to(folder) for folder in _FIRST):
        return 0
    return 2 if any(file.is_relative_to(folder) for folder in _LAST) else 1


class Order:
    """Sorts what is collected; within a turn the order stays as it is, which is at random."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """After all that shuffles."""
        items.sort(key=lambda item: turn_of(item.nodeid))
