"""Checks that tests/features.toml crosses each two features: ``python -m tests.features``.

Every pair of features needs an entry: the test in which both are at work, or ``none: `` and why.
Tests are looked up in the text of their files, so that no test is imported.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from cassieq_spark.client import Client

TESTS = Path(__file__).parent
TABLE = TESTS / "features.toml"
#: Methods whose arguments are features of their own.
_OF_ARGUMENTS = {"create_queue", "put_many"}
_NONE = "none:"


def read_table() -> dict[str, Any]:
    """The whole table."""
    return tomllib.loads(TABLE.read_text())


def crossed_by(table: Mapping[str, Any], test: str) -> set[frozenset[str]]:
    """The pairs for which the table names this test, by its name in ``tests``."""
    return {
        frozenset({one, other})
        for one, row in table["crossed"].items()
        for other, entry in row.items()
        if entry == test
    }


def wrong_in(table: Mapping[str, Any], surfaces: frozenset[str]) -> Iterator[str]:
    """What is wrong with a table.

    Args:
        table: The table.
        surfaces: What a client offers, see `surfaces_of`.
    """
    features, crossed = table["features"], table["crossed"]
    assigned = {name for each in features.values() for name in each}
    assigned |= {*table["everywhere"]["client"]}
    for name in sorted(surfaces - assigned):
        yield f"{name} of the client is in no feature: add it to [features] or [everywhere]"
    for name in sorted(assigned - surfaces):
        yield f"the client has no {name}: remove it"
    for one, row in crossed.items():
        for other in row.keys() - features.keys() if one in features else row:
            yield f"{one} x {other}: not both are in [features]"
    for one, other in combinations(features, 2):
        if other in crossed and one in crossed[other]:
            yield f"{other} x {one}: write it as {one} x {other}, in the order of [features]"
        elif wrong := _wrong_with(crossed.get(one, {}).get(other, "").strip(), table["tests"]):
            yield f"{one} x {other}: {wrong}"


def _wrong_with(entry: str, tests: Mapping[str, str]) -> str | None:
    if not entry:
        return "name a test that crosses them, or say why there is none"
    if entry.startswith(_NONE):
        return None if entry.removeprefix(_NONE).strip() else "say why there is none"
    test = tests.get(entry, entry)
    return None if _exists(test) else f"there is no test {test}"


def surfaces_of() -> frozenset[str]:
    """The public methods of the client, and the arguments of some, as in ``put_many.delay``."""
    methods = inspect.getmembers(Client, callable)
    public = {name: inspect.signature(it) for name, it in methods if not name.startswith("_")}
    arguments = {
        f"{name}.{each.name}"
        for name in _OF_ARGUMENTS
        for each in public[name].parameters.values()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return frozenset(public.keys() | arguments)


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return (TESTS / path).is_file() and name in _tests_of(TESTS / path)


@cache
def _tests_of(path: Path) -> frozenset[str]:
    """The tests of a file: functions, and classes that state machines make."""
    found = set()
    for each in ast.parse(path.read_text()).body:
        if isinstance(each, ast.FunctionDef):
            found.add(each.name)
        elif isinstance(each, ast.Assign):
            found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if name.lower().startswith("test"))


def main() -> int:
    """Say what is wrong; 1 if something is."""
    found = list(wrong_in(read_table(), surfaces_of()))
    for each in found:
        print(f"{TABLE.name}: {each}", file=sys.stderr)  # noqa: T201 (a program)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
