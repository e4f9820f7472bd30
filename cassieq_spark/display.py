"""How objects look in a REPL and in a notebook: one renderer for text and one for HTML.

Others have stored keys, values, headers, names and reasons. So this module makes each value
printable, cuts it, and escapes it in HTML; nothing else is shown.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import escape
from itertools import islice
from typing import TypeGuard, TypeVar
from unicodedata import combining, east_asian_width

T = TypeVar("T")

#: Maximum characters of a value: in a line of text, in a cell of a text table, and in HTML.
_LINE, _CELL, _HTML = 60, 40, 300
#: Maximum characters of a value within a value: of a column, of a header.
_INNER = 20
#: Maximum characters of what an object belongs to; both names in it may have 200.
_TITLE = 420
#: Maximum rows of a table: in text, and in HTML.
_TEXT_ROWS, _HTML_ROWS = 20, 50
#: How many bytes are decoded at a time.
_PART = 256
_KEPT = "\n\t"
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_STYLE = "text-align:{};white-space:pre-wrap"
#: A notebook renders text between dollars as a formula, except in elements of these classes, and,
#: in notebooks that do not know the classes, in ``code``.
_NO_FORMULA = "tex2jax_ignore mathjax_ignore"


@dataclass(frozen=True, slots=True)
class ObjectView:
    """The content that is shown of an object.

    Attributes:
        kind: The kind of the object, in the plural: ``messages``.
        of: What the object belongs to: ``orders, group etl``; empty if nothing.
        facts: Names, of attributes where there are any, with values. A whole number is a count,
            and gets commas; a position is given as text.
        details: Further facts, which a table of many such objects leaves out.
        usual: The values that need not be shown, in addition to None.
        parts: The objects that are shown below it, as a table.
        is_fixed: True if a table of such objects has all columns, also those without content, as
            it is shown repeatedly.
    """

    kind: str
    of: str
    facts: Mapping[str, object]
    details: Mapping[str, object] = field(default_factory=dict)
    usual: Mapping[str, object] = field(default_factory=dict)
    parts: Sequence[Displayed] = ()
    is_fixed: bool = False


class Displayed:
    """Shows itself as one line, with a table below it if it has parts; in a notebook as HTML."""

    __slots__ = ()

    def _view(self) -> ObjectView:
        """The content that is shown of the object."""
        raise NotImplementedError

    def __repr__(self) -> str:
        view = self._view()
        of = f" of {shown_value(view.of, _TITLE)}" if view.of else ""
        facts = ", ".join(
            f"{name} {shown_value(value, _LINE)}" for name, value in _told(view).items()
        )
        line = f"<{type(self).__name__}{of}{': ' if facts else ''}{facts}>"
        return text_table(line, view.parts)

    def _repr_html_(self) -> str:
        view = self._view()
        of = f" of {shown_value(view.of, _TITLE)}" if view.of else ""
        rows = [
            [(name, "left"), (shown_value(value, _HTML), "left")]
            for name, value in _told(view).items()
        ]
        below = html_table("", view.parts) if view.parts else ""
        return _html(type(self).__name__ + of, [], rows) + below


class Listing(list[T]):
    """A list that shows itself as a table if its elements are `Displayed`."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not _are_alike(self):
            return super().__repr__()
        return text_table(_caption(_views(self)), self)

    def _repr_html_(self) -> str | None:
        """The list as HTML; None if IPython should show the text."""
        return html_table(_caption(_views(self)), self) if _are_alike(self) else None


def text_table(caption: str, these: Sequence[Displayed]) -> str:
    """A line, and objects of one kind below it, as lines of a table."""
    if not these:
        return caption
    names, align, cells = _cells(these, _TEXT_ROWS, _CELL)
    widths = [max(map(_width, column)) for column in zip(names, *cells, strict=True)]
    lines = ["  ".join(map(_padded, row, widths, align)).rstrip() for row in (names, *cells)]
    left = len(these) - len(cells)
    lines += [f"… and {left:,} more"] if left else []
    return "\n  ".join([caption, *lines])


