"""Reads which tables a keyspace has, and what is said of them; every role may."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from cassandra.cluster import Session

from cassieq_spark.store.tables import GRACE, Shape
from cassieq_spark.store.version import VERSIONED_TABLE

_COLUMNS = (
    "SELECT table_name, column_name, kind, position, type FROM system_schema.columns "
    "WHERE keyspace_name = %s"
)
_TABLES = (
    "SELECT table_name, comment, gc_grace_seconds FROM system_schema.tables "
    "WHERE keyspace_name = %s"
)
_KEYS = ("partition_key", "clustering")


@dataclass(frozen=True, slots=True)
class Layout:
    """What a keyspace has.

    Attributes:
        tables: Its tables by name, whoever has made them.
        comment: That of the table which records the version; empty if it has none, or is missing.
    """

    tables: dict[str, Shape]
    comment: str


def read_layout(session: Session, keyspace: str) -> Layout:
    """Read it from one node. Two reads of what that has at hand; raises the driver's errors."""
    comments: dict[str, str] = {}
    graces: dict[str, int] = {}
    for table, comment, grace in session.execute(_TABLES, (keyspace,)):
        comments[table], graces[table] = comment or "", grace
    columns: defaultdict[str, list[_Column]] = defaultdict(list)
    for table, name, kind, position, cql_type in session.execute(_COLUMNS, (keyspace,)):
        columns[table].append(_Column(name, kind, position, cql_type))
    # A table that was made between the two reads has what it was made with.
    tables = {table: _shape(found, graces.get(table, GRACE)) for table, found in columns.items()}
    return Layout(tables, comments.get(VERSIONED_TABLE, ""))


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: str
    position: int
    cql_type: str


def _shape(columns: Iterable[_Column], gc_grace_seconds: int) -> Shape:
    ordered = sorted(columns, key=lambda column: column.position)
    partition, clustering = (
        tuple(column.name for column in ordered if column.kind == kind) for kind in _KEYS
    )
    rest = {column.name: column.cql_type for column in ordered if column.kind not in _KEYS}
    return Shape(partition, clustering, rest, gc_grace_seconds)
