from __future__ import annotations

import ast
import tomllib

import pytest

from tests.mutants.mutant import PACKAGE, ROOT
from tests.mutants.pure import (
    SURVIVORS,
    compare,
    function_of,
    living_of,
    read_survivors,
    results_of,
)

RESULTS = """
    cassieq_spark.groups.plan.x_plan_lease__mutmut_1: killed
    cassieq_spark.groups.plan.x_plan_lease__mutmut_2: survived
    cassieq_spark.groups.plan.x__count__mutmut_1: timeout
    cassieq_spark.groups.plan.x__count__mutmut_2: no tests
    cassieq_spark.ledger.unique.xǁSiftedǁcount__mutmut_1: survived
    cassieq_spark.ledger.unique.xǁSiftedǁcount__mutmut_12: suspicious
"""


def test_mutants_live_that_no_test_finds_by_function():
    living = living_of(results_of(RESULTS))

    assert {function: len(names) for function, names in living.items()} == {
        "groups.plan:plan_lease": 1,
        "groups.plan:_count": 1,
        "ledger.unique:Sifted.count": 2,
    }


def test_one_module_can_be_chosen():
    text = '["groups.plan"]\nplan_lease = ["It is harmless."]\n["ledger.decide"]\nf = ["No."]'

    assert len(results_of(RESULTS, "groups.plan")) == 4
    assert list(read_survivors(text, "groups.plan")) == ["groups.plan:plan_lease"]


@pytest.mark.parametrize(
    ("mutant", "function"),
    [
        ("groups.plan.x_plan_lease__mutmut_12", "groups.plan:plan_lease"),
        ("groups.plan.x__due_rows__mutmut_3", "groups.plan:_due_rows"),
        ("model.xǁRangesǁ__and____mutmut_3", "model:Ranges.__and__"),
    ],
)
def test_a_mutant_belongs_to_the_function_that_was_changed(mutant: str, function: str):
    assert function_of(f"cassieq_spark.{mutant}") == function


def test_reasons_are_a_sentence_for_each_mutant_of_a_function():
    text = '["groups.plan"]\nplan_lease = ["It is harmless.", "So is this."]\n_count = ["No."]'

    assert read_survivors(text) == {
        "groups.plan:plan_lease": ["It is harmless.", "So is this."],
        "groups.plan:_count": ["No."],
    }


@pytest.mark.parametrize(
    ("living", "known", "counts"),
    [
        ({}, {}, []),
        ({"a:f": ["1"]}, {"a:f": ["Why."]}, []),
        ({"a:f": ["1", "2"], "a:g": ["1"]}, {"a:f": ["Why."], "a:g": ["Why."]}, [(2, 1)]),
        ({"a:f": ["1"]}, {}, [(1, 0)]),
        ({}, {"a:f": ["Why."]}, [(0, 1)]),
    ],
)
def test_a_list_with_more_reasons_or_fewer_than_mutants_is_wrong(
    living: dict[str, list[str]], known: dict[str, list[str]], counts: list[tuple[int, int]]
):
    problems = compare(living, known)

    said = [f"a:f: {lives} live, and {have} have a reason" for lives, have in counts]
    assert [each.partition(" in ")[0] for each in problems.values()] == said


def test_every_survivor_is_of_a_function_that_mutmut_changes():
    known = read_survivors(SURVIVORS.read_text(encoding="utf-8"))
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    functions = {name for path in config["tool"]["mutmut"]["only_mutate"] for name in _of(path)}

    assert set(known) - functions == set()
    assert [function for function, reasons in known.items() if not all(reasons)] == []


def _of(path: str) -> set[str]:
    module = path.removeprefix(f"{PACKAGE}/").removesuffix(".py").replace("/", ".")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    functions |= {
        f"{each.name}.{method.name}"
        for each in classes
        for method in each.body
        if isinstance(method, ast.FunctionDef)
    }
    return {f"{module}:{function}" for function in functions}
