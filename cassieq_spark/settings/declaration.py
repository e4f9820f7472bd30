"""Options declared as dataclass fields, and what is read from them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.kinds import Kind


@dataclass(frozen=True, slots=True)
class Option:
    """What a user knows of an option.

    Attributes:
        key: In the case of letters that the docs show.
        kind: What sort of value it takes.
        meaning: What it does.
        secret: Whether it is kept out of errors and reprs.
        unless: Another option, and the value of it with which this one, required otherwise, may
            be left out.
    """

    key: str
    kind: Kind[Any]
    meaning: str
    secret: bool = False
    unless: tuple[str, str] | None = None


def option(
    key: str,
    kind: Kind[Any],
    meaning: str,
    *,
    secret: bool = False,
    unless: tuple[str, str] | None = None,
) -> dict[str, Option]:
    """Metadata that makes a dataclass field an option; see `Option`."""
    return {"option": Option(key, kind, meaning, secret, unless)}


def declared_options(cls: type[Any]) -> Iterator[tuple[Field[Any], Option]]:
    """The fields of a class that are options."""
    return ((it, it.metadata["option"]) for it in fields(cls) if "option" in it.metadata)


def options_by_key(cls: type[Any]) -> dict[str, Option]:
    """The options of a class by key in lower case."""
    return {item.key.lower(): item for _, item in declared_options(cls)}


def read_values(cls: type[Any], given: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """What was given of a class's options, by field; what is wrong is added to ``problems``."""
    values = {}
    for declared, item in declared_options(cls):
        text = given.get(item.key.lower())
        if text is None:
            if declared.default is MISSING and not _may_be_left_out(item, given):
                problems.append(explain_missing(item.key, unless=item.unless))
            continue
        try:
            values[declared.name] = item.kind.parse(text)
        except OptionError as exc:
            problems.append(f"option {item.key!r}: {exc}")
        except ValueError:
            shown = "what was given" if item.secret else repr(text)
            problems.append(f"option {item.key!r} must be {item.kind.name}, not {shown}")
    return values


def explain_missing(key: str, *, unless: tuple[str, str] | None = None) -> str:
    """How to give an option that has no default, or what to give to do without."""
    exception = f"; only .option({unless[0]!r}, {unless[1]!r}) does without" if unless else ""
    return f"option {key!r} is missing: give it with .option({key!r}, ...){exception}"


def check_both_or_neither(pair: Mapping[str, object]) -> None:
    """Raise `OptionError` if one of two options is given and the other, None, is not."""
    if len({value is None for value in pair.values()}) > 1:
        given, missing = sorted(pair, key=lambda key: pair[key] is None)
        raise OptionError(
            f"option {given!r} needs {missing!r}: give both or neither with .option(..., ...)"
        )


def _may_be_left_out(item: Option, given: Mapping[str, str]) -> bool:
    if item.unless is None:
        return False
    other, value = item.unless
    return given.get(other.lower(), "").lower() == value
