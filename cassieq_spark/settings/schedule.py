"""The settings of a schedule, each declared once: its names, bounds, default and meaning.

`Schedule` has the values. From `SCHEDULE_SETTINGS` follow the arguments of `Client` and of
commands, the requests and answers of the gateway and its client, the console's forms, what a
queue's row stores, and docs/options.md.

>>> [it.http_name for it in SCHEDULE_SETTINGS if it.of is Of.DURATION]
['everySeconds', 'jitterSeconds', 'aheadSeconds']
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any, TypedDict, TypeVar

from cassieq_spark.arguments import (
    A_YEAR,
    AT_ONCE,
    check_count,
    check_duration,
    check_instant,
    check_text,
    did_you_mean,
    header_pairs,
    shown,
)
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import camel_case, parse_value
from cassieq_spark.settings.kinds import Kind, whole_number
from cassieq_spark.settings.queue import PERIOD

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: How many late ticks are published at most.
MOST_CAUGHT_UP = 1000
_MILLISECOND = timedelta(milliseconds=1)
_FEW = {"none": 0, "last": 1}

#: The body of a message of a schedule; a mapping is stored as JSON.
ScheduledValue = str | Mapping[str, Any]


class _Alterable(TypedDict, total=False):
    """Settings, besides the message, of a new schedule that can be altered later."""

    cron: str | None
    every: timedelta | None
    zone: str | None
    headers: Mapping[str, str | None] | None
    start: datetime | None
    end: datetime | None
    count: int | None
    catch_up: int | None
    jitter: timedelta | None
    ahead: timedelta | None


class ScheduleSettings(_Alterable, total=False):
    """Settings of a new schedule; docs/options.md has their meaning and defaults.

    None stands for a setting that is not given.
    """

    key: str | None


class ScheduleChanges(_Alterable, total=False):
    """Settings of a schedule that can be altered; docs/options.md has their meaning.

    None gives a setting back the default that it has in a new schedule.
    """

    message: ScheduledValue


class Of(Enum):
    """The sort of values that a setting takes."""

    TEXT = auto()
    #: A `timedelta`; in JSON, seconds.
    DURATION = auto()
    #: An aware `datetime`; in JSON, a text.
    INSTANT = auto()
    NUMBER = auto()
    #: A mapping of texts.
    HEADERS = auto()


def _parse_catch_up(text: str) -> int:
    few = _FEW.get(text.strip().lower())
    return whole_number(0, MOST_CAUGHT_UP).parse(text) if few is None else few


#: How many late ticks are published, as people write it.
CATCH_UP: Kind[int] = Kind(
    f"none, last or a number up to {MOST_CAUGHT_UP}",
    _parse_catch_up,
    lambda number: {each: word for word, each in _FEW.items()}.get(number, str(number)),
    "none|last|NUMBER",
)


def _parse_instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text.strip())
    if instant.tzinfo is None:
        raise ValueError(text)
    return instant


def show_instant(at: datetime) -> str:
    """Write an instant in UTC, with a Z.

    >>> show_instant(datetime(2026, 11, 28, 2, tzinfo=UTC))
    '2026-11-28T02:00:00Z'
    """
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _parse_headers(text: str) -> dict[str, str]:
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not name or not equals:
            raise OptionError(f"each line must be NAME=VALUE, not {line!r}")
        found[name] = value
    return found


def _show_headers(headers: Mapping[str, str | None]) -> str:
    return "\n".join(f"{name}={'' if it is None else it}" for name, it in headers.items())


#: How people write values, unless a setting has a kind of its own.
_KINDS: dict[Of, Kind[Any]] = {
    Of.TEXT: Kind("text", str),
    Of.DURATION: PERIOD,
    Of.INSTANT: Kind(
        "an instant with a time zone, such as 2026-12-01T00:00:00Z",
        _parse_instant,
        show_instant,
        "WHEN",
    ),
    Of.NUMBER: whole_number(0),
    Of.HEADERS: Kind("NAME=VALUE", _parse_headers, _show_headers, "NAME=VALUE"),
}


@dataclass(frozen=True, slots=True)
class ScheduleSetting:
    """A setting of a schedule; `Schedule` has its value, unless it is not ``kept``.

    Attributes:
        name: Its name in Python.
        of: What its values are.
        meaning: One or two sentences of explanation.
        default: The value in a new schedule; None: no value, or what ``without`` describes.
        without: What holds for a schedule without a value; empty: every schedule has a value, or
            has ``instead``.
        instead: The name of the setting that a schedule without a value has instead.
        least: The smallest number or the shortest time.
        most: The largest number, the longest time, or the most characters.
        least_by_http: The shortest time for accounts of a gateway; None: ``least``.
        most_by_http: The most characters for accounts of a gateway; None: ``most``.
        own_kind: How people write its values; None: as all values of that sort.
        fixed: Why the setting can't be altered, and what to do instead; empty: it can be altered.
        timing: True if it says when the schedule ticks.
        kept: False if it only sets another setting.
        called: Its name for people; by default ``name``.
        example: A value that a browser shows in an empty field.
        is_long: True if a field for it needs several lines.
    """

    name: str
    of: Of
    meaning: str
    default: Any = None
    without: str = ""
    instead: str = ""
    least: Any = None
    most: Any = None
    least_by_http: Any = None
    most_by_http: Any = None
    own_kind: Kind[Any] | None = None
    fixed: str = ""
    timing: bool = False
    kept: bool = True
    called: str = ""
    example: str = ""
    is_long: bool = False

    @property
    def kind(self) -> Kind[Any]:
        """How people write its values."""
        return self.own_kind or _KINDS[self.of]

    @property
    def label(self) -> str:
        """The name that people read."""
        return self.called or self.name.replace("_", " ")

    @property
    def flag(self) -> str:
        """The option of commands."""
        name = "header" if self.of is Of.HEADERS else self.name
        return "--" + name.replace("_", "-")

    @property
    def can_be_taken_away(self) -> bool:
        """True if commands take `NONE` for it; of cron and every, one replaces the other."""
        return self.of in {Of.INSTANT, Of.HEADERS}

    @property
    def plain_name(self) -> str:
        """The name of the plain value, with the unit: ``every_seconds``."""
        return f"{self.name}_seconds" if self.of is Of.DURATION else self.name

    @property
    def http_name(self) -> str:
        """The name in HTTP: ``everySeconds``."""
        return camel_case(self.plain_name)

    def meaning_by(self, name_of: Callable[[ScheduleSetting], str]) -> str:
        """The meaning, and the setting that can be given instead, by its name on a surface.

        Args:
            name_of: The name of a setting on that surface.
        """
        if not self.instead:
            return self.meaning
        return f"{self.meaning} Give this or {name_of(_BY_NAME[self.instead])}."

    def check(self, given: Any, *, by_http: bool = False) -> Any:
        """Check a value that a program gives, and convert it to the type that `Schedule` has.

        Args:
            given: The value.
            by_http: True if an account of a gateway gives it.

        Raises:
            OptionError: The value is of a wrong type, or out of range.
            MessageError: The headers are not valid.
        """
        least, most = self.bounds(by_http=by_http)
        if self.of is Of.DURATION:
            return self._check_duration(given, least, most)
        if self.of is Of.INSTANT:
            at = check_instant(self.name, given)
            return at.replace(microsecond=at.microsecond // 1000 * 1000)
        if self.of is Of.NUMBER:
            return check_count(self.name, given, least=least, most=most)
        if self.of is Of.HEADERS:
            return dict(header_pairs(given, "the message"))
        text = text_of(given) if self.name == "message" else check_text(self.name, given)
        if most is not None and len(text) > most:
            raise OptionError(f"{self.name} must have {most} characters at most, not {len(text)}")
        return text

    def bounds(self, *, by_http: bool = False) -> tuple[Any, Any]:
        """The smallest and the largest value, or number of characters; None: no limit."""
        least, most = self.least, self.most
        if by_http:
            least = least if self.least_by_http is None else self.least_by_http
            most = most if self.most_by_http is None else self.most_by_http
        return least, most

    def _check_duration(self, given: object, least: timedelta, most: timedelta) -> timedelta:
        if isinstance(given, timedelta) and not least <= given <= most:
            longest = f"{most.days} days" if most >= timedelta(days=1) else most
            raise OptionError(f"{self.name} must be from {least} to {longest}, not {given}")
        found = check_duration(self.name, given)
        if found % _MILLISECOND:
            raise OptionError(f"{self.name} must be whole milliseconds, not {found}")
        return found

    def read(self, text: str, where: str = "") -> Any:
        """Read a value that somebody has written, and check it.

        Args:
            text: What was written.
            where: What errors call the place; by default, the name of the setting.

        Raises:
            OptionError: The text is malformed, or the value out of range.
            MessageError: The headers are not valid.
        """
        return self.check(parse_value(where or self.name, self.kind, text))

    def show(self, value: Any) -> str:
        """A value as people write it; empty if there is none."""
        return "" if value is None else self.kind.show(value)

    def words(self, value: Any) -> list[str]:
        """The options of a command that give the setting this value."""
        if value is None or (self.of is Of.HEADERS and not value):
            return [self.flag, NONE]
        if self.of is Of.HEADERS:
            return [word for line in self.show(value).splitlines() for word in (self.flag, line)]
        return [self.flag, self.show(value)]

    def plain_of(self, value: Any) -> Any:
        """Convert a value to its form in JSON; None stays None."""
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, datetime):
            return show_instant(value)
        return dict(value) if isinstance(value, Mapping) else value

    def parsed(self, plain: Any) -> Any:
        """Convert a value in JSON back; None stays None."""
        if plain is None:
            return None
        if self.of is Of.DURATION:
            return timedelta(seconds=plain)
        return datetime.fromisoformat(plain) if self.of is Of.INSTANT else plain


def text_of(message: object) -> str:
    """The body of a message as text; of a dict, as JSON.

    Raises:
        OptionError: It is something else.
    """
    if isinstance(message, Mapping):
        try:
            return json.dumps(message)
        except (TypeError, ValueError) as error:
            raise OptionError(f"the message can't be written as JSON: {error}") from error
    if not isinstance(message, str):
        raise OptionError(f"the message must be a text or a dict, not {shown(message)}")
    return check_text("message", message)


#: What an option of a command says to take a value away from a schedule.
NONE = "none"
_HOUR = timedelta(hours=1)

#: All settings, in the order in which they are shown.
SCHEDULE_SETTINGS = (
    ScheduleSetting(
        "cron",
        Of.TEXT,
        "When it comes: minute, hour, day of the month, month, day of the week.",
        instead="every",
        most=1_000,
        timing=True,
        example="0 3 * * mon-fri",
    ),
    ScheduleSetting(
        "every",
        Of.DURATION,
        "The time from one message to the next, counted from start, or from 1970.",
        instead="cron",
        # Each tick takes an LWT.
        least=timedelta(seconds=1),
        least_by_http=timedelta(seconds=10),
        most=A_YEAR,
        timing=True,
        example="5m",
    ),
    ScheduleSetting(
        "zone",
        Of.TEXT,
        "The time zone of cron, and of {{local}} and {{date}}.",
        default="UTC",
        most=100,
        timing=True,
        called="time zone",
    ),
    ScheduleSetting(
        "message",
        Of.TEXT,
        "The body of its messages; {{tick}}, {{local}}, {{date}}, {{unix}}, {{schedule}} and "
        "{{queue}} stand for what the tick is. In a queue with a schema: a JSON object of its "
        "columns.",
        most_by_http=1 << 14,
        is_long=True,
    ),
    ScheduleSetting(
        "key",
        Of.TEXT,
        "The key of its messages.",
        without="the name of the schedule",
        most=1_000,
        fixed="the partition of its key has its last tick; delete the schedule, and create "
        "another one",
        example="the name of the schedule",
    ),
    ScheduleSetting(
        "headers",
        Of.HEADERS,
        "Headers of its messages.",
        default={},
        without="no headers",
        is_long=True,
    ),
    ScheduleSetting(
        "start",
        Of.INSTANT,
        "No message before this instant.",
        without="at once",
        timing=True,
        example="2026-12-01T00:00:00Z",
    ),
    ScheduleSetting(
        "end",
        Of.INSTANT,
        "No message from this instant on.",
        without="without end",
        timing=True,
        example="2027-01-01T00:00:00Z",
    ),
    ScheduleSetting(
        "count",
        Of.NUMBER,
        "How many times it comes from now on, or from its start on; sets the end.",
        without="the end says until when",
        least=1,
        most=10_000,
        timing=True,
        kept=False,
    ),
    ScheduleSetting(
        "catch_up",
        Of.NUMBER,
        "How many messages are put late, at most, after no runner ran.",
        default=1,
        least=0,
        most=MOST_CAUGHT_UP,
        own_kind=CATCH_UP,
    ),
    ScheduleSetting(
        "jitter",
        Of.DURATION,
        "Each message is put off by a time of its own, shorter than this.",
        default=AT_ONCE,
        least=AT_ONCE,
        most=_HOUR,
    ),
    ScheduleSetting(
        "ahead",
        Of.DURATION,
        "Each message is put so much earlier, to be delivered at its time.",
        default=AT_ONCE,
        least=AT_ONCE,
        most=_HOUR,
    ),
)
_BY_NAME = {it.name: it for it in SCHEDULE_SETTINGS}

#: The settings that `Schedule` has.
KEPT = tuple(it for it in SCHEDULE_SETTINGS if it.kept)
#: The settings beside the message: the keys of `ScheduleSettings`.
CHOSEN = tuple(it for it in SCHEDULE_SETTINGS if it.name != "message")
#: The settings that can be altered: the keys of `ScheduleChanges`.
ALTERABLE = tuple(it for it in SCHEDULE_SETTINGS if not it.fixed)


def check_settings(
    given: Mapping[str, Any], *, alters: bool = False, by_http: bool = False
) -> dict[str, Any]:
    """Check the settings that a program gives for a schedule, and return them by name.

    A setting that is None gets its default; without ``alters``, it is left out instead.

    Args:
        given: Settings by name.
        alters: True if the schedule exists.
        by_http: True if an account of a gateway gives them.

    Raises:
        OptionError: A value is out of range, a setting can't be altered, or none is given to
            alter.
        MessageError: The headers are not valid.
        TypeError: A name is not the name of a setting.
    """
    if unknown := given.keys() - _BY_NAME.keys():
        name = min(unknown)
        advice = did_you_mean(name, _BY_NAME, f"there are {', '.join(_BY_NAME)}")
        raise TypeError(f"a schedule has no setting {name!r}: {advice}")
    if alters and not given:
        raise OptionError("there is nothing to alter: give a setting, such as every")
    found: dict[str, Any] = {}
    for name, value in given.items():
        it = _BY_NAME[name]
        if alters and it.fixed:
            raise OptionError(f"the {it.label} can't be altered, because {it.fixed}")
        if value is not None or name == "message":
            found[name] = it.check(value, by_http=by_http)
        elif alters:
            found[name] = it.default
    return found


def plain_settings(schedule: object) -> dict[str, Any]:
    """All settings of a schedule as plain values, by plain name."""
    return {it.plain_name: it.plain_of(getattr(schedule, it.name)) for it in KEPT}


def settings_from_plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the result of `plain_settings` to arguments of `Schedule`.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    return {it.name: it.parsed(values[it.plain_name]) for it in KEPT}


def schedule_sent(given: Mapping[str, Any], *, alters: bool = False) -> dict[str, Any]:
    """The settings that a program gives, as the body of a request; see `check_settings`.

    A setting that gets its default back is null there.
    """
    found = check_settings(given, alters=alters, by_http=True)
    return {_BY_NAME[name].http_name: _BY_NAME[name].plain_of(it) for name, it in found.items()}


def takes_settings(*, alters: bool = False) -> Callable[[_Function], _Function]:
    """Show, to ``help`` and `inspect`, which settings a function takes as ``**settings``.

    Args:
        alters: True if the schedule exists: a setting that is not given stays as it is, which a
            default of ``...`` stands for.
    """
    hints = (ScheduleChanges if alters else ScheduleSettings).__annotations__

    def show(function: _Function) -> _Function:
        before = inspect.signature(function)
        *own, _ = before.parameters.values()
        settings = [
            inspect.Parameter(
                it.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=... if alters else it.default,
                annotation=getattr(hints[it.name], "__forward_arg__", str(hints[it.name])),
            )
            for it in (ALTERABLE if alters else CHOSEN)
        ]
        vars(function)["__signature__"] = before.replace(parameters=[*own, *settings])
        return function

    return show
