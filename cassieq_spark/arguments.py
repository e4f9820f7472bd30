"""Arguments of the public API: checked before anything is touched. Pure.

What passes is of exactly the type that it is said to be, not of a subclass with a mind of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import TypeVar

from cassieq_spark.errors import CassieqError, MessageError, OptionError

T = TypeVar("T")

AT_ONCE = timedelta(0)
#: The smallest time that the store can tell from none.
A_MOMENT = timedelta(milliseconds=1)
A_YEAR = timedelta(days=365)
#: Headers of such names are this package's own: they say where a dead letter came from, and with
#: that where it may go back to.
RESERVED = "cassieq."
#: How often a message was redriven. The one of them that messages of any queue may have, so who
#: copies headers from queue to queue may copy it.
REDRIVES = RESERVED + "redrives"
#: What a column of the type ``bigint`` holds at the most.
MOST = 2**63 - 1

#: The instants that are stored: from this one,
FIRST_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)
#: to this one. Instants are rounded up, and lengths of time added to them: that must not leave the
#: calendar, which ends a year later.
LAST_INSTANT = datetime(9999, 1, 1, tzinfo=UTC)

_EPOCH = FIRST_INSTANT
_SIMPLE = (bool, int, float, str, type(None))
_LONGEST_SHOWN = 60
#: Parts of a list that a log record or an error names; a group may hold thousands of ranges.
_MOST_NAMED = 10


def check_duration(name: str, given: object, *, least: timedelta = AT_ONCE) -> timedelta:
    """Return a length of time.

    Args:
        name: Of the argument, for errors.
        given: What was given for it.
        least: The shortest that is taken.

    Raises:
        OptionError: It is no `timedelta`, or out of range.
    """
    if not isinstance(given, timedelta):
        raise OptionError(
            f"{name} must be a timedelta, not {shown(given)}: use timedelta, e.g. "
            "timedelta(seconds=5)"
        )
    if not least <= given <= A_YEAR:
        raise OptionError(f"{name} must be from {least} to {A_YEAR.days} days, not {given}")
    return timedelta(days=given.days, seconds=given.seconds, microseconds=given.microseconds)


def check_instant(name: str, given: object) -> datetime:
    """Return an instant, in UTC; what is before 1970 becomes the beginning of 1970.

    Raises:
        OptionError: It is no aware `datetime`, or beyond the year 9998.
    """
    if not isinstance(given, datetime):
        raise OptionError(
            f"{name} must be an aware datetime, not {shown(given)}: e.g. datetime.now(UTC)"
        )
    try:
        is_aware = given.utcoffset() is not None
        since = given - _EPOCH if is_aware else AT_ONCE
        # A subclass, such as that of pandas, reckons in another way.
        plain = timedelta(days=since.days, seconds=since.seconds, microseconds=since.microseconds)
    except Exception as error:
        raise OptionError(f"{name} is not a valid instant: {type(error).__name__}") from error
    if not is_aware:
        raise OptionError(
            f"{name} {given} has no time zone, so it could be any of many instants: make it "
            "aware, e.g. datetime.now(UTC)"
        )
    if plain >= LAST_INSTANT - _EPOCH:
        raise OptionError(f"{name} must be before the year 9999, not {given}")
    return _EPOCH + max(plain, AT_ONCE)


def check_count(name: str, given: object, *, least: int = 1, most: int = MOST) -> int:
    """Return a whole number.

    Raises:
        OptionError: It is no `int`, or out of range.
    """
    if not isinstance(given, int) or isinstance(given, bool):
        raise OptionError(f"{name} must be a whole number, not {shown(given)}")
    if given < least:
        raise OptionError(f"{name} must be at least {least}, not {shown(given)}")
    if given > most:
        raise OptionError(f"{name} must be at most {most}, not {shown(given)}")
    return int(given)


def check_flag(name: str, given: object) -> bool:
    """Return True or False.

    Raises:
        OptionError: It is neither; a text such as "no" would count as True.
    """
    if not isinstance(given, bool):
        raise OptionError(f"{name} must be True or False, not {shown(given)}")
    return given


def check_text(name: str, given: object) -> str:
    """Return a text.

    Raises:
        OptionError: It is no `str`, or one that UTF-8 cannot hold.
    """
    if not isinstance(given, str):
        raise OptionError(f"{name} must be a str, not {shown(given)}")
    _encoded(given, name, OptionError)
    return str.__str__(given)


def check_many(name: str, given: Iterable[T], expected: str) -> Iterable[T]:
    """Return what is to be iterated over.

    Args:
        name: Of the argument, for errors.
        given: What was given for it.
        expected: What is expected, for the error.

    Raises:
        MessageError: It cannot be, or it is one value, which would be taken for many.
    """
    if isinstance(given, str | bytes | bytearray | memoryview | dict) or not isinstance(
        given, Iterable
    ):
        raise MessageError(f"{name} must be {expected}, not {shown(given)}")
    return given


def bytes_of(given: object, what: str) -> bytes:
    """The bytes of a value or a key; text as UTF-8.

    Raises:
        MessageError: It is neither bytes nor text that UTF-8 can hold.
    """
    if isinstance(given, bytes):
        return given if type(given) is bytes else bytes(memoryview(given))
    if not isinstance(given, str):
        raise MessageError(
            f"{what} is of type {type(given).__name__}, expected bytes or str: encode it, e.g. "
            "json.dumps(value)"
        )
    return _encoded(given, what, MessageError)


def header_pairs(given: object, what: str) -> tuple[tuple[str, str | None], ...]:
    """The headers of a message as pairs of texts.

    A value may be None: what came from Spark, where it may, can be put again as it is.

    Args:
        given: A mapping.
        what: Which message, for errors.

    Raises:
        MessageError: It is no mapping; a name is empty or reserved; a name or a value is no text
            that UTF-8 can hold.
    """
    if not isinstance(given, Mapping):
        raise MessageError(
            f"the headers of {what} are of type {type(given).__name__}, expected a dict of str to "
            'str, e.g. {"lang": "en"}'
        )
    try:
        items = [(name, given[name]) for name in given]
    except Exception as error:
        raise MessageError(
            f"the headers of {what} cannot be read: {type(error).__name__}"
        ) from error
    pairs = []
    for name, value in items:
        called = _header_text(name, f"the name of a header of {what}")
        if not called:
            raise MessageError(f"a header of {what} has an empty name: give it a name")
        if is_reserved(called):
            raise MessageError(f"{what} has a header {reserved(called)}")
        told = None if value is None else _header_text(value, f"header {called!r} of {what}")
        pairs.append((called, told))
    return tuple(pairs)


def is_reserved(name: str) -> bool:
    """Whether a program may not give a message a header of this name.

    >>> is_reserved("cassieq.origin-queue"), is_reserved("cassieq.redrives"), is_reserved("lang")
    (True, False, False)
    """
    return name.startswith(RESERVED) and name != REDRIVES


def reserved(name: str) -> str:
    """What is wrong with a header of this name, for an error."""
    return (
        f"{name[:_LONGEST_SHOWN]!r}: names that begin with {RESERVED!r} are reserved, as they say "
        "where a dead letter came from; leave such headers out, or send dead letters on with: "
        "cassieq dead redrive --to"
    )


def shown(given: object) -> str:
    """What was given, for an error: its value if it is a simple one, or its type."""
    if isinstance(given, int) and abs(given) > MOST:
        return "a number of more than 64 bits"
    if type(given) in _SIMPLE:
        return ascii(given)[:_LONGEST_SHOWN]
    return f"an object of type {type(given).__name__}"


def abridged(parts: Sequence[object], separator: str = ", ") -> str:
    """A list as text of limited length: its first ten parts, and how many more there are.

    >>> abridged(["a", "b"]), abridged(range(14), ",")
    ('a, b', '0,1,2,3,4,5,6,7,8,9 and 4 more')
    """
    more = len(parts) - _MOST_NAMED
    named = separator.join(map(str, parts[:_MOST_NAMED]))
    return f"{named} and {more:,} more" if more > 0 else named


def _header_text(given: object, what: str) -> str:
    if not isinstance(given, str):
        raise MessageError(f"{what} is of type {type(given).__name__}, expected str")
    _encoded(given, what, MessageError)
    return str.__str__(given)


def _encoded(text: str, what: str, refusal: type[CassieqError]) -> bytes:
    try:
        return str.encode(text)
    except UnicodeEncodeError as error:
        raise refusal(f"{what} is not text that UTF-8 can encode: {error.reason}") from error


def check_choice(kind: str, given: object, choices: Iterable[str]) -> None:
    """Refuse what is none of these names.

    Args:
        kind: What is chosen, for the error.
        given: What was given.
        choices: What it may be.

    Raises:
        OptionError: It is none of them.
    """
    names = [str(each) for each in choices]
    if isinstance(given, str) and given in names:
        return
    near = did_you_mean(given, names, "") if isinstance(given, str) else ""
    raise OptionError(
        f"{kind} must be one of {', '.join(names)}, not {shown(given)}" + (near and f": {near}")
    )


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Advice for an unknown name: the known one that is most like it, upper case or lower.

    Args:
        name: What was given.
        known: What it could have been.
        otherwise: The advice if none is like it.
    """
    by_lower_case = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower_case, 1)
    return f"did you mean {by_lower_case[near[0]]!r}?" if near else otherwise
