"""Checks arguments of the public API before anything is touched.

Checks return a value of exactly the type, not of a subclass, whose behaviour may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import TypeVar

from cassieq_spark.errors import CassieqError, MessageError, OptionError

T = TypeVar("T")

AT_ONCE = timedelta(0)
#: The shortest time that the store distinguishes from zero.
A_MOMENT = timedelta(milliseconds=1)
A_YEAR = timedelta(days=365)
#: Headers with this prefix belong to this package: they name the origin of a dead letter, and so
#: where it may be redriven.
RESERVED = "cassieq."
#: How often a message was redriven: the only such header that messages of any queue may have, so
#: that programs can copy the headers of messages.
REDRIVES = RESERVED + "redrives"
#: Characters of the name of an attempt, which is in each slot that it leases.
LONGEST_ATTEMPT = 128
#: Characters of the name of a client, which is in each slot that it leases.
LONGEST_CLIENT_NAME = 100
#: The largest number that a column of the type ``bigint`` holds.
MOST = 2**63 - 1

#: The first and the last instant that are stored. Instants are rounded up, and times are added to
#: them; the results must be within the calendar, which ends a year later.
FIRST_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)
LAST_INSTANT = datetime(9999, 1, 1, tzinfo=UTC)

_EPOCH = FIRST_INSTANT
#: About nine a day.
_LOWEST_RATE = 0.0001
_SIMPLE = (bool, int, float, str, type(None))
_LONGEST_SHOWN = 60
#: How many parts of a list a log record or an error names; a group may hold thousands of ranges.
_MOST_NAMED = 10


def check_duration(name: str, given: object, *, least: timedelta = AT_ONCE) -> timedelta:
    """Return a length of time.

    Args:
        name: The name of the argument, for errors.
        given: The value.
        least: The shortest time that is accepted.

    Raises:
        OptionError: The value is not a `timedelta`, or out of range.
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
    """Return an instant, in UTC; instants before 1970 become the beginning of 1970.

    Raises:
        OptionError: The value is not an aware `datetime`, or beyond the year 9998.
    """
    if not isinstance(given, datetime):
        raise OptionError(
            f"{name} must be an aware datetime, not {shown(given)}: e.g. datetime.now(UTC)"
        )
    try:
        is_aware = given.utcoffset() is not None
        since = given - _EPOCH if is_aware else AT_ONCE
        # A subclass, such as that of pandas, may calculate in another way.
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
        OptionError: The value is not an `int`, or out of range.
    """
    if not isinstance(given, int) or isinstance(given, bool):
        raise OptionError(f"{name} must be a whole number, not {shown(given)}")
    if given < least:
        raise OptionError(f"{name} must be at least {least}, not {shown(given)}")
    if given > most:
        raise OptionError(f"{name} must be at most {most}, not {shown(given)}")
    return int(given)


def check_rate(name: str, given: object) -> float:
    """Return a number of messages per second.

    Raises:
        OptionError: The value is not a number, or out of range.
    """
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise OptionError(f"{name} must be a number per second, not {shown(given)}")
    if given > MOST:
        raise OptionError(f"{name} must be at most {MOST} per second, not {shown(given)}")
    if not given >= _LOWEST_RATE:
        raise OptionError(f"{name} must be at least {_LOWEST_RATE} per second, not {shown(given)}")
    return float(given)


def check_flag(name: str, given: object) -> bool:
    """Return True or False.

    Raises:
        OptionError: The value is neither. A text such as "no" would count as True.
    """
    if not isinstance(given, bool):
        raise OptionError(f"{name} must be True or False, not {shown(given)}")
    return given


def check_text(name: str, given: object) -> str:
    """Return a text.

    Raises:
        OptionError: The value is not a `str`, or can't be encoded as UTF-8.
    """
    if not isinstance(given, str):
        raise OptionError(f"{name} must be a str, not {shown(given)}")
    _encoded(given, name, OptionError)
    return str.__str__(given)


def check_attempt(given: object) -> str:
    """Return the name of an attempt.

    Raises:
        OptionError: It is not a text of 1 to 128 characters.
    """
    name = check_text("attempt", given)
    if not 0 < len(name) <= LONGEST_ATTEMPT:
        raise OptionError(
            f"attempt must have 1 to {LONGEST_ATTEMPT} characters, not {len(name)}: give each "
            "receive a name of its own, such as a uuid"
        )
    return name


def check_client_name(given: object) -> str:
    """Return the name of a client.

    Raises:
        OptionError: It is not a text of 1 to 100 characters, or one of them cannot be printed.
    """
    name = check_text("name", given)
    if not name.isprintable():
        raise OptionError(
            f"the name of a client must be printable, not {ascii(name)[:_LONGEST_SHOWN]}: logs "
            "and terminals show it"
        )
    if not name.strip() or len(name) > LONGEST_CLIENT_NAME:
        raise OptionError(
            f"the name of a client must have 1 to {LONGEST_CLIENT_NAME} characters, not "
            f"{len(name)}, and not only blanks: its leases carry it"
        )
    return name


def check_many(name: str, given: Iterable[T], expected: str) -> Iterable[T]:
    """Return several values.

    Args:
        name: The name of the argument, for errors.
        given: The value.
        expected: The expected values, for the error.

    Raises:
        MessageError: The value is not iterable, or a single value that would be taken for many.
    """
    if isinstance(given, str | bytes | bytearray | memoryview | dict) or not isinstance(
        given, Iterable
    ):
        raise MessageError(f"{name} must be {expected}, not {shown(given)}")
    return given


def bytes_of(given: object, what: str) -> bytes:
    """The bytes of a value or a key; text as UTF-8.

    Raises:
        MessageError: The value is neither bytes nor text that can be encoded as UTF-8.
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

    A value may be None, as in Spark.

    Args:
        given: A mapping.
        what: The words for the message in errors.

    Raises:
        MessageError: The headers are not a mapping; a name is empty or reserved; a name or a value
            is not text that can be encoded as UTF-8.
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
        key = _header_text(name, f"the name of a header of {what}")
        if not key:
            raise MessageError(f"a header of {what} has an empty name: give it a name")
        if is_reserved(key):
            raise MessageError(f"{what} has a header {reserved(key)}")
        text = None if value is None else _header_text(value, f"header {key!r} of {what}")
        pairs.append((key, text))
    return tuple(pairs)


