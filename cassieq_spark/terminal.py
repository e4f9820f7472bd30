"""Prints for people, without control characters.

Keys, values, headers, names and reasons come from others, and may hold the codes that clear a
terminal's screen, change its title or disguise text. So all output for people goes through this
module, and lint refuses other ways.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cassieq_spark.display import visible

_LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


def json_line(value: Any) -> str:
    """A value as JSON, on one line, in printable ASCII."""
    # The only control character that JSON does not escape.
    return json.dumps(value).replace("\x7f", "\\u007f")


def echo(text: str = "", *, err: bool = False, end: str = "\n") -> None:
    """Print a text, and ``end`` after it; with ``err`` on standard error."""
    typer.echo(visible(text) + end, err=err, nl=False)


def confirm(question: str) -> None:
    """Ask on standard error, and end the command (exit code 1) unless the answer is yes."""
    typer.confirm(visible(question), abort=True, err=True)


class PlainConsole(rich.console.Console):
    """A console of rich that shows all text as it is: no control codes, no markup, no emoji."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **arguments})

    def render_str(self, text: str, **arguments: Any) -> Text:
        """Spell out control characters, before the layout; see rich's method."""
        return super().render_str(visible(text), **arguments)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Spell out control characters of each part of a renderable; see rich's method."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def log_to_stderr() -> None:
    """Show warnings of this library on standard error, one line each.

    Warnings of the driver, which have stack traces, are not shown: our errors report its problems.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible(_LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))
