"""docs/cli.md from the commands themselves: ``python -m cassieq_spark.cli.documentation``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from typer.main import get_command

from cassieq_spark.cli import app
from cassieq_spark.cli.flags import CASSANDRA_PANEL as PANEL
from cassieq_spark.cli.help import (
    FINDING,
    TELLING,
    VARIABLES,
    Text,
    argument_text,
    default_text,
    is_option,
    option_text,
)

#: Options that many commands have; described once.
_SHARED = ("config", "verbose", "help")

_BEGINNING = """\
# Command line

Printed by `python -m cassieq_spark.cli.documentation`; change it there.

- `cassieq --help` lists the commands, and `cassieq COMMAND --help` prints what is here.
- `cassieq --version` prints the release.
- `cassieq --install-completion` makes the shell complete commands, options, and the names of
  queues and groups.

| Exit code | Meaning |
|---|---|
| 0 | done |
| 1 | it failed: a line on standard error says why; or `schema check` found a difference |
| 2 | wrong usage: an unknown command or option, or a value that cannot be |
| 3 | `node status`: no node runs in the background |
| 130 | ended by Ctrl-C |

[`repair run`](#cassieq-repair-run) has exit codes of its own.

With `--json`, standard output has one JSON value on one line, or one for each message. Questions,
warnings and progress go to standard error. Colours are for terminals only, and the variable
`NO_COLOR` turns them off.
"""

_REACHING = """\
All commands that connect to Cassandra have these options. They also have `--config FILE` and
`-v, --verbose`, which may stand anywhere on the line.
"""


def documentation() -> str:
    """The text of docs/cli.md: connection options once, then each command with its own options.

    The generator that comes with typer repeats the connection options for every command, three
    times as many lines, and its output differs from release to release.
    """
    commands = list(_commands(get_command(app), ("cassieq",)))
    shared = next(params for _, command in commands if (params := _shared(command)))
    lines = [_BEGINNING, f"## Reaching {PANEL}", ""]
    lines += ["A command uses the first Cassandra that is named by:", ""]
    lines += [f"{number}. {step}" for number, step in enumerate(FINDING, 1)]
    lines += ["", f"{TELLING} {VARIABLES} [An example of a file](../conf/cassieq.toml)."]
    lines += ["", _REACHING, *_table(shared)]
    for path, command in commands:
        lines += ["", *_section(path, command)]
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in inner:
        yield from _commands(inner[name], (*path, name))


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    arguments = [argument_text(each) for each in command.params if not is_option(each)]
    text = Text.of(command)
    yield f"## {' '.join((*path, *arguments))}"
    yield ""
    yield text.meaning
    if text.examples:
        yield ""
        yield "```sh"
        yield from text.examples
        yield "```"
    shared = _shared(command)
    own = [
        each
        for each in command.params
        if each not in shared and not getattr(each, "hidden", False) and each.name not in _SHARED
    ]
    if own:
        yield ""
        yield from _table(own)
    if shared:
        yield ""
        yield f"Also the options of [reaching {PANEL}](#reaching-{PANEL.lower()})."


def _table(params: Iterable[Any]) -> Iterator[str]:
    yield "| Option | Default | Meaning |"
    yield "|---|---|---|"
    for each in params:
        meaning = " ".join((each.help or "").split()).replace("|", "\\|")
        yield f"| `{_name(each)}` | {_default(each)} | {meaning} |"


def _shared(command: Any) -> list[Any]:
    return [each for each in command.params if getattr(each, "rich_help_panel", None) == PANEL]


def _name(param: Any) -> str:
    text = option_text(param) if is_option(param) else argument_text(param)
    return text.replace("|", "\\|")


def _default(param: Any) -> str:
    if param.required:
        return "required"
    text = default_text(param)
    return text if not text or isinstance(param.show_default, str) else f"`{text}`"


if __name__ == "__main__":
    sys.stdout.write(documentation())
