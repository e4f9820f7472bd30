"""Docstrings keep the rules of CONTRIBUTING.md that a program can check."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = tomllib.loads((ROOT / "tests" / "english.toml").read_text())


def docstrings(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Of a module, its classes and its functions: where, and the text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield f"{name}:{getattr(node, 'name', '')}", text


def complaints(source: str, name: str) -> list[str]:
    """What docstrings of a file should say otherwise."""
    found = []
    for where, text in docstrings(source, name):
        for words, instead in RULES["beginnings"].items():
            if text.startswith(words):
                found.append(f"{where} begins with {words.strip()!r}; write {instead}")
        for words, instead in RULES["words"].items():
            if words in " ".join(text.split()):
                found.append(f"{where} has {words!r}; write {instead}")
    return found


def test_docstrings_name_what_they_are_about():
    files = sorted((ROOT / "cassieq_spark").rglob("*.py"))

    assert len(files) > 200
    assert [each for file in files for each in complaints(file.read_text(), file.name)] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Whether it runs.", "x.py:f begins with 'Whether'; write True if X; False if Y."),
        ("A column\\n is there\\n twice.", "x.py:f has 'there twice'; write duplicated"),
        ("True if the query runs.", None),
    ],
)
def test_what_breaks_a_rule_is_told_with_what_to_write(text: str, complaint: str | None):
    told = complaints(f'def f():\n    """{text}"""\n', "x.py")

    assert told == ([] if complaint is None else [complaint])
