"""docs/cli.md from the commands themselves: ``python -m cassieq_spark.cli.documentation``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from typer.main import get_command

from cassieq_spark.cli import app
from cassieq_spark.cli.options import CASSANDRA_PANEL as PANEL

_BEGINNING = (
    "# Command line",
    "",
    "Printed by `python -m cassieq_spark.cli.documentation`; change it there.",
    "",
    "`cassieq --install-completion` makes the shell complete commands and options.",
    "`cassieq --version` prints the release; `--help` of a command prints what is here.",
    "",
    "| Exit code | Meaning |",
    "|---|---|",
    "| 0 | done |",
    "| 1 | it failed: a line on standard error says why; or `schema check` found a difference |",
    "| 2 | wrong usage: unknown command or option, or an impossible value |",
    "| 3 | `node status`: no node runs in the background |",
    "| 130 | ended by Ctrl-C |",
    "",
    "The settings of Cassandra, and the limits of a gateway, may also come from the environment,",
    "as CASSIEQ_CONTACT_POINTS for `--contact-points`, or from the file that `--config` names",
    "([an example](../conf/cassieq.toml)). Options go before the environment, and that before the",
    "file.",
    "",
    "With `--json`, standard output has one JSON value on one line, or one for each message.",
    "Warnings and questions go to standard error.",
    "",
)


def documentation() -> str:
    """docs/cli.md: the options of reaching Cassandra once, then each command with its own.

    The generator that comes with typer repeats those options for every command, three times as
    many lines, and its output differs from release to release.
    """
    commands = list(_commands(get_command(app), ("cassieq",)))
    shared = next(params for _, command in commands if (params := _shared(command)))
    lines = [*_BEGINNING, f"## Reaching {PANEL}", ""]
    lines += ["All commands that connect to Cassandra have these options.", "", *_table(shared)]
    for path, command in commands:
        lines += ["", *_section(path, command)]
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in sorted(inner):
        yield from _commands(inner[name], (*path, name))


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    arguments = [_argument(each) for each in command.params if not _is_option(each)]
    yield f"## {' '.join((*path, *arguments))}"
    yield ""
    yield inspect.cleandoc(command.help or "")
    shared = _shared(command)
    own = [
        each
        for each in command.params
        if each not in shared and not getattr(each, "hidden", False) and each.name != "help"
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


def _is_option(param: Any) -> bool:
    return bool(param.param_type_name == "option")


def _argument(param: Any) -> str:
    name = param.name.upper() + ("..." if param.nargs < 0 else "")
    return name if param.required else f"[{name}]"


def _name(param: Any) -> str:
    if not _is_option(param):
        return _argument(param)
    names = [name.strip() for name in (*param.opts, *param.secondary_opts) if name.strip()]
    value = "" if param.is_flag else " " + (param.metavar or "VALUE").replace("|", "\\|")
    return " / ".join(names) + value


def _default(param: Any) -> str:
    if isinstance(param.show_default, str):
        return param.show_default
    if param.required:
        return "required"
    if param.default in (None, ()) or isinstance(param.default, bool) or not param.show_default:
        return ""
    return f"`{param.default}`"


if __name__ == "__main__":
    sys.stdout.write(documentation())
