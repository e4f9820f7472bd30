from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutants.__main__ import caught_by_promise
from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunt import UNIT_TESTS, Outcome
from tests.mutants.mutant import ROOT, Mutant

PROMISES = ("I2", "delay", "I10", "I2")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_of_a_mutant_occurs_once_in_its_file(mutant: Mutant):
    assert mutant.read().count(mutant.text) == 1


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_another_program_that_can_be_read(mutant: Mutant):
    source = mutant.read()

    mutated = source.replace(mutant.text, mutant.by)

    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))


def test_every_invariant_has_its_mutant():
    assert {f"I{number}" for number in range(1, 12)} <= {each.breaks for each in MUTANTS}


def test_no_two_mutants_have_one_name():
    assert max(Counter(each.name for each in MUTANTS).values()) == 1


def test_the_tests_that_are_to_find_a_mutant_exist():
    wanted = {name.partition("::")[::2] for each in MUTANTS for name in each.tests}

    assert all(
        f"def {test}" in (ROOT / "tests" / "property" / file).read_text(encoding="utf-8")
        for file, test in wanted
    )
    assert [each for each in UNIT_TESTS if not (ROOT / "tests" / each).exists()] == []


def test_what_was_caught_is_counted_by_promise_invariants_first():
    some = [Mutant(str(number), name, "", "", "") for number, name in enumerate(PROMISES)]
    outcomes = [Outcome(each, 1.0, None if each.name == "0" else "a test", "") for each in some]

    counted = caught_by_promise(outcomes)

    assert list(counted.items()) == [("I2", (1, 2)), ("I10", (1, 1)), ("delay", (1, 1))]
