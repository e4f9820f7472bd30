"""What a keyspace lacks of the tables that this release knows, and what adds it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cassieq_spark.store.tables import SHAPES, Shape, Table


@dataclass(frozen=True, slots=True)
class Difference:
    """How a keyspace differs from what this release needs; what it has besides is left alone.

    Attributes:
        keyspace: Whether there is none, and so no table either.
        tables: Those that are missing.
        columns: Those that are missing in tables that are there, with their CQL types.
        conflicts: What is there, but otherwise, in words; adding does not mend it.
        unknown: What this release does not know, in words: a later one has added it, or somebody.
    """

    keyspace: bool
    tables: tuple[Table, ...]
    columns: Mapping[Table, Mapping[str, str]]
    conflicts: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """What is to be added, in words and in order."""
        return (
            *(("keyspace",) if self.keyspace else ()),
            *(f"table {table}" for table in self.tables),
            *(
                f"column {table}.{name} {cql_type}"
                for table, columns in self.columns.items()
                for name, cql_type in columns.items()
            ),
        )


def compare(found: Mapping[str, Shape] | None) -> Difference:
    """Compare a keyspace with what this release needs.

    Args:
        found: Its tables by name; None if there is no such keyspace.
    """
    there = {table: found[table] for table in Table if table in found} if found else {}
    lacking = {table: _lacking(SHAPES[table], shape) for table, shape in there.items()}
    return Difference(
        keyspace=found is None,
        tables=tuple(table for table in Table if table not in there),
        columns={table: columns for table, columns in lacking.items() if columns},
        conflicts=tuple(each for table in there for each in _conflicts(table, there[table])),
        unknown=tuple(
            f"column {table}.{name} {cql_type}"
            for table, shape in there.items()
            for name, cql_type in sorted(shape.columns.items())
            if name not in SHAPES[table].columns
        ),
    )


def upgrade_statements(keyspace: str, difference: Difference) -> list[str]:
    """What adds the missing columns; each may be repeated, and carried out by several at once.

    >>> both = Difference(False, (), {Table.LEDGER: {"gate": "text", "paused": "boolean"}}, ())
    >>> upgrade_statements("queues", both)
    ['ALTER TABLE queues.ledger ADD IF NOT EXISTS (gate text, paused boolean)']
    """
    return [
        f"ALTER TABLE {keyspace}.{table} ADD IF NOT EXISTS "
        f"({', '.join(f'{name} {cql_type}' for name, cql_type in columns.items())})"
        for table, columns in difference.columns.items()
    ]


def _lacking(wanted: Shape, found: Shape) -> dict[str, str]:
    names = {*found.partition, *found.clustering, *found.columns}
    return {name: kind for name, kind in wanted.columns.items() if name not in names}


def _conflicts(table: Table, found: Shape) -> Iterator[str]:
    wanted = SHAPES[table]
    keys, keys_found = _key(wanted), _key(found)
    if keys != keys_found:
        yield f"table {table} has the primary key {keys_found} instead of {keys}"
        return
    for name, cql_type in wanted.columns.items():
        actual = found.columns.get(name, cql_type)
        if actual != cql_type:
            yield f"column {table}.{name} is {actual} instead of {cql_type}"


def _key(shape: Shape) -> str:
    partition = f"({', '.join(shape.partition)})"
    return f"({', '.join((partition, *shape.clustering))})"
