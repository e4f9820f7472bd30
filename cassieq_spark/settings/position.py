"""The position at which a consumer group or a batch read begins, as a value and as text."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from cassieq_spark.arguments import MOST, check_count, check_instant, shown
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.kinds import Kind

#: The first message that still exists, the next message to be published, a monoton, or the first
#: message published at an (aware) instant or later.
StartingPosition = Literal["earliest", "latest"] | int | datetime

#: The limit is one lower, because reads stop at the number after a monoton.
_LARGEST_MONOTON = MOST - 1
_WORDS: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}


def parse_position(text: str) -> StartingPosition:
    """Read a position.

    >>> parse_position("Latest"), parse_position("12345")
    ('latest', 12345)
    >>> parse_position("2026-11-20T13:00:00+01:00") == parse_position("2026-11-20T12:00:00Z")
    True

    Raises:
        OptionError: The position is an instant without a time zone, or after the year 9998.
        ValueError: The text is no position.
    """
    text = text.strip()
    if word := _WORDS.get(text.lower()):
        return word
    if re.fullmatch("[0-9]+", text):
        # int() takes very long for a very long number.
        monoton = int(text[: len(str(_LARGEST_MONOTON)) + 1])
        if monoton > _LARGEST_MONOTON:
            raise ValueError(text)
        return monoton
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise OptionError(
            f"{text!r} has no time zone, so it could be any of many instants; append Z for UTC, "
            "or an offset such as +01:00"
        )
    return check_instant("a position", instant)


def check_position(given: object) -> StartingPosition:
    """Check a position that a program gives, and return it.

    Raises:
        OptionError: ``given`` is no position.
    """
    if isinstance(given, datetime):
        return check_instant("a position", given)
    if isinstance(given, int) and not isinstance(given, bool):
        return check_count("a position", given, least=0, most=_LARGEST_MONOTON)
    if isinstance(given, str) and (word := _WORDS.get(str.__str__(given))):
        return word
    raise OptionError(
        "a position must be 'earliest', 'latest', a monoton or an aware datetime, not "
        f"{shown(given)}"
    )


def show_position(position: StartingPosition) -> str:
    """Write a position as `parse_position` reads it.

    >>> show_position(parse_position("2026-11-20 12:00:00Z"))
    '2026-11-20T12:00:00Z'
    """
    if isinstance(position, datetime):
        return position.isoformat().replace("+00:00", "Z")
    return str(position)


POSITION: Kind[StartingPosition] = Kind(
    "earliest, latest, a monoton or an instant such as 2026-11-20T12:00:00Z",
    parse_position,
    show_position,
    "POSITION",
)