def html_table(caption: str, these: Sequence[Displayed]) -> str:
    """A line, and objects of one kind below it, as HTML."""
    names, align, cells = _cells(these, _HTML_ROWS, _HTML) if these else ([], [], [])
    rows = [list(zip(row, align, strict=True)) for row in cells]
    left = len(these) - len(cells)
    more = f"<p>… and {left:,} more</p>" if left else ""
    return _html(caption, list(zip(names, align, strict=True)), rows) + more


def visible(text: str) -> str:
    r"""Spell out characters that a terminal would act on, and invisible ones.

    >>> visible("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(each if each in _KEPT else _spelled(each) for each in text)


def on_one_line(text: str) -> str:
    r"""Spell out line feeds and tabs, too, so that a text forges no line of a log.

    >>> on_one_line("a\nb")
    'a\\nb'
    """
    return text if text.isprintable() else "".join(map(_spelled, text))


def visible_bytes(data: bytes) -> str:
    r"""Spell out such characters in bytes, and bytes that are not UTF-8.

    >>> visible_bytes(b"\xc3\xa4 \xff\x07")
    'ä \\xff\\x07'
    """
    return visible(data.decode(errors="backslashreplace"))


def shown_age(age: timedelta | None) -> str:
    """An age in its two largest units; the second is left out if it is zero.

    >>> shown_age(timedelta(seconds=7505)), shown_age(timedelta(hours=2)), shown_age(None)
    ('2h 5m', '2h', '-')
    """
    if age is None:
        return "-"
    left = max(0, int(age.total_seconds()))
    parts: list[str] = []
    for unit, seconds in _UNITS.items():
        count, left = divmod(left, seconds)
        parts += [f"{count}{unit}"] if count or parts else []
    return " ".join(part for part in parts[:2] if not part.startswith("0")) or "0s"


def shown_rate(rate: float | None) -> str:
    """A number of messages per second.

    >>> shown_rate(1234.5), shown_rate(0.25), shown_rate(0.01), shown_rate(0.0), shown_rate(None)
    ('1,234', '0.2', '<0.1', '0', '-')
    """
    if rate is None:
        return "-"
    if 0 < rate < 0.1:  # noqa: PLR2004 (what one digit shows)
        return "<0.1"
    return f"{rate:.1f}" if 0 < rate < 10 else f"{rate:,.0f}"  # noqa: PLR2004 (where a digit counts)


def shown_value(value: object, most: int, *, is_inner: bool = False) -> str:
    r"""A value on one line, in printable characters.

    >>> shown_value(b"a\n\xff", 60), shown_value("x" * 1000, 4), shown_value(12345, 60)
    ('a\\n\\xff', 'xxxx… (1,000 characters)', '12,345')

    Args:
        value: The value to show.
        most: Characters after which the value is cut; then the text says how long it is.
        is_inner: True if it is a part of another value, and does not say its length.
    """
    shown: list[str] = []
    for piece in _pieces(value):
        most -= len(piece)
        if most < 0:
            return "".join(shown) + "…" + ("" if is_inner else _length(value))
        shown.append(piece)
    return "".join(shown)


def _pieces(value: object) -> Iterator[str]:
    """The text of a value, in pieces that are not cut; made only as they are asked for."""
    match value:
        case bytes():
            parts = (value[at : at + _PART] for at in range(0, len(value), _PART))
            for text in codecs.iterdecode(parts, "utf-8", "backslashreplace"):
                yield from map(_spelled, text)
        case Mapping() if value:
            for number, (name, each) in enumerate(value.items()):
                yield ", " if number else ""
                yield from shown_value(name, _INNER, is_inner=True)
                yield "="
                yield from shown_value(each, _INNER, is_inner=True)
        case list() | tuple() if value:
            for number, each in enumerate(value):
                yield ", " if number else "["
                yield from shown_value(each, _INNER, is_inner=True)
            yield "]"
        case _:
            yield from map(_spelled, _plain(value))


def _plain(value: object) -> str:
    match value:
        case None | Mapping():  # An empty one.
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case timedelta():
            return shown_age(value)
        case datetime() if value.tzinfo:
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case _:
            return str(value)


def _spelled(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _length(value: object) -> str:
    """The length of a value that was cut, if known."""
    units = {bytes: "bytes", str: "characters", dict: "entries", list: "elements"}
    for kind, unit in units.items():
        if isinstance(value, kind):
            return f" ({len(value):,} {unit})"
    return ""


def _told(view: ObjectView) -> dict[str, object]:
    """All facts that are shown of one object."""
    every = {**view.facts, **view.details}
    return {name: value for name, value in every.items() if _says(view, name, value)}


def _says(view: ObjectView, name: str, value: object) -> bool:
    return value is not None and value != view.usual.get(name)


def _are_alike(these: Sequence[object]) -> TypeGuard[Sequence[Displayed]]:
    kinds = set(map(type, these))
    return len(kinds) == 1 and issubclass(kinds.pop(), Displayed)


def _views(these: Iterable[object]) -> list[ObjectView]:
    return [each._view() for each in these if isinstance(each, Displayed)]  # noqa: SLF001 (our own)


def _caption(views: Sequence[ObjectView]) -> str:
    """Number and kind of the objects, and what they belong to if it is the same for all."""
    of = {view.of for view in views}
    kind = views[0].kind
    counted = f"1 {kind.removesuffix('s')}" if len(views) == 1 else f"{len(views):,} {kind}"
    if len(of) > 1 or not any(of):
        return counted
    return f"{counted} of {shown_value(of.pop(), _TITLE)}"


def _cells(
    these: Sequence[Displayed], rows: int, most: int
) -> tuple[list[str], list[str], list[list[str]]]:
    """The columns with content, the alignment of each, and the first rows."""
    views = _views(islice(these, rows))
    facts = [dict(view.facts) for view in views]
    if len({view.of for view in views}) > 1:
        facts = [{"of": view.of, **each} for view, each in zip(views, facts, strict=True)]
    first = views[0]
    names = [
        name
        for name in facts[0]
        if first.is_fixed or any(_says(first, name, each[name]) for each in facts)
    ]
    align = ["right" if all(_is_number(it[name]) for it in facts) else "left" for name in names]
    cells = [[shown_value(each[name], most) for name in names] for each in facts]
    return names, align, cells


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return value.replace(",", "").replace(".", "").isdecimal()
    return value is None or isinstance(value, int | float | timedelta)


def _padded(text: str, width: int, align: str) -> str:
    space = " " * (width - _width(text))
    return space + text if align == "right" else text + space


def _width(text: str) -> int:
    """The width of ``text`` in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(it) else 1 + (east_asian_width(it) in "WF") for it in text)


def _html(
    caption: str, head: Sequence[tuple[str, str]], rows: Sequence[Sequence[tuple[str, str]]]
) -> str:
    """A table of texts, each with its alignment."""
    title = f"<caption>{_code(caption)}</caption>" if caption else ""
    top = f"<thead>{_html_row(head, 'th')}</thead>" if head else ""
    body = "".join(_html_row(row, "td") for row in rows)
    return f'<table class="{_NO_FORMULA}">{title}{top}<tbody>{body}</tbody></table>'


def _html_row(cells: Sequence[tuple[str, str]], tag: str) -> str:
    shown = (
        f'<{tag} style="{_STYLE.format(align)}">{_code(text)}</{tag}>' for text, align in cells
    )
    return f"<tr>{''.join(shown)}</tr>"


def _code(text: str) -> str:
    """A text in HTML; every text gets there by this function."""
    return f"<code>{escape(text)}</code>"
