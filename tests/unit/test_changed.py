"""Tests that are near a change: tests/changed.py."""

from __future__ import annotations

import pytest

from tests.changed import ROOT, near_to


@pytest.mark.parametrize(
    ("changed", "near"),
    [
        ("tests/unit/test_model.py", "tests/unit/test_model.py"),
        ("tests/unit/queues/conftest.py", "tests/unit/queues"),
        ("tests/support/linearizability.py", "tests/property/test_linearizability_property.py"),
        ("cassieq_spark/groups/plan.py", "tests/unit/groups"),
        (
            "cassieq_spark/http/gateway/coalescer.py",
            "tests/property/test_strict_rounds_property.py",
        ),
        ("cassieq_spark/backoff.py", "tests/unit/test_backoff.py"),
        ("docs/queues.md", "tests/docs"),
        ("README.md", "tests/docs"),
    ],
)
def test_a_change_chooses_the_tests_that_are_near(changed: str, near: str):
    assert near in near_to([changed])


@pytest.mark.parametrize("changed", ["tests/unit/test_gone.py", "LICENSE", "conf/cassieq.toml"])
def test_what_no_test_is_near_chooses_none(changed: str):
    assert near_to([changed]) == []


def test_suites_with_a_target_of_their_own_are_chosen_only_themselves():
    changed = ["cassieq_spark/node/java.py", "tests/docs/pages.py", "tests/support/gateway.py"]
    own = "tests/sqs/test_java.py"

    assert not [each for each in near_to(changed) if each.startswith("tests/sqs")]
    assert near_to([own]) == [own]


def test_what_is_chosen_exists_and_is_chosen_once():
    found = near_to(["cassieq_spark/groups/plan.py", "tests/unit/groups/test_replay.py"])

    assert all((ROOT / each).exists() for each in found)
    assert "tests/unit/groups/test_replay.py" not in found, "its folder is chosen"
