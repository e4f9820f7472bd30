"""Which tests of a run begin first."""

from __future__ import annotations

from types import SimpleNamespace

from tests.support.order import Order


def test_long_tests_begin_first_and_short_ones_last_and_the_rest_stays_shuffled():
    names = (
        "tests/unit/test_a",
        "tests/property/test_b",
        "tests/docs/test_c",
        "tests/fuzz/test_d",
    )
    items = [SimpleNamespace(nodeid=f"{name}.py::test_it") for name in names]

    Order().pytest_collection_modifyitems(items)  # type: ignore[arg-type] # as much as it needs

    first_to_last = [item.nodeid.partition(".")[0] for item in items]
    assert first_to_last == [names[2], names[1], names[3], names[0]]
