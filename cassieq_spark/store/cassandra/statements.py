"""Turns operations of the protocol into CQL and values; equal shapes give equal text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

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
#: Texts that are remembered, so that none is put together twice. Each shape of a request has one:
#: some dozens, and one for each number of rows that are read by their keys.
_TEXTS = 1_000


@dataclass(frozen=True, slots=True)
class Statement:
    """A text to prepare once, and what to bind to it."""

    text: str
    values: tuple[Any, ...]


@lru_cache(_TEXTS)
def fill_in(name: str, keyspace: str, table: Table, **parts: str) -> str:
    """The text of a named statement for one table."""
    template = named_texts("cassandra/statements.cql")[name]
    return template.substitute(parts, table=f"{keyspace}.{table}").strip()


@lru_cache
def columns_of(table: Table) -> tuple[str, ...]:
    """Every column but the payload, keys first, as rows are read."""
    shape = SHAPES[table]
    return (
        *shape.partition,
        *shape.clustering,
        *(column for column in shape.columns if column != "data"),
    )


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
            text = fill_in(
                "delete_below",
                keyspace,
                partition.table,
                partition=_equal(SHAPES[partition.table].partition),
                second=SHAPES[partition.table].clustering[1],
            )
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
    """The statement that writes a row for a time.

    Raises:
        OptionError: A value could not be read again.
        ValueError: A value is null, or the time is not in whole seconds.
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
    """The statement that deletes what `timed_insert_of` wrote before."""
    where, key = _whole_key(partition, row)
    text = fill_in("delete_row", keyspace, partition.table, key=where)
    return Statement(text, (timestamp, *key))


def selection_of(keyspace: str, partition: Partition, which: Slice) -> Statement:
    """The statement that reads a slice.

    Raises:
        OptionError, ValueError: See `check_slice`.
    """
    check_slice(partition.table, which)
    values: list[Any] = list(partition.key)
    if which.row is not None:
        values += which.row
    values += (value for key in which.rows for value in key)
    if which.kinds:
        values.append(which.kinds[0] if len(which.kinds) == 1 else list(which.kinds))
    values += (bound for bound in (which.start, which.stop, which.limit) if bound is not None)
    shape = _Shape(
        row=which.row is not None,
        rows=len(which.rows),
        kinds=min(len(which.kinds), 2),
        start=which.start is not None,
        stop=which.stop is not None,
        limit=which.limit is not None,
        reverse=which.reverse,
    )
    return Statement(_selection(keyspace, partition.table, shape), tuple(values))


class _Shape(NamedTuple):
    """What tells the texts of two slices apart."""

    row: bool
    rows: int
    kinds: int
    start: bool
    stop: bool
    limit: bool
    reverse: bool


@lru_cache(_TEXTS)
def _selection(keyspace: str, table: Table, which: _Shape) -> str:
    """The text that reads slices of one shape; values are bound in the order of its fields."""
    shape = SHAPES[table]
    wheres: list[str] = []
    if which.row:
        wheres += [f"AND {column} = ?" for column in shape.clustering]
    if which.rows:
        one = f"({', '.join('?' for _ in shape.clustering)})"
        wheres.append(f"AND ({', '.join(shape.clustering)}) IN ({', '.join([one] * which.rows)})")
    if which.kinds:
        wheres.append("AND kind = ?" if which.kinds == 1 else "AND kind IN ?")
    for comparison, is_given in ((">=", which.start), ("<", which.stop)):
        if is_given:
            wheres.append(f"AND {shape.clustering[1]} {comparison} ?")
    descending = ", ".join(f"{column} DESC" for column in shape.clustering)
    return fill_in(
        "read_rows",
        keyspace,
        table,
        columns=", ".join(columns_of(table)),
        partition=_equal(shape.partition),
        which=" ".join(wheres),
        order=f"ORDER BY {descending}" if which.reverse and descending else "",
        limit="LIMIT ?" if which.limit else "",
    )


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


def _term(value: Value | ServerNow) -> tuple[str, Any]:
    match value:
        case ServerNow():
            # Cassandra refuses durations below a millisecond here; the type must be given.
            milliseconds = value.plus // timedelta(milliseconds=1)
            duration = Duration(months=0, days=0, nanoseconds=milliseconds * _NANOSECONDS)
            return "toTimestamp(now()) + (duration) ?", duration
        case datetime():
            return "?", to_millis(value)
        case _:
            return "?", value
