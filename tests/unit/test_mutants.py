from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.__main__ import caught_by_promise
from tests.mutants.catalogue import MUTANTS
from tests.mutants.changes import always
from tests.mutants.hunt import UNIT_TESTS, Outcome
from tests.mutants.mutant import PACKAGE, ROOT, Mutant

PROMISES = ("I2", "delay", "I10", "I2")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_another_program(mutant: Mutant):
    mutated = ast.unparse(mutant.mutated())

    assert mutated != _as_written(mutant.file)
    ast.parse(mutated)


def test_modules_are_written_from_their_trees_as_they_are():
    files = {mutant.file for mutant in MUTANTS}

    differ = [file for file in files if not _is_same(file)]

    assert differ == []


def test_every_invariant_has_its_mutant():
    assert {f"I{number}" for number in range(1, 13)} <= {each.breaks for each in MUTANTS}


def test_no_two_mutants_have_one_name():
    assert max(Counter(each.name for each in MUTANTS).values()) == 1


def test_the_tests_that_are_to_find_a_mutant_exist():
    wanted = {name.partition("::")[::2] for each in MUTANTS for name in each.tests}

    missing = [name for name in UNIT_TESTS if not (ROOT / "tests" / name).exists()]
    missing += [path for path, test in wanted if not _has_test(ROOT / "tests" / path, test)]

    assert missing == []


def test_a_mutant_names_units_and_properties_only():
    named = [name for each in MUTANTS for name in each.tests]

    assert [name for name in named if not name.startswith(("unit/", "property/"))] == []


def test_the_module_of_a_package_is_its_init():
    whole, module = (Mutant("", "", where, always("x")) for where in ("cli:main", "model:Receipt"))

    assert (whole.file, module.file) == (Path("cli/__init__.py"), Path("model.py"))


def test_what_was_caught_is_counted_by_promise_invariants_first():
    some = [Mutant(str(number), name, "", always("x")) for number, name in enumerate(PROMISES)]
    outcomes = [Outcome(each, 1.0, None if each.name == "0" else "a test", "") for each in some]

    counted = caught_by_promise(outcomes)

    assert list(counted.items()) == [("I2", (1, 2)), ("I10", (1, 1)), ("delay", (1, 1))]


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse((ROOT / PACKAGE / file).read_text(encoding="utf-8"))


@cache
def _as_written(file: Path) -> str:
    return ast.unparse(_tree(file))


def _is_same(file: Path) -> bool:
    return ast.dump(ast.parse(_as_written(file))) == ast.dump(_tree(file))


def _has_test(path: Path, test: str) -> bool:
    return path.exists() and (not test or f"def {test}" in path.read_text(encoding="utf-8"))
