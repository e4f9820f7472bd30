"""What a store takes: no value is written that it could not read again. Pure.

Both stores ask here before they send anything, so it holds for every table and every caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT, MOST, shown
from cassieq_spark.errors import OptionError
from cassieq_spark.store.tables import SHAPES, Table

_MOST_BY_TYPE = {"int": 2**31 - 1, "bigint": MOST}
#: What may be added to the server's clock.
_LONGEST = timedelta(days=36_500)


def check_key(table: Table, key: tuple[Any, ...]) -> None:
    """Refuse a key with a number that no column holds.

    Raises:
        OptionError: It has one.
    """
    for part in key:
        if isinstance(part, int):
            _check_number(table, "its key", part, MOST)


def check_columns(table: Table, values: Mapping[str, Any]) -> None:
    """Refuse values that could not be read again.

    Args:
        table: Which table they are for.
        values: By column.

    Raises:
        OptionError: A number is too large for its column, or an instant is not between
            `FIRST_INSTANT` and `LAST_INSTANT`.
    """
    types = SHAPES[table].columns
    for column, value in values.items():
        if isinstance(value, int):
            _check_number(table, column, value, _MOST_BY_TYPE.get(types.get(column, ""), MOST))
        elif isinstance(value, datetime):
            _check_instant(table, column, value)


def check_addition(plus: timedelta) -> None:
    """Refuse what could take the server's clock out of the calendar.

    Raises:
        OptionError: It is more than a hundred years.
    """
    if abs(plus) > _LONGEST:
        raise OptionError(
            f"{plus} can't be added to the server's clock: {_LONGEST.days} days is the most; "
            "nothing was sent"
        )


def _check_number(table: Table, column: str, value: int, most: int) -> None:
    if not -most - 1 <= value <= most:
        raise OptionError(
            f"{shown(value)} can't be stored in table {table}, {column}: expected a number up to "
            f"{most}; nothing was sent"
        )


def _check_instant(table: Table, column: str, value: datetime) -> None:
    is_aware = value.tzinfo is not None
    if not is_aware or not FIRST_INSTANT <= value <= LAST_INSTANT:
        raise OptionError(
            f"{value} can't be stored in table {table}, {column}: expected an aware instant from "
            "1970 to 9998; nothing was sent"
        )