def is_reserved(name: str) -> bool:
    """True if a program may not put a header of this name.

    >>> is_reserved("cassieq.origin-queue"), is_reserved("cassieq.redrives"), is_reserved("lang")
    (True, False, False)
    """
    return name.startswith(RESERVED) and name != REDRIVES


def reserved(name: str) -> str:
    """The problem with a header of this name, for an error."""
    return (
        f"{name[:_LONGEST_SHOWN]!r}: names that begin with {RESERVED!r} are reserved, as they say "
        "where a dead letter came from; leave such headers out, or send dead letters on with: "
        "cassieq dead redrive --to"
    )


def shown(given: object) -> str:
    """A value as text, for an error; only its type unless it is simple."""
    if isinstance(given, int) and abs(given) > MOST:
        return "a number of more than 64 bits"
    if type(given) in _SIMPLE:
        return ascii(given)[:_LONGEST_SHOWN]
    return f"an object of type {type(given).__name__}"


def address_of(host: str, port: int) -> str:
    """A host and a port as one text.

    >>> address_of("localhost", 9042), address_of("::1", 9042)
    ('localhost:9042', '[::1]:9042')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def abridged(parts: Sequence[object], separator: str = ", ") -> str:
    """A list as text of limited length: its first ten parts, and the number of further parts.

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
    """Refuse a value that is not one of these names.

    Args:
        kind: What the names denote, for the error.
        given: The given value.
        choices: The possible values.

    Raises:
        OptionError: The value is none of them.
    """
    names = [str(each) for each in choices]
    if isinstance(given, str) and given in names:
        return
    near = did_you_mean(given, names, "") if isinstance(given, str) else ""
    raise OptionError(
        f"{kind} must be one of {', '.join(names)}, not {shown(given)}" + (near and f": {near}")
    )


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Advice for an unknown name: the most similar known one, whatever its case.

    Args:
        name: The unknown name.
        known: The known names.
        otherwise: The advice if none is similar.
    """
    by_lower_case = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower_case, 1)
    return f"did you mean {by_lower_case[near[0]]!r}?" if near else otherwise
