"""The version of a keyspace's tables, what they lack, and what adds it. Pure.

The comment of one table records the version. It is raised only with a change that earlier releases
can't live with: rows that they would misread, or write in a way that later ones misread. A new
table or column alone raises nothing. A release uses tables of its own version only. A comment
needs no table and no right of its own: every role that may log in may read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cassieq_spark.errors import MissingSchemaError
from cassieq_spark.store.tables import SHAPES, Shape, Table

#: What this release reads and writes. 2: chunks are frames of our own. 3: the table
#: ``group_state`` was ``delivery``, the column ``status`` of ``ledger`` was ``gate``. 4: queues of
#: several partitions, which version 3 would look for, purge and delete under the id of one.
KNOWN_VERSION = 4
#: The table whose comment has it: the one that every program reads.
VERSIONED_TABLE = Table.QUEUE
#: Tables that record no version, beside one of this name, are of version 2 or earlier.
_FORMER_TABLE = "delivery"
_RECORD = re.compile(r"cassieq-spark schema (\d+)")


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
        return self.version is None

    @property
    def is_newer(self) -> bool:
        """Whether the tables are of a later version than this release's own."""
        return self.version is not None and self.version > KNOWN_VERSION

    @property
    def is_older(self) -> bool:
        """Whether the tables are of an earlier version than this release's own."""
        return self.version is not None and self.version < KNOWN_VERSION

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
    """Refuse a keyspace that this release can't use, not even once its tables are added to.

    What is only missing shows in use.

    Raises:
        MissingSchemaError: Its version is newer or older, or what it has is in the way.
    """
    version = difference.version
    if difference.is_newer:
        raise MissingSchemaError(
            f"the tables of keyspace {keyspace!r} have schema version {version}, "
            f"and this release of cassieq-spark knows none above {KNOWN_VERSION}; "
            "nothing was changed: upgrade cassieq-spark here"
        )
    if difference.is_older:
        raise MissingSchemaError(
            f"the tables of keyspace {keyspace!r} have schema version {version}, "
            f"and this release of cassieq-spark needs {KNOWN_VERSION}; nothing was "
            "changed: drain the queues with the earlier release, and use another "
            "keyspace"
        )
    if difference.conflicts:
        raise MissingSchemaError(
            f"keyspace {keyspace!r} has tables that this release can't use: "
            f"{'; '.join(difference.conflicts)}; nothing was changed: use another "
            "keyspace"
        )


def upgrade_statements(keyspace: str, difference: Difference) -> list[str]:
    """What adds columns and keeps marks longer; to be repeated, by several at once, at will.

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
    """What records the version of this release, once the tables are such; may be repeated.

    >>> version_statement("queues", Difference(False, (), {}, (), comment="Ann's"))
    "ALTER TABLE queues.queue WITH comment = 'Ann''s; cassieq-spark schema 4'"
    """
    comment = comment_with_version(difference.comment).replace("'", "''")
    return f"ALTER TABLE {keyspace}.{VERSIONED_TABLE} WITH comment = '{comment}'"


def recorded_version(comment: str) -> int | None:
    """The version in a comment; None if it has none.

    >>> recorded_version("orders; cassieq-spark schema 4")
    4
    >>> recorded_version("orders")
    """
    found = _RECORD.search(comment)
    return int(found[1]) if found else None


def comment_with_version(comment: str) -> str:
    """A comment that records the version of this release, with all else that it says.

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
