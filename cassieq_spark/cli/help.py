"""What ``--help`` prints: usage, examples, arguments and options, as wide as the terminal.

The help that comes with typer draws boxes, into pipes as well, and repeats the connection options
in each command.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.cli.flags import CASSANDRA_PANEL
from cassieq_spark.errors import OptionError

_EXAMPLES = "Examples:"
_OPTIONS, _ARGUMENTS = "Options", "Arguments"
_WIDEST, _NARROW = 100, 60
#: The part of the width that the names of options take at most.
_PART_OF_NAMES = 0.4
_INDENT = 2

#: How a command finds Cassandra: the first of these that names one; also in docs/cli.md.
FINDING = (
    "an option: --contact-points, --port or --secure-connect-bundle",
    "a variable: CASSIEQ_CONTACT_POINTS, CASSIEQ_PORT or CASSIEQ_SECURE_CONNECT_BUNDLE",
    "the configuration file that --config or CASSIEQ_CONFIG names",
    "the node that 'cassieq node up --detach' runs, with its administrator and certificates",
    "127.0.0.1:9042",
)
TELLING = (
    "A command says which Cassandra it uses, and what names it: on a terminal, with --verbose, "
    "and in errors."
)
VARIABLES = (
    "Each other setting comes from the option, else from its variable, else from the "
    "configuration file. A variable that is misspelt by a letter or two is refused."
)

_Row = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Text:
    """The docstring of a command.

    Attributes:
        meaning: What the command does, in paragraphs.
        examples: Lines of the examples.
    """

    meaning: str
    examples: tuple[str, ...]

    @classmethod
    def of(cls, command: Any) -> Text:
        """Split the docstring of a command."""
        meaning, _, examples = cleandoc(command.help or "").partition(f"\n{_EXAMPLES}\n")
        lines = textwrap.dedent(examples).strip().splitlines()
        return cls(meaning.strip(), tuple(lines))

    @property
    def summary(self) -> str:
        """The first line, without the full stop."""
        return self.meaning.partition("\n")[0].removesuffix(".")


def render(command: Any, context: Any, width: int) -> str:
    """The help of a command, in lines of at most ``width`` characters, except examples."""
    text = Text.of(command)
    parts = [_usage(command, context), *_paragraphs(text.meaning, width)]
    if text.examples:
        parts.append(_section("Examples", [f"  {line}".rstrip() for line in text.examples]))
    parts += _commands(command, context, width)
    parts += _params(command, context, width)
    return "\n\n".join(parts)


def help_of(words: Sequence[str], root: Any) -> str:
    """The help that ``cassieq help WORDS`` prints.

    Args:
        words: A command, or ``connection``.
        root: The context of the program.

    Raises:
        OptionError: There is no such command.
    """
    if [*words] == ["connection"]:
        return _connection_help(root.command, _width())
    context = root
    for word in words:
        known = getattr(context.command, "commands", {})
        if word not in known:
            advice = did_you_mean(word, known, otherwise="see them with: cassieq help")
            raise OptionError(f"there is no command {' '.join(words)!r}; {advice}")
        context = context.command.commands[word].make_context(
            word, [], parent=context, resilient_parsing=True
        )
    return render(context.command, context, _width())


class HelpfulCommand(TyperCommand):
    """A command whose help `render` makes, and whose errors name the variable that is wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and the variables in place of those that are missing."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            param: Any = error.param
            source = ctx.get_parameter_source(param.name) if param else None
            if source is not None and source.name == "ENVIRONMENT":
                error.param_hint = f"the variable {param.envvar}"
            raise

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage line."""
        formatter.write(_usage(self, ctx) + "\n")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(render(self, ctx, _width()))


class HelpfulGroup(TyperGroup):
    """A group of commands whose help `render` makes."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage line."""
        formatter.write(_usage(self, ctx) + "\n")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(render(self, ctx, _width()))


def argument_text(param: Any) -> str:
    """An argument as the usage shows it: ``QUEUE``, ``[MESSAGE]...``."""
    name = (param.metavar or param.name).upper()
    name = name if param.required else f"[{name}]"
    return f"{name}..." if param.nargs < 0 else name


def option_text(param: Any) -> str:
    """The names of an option, and of its value: ``-v, --verbose``, ``--max NUMBER``."""
    names = sorted((name for name in param.opts if name.strip()), key=len)
    text = " / ".join([", ".join(names), *param.secondary_opts])
    return text if param.is_flag else f"{text} {param.metavar or 'VALUE'}"


