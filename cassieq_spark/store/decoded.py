"""Rows that can't be made sense of: one error of ours that names the row. Pure.

We write no such row; other programs, people and later releases may. A reader of many rows
skips it and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from cassieq_spark.errors import InvariantError
from cassieq_spark.store.protocol import Row

T = TypeVar("T")

#: The columns that say which row it is, in the order of their tables.
_KEYS = ("queue_id", "consumer_group", "name", "kind", "ordinal", "position", "job", "epoch")
#: What goes wrong when values are not what they should be.
OF_DECODING = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def decoded(decode: Callable[[Row], T]) -> Callable[[Row], T]:
    """Let a decoder of rows fail by `InvariantError`, whatever is wrong with the row."""

    @wraps(decode)
    def run(row: Row) -> T:
        try:
            return decode(row)
        except OF_DECODING as error:
            raise unreadable(row, error) from error

    return run


def unreadable(row: Row, error: Exception) -> InvariantError:
    """The error for a row that can't be decoded."""
    where = ", ".join(f"{key} {row[key]!a}" for key in _KEYS if row.get(key) not in {None, ""})
    return InvariantError(
        f"the row with {where} can't be read: {error}; we write no such row: if no other program "
        "does, look what a later release has written. How to get rid of it: docs, operations"
    )


def demand_counts(row: Any, *columns: str) -> None:
    """Refuse a row in which one of these columns is null or negative.

    Raises:
        ValueError: It is so.
    """
    demand(row, *columns)
    for column in columns:
        if row[column] < 0:
            raise ValueError(f"{column} is {row[column]}")


def demand(row: Any, *columns: str) -> None:
    """Refuse a row in which one of these columns is null.

    Raises:
        ValueError: It is so.
    """
    for column in columns:
        if row[column] is None:
            raise ValueError(f"{column} is null")
