"""Kinds of values: the name of each kind, and how its values are read and written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Generic, TypeVar

from cassieq_spark.arguments import MOST, check_client_name
from cassieq_spark.errors import OptionError
from cassieq_spark.model import validate_name

T = TypeVar("T")

_UNLIMITED = MOST
#: Most seconds that a column of the type ``int`` holds.
_MOST_SECONDS = 2**31 - 1
_SIZES = {"g": 1 << 30, "m": 1 << 20, "k": 1 << 10, "": 1}
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value; ``parse(show(value)) == value``.

    Attributes:
        name: Completes "must be ..." in errors; the docs show it as the type.
        parse: Reads a text. Raises ValueError, or an OptionError that states what was expected.
        show: Writes a value as a user would.
        metavar: The word for the value in the help of a command.
        bounds: For whole numbers: the smallest one, and the largest one or None for no limit.
    """

    name: str
    parse: Callable[[str], T]
    show: Callable[[T], str] = str
    metavar: str = "TEXT"
    bounds: tuple[int, int | None] | None = None


def whole_number(least: int, most: int = _UNLIMITED) -> Kind[int]:
    """Whole numbers from ``least`` to ``most``, written in digits only."""
    name = f"a whole number of at least {least}"
    if most < _UNLIMITED:
        name = f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        # int() takes very long for a very long number.
        value = int(_groups(r"([0-9]{1,100})", text)[0])
        if most == _UNLIMITED < value:
            raise OptionError(f"{text.strip()} is too large: at most {most}")
        return _within(least, value, most)

    return Kind(
        name,
        parse,
        metavar="INTEGER",
        bounds=(least, most if most < _UNLIMITED else None),
    )


def size(most: int) -> Kind[int]:
    """Sizes in bytes, from 1 to ``most``; units are powers of 1024.

    >>> size(1 << 20).parse("64k"), size(1 << 20).show(65536)
    (65536, '64k')
    """

    def parse(text: str) -> int:
        number, unit = _groups(r"([0-9]{1,19})([kmg]?)b?", text.lower())
        return _within(1, int(number) * _SIZES[unit], most)

    show = partial(_show_largest, _SIZES)
    return Kind(f"a size such as 64k or 1m, at most {show(most)}", parse, show, "SIZE")


def duration(most: timedelta, *, zero: bool = False) -> Kind[timedelta]:
    """Durations in whole milliseconds, from 1 ms (or, with ``zero``, from 0) to ``most``.

    >>> kind = duration(timedelta(days=1))
    >>> kind.parse("90s"), kind.show(timedelta(hours=2))
    (datetime.timedelta(seconds=90), '2h')
    """

    def parse(text: str) -> timedelta:
        number, unit = _groups(r"([0-9]{1,19})(ms|[smhd])", text.lower())
        milliseconds = int(number) * _MILLISECONDS[unit]
        limit = most // timedelta(milliseconds=1)
        return timedelta(milliseconds=_within(0 if zero else 1, milliseconds, limit))

    def show(value: timedelta) -> str:
        if not value:
            return "0s"
        return _show_largest(_MILLISECONDS, value // timedelta(milliseconds=1))

    name = f"a duration such as 500ms, 10s or 5m, at most {show(most)}"
    return Kind(name, parse, show, "DURATION")


def choice(*values: str) -> Kind[str]:
    """One of a few words, in any case of letters."""
    return Kind(
        f"{', '.join(values[:-1])} or {values[-1]}",
        lambda text: values[values.index(text.lower())],
        metavar="|".join(values),
    )


def name_of(what: str) -> Kind[str]:
    """The name of a queue or a consumer group."""
    return Kind("a name", partial(validate_name, what))


def names_of(what: str) -> Kind[str]:
    """One name, or several distinct names separated by commas, of queues or consumer groups."""
    return Kind("a name, or names with commas between them", partial(_parse_several, what))


def _parse_several(what: str, text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        validate_name(what, name)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"{what} {twice!r} is named twice: name each {what} once")
    return ",".join(names)


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text


def _parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"{text!r} is no regular expression: {error}") from error
    return _parse_text(text)


#: A name in a list of names: in backquotes, with each inner backquote doubled, or up to a comma.
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`\s*(?=,|\Z)|([^`,\s][^,]*))")


def _parse_names(text: str) -> tuple[str, ...]:
    names = []
    at = -1
    while at < len(text):
        match = _NAME.match(text, at + 1)
        if match is None and (rest := text[at + 1 :].strip()).startswith("`"):
            raise OptionError(
                f"{rest[:60]!r} begins with a name in backquotes that does not end before a "
                "comma or the end: write `a,b` for the name a,b, and `` for a backquote in it"
            )
        if match is None:
            raise ValueError(text)
        quoted, plain = match.groups()
        names.append(plain.strip() if quoted is None else quoted.replace("``", "`"))
        at = match.end()
    return tuple(names)


def _show_names(names: tuple[str, ...]) -> str:
    """Write names as `_parse_names` reads them, with backquotes only where they are needed."""
    is_plain = re.compile(r"[^`,\s](?:[^,]*[^,\s])?").fullmatch
    return ",".join(n if is_plain(n) else "`" + n.replace("`", "``") + "`" for n in names)


def _show_largest(units: dict[str, int], value: int) -> str:
    """Write a number in the largest unit that needs no fraction."""
    return next(f"{value // n}{unit}" for unit, n in units.items() if value % n == 0)


def _groups(pattern: str, text: str) -> tuple[str, ...]:
    match = re.fullmatch(pattern, text.strip())
    if match is None:
        raise ValueError(text)
    return match.groups()


def _within(least: int, value: int, most: int) -> int:
    if not least <= value <= most:
        raise ValueError(value)
    return value


TEXT: Kind[str] = Kind("text", _parse_text)
CLIENT_NAME: Kind[str] = Kind("a name", check_client_name)
NAMES: Kind[tuple[str, ...]] = Kind(
    "names with commas between them; a name that has one is in backquotes",
    _parse_names,
    _show_names,
)
PATTERN: Kind[str] = Kind("a regular expression", _parse_pattern)
BOOLEAN: Kind[bool] = Kind(
    "true or false",
    lambda text: choice("false", "true").parse(text) == "true",
    lambda value: str(value).lower(),
)
SECONDS: Kind[timedelta] = Kind(
    f"a whole number of seconds, from 1 to {_MOST_SECONDS}",
    lambda text: timedelta(seconds=whole_number(1, _MOST_SECONDS).parse(text)),
    lambda value: str(value // timedelta(seconds=1)),
)
