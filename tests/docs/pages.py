"""The code blocks of the documents: where they are, and how they are run or looked at."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from cassieq_spark.cli import app

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_STARTS_ANOTHER = {"|", "||", "&&", ";", "&"}


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a document."""

    page: str
    language: str
    text: str

    def commands(self) -> Iterator[list[str]]:
        """The commands of a block of shell, each as its words."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            yield from _commands_of(line)


def pages() -> list[str]:
    """Every document: README.md, CONTRIBUTING.md and those in docs/."""
    documents = sorted((ROOT / "docs").glob("*.md"))
    return ["README.md", "CONTRIBUTING.md", *(f"docs/{each.name}" for each in documents)]


def blocks_of(page: str, section: str | None = None) -> list[Block]:
    """The code blocks of a document, or of a section of it, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [Block(page, one["language"], one["text"]) for one in _FENCE.finditer(text)]


def check_cassieq(words: list[str]) -> None:
    """Whether there is such a command of cassieq, with such options; it is not run."""
    command = typer.main.get_command(app)
    context = command.make_context("cassieq", list(words))
    while isinstance(command, typer.core.TyperGroup):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert command is not None, words
        context = command.make_context(name, rest, parent=context)


def connect(program: str, *, host: str, keyspace: str) -> str:
    """A program of a document, but for where its cluster is, and any port that is free."""
    there = f'("spark.cassandra.connection.host", "{host}").option("keyspace", "{keyspace}")'
    program = program.replace('.format("cassieq")', f'.format("cassieq").option{there}')
    reach = f"`spark.cassandra.connection.host` '{host}', keyspace '{keyspace}'"
    program = program.replace("OPTIONS (", f"OPTIONS ({reach}, ")
    reach = f'"spark.cassandra.connection.host": "{host}", "keyspace": "{keyspace}"'
    program = program.replace('"cassieq", {', f'"cassieq", {{{reach}, ')
    reach = f'contact_points="{host}", keyspace="{keyspace}"'
    program = program.replace("Client()", f"Client({reach})").replace("server(9109)", "server(0)")
    node, _, port = host.partition(":")
    program = program.replace('Cluster(["127.0.0.1"])', f'Cluster(["{node}"], port={port})')
    reach = f'contact_points=("{host}",), keyspace="{keyspace}"'
    return program.replace("ConnectionOptions()", f"ConnectionOptions({reach})")


def _commands_of(line: str) -> Iterator[list[str]]:
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    words.whitespace_split = True
    command: list[str] = []
    for word in words:
        if word in _STARTS_ANOTHER:
            yield command
            command = []
        else:
            command.append(word)
    for at, word in enumerate(command):
        if set(word) <= set("<>"):
            command = command[:at]
            break
    if command:
        yield command