def default_text(param: Any) -> str:
    """The default, for people; empty if it is not worth showing."""
    if isinstance(param.show_default, str):
        return param.show_default
    if param.default in (None, ()) or isinstance(param.default, bool) or not param.show_default:
        return ""
    return str(param.default)


def is_option(param: Any) -> bool:
    """True if the parameter is an option; False if it is an argument."""
    return bool(param.param_type_name == "option")


def _usage(command: Any, context: Any) -> str:
    words = [context.command_path]
    words += [argument_text(each) for each in command.params if not is_option(each)]
    words += ["COMMAND"] if hasattr(command, "commands") else []
    words += ["[OPTIONS]"]
    return f"{_bold('Usage:')} {' '.join(words)}"


def _commands(command: Any, context: Any, width: int) -> Iterator[str]:
    """The commands of a group, under the headings that they name."""
    panels: dict[str, list[_Row]] = {}
    for name in getattr(command, "commands", ()):
        each = command.get_command(context, name)
        if not each.hidden:
            heading = getattr(each, "rich_help_panel", None)
            heading = heading if isinstance(heading, str) else "Commands"
            panels.setdefault(heading, []).append((name, Text.of(each).summary + "."))
    for heading, rows in panels.items():
        yield _section(heading, _columns(rows, width))


def _params(command: Any, context: Any, width: int) -> Iterator[str]:
    params = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    panels: dict[str, list[_Row]] = {}
    reaching: list[str] = []
    for each in params:
        if not is_option(each):
            panels.setdefault(_ARGUMENTS, []).append((argument_text(each), _meaning(each)))
        elif each.rich_help_panel == CASSANDRA_PANEL:
            reaching += each.opts
        else:
            heading = each.rich_help_panel or _OPTIONS
            panels.setdefault(heading, []).append((option_text(each), _meaning(each)))
    for heading in sorted(panels, key=lambda each: (each != _ARGUMENTS, each == _OPTIONS)):
        yield _section(heading, _columns(panels[heading], width))
    if reaching:
        told = f"{', '.join(reaching)}. See: cassieq help connection"
        indent = " " * _INDENT
        lines = textwrap.wrap(
            told, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        yield _section("To reach Cassandra", lines)


def _connection_help(program: Any, width: int) -> str:
    """How commands find Cassandra, and the options and variables that name it."""
    params = program.commands["queue"].commands["list"].params
    reaching = [each for each in params if each.rich_help_panel == CASSANDRA_PANEL]
    rows = [(option_text(each), f"{_meaning(each)} [{each.envvar}]") for each in reaching]
    steps = [(f"{number}.", step) for number, step in enumerate(FINDING, 1)]
    first = "A command uses the first Cassandra that is named by"
    prose = (textwrap.fill(each, width, break_on_hyphens=False) for each in (TELLING, VARIABLES))
    return "\n\n".join(
        [
            _section(first, _columns(steps, max(width, _NARROW))),
            *prose,
            _section("Options, and their variables", _columns(rows, width)),
        ]
    )


def _meaning(param: Any) -> str:
    text = " ".join((param.help or "").split())
    if param.required and is_option(param):
        return f"{text} [required]"
    default = default_text(param)
    return f"{text} [default: {default}]" if default else text


def _columns(rows: Sequence[_Row], width: int) -> list[str]:
    """Names with their meanings beside them; below them where the terminal is narrow."""
    most = 0 if width < _NARROW else int(width * _PART_OF_NAMES)
    at = max([_INDENT, *(len(name) + 2 * _INDENT for name, _ in rows if len(name) <= most)])
    at = at if most else 3 * _INDENT
    lines = []
    for name, meaning in rows:
        indent = " " * at
        beside = len(name) + 2 * _INDENT <= at and bool(most)
        first = f"{' ' * _INDENT}{name}".ljust(at) if beside else indent
        if not beside:
            lines.append(f"{' ' * _INDENT}{name}")
        lines += (
            textwrap.wrap(
                meaning,
                width,
                initial_indent=first,
                subsequent_indent=indent,
                break_on_hyphens=False,
            )
            or [first.rstrip()] * beside
        )
    return lines


def _paragraphs(text: str, width: int) -> Iterator[str]:
    for each in text.split("\n\n"):
        if each.strip():
            yield textwrap.fill(" ".join(each.split()), width, break_on_hyphens=False)


def _section(heading: str, lines: Iterable[str]) -> str:
    return "\n".join([_bold(f"{heading}:"), *lines])


def _bold(text: str) -> str:
    is_shown = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return typer.style(text, bold=True) if is_shown else text


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)
