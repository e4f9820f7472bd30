"""The documents agree with the repository: commands, links, names of tests, log records."""

from __future__ import annotations

import ast
import re
import runpy
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from cassieq_spark.consumer.lane_reader import LEAST_AHEAD, MOST_AHEAD
from cassieq_spark.groups.singly import MOST_PARKED, MOST_PARKED_LANES, MOST_PARKED_RANGES
from cassieq_spark.groups.takers import MOST_ROWS
from cassieq_spark.node import Release
from cassieq_spark.producer.blocks import MOST_LANES
from cassieq_spark.settings.connection import PROTOCOL_VERSIONS
from tests.docs.pages import ROOT, blocks_of, check_cassieq, pages
from tests.support.command_line import repair_job
from tests.support.connect_server import SPARK_HOME

#: No mermaid: the site would show its text. Pictures are drawn by docs/figures.
LANGUAGES = {"bash", "python", "sh", "console", "yaml", "java", ""}
BLOCKS = [block for page in pages() for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language in {"sh", "console"}]
#: Programs of others, whose options are theirs.
NOT_OURS = {
    *("aws", "celery"),
    *(".", "./process", "base64", "cd", "cp", "cqlsh", "export", "git", "head", "jq", "mkdir"),
    *("nodetool", "pip", "printf", "python3", "seq", "tail", "tar"),
    *("/opt/queue/bin/pip", "packed/bin/pip", "packed/bin/venv-pack"),
}
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)\)")
_TEST_LINK = re.compile(r"\]\(\.\./(?P<path>tests/[\w/]+\.py)#(?P<name>\w+)\)")


def _prose_of(page: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.DOTALL | re.MULTILINE)


def _anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def _tests_in(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return found


def test_every_block_is_of_a_known_kind():
    assert {block.language for block in BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("page", sorted({block.page for block in SHELL}))
def test_the_commands_of_a_page_are_real(page: str):
    commands = [command for block in SHELL if block.page == page for command in block.commands()]

    assert commands
    for program, *words in commands:
        if program == "cassieq":
            check_cassieq(words)
        elif program == "make":
            assert {word for word in words if "=" not in word} <= set(TARGETS), words
        elif program in {"python", "spark-submit"}:
            (at,) = (at for at, word in enumerate(words) if word.endswith(".py"))
            assert (ROOT / words[at]).is_file(), words
            if words[at] == "jobs/repair.py":
                repair_job(words[at + 1 :])
        elif program == "spark-pipelines":
            assert (SPARK_HOME / "bin" / program).is_file()
            assert "run" in words
        elif program.startswith("$SPARK_HOME/"):
            assert (SPARK_HOME / program.removeprefix("$SPARK_HOME/")).is_file(), program
        else:
            assert program in NOT_OURS, program


@pytest.mark.parametrize(
    "words",
    [["queue", "create", "q", "--max", "3"], ["queue", "make", "q"], ["queue", "create"]],
    ids=" ".join,
)
def test_a_command_that_there_is_not_would_be_noticed(words: list[str]):
    with pytest.raises((typer.TyperException, AssertionError)):
        check_cassieq(words)


@pytest.mark.parametrize("page", pages())
def test_every_link_leads_somewhere(page: str):
    for found in _LINK.finditer(_prose_of(page)):
        target = found["target"]
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in _anchors_of(file), target


def test_every_page_is_in_the_navigation_of_the_site_once():
    entries = re.findall(
        r"^ +- (?:\w+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )

    assert sorted(entries) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_map_of_the_packages_has_every_package():
    packages = {
        f"{each.name}/" if each.is_dir() else each.name
        for each in (ROOT / "cassieq_spark").iterdir()
        if (each / "__init__.py").exists() or each.suffix == ".py"
    }
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    assert {each for each in packages - {"__init__.py"} if f"`{each}`" not in text} == set()


def test_every_test_that_a_promise_names_exists():
    promises = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = [(found["path"], found["name"]) for found in _TEST_LINK.finditer(promises)]

    assert len(named) == promises.count("](../tests/") > 40
    for path, name in named:
        assert name in _tests_in(ROOT / path), f"{path}: {name}"


def test_the_bounds_of_lanes_are_those_of_the_code():
    bounds = (
        f"{MOST_PARKED:,} messages",
        f"{MOST_PARKED_RANGES:,} ranges",
        f"{MOST_PARKED_LANES} lanes",
        f"{LEAST_AHEAD}",
        f"{MOST_AHEAD:,}",
    )
    for page in ("docs/partitions.md", "docs/design.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [each for each in bounds if each not in text] == [], page
    partitions = (ROOT / "docs/partitions.md").read_text(encoding="utf-8")
    assert f"puts with up to {MOST_LANES} messages" in partitions
    assert f"{MOST_ROWS} rows at most" in (ROOT / "docs/design.md").read_text(encoding="utf-8")


def test_every_promise_names_a_test():
    promises = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    tables = promises.split("\n## What is not promised")[0]
    rows = [
        row
        for row in tables.splitlines()
        if row.startswith("| ") and not row.startswith("| promise ")
    ]

    assert len(rows) > 20
    for row in rows:
        assert _TEST_LINK.search(row), row


@pytest.mark.parametrize("figure", ["architecture", "batch", "life"])
def test_a_figure_is_what_its_source_draws(figure: str):
    folder = ROOT / "docs" / "figures"

    drawn = runpy.run_path(str(folder / f"{figure}.py"))["draw"]()

    assert (folder / f"{figure}.svg").read_text() == drawn
    assert ET.fromstring(drawn).tag.endswith("svg")


def test_every_version_that_is_installed_has_its_digests():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [number for number, line in enumerate(lines) if "==" in line]

    for begin, end in pairwise([*pins, len(lines)]):
        digests = [line.strip(" \\") for line in lines[begin + 1 : end]]
        assert digests, lines[begin]
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in digests)


def test_what_is_installed_before_the_project_is_what_it_needs():
    requirements = runpy.run_path(str(ROOT / "deploy" / "requirements.py"))["requirements"]

    found = requirements(["http"])

    assert {re.split("[<>=]", each)[0] for each in found} == {
        "cassandra-driver",
        "httpx",
        "mmh3",
        "numpy",
        "pyarrow",
        "rich",
        "typer",
    }


def test_the_versions_that_are_told_are_those_that_tests_run_with():
    words = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = dict(word.split("==") for word in words if "==" in word)
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

    assert f"| Spark | {pinned['pyspark']}; " in page
    newest, oldest = Release.V5_0.version, Release.V4_1.version
    protocols = " and ".join(map(str, PROTOCOL_VERSIONS))
    cassandra = f"{newest}, protocols {protocols}; the store also with {oldest} |"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| tested with each change | {pinned['pyspark']} | 3.11 | {cassandra}" in readme
    assert f"| Cassandra | {newest}; the store also with {oldest} |" in page
    assert f"cassandra-driver {pinned['cassandra-driver']} " in page
    assert f"pyarrow {pinned['pyarrow']} " in page
