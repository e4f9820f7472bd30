"""Cron expressions of five fields, as sets of local times.

An expression is about the wall clock only; `timing` says when a wall clock shows a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

from cassieq_spark.arguments import check_text
from cassieq_spark.errors import OptionError

#: Names that stand for whole expressions.
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: The 29th of February on a given weekday may be 40 years away.
_YEARS = 41
_A_DAY = timedelta(days=1)


class _Field(NamedTuple):
    """A field of an expression.

    Attributes:
        name: What errors call it.
        least: Its lowest value.
        most: Its highest value.
        words: Words for its values, the first one for the lowest.
    """

    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """The local times that an expression names.

    Attributes:
        times: The times of a day, in order.
        days: Days of the month.
        months: Months.
        weekdays: Days of the week; 0 is Sunday.
        either: True if a day need only be among ``days`` or among ``weekdays``; False if it must
            be among both.
    """

    times: tuple[time, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def after(self, local: datetime) -> Iterator[datetime]:
        """Yield the local times that follow a local time, in order.

        Ends if there is no such day within 41 years.
        """
        day, until = local.date(), _years_after(local.date())
        while day < until:
            if day.month not in self.months:
                day = _next_month(day)
                continue
            if self._has(day):
                until = _years_after(day)
                for at in self.times:
                    if (found := datetime.combine(day, at)) > local:
                        yield found
            day += _A_DAY

    def _has(self, day: date) -> bool:
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return is_day or is_weekday if self.either else is_day and is_weekday


def parse_cron(text: str) -> Cron:
    """Read an expression: minute, hour, day of the month, month, day of the week.

    A field is ``*``, a value, a range ``a-b``, each with an optional step ``/n``, or several of
    these with commas. Months and weekdays may be names. If neither day field begins with ``*``, a
    day need only match one of them, as in Vixie's cron.

    >>> parse_cron("30 6 * * mon-fri").times
    (datetime.time(6, 30),)

    Raises:
        OptionError: The text is no such expression, or names no day that exists.
    """
    words = check_text("cron", text).lower().split()
    words = ALIASES[words[0]].split() if len(words) == 1 and words[0] in ALIASES else words
    if len(words) != len(_FIELDS):
        raise OptionError(
            f"cron {text!r} has {len(words)} field(s), not five: minute, hour, day of the month, "
            f"month, day of the week, such as '0 3 * * mon-fri'; or {', '.join(ALIASES)}"
        )
    minutes, hours, days, months, weekdays = (
        _values(field, word, text) for field, word in zip(_FIELDS, words, strict=True)
    )
    found = Cron(
        tuple(time(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)),
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        either=not words[2].startswith("*") and not words[4].startswith("*"),
    )
    if next(found.after(datetime(2000, 1, 1)), None) is None:  # noqa: DTZ001 (a local time)
        raise OptionError(f"cron {text!r} names no day that exists")
    return found


def _values(field: _Field, word: str, text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, has_step, step = part.partition("/")
        first, is_range, last = span.partition("-")
        if span == "*":
            least, most = field.least, field.most
        else:
            least = _value(field, first, text)
            most = _value(field, last, text) if is_range else least
            if has_step and not is_range:
                most = field.most
        if least > most:
            raise OptionError(
                f"cron {text!r}: the {field.name} {part!r} ends before it begins; write two "
                "ranges, such as 22-23,0-6"
            )
        by = _number(step, text, field) if has_step else 1
        if not by:
            raise OptionError(f"cron {text!r}: the step of the {field.name} must be at least 1")
        found.update(range(least, most + 1, by))
    return frozenset(found)


def _value(field: _Field, word: str, text: str) -> int:
    if word in field.words:
        return field.least + field.words.index(word)
    value = _number(word, text, field)
    if not field.least <= value <= field.most:
        raise OptionError(
            f"cron {text!r}: the {field.name} must be from {field.least} to {field.most}, not "
            f"{word}"
        )
    return value


def _number(word: str, text: str, field: _Field) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 4):  # noqa: PLR2004 (four digits)
        raise OptionError(
            f"cron {text!r}: the {field.name} has {word!r}, where a number, a range such as 1-5, "
            f"or * is expected{', or a name such as ' + field.words[1] if field.words else ''}"
        )
    return int(word)


def _years_after(day: date) -> date:
    return date(min(day.year + _YEARS, date.max.year), 1, 1)


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)
