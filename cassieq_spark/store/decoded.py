"""Rows that can't be decoded: an `InvariantError` that names the row.

This package writes no such row, but other programs, people and later releases may. A reader of
many rows skips such a row and continues.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from cassieq_spark.errors import InvariantError
from cassieq_spark.store.protocol import Row

T = TypeVar("T")

#: The key columns of all tables.
_KEYS = ("queue_id", "consumer_group", "name", "kind", "ordinal", "position", "job", "epoch")
#: The errors of a decoder that meets an unexpected value.
OF_DECODING = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def decoded(decode: Callable[[Row], T]) -> Callable[[Row], T]:
    """Make a decoder of rows raise `InvariantError`, whatever is wrong with the row."""

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
        f"the row with {where} can't be read: {error}; we write no such row: another program or a "
        "later release has written it. docs/operations.md says how to remove it"
    )


def demand_counts(row: Any, *columns: str) -> None:
    """Raise `ValueError` if one of these columns of a row is null or negative."""
    demand(row, *columns)
    for column in columns:
        if row[column] < 0:
            raise ValueError(f"{column} is {row[column]}")


def demand(row: Any, *columns: str) -> None:
    """Raise `ValueError` if one of these columns of a row is null."""
    for column in columns:
        if row[column] is None:
            raise ValueError(f"{column} is null")
