"""The checks of both stores, for every table, before they send or change anything.

So no value is written that could not be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT, MOST, shown
from cassieq_spark.errors import OptionError, TooLargeError
from cassieq_spark.store.protocol import (
    MOST_OPS,
    Delete,
    DeleteBelow,
    Insert,
    Op,
    Partition,
    RowKey,
    ServerNow,
    Slice,
    Update,
    Value,
)
from cassieq_spark.store.tables import SHAPES, Table

_MOST_BY_TYPE = {"int": 2**31 - 1, "bigint": MOST}
#: The longest time that may be added to the server's clock, which must not leave the calendar.
_LONGEST = timedelta(days=36_500)


def check_ops(partition: Partition, ops: Sequence[Op]) -> None:
    """Refuse operations that are no single compare-and-set.

    Raises:
        TooLargeError: There are more than `MOST_OPS` operations.
        OptionError: A value could not be read again; nothing was sent.
        ValueError: Two operations name one row; or none has a condition; or a row that is inserted
            for a time may exist already.
    """
    if len(ops) > MOST_OPS:
        raise TooLargeError(
            f"a compare-and-set on {partition} has {len(ops)} operations, and {MOST_OPS} is the "
            "most that it can have; nothing was applied: do it in smaller parts"
        )
    for op in ops:
        _check_op(partition.table, op)
    rows = [op.row for op in ops if not isinstance(op, DeleteBelow)]
    if len(set(rows)) < len(rows):
        raise ValueError(f"two operations on one row of {partition}: {rows}")
    if not any(
        isinstance(op, Delete)
        or (isinstance(op, Update) and op.when)
        or (isinstance(op, Insert) and op.if_absent)
        for op in ops
    ):
        raise ValueError(f"a compare-and-set on {partition} needs a condition")


def check_slice(table: Table, which: Slice) -> None:
    """Refuse a slice whose attributes exclude each other, or whose numbers no column can have.

    Raises:
        OptionError: A number is too large.
        ValueError: The slice has a row, or rows, and other attributes; or it has bounds, a limit
            or an order, and not exactly one kind.
    """
    bounded = which.start is not None or which.stop is not None
    ordered = which.limit is not None or which.reverse
    by_key = (which.row is not None) + bool(which.rows)
    if by_key and (by_key > 1 or which.kinds or bounded or ordered):
        raise ValueError(f"a slice of one row, or of some, has nothing else: {which}")
    if (bounded and len(which.kinds) != 1) or (ordered and len(which.kinds) > 1):
        raise ValueError(f"a slice with bounds, limit or order needs one kind: {which}")
    _check_key(table, [each for each in (which.start, which.stop) if each is not None])
    for row in (which.row or (), *which.rows):
        _check_key(table, row)


def check_timed_row(
    table: Table, row: RowKey, values: Mapping[str, Value], ttl: timedelta
) -> None:
    """Refuse a row with a time to live that no store can write.

    Raises:
        OptionError: A value could not be read again.
        ValueError: A value is null, or the time is not in whole seconds, at least one.
    """
    _check_key(table, row)
    _check_columns(table, values)
    if None in values.values():
        raise ValueError(f"a row that is written for a time has no nulls: {dict(values)}")
    _check_ttl(ttl)


def _check_op(table: Table, op: Op) -> None:
    if isinstance(op, DeleteBelow):
        _check_key(table, (op.stop,))
        return
    _check_key(table, op.row)
    if isinstance(op, Delete):
        return
    _check_columns(table, op.values)
    for value in op.values.values():
        if isinstance(value, ServerNow) and abs(value.plus) > _LONGEST:
            raise OptionError(
                f"{value.plus} can't be added to the server's clock: {_LONGEST.days} days is the "
                "most; nothing was sent"
            )
    if isinstance(op, Update):
        for when in op.when:
            _check_columns(table, {when.column: when.value})
    elif op.ttl is not None:
        _check_ttl(op.ttl)
        if not op.if_absent:
            raise ValueError(f"a row that is to vanish is inserted if absent: {op}")


def _check_ttl(ttl: timedelta) -> None:
    if ttl < timedelta(seconds=1) or ttl % timedelta(seconds=1):
        raise ValueError(f"a row is written for whole seconds, at least one, not {ttl}")


def _check_key(table: Table, key: Iterable[Any]) -> None:
    for part in key:
        if isinstance(part, int):
            _check_number(table, "its key", part, MOST)


def _check_columns(table: Table, values: Mapping[str, Any]) -> None:
    types = SHAPES[table].columns
    for column, value in values.items():
        if isinstance(value, int):
            _check_number(table, column, value, _MOST_BY_TYPE.get(types.get(column, ""), MOST))
        elif isinstance(value, datetime):
            _check_instant(table, column, value)


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
