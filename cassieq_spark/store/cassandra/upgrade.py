"""What a keyspace lacks of the tables that this release knows, and what adds it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cassieq_spark.errors import MissingSchemaError
from cassieq_spark.store.tables import SHAPES, Shape, Table
from cassieq_spark.store.version import (
    KNOWN_VERSION,
    VERSIONED_TABLE,
    check_not_newer,
    check_version,
    comment_with_version,
    is_newer,
    recorded_version,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """How a keyspace differs from what this release needs; what it has besides is left alone.

    Attributes:
        keyspace: Whether there is none, and so no table either.
        tables: Those that are missing.
        columns: Those that are missing in tables that are there, with their CQL types.
        graces: What ``gc_grace_seconds`` should be, in tables that are there with a shorter one.
        conflicts: What is there, but otherwise, in words; adding does not mend it.
        unknown: What this release does not know, in words: a later one has added it, or somebody.
        comment: Of the table that records the version.
        warnings: What the nodes are set to that can lose messages, in words.
    """

    keyspace: bool
    tables: tuple[Table, ...]
    columns: Mapping[Table, Mapping[str, str]]
    conflicts: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    comment: str = ""
    graces: Mapping[Table, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def version(self) -> int | None:
        """The version of the tables; None if they record none."""
        return recorded_version(self.comment)

    @property
    def lacks_version(self) -> bool:
        """Whether the version of this release is still to be recorded."""
        return self.version is None or self.version < KNOWN_VERSION

    @property
    def is_newer(self) -> bool:
        """Whether the tables are of a version that this release does not know."""
        return is_newer(self.version)

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
            *(f"gc_grace_seconds {table} {seconds}" for table, seconds in self.graces.items()),
            *((f"schema version {KNOWN_VERSION}",) if self.lacks_version else ()),
        )


def compare(found: Mapping[str, Shape] | None, comment: str = "") -> Difference:
    """Compare a keyspace with what this release needs.

    Args:
        found: Its tables by name; None if there is no such keyspace.
        comment: Of the table that records the version.
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
        comment=comment,
        graces={
            table: SHAPES[table].gc_grace_seconds
            for table, shape in there.items()
            if shape.gc_grace_seconds < SHAPES[table].gc_grace_seconds
        },
    )


def check_addable(difference: Difference, keyspace: str) -> None:
    """Refuse a keyspace that adding tables and columns does not make what this release needs.

    Raises:
        MissingSchemaError: Its version is newer, or what it has is in the way.
    """
    check_not_newer(difference.version, keyspace)
    if difference.conflicts:
        raise MissingSchemaError(
            f"keyspace {keyspace!r} has tables that this release can't use: "
            f"{'; '.join(difference.conflicts)}; nothing was touched: use another keyspace"
        )


def check_usable(difference: Difference, keyspace: str) -> None:
    """Refuse a keyspace that this release can't work with; what is only missing shows in use.

    Raises:
        MissingSchemaError: Its version is another one, or what it has is in the way.
    """
    check_version(difference.version, keyspace)
    check_addable(difference, keyspace)


def upgrade_statements(keyspace: str, difference: Difference) -> list[str]:
    """What adds columns and keeps marks longer; to be repeated, by several at once, at will.

    >>> both = Difference(False, (), {Table.LEDGER: {"gate": "text", "paused": "boolean"}}, ())
    >>> upgrade_statements("queues", both)
    ['ALTER TABLE queues.ledger ADD IF NOT EXISTS (gate text, paused boolean)']
    """
    added = [
        f"ALTER TABLE {keyspace}.{table} ADD IF NOT EXISTS "
        f"({', '.join(f'{name} {cql_type}' for name, cql_type in columns.items())})"
        for table, columns in difference.columns.items()
    ]
    kept = [
        f"ALTER TABLE {keyspace}.{table} WITH gc_grace_seconds = {seconds}"
        for table, seconds in difference.graces.items()
    ]
    return [*added, *kept]


def version_statement(keyspace: str, difference: Difference) -> str:
    """What records the version of this release, once the tables are such; may be repeated.

    >>> version_statement("queues", Difference(False, (), {}, (), comment="Ann's"))
    "ALTER TABLE queues.queue WITH comment = 'Ann''s; cassieq-spark schema 2'"
    """
    comment = comment_with_version(difference.comment).replace("'", "''")
    return f"ALTER TABLE {keyspace}.{VERSIONED_TABLE} WITH comment = '{comment}'"


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
