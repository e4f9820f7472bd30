"""The settings of a schedule as flags of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import typer

from cassieq_spark.cli.options import WHEN, Value, name_and_value
from cassieq_spark.settings.kinds import Kind
from cassieq_spark.settings.schedule import (
    NONE,
    SCHEDULE_SETTINGS,
    Of,
    ScheduleSetting,
    check_settings,
)

#: Stands for a value that is taken away: options of a command have None if they are not given.
_TAKEN_AWAY = object()


def schedule_flags(*, alters: bool) -> Callable[..., dict[str, Any]]:
    """A function whose parameters are the settings of a schedule as flags.

    It returns the given settings, checked, as `Client.create_schedule` and
    `Client.alter_schedule` take them.

    Args:
        alters: True if the schedule exists: then no flag has a default, and flags of settings that
            can't be altered are hidden, to be refused with a reason.
    """

    def read(**given: Any) -> dict[str, Any]:
        found = {name: it for name, it in given.items() if it is not None}
        if lines := found.pop("header", None):
            found["headers"] = _headers(lines)
        found = {name: None if it is _TAKEN_AWAY else it for name, it in found.items()}
        check_settings(found, alters=alters)
        return found

    vars(read)["__signature__"] = inspect.Signature(list(_parameters(alters=alters)))
    return read


def _parameters(*, alters: bool) -> Iterator[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    for it in SCHEDULE_SETTINGS:
        name = it.flag.removeprefix("--").replace("-", "_")
        is_needed = it.name == "message" and not alters
        default = None if alters or it.of is Of.HEADERS else it.default
        yield inspect.Parameter(
            name,
            keyword,
            default=inspect.Parameter.empty if is_needed else default,
            annotation=_annotation(it, default, is_needed=is_needed, alters=alters),
        )


def _annotation(it: ScheduleSetting, default: Any, *, is_needed: bool, alters: bool) -> Any:
    without = False if alters or default is not None else it.without or False
    meaning = it.meaning_by(lambda other: other.flag)
    if alters and it.can_be_taken_away:
        meaning = f"{meaning.removesuffix('.')}; {NONE}: {it.without}."
    if it.of is Of.HEADERS:
        meaning += " Repeatable."
        info = typer.Option(help=meaning, metavar=it.kind.metavar, show_default=without)
        return Annotated[list[str] | None, info]
    if it.of is Of.TEXT:
        info = typer.Option(
            help=meaning,
            metavar=it.name.upper() if it.name == "zone" else None,
            show_default=True if default is not None else without,
            hidden=alters and bool(it.fixed),
        )
        return Annotated[str if is_needed or default is not None else str | None, info]
    value = Value(_kind_of(it, alters=alters), meaning, without=without)
    return Annotated[timedelta | None, value]


def _kind_of(it: ScheduleSetting, *, alters: bool) -> Kind[Any]:
    """How people write a value as an option of a command."""
    kind = WHEN if it.of is Of.INSTANT else it.kind
    if not (alters and it.can_be_taken_away):
        return kind
    return replace(
        kind,
        name=f"{kind.name}, or {NONE}",
        parse=lambda text: _TAKEN_AWAY if text.strip().lower() == NONE else kind.parse(text),
    )


def _headers(lines: list[str]) -> Any:
    """The headers that options give; `NONE` alone takes all of them away."""
    if [line.strip().lower() for line in lines] == [NONE]:
        return _TAKEN_AWAY
    return dict(name_and_value("--header", line) for line in lines)
