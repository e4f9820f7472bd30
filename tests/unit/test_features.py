"""tests/features.toml: some test crosses each two features, and the check notices if none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.features import read_table, surfaces_of, wrong_in

Change = Callable[[dict[str, Any]], Any]


def test_some_test_crosses_each_two_features():
    assert list(wrong_in(read_table(), surfaces_of())) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda table: table["crossed"]["schema"].pop("HTTP"), "schema x HTTP: name a test"),
        (lambda table: table["crossed"]["schema"].update(HTTP=" "), "schema x HTTP: name a"),
        (lambda table: table["crossed"]["schema"].update(HTTP="none: "), "say why there is none"),
        (
            lambda table: table["crossed"]["schema"].update(HTTP="unit/test_features.py::test_x"),
            "there is no test unit/test_features.py::test_x",
        ),
        (
            lambda table: table["crossed"]["schema"].update(HTTP="unit/nowhere.py::test_x"),
            "there is no test unit/nowhere.py::test_x",
        ),
        (
            lambda table: table["crossed"]["schema"].update(HTTP="unit/test_features.py::Change"),
            "there is no test unit/test_features.py::Change",
        ),
        (
            lambda table: table["crossed"].setdefault("HTTP", {}).update(schema="all"),
            "write it as schema x HTTP",
        ),
        (
            lambda table: table["crossed"]["schema"].update(more="all"),
            "schema x more: not both are in",
        ),
        (lambda table: table["features"].update(more=[]), "streams x more: name a test"),
        (lambda table: table["features"].pop("seek"), "seek_group of the client is in no feature"),
        (
            lambda table: table["features"]["seek"].append("create_queue.more"),
            "the client has no create_queue.more",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_told(change: Change, told: str):
    table = read_table()

    change(table)

    assert any(told in each for each in wrong_in(table, surfaces_of()))
