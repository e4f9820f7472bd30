"""Operations of the protocol as CQL and values; requests of the same shape have equal text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from cassandra.util import Duration

from cassieq_spark.model import to_millis
from cassieq_spark.store.checks import check_slice, check_timed_row
from cassieq_spark.store.protocol import (
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
from cassieq_spark.store.tables import SHAPES, Table, named_texts

_NANOSECONDS = 1_000_000
#: How many texts are cached. Each shape of a request has one: some dozens, and one per number of
#: rows that are read by their keys.
_TEXTS = 1_000


@dataclass(frozen=True, slots=True)
class Statement:
    """A text to prepare once, and the values to bind to it."""

    text: str
    values: tuple[Any, ...]


@lru_cache(_TEXTS)
def fill_in(name: str, keyspace: str, table: Table, **parts: str) -> str:
    """The text of a named statement for one table."""
    template = named_texts("cassandra/statements.cql")[name]
    return template.substitute(parts, table=f"{keyspace}.{table}").strip()


@lru_cache
def columns_of(table: Table) -> tuple[str, ...]:
    """The columns that reads of a table return: all but the payload, keys first."""
    shape = SHAPES[table]
    others = (column for column in shape.columns if column != "data")
    return (*shape.partition, *shape.clustering, *others)


def statement_of(keyspace: str, partition: Partition, op: Op) -> Statement:
    """The statement that carries out one operation."""
    match op:
        case Insert():
            return _insert(keyspace, partition, op)
        case Update():
            return _update(keyspace, partition, op)
        case Delete():
            where, key = _whole_key(partition, op.row)
            return Statement(fill_in("delete", keyspace, partition.table, key=where), key)
        case DeleteBelow():
            shape = SHAPES[partition.table]
            parts = {"partition": _equal(shape.partition), "second": shape.clustering[1]}
            text = fill_in("delete_below", keyspace, partition.table, **parts)
            return Statement(text, (*partition.key, op.kind, op.stop))


def timed_insert_of(  # noqa: PLR0913 (what, where, since when and for how long)
    keyspace: str,
    partition: Partition,
    row: RowKey,
    values: Mapping[str, Value],
    *,
    timestamp: int,
    ttl: timedelta,
) -> Statement:
    """The statement that writes a row with a time to live.

    Raises:
        OptionError, ValueError: See `check_timed_row`.
    """
    check_timed_row(partition.table, row, values, ttl)
    shape = SHAPES[partition.table]
    terms = [_term(value) for value in values.values()]
    key = (*partition.key, *row)
    text = fill_in(
        "write_row",
        keyspace,
        partition.table,
        columns=", ".join((*shape.partition, *shape.clustering, *values)),
        values=", ".join("?" for _ in (*key, *terms)),
    )
    seconds = ttl // timedelta(seconds=1)
    return Statement(text, (*key, *(value for _, value in terms), seconds, timestamp))


def timed_delete_of(
    keyspace: str, partition: Partition, row: RowKey, *, timestamp: int
) -> Statement:
    """The statement that deletes rows of `timed_insert_of` up to a timestamp."""
    where, key = _whole_key(partition, row)
    text = fill_in("delete_row", keyspace, partition.table, key=where)
    return Statement(text, (timestamp, *key))


def selection_of(keyspace: str, partition: Partition, which: Slice) -> Statement:
    """The statement that reads a slice.

    Raises:
        OptionError, ValueError: See `check_slice`.
    """
    check_slice(partition.table, which)
    shape = SHAPES[partition.table]
    wheres: list[str] = []
    values: list[Any] = list(partition.key)
    if which.row is not None:
        wheres += [f"AND {column} = ?" for column in shape.clustering]
        values += which.row
    if which.rows:
        one = f"({', '.join('?' for _ in shape.clustering)})"
        every = ", ".join([one] * len(which.rows))
        wheres.append(f"AND ({', '.join(shape.clustering)}) IN ({every})")
        values += (value for key in which.rows for value in key)
    if len(which.kinds) == 1:
        wheres.append("AND kind = ?")
        values += which.kinds
    elif which.kinds:
        wheres.append("AND kind IN ?")
        values.append(list(which.kinds))
    for comparison, bound in ((">=", which.start), ("<", which.stop)):
        if bound is not None:
            wheres.append(f"AND {shape.clustering[1]} {comparison} ?")
            values.append(bound)
    if which.limit is not None:
        values.append(which.limit)
    descending = ", ".join(f"{column} DESC" for column in shape.clustering)
    text = fill_in(
        "read_rows",
        keyspace,
        partition.table,
        columns=", ".join(columns_of(partition.table)),
        partition=_equal(shape.partition),
        which=" ".join(wheres),
        order=f"ORDER BY {descending}" if which.reverse and descending else "",
        limit="" if which.limit is None else "LIMIT ?",
    )
    return Statement(text, tuple(values))


def scan_of(keyspace: str, table: Table, kinds: Sequence[str]) -> Statement:
    """The statement that reads a whole table, or the rows of these kinds in each partition."""
    text = fill_in(
        "scan",
        keyspace,
        table,
        columns=", ".join(columns_of(table)),
        which="WHERE kind IN ? ALLOW FILTERING" if kinds else "",
    )
    return Statement(text, (list(kinds),) if kinds else ())


def _insert(keyspace: str, partition: Partition, op: Insert) -> Statement:
    shape = SHAPES[partition.table]
    # A null would be a tombstone; a new row has nothing to delete.
    given = {column: value for column, value in op.values.items() if value is not None}
    terms = [_term(value) for value in given.values()]
    key = (*partition.key, *op.row)
    text = fill_in(
        "insert",
        keyspace,
        partition.table,
        columns=", ".join((*shape.partition, *shape.clustering, *given)),
        values=", ".join((*("?" for _ in key), *(text for text, _ in terms))),
        exists="IF NOT EXISTS" if op.if_absent else "",
        ttl="USING TTL ?" if op.ttl is not None else "",
    )
    seconds = () if op.ttl is None else (op.ttl // timedelta(seconds=1),)
    return Statement(text, (*key, *(value for _, value in terms), *seconds))


def _update(keyspace: str, partition: Partition, op: Update) -> Statement:
    if not op.values or None in op.values.values():
        raise ValueError(f"an update needs values, and none of them null: {op}")
    sets = [(column, *_term(value)) for column, value in op.values.items()]
    conditions = [(when.column, when.op, *_term(when.value)) for when in op.when]
    where, key = _whole_key(partition, op.row)
    wanted = " AND ".join(
        f"{column} {comparison} {text}" for column, comparison, text, _ in conditions
    )
    text = fill_in(
        "update",
        keyspace,
        partition.table,
        sets=", ".join(f"{column} = {text}" for column, text, _ in sets),
        key=where,
        conditions=f"IF {wanted}" if wanted else "",
    )
    values = (*(value for *_, value in sets), *key, *(value for *_, value in conditions))
    return Statement(text, values)


def _whole_key(partition: Partition, row: RowKey) -> tuple[str, tuple[Any, ...]]:
    shape = SHAPES[partition.table]
    return _equal((*shape.partition, *shape.clustering)), (*partition.key, *row)


@lru_cache(_TEXTS)
def _equal(columns: tuple[str, ...]) -> str:
    return " AND ".join(f"{column} = ?" for column in columns)


def _term(value: Value | bytes | ServerNow) -> tuple[str, Any]:
    match value:
        case ServerNow():
            # Cassandra refuses durations below a millisecond here; the type must be given.
            milliseconds = value.plus // timedelta(milliseconds=1)
            duration = Duration(months=0, days=0, nanoseconds=milliseconds * _NANOSECONDS)
            now = "currentTimestamp()" if value.wall else "toTimestamp(now())"
            return f"{now} + (duration) ?", duration
        case datetime():
            return "?", to_millis(value)
        case _:
            return "?", value
