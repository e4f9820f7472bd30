"""The version of a keyspace's tables, what is missing, and the statements that add it.

The comment of one table records the version, as every role that may log in may read a comment. The
version is raised only by changes that do not work with earlier releases: rows that an earlier
release would misread, or would write in a way that later releases misread. A new table or column
alone does not raise it. A release uses only tables of its own version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cassieq_spark.errors import MissingSchemaError
from cassieq_spark.store.tables import SHAPES, Shape, Table

#: The version that this release reads and writes. 2: chunks are frames of our own. 3: the table
#: ``group_state`` was ``delivery``, the column ``status`` of ``ledger`` was ``gate``. 4: queues of
#: several partitions, which version 3 would look for, purge and delete under one queue id.
KNOWN_VERSION = 4
#: The table whose comment records the version: every program reads it.
VERSIONED_TABLE = Table.QUEUE
#: If a table of this name exists and no version is recorded, the version is 2 or earlier.
_FORMER_TABLE = "delivery"
_RECORD = re.compile(r"cassieq-spark schema (\d+)")


@dataclass(frozen=True, slots=True)
class Difference:
    """How a keyspace differs from what this release needs; other tables and columns are allowed.

    Attributes:
        keyspace: True if the keyspace is missing.
        tables: The missing tables.
        columns: The missing columns of tables that exist, with their CQL types.
        graces: The right ``gc_grace_seconds`` of tables where it is too short.
        conflicts: What exists in another form, in words; adding tables or columns does not help.
        unknown: Columns that this release does not know, in words.
        comment: The comment of the table that records the version.
        warnings: A replication or settings of nodes that can lose messages, in words.
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
        """True if no version is recorded."""
        return self.version is None

    @property
    def is_newer(self) -> bool:
        """True if the tables have a later version than this release."""
        return self.version is not None and self.version > KNOWN_VERSION

    @property
    def is_older(self) -> bool:
        """True if the tables have an earlier version than this release."""
        return self.version is not None and self.version < KNOWN_VERSION

    @property
    def missing(self) -> tuple[str, ...]:
        """The parts of the schema that `apply_schema` adds, in words and in order."""
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
        found: The tables of the keyspace by name; None if there is no such keyspace.
        comment: The comment of the table that records the version.
    """
    there = {table: found[table] for table in Table if table in found} if found else {}
    lacking = {table: _lacking(SHAPES[table], shape) for table, shape in there.items()}
    return Difference(
        keyspace=found is None,
        tables=tuple(table for table in Table if table not in there),
        columns={table: columns for table, columns in lacking.items() if columns},
        conflicts=(
            *_former(found or {}, comment),
            *(each for table in there for each in _conflicts(table, there[table])),
        ),
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


def check_usable(difference: Difference, keyspace: str) -> None:
    """Refuse a keyspace that this release could not use even with all missing parts added.

    Missing tables and columns are no error here; the requests that need them fail.

    Raises:
        MissingSchemaError: The version is newer or older, or tables have another form.
    """
    has = f"the tables of keyspace {keyspace!r} have schema version {difference.version}, and"
    if difference.is_newer:
        raise MissingSchemaError(
            f"{has} this release of cassieq-spark knows none above {KNOWN_VERSION}; nothing was "
            "changed: upgrade cassieq-spark here"
        )
    if difference.is_older:
        raise MissingSchemaError(
            f"{has} this release of cassieq-spark needs {KNOWN_VERSION}; nothing was changed: "
            "drain the queues with the earlier release, and use another keyspace"
        )
    if difference.conflicts:
        raise MissingSchemaError(
            f"keyspace {keyspace!r} has tables that this release can't use: "
            f"{'; '.join(difference.conflicts)}; nothing was changed: use another keyspace"
        )


def upgrade_statements(keyspace: str, difference: Difference) -> list[str]:
    """The statements that add columns and raise ``gc_grace_seconds``.

    Safe to repeat, also by several programs concurrently.

    >>> both = Difference(False, (), {Table.LEDGER: {"status": "text", "paused": "boolean"}}, ())
    >>> upgrade_statements("queues", both)
    ['ALTER TABLE queues.ledger ADD IF NOT EXISTS (status text, paused boolean)']
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
    """The statement that records the version of this release; comes last, may be repeated.

    >>> version_statement("queues", Difference(False, (), {}, (), comment="Ann's"))
    "ALTER TABLE queues.queue WITH comment = 'Ann''s; cassieq-spark schema 4'"
    """
    comment = comment_with_version(difference.comment).replace("'", "''")
    return f"ALTER TABLE {keyspace}.{VERSIONED_TABLE} WITH comment = '{comment}'"


def recorded_version(comment: str) -> int | None:
    """The version in a comment; None if the comment has no version.

    >>> recorded_version("orders; cassieq-spark schema 4")
    4
    >>> recorded_version("orders")
    """
    found = _RECORD.search(comment)
    return int(found[1]) if found else None


def comment_with_version(comment: str) -> str:
    """A comment with the version of this release added, or in place of another version.

    >>> comment_with_version("orders")
    'orders; cassieq-spark schema 4'
    >>> comment_with_version("cassieq-spark schema 0; orders")
    'cassieq-spark schema 4; orders'
    """
    record = f"cassieq-spark schema {KNOWN_VERSION}"
    if _RECORD.search(comment):
        return _RECORD.sub(record, comment, count=1)
    return f"{comment}; {record}" if comment else record


def _lacking(wanted: Shape, found: Shape) -> dict[str, str]:
    names = {*found.partition, *found.clustering, *found.columns}
    return {name: kind for name, kind in wanted.columns.items() if name not in names}


def _former(found: Mapping[str, Shape], comment: str) -> Iterator[str]:
    if _FORMER_TABLE in found and recorded_version(comment) is None:
        yield f"table {_FORMER_TABLE} is of schema version 2 or earlier"


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
