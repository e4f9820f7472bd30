"""docs/api.md lists what is public: it exists, and the pages and examples need nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import resolve_name

import pytest

import cassieq_spark
from tests.docs.pages import ROOT, blocks_of, pages

LISTED = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)


def _imports_of(program: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cassieq_spark"):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (it.name for it in node.names if it.name.startswith("cassieq_spark"))


def _shown() -> dict[str, str]:
    """What the pages and examples import, and where."""
    programs = [(str(path), path.read_text()) for path in (ROOT / "examples").glob("*.py")]
    for page in pages():
        programs += [(page, block.text) for block in blocks_of(page) if block.language == "python"]
    return {name: where for where, program in programs for name in _imports_of(program)}


SHOWN = _shown()


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed_exists_and_is_described(name: str):
    found = resolve_name(name)

    assert found.__doc__


def test_the_names_of_the_package_are_listed():
    public = {id(getattr(cassieq_spark, name)) for name in cassieq_spark.__all__}
    listed = [resolve_name(name) for name in LISTED]
    members = [each for found in listed for each in vars(found).values()]

    assert public <= {id(each) for each in [*listed, *members]}


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_what_the_pages_show_is_public(name: str):
    package, _, attribute = name.rpartition(".")
    is_of_the_package = package == "cassieq_spark" and attribute in cassieq_spark.__all__
    listed = [resolve_name(each) for each in LISTED]

    assert (
        is_of_the_package
        or any(getattr(import_module(package), attribute) is each for each in listed)
        or package in LISTED
    ), f"{name}, which {SHOWN[name]} uses, is not in docs/api.md"
