"""Which tests are near a change: ``python -m tests.changed [COMMIT]`` prints their paths.

What has changed since COMMIT (by default origin/main), committed or not, chooses:

- a test file: itself; a helper of tests: what imports it;
- a module of the package: the unit tests of its folder, and each test that imports it;
- a page of the docs, or the readme: the tests of the docs.

Suites with a target of their own, such as `make test-sqs`, are not chosen by what they import.
Tests that reach a module by others only are not chosen, so this is for the time between two
edits. Before you send a change, run all.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "cassieq_spark"
#: Suites that need more than `make setup` installs.
APART = ("browser", "sqs")


def changed_since(commit: str) -> list[str]:
    """The files that differ from a commit, and those that git does not know yet."""
    told = [["diff", "--name-only", commit, "--"], ["ls-files", "--others", "--exclude-standard"]]
    return sorted({line for words in told for line in _git(*words).splitlines()})


def near_to(changed: Iterable[str]) -> list[str]:
    """The files and folders of tests that are near these files, each once.

    >>> near_to(["docs/queues.md", "tests/unit/test_model.py"])
    ['tests/docs', 'tests/unit/test_model.py']
    """
    found = {test for path in changed for test in _near(Path(path))}
    folders = {each for each in found if not each.endswith(".py")}
    return sorted(
        each
        for each in found
        if each in folders or not any(each.startswith(f"{folder}/") for folder in folders)
    )


def _near(path: Path) -> Iterator[str]:
    if path.parts[0] == "docs" or path.name == "README.md":
        yield "tests/docs"
    elif path.name.startswith("test_") and path.suffix == ".py":
        if (ROOT / path).exists():
            yield str(path)
    elif path.name == "conftest.py":
        yield str(path.parent)
    elif path.suffix == ".py" and path.parts[0] in {PACKAGE, "tests"}:
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        yield from (str(test) for test, imported in _imports().items() if module in imported)
        unit = Path("tests", "unit", *path.parts[1:-1][:1])
        if path.parts[0] == PACKAGE and len(path.parts) > 2 and (ROOT / unit).is_dir():
            yield str(unit)


@cache
def _imports() -> dict[Path, frozenset[str]]:
    """The modules that each file of tests imports, by name."""
    files = (file.relative_to(ROOT) for file in sorted((ROOT / "tests").rglob("test_*.py")))
    return {
        file: frozenset(_imported(ROOT / file)) for file in files if file.parts[1] not in APART
    }


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            # What is imported may be a module itself.
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _git(*words: str) -> str:
    ended = subprocess.run(
        ["git", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout


def main(commit: str = "origin/main") -> None:
    """Print the paths of the tests; the unit tests if none is near."""
    changed = changed_since(commit)
    found = near_to(changed) or ["tests/unit"]
    print(f"{len(changed)} files differ from {commit}", file=sys.stderr)  # noqa: T201 (a program)
    print(*found, sep="\n")  # noqa: T201 (a program)


if __name__ == "__main__":
    main(*sys.argv[1:])
