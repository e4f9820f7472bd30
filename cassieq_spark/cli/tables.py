"""Tables for people: columns beside each other, or below each other where it is narrow.

Nothing is drawn with lines. On a terminal a table fits its width; in a file or a pipe it is as
wide as it needs to be, and numbers have no separators.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.cells import cell_len, chop_cells

from cassieq_spark.display import shown_age, visible
from cassieq_spark.terminal import PlainConsole

_GAP = "  "
#: The smallest width of a column whose text may wrap.
_LEAST_WRAPPED = 20
#: The text between the names and the values of a record.
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: The title of the column.
        wraps: True if its texts may wrap, so that the other columns have room.
    """

    title: str
    wraps: bool = False


def print_table(
    columns: Sequence[Column | str],
    rows: Iterable[Sequence[Any]],
    *,
    console: PlainConsole | None = None,
    style_of: Sequence[str] = (),
) -> None:
    """Print rows of values under their titles.

    Args:
        columns: The columns; a text is the title of a column that does not wrap.
        rows: A value per column: None, a text, a number, a length of time or an instant.
        console: Where to print; None for standard output.
        style_of: The style of each row on a terminal; the usual style for further rows.
    """
    console = PlainConsole() if console is None else console
    known = [Column(each) if isinstance(each, str) else each for each in columns]
    width = console.width if console.is_terminal else None
    values = [list(row) for row in rows]
    cells = [[show(value, plain=width is None) for value in row] for row in values]
    numeric = [
        any(_is_number(row[at]) for row in values)
        and all(_is_number(row[at]) or row[at] is None for row in values)
        for at in range(len(known))
    ]
    head, *blocks = layout(known, cells, numeric, width)
    for line in head:
        _print(console, line, "bold")
    for at, block in enumerate(blocks):
        for line in block:
            _print(console, line, style_of[at] if at < len(style_of) else "")


def print_record(pairs: Iterable[tuple[str, Any]], *, console: PlainConsole | None = None) -> None:
    """Print names and their values, at least one line per pair."""
    console = PlainConsole() if console is None else console
    width = console.width if console.is_terminal else None
    named = [(visible(name), show(value, plain=width is None)) for name, value in pairs]
    for line in _record(named, width):
        _print(console, line, "")


def show(value: Any, *, plain: bool) -> str:
    """A value as text for people.

    >>> show(1234567, plain=False), show(1234567, plain=True), show(None, plain=False)
    ('1,234,567', '1234567', '-')
    """
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value) if plain else f"{value:,}"
        case timedelta():
            return shown_age(value)
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        case _:
            return visible(str(value))


def layout(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    width: int | None,
) -> list[list[str]]:
    """The lines of the titles, and those of each row.

    Args:
        columns: The columns.
        cells: Texts, row by row.
        numeric: True for columns with numbers, which are aligned to the right.
        width: Maximum number of characters of a line; None for no limit. If the columns do not
            fit, there are no titles, and each row is a record.
    """
    natural = [
        max([cell_len(column.title), *(cell_len(row[at]) for row in cells)])
        for at, column in enumerate(columns)
    ]
    widths = _fitted(columns, natural, width)
    if widths is None:
        return [[], *(_block(columns, row, width) for row in cells)]
    titles = _line([column.title for column in columns], widths, numeric)
    rows = []
    for row in cells:
        parts = [_wrapped(text, room) for text, room in zip(row, widths, strict=True)]
        height = max(map(len, parts))
        rows.append(
            [
                _line([part[at] if at < len(part) else "" for part in parts], widths, numeric)
                for at in range(height)
            ]
        )
    return [[titles], *rows]


def _fitted(columns: Sequence[Column], natural: list[int], width: int | None) -> list[int] | None:
    """The width of each column; None if they do not fit."""
    gaps = len(_GAP) * (len(columns) - 1)
    if width is None or sum(natural) + gaps <= width:
        return natural
    wrapping = [at for at, column in enumerate(columns) if column.wraps]
    rigid = sum(length for at, length in enumerate(natural) if at not in wrapping)
    room = width - gaps - rigid
    widths = list(natural)
    # The narrow ones first: what they do not need is for the others.
    for left, at in enumerate(sorted(wrapping, key=lambda at: natural[at])):
        share = room // (len(wrapping) - left)
        widths[at] = min(natural[at], share)
        if widths[at] < min(natural[at], _LEAST_WRAPPED):
            return None
        room -= widths[at]
    return widths if wrapping else None


def _line(texts: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    cells = []
    for text, width, is_number in zip(texts, widths, numeric, strict=True):
        filling = " " * (width - cell_len(text))
        cells.append(filling + text if is_number else text + filling)
    return _GAP.join(cells).rstrip()


def _block(columns: Sequence[Column], row: Sequence[str], width: int | None) -> list[str]:
    """A row as a record: its first value, and the others below it."""
    first, *rest = row
    pairs = [(column.title, text) for column, text in zip(columns[1:], rest, strict=True)]
    lines = [line for part in _wrapped(first, width or cell_len(first)) for line in [part]]
    return lines + _record(pairs, width, _INDENT)


def _record(pairs: Sequence[tuple[str, str]], width: int | None, indent: str = "") -> list[str]:
    at = max((cell_len(name) for name, _ in pairs), default=0)
    lines = []
    for name, text in pairs:
        begin = f"{indent}{name}{' ' * (at - cell_len(name))}{_GAP}"
        room = None if width is None else max(1, width - cell_len(begin))
        for part in _wrapped(text, room):
            lines.append((begin + part).rstrip())
            begin = " " * cell_len(begin)
    return lines


def _wrapped(text: str, room: int | None) -> list[str]:
    """A text in lines of at most ``room`` cells, cut between words if possible."""
    lines: list[str] = []
    for line in text.split("\n"):
        if room is None or cell_len(line) <= room:
            lines.append(line)
            continue
        for part in textwrap.wrap(line, room, break_on_hyphens=False) or [""]:
            lines += chop_cells(part, room)
    return lines


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, timedelta)) and not isinstance(value, bool)


def _print(console: PlainConsole, line: str, style: str) -> None:
    console.print(line, style=style, highlight=False, soft_wrap=True)
