"""The version of a keyspace's tables, as the comment of one of them records it. Pure.

It is raised only with a change that the releases before can't live with: rows that they would
misread, or write in a way that later ones misread. A new table or column alone raises nothing. In
the comment it needs no table and no right of its own: whoever may log in may read it.
"""

from __future__ import annotations

import re

from cassieq_spark.errors import MissingSchemaError
from cassieq_spark.store.tables import Table

#: What this release reads and writes. 2: chunks are frames of our own, and programs of version 1
#: would ack what outcomes are recorded for.
KNOWN_VERSION = 2
#: The table whose comment has it: the one that every program reads.
VERSIONED_TABLE = Table.QUEUE

_RECORD = re.compile(r"cassieq-spark schema (\d+)")


def recorded_version(comment: str) -> int | None:
    """The version in a comment; None if it has none.

    >>> recorded_version("orders; cassieq-spark schema 3")
    3
    >>> recorded_version("orders")
    """
    found = _RECORD.search(comment)
    return int(found[1]) if found else None


def comment_with_version(comment: str) -> str:
    """A comment that records the version of this release, with all else that it says.

    >>> comment_with_version("orders")
    'orders; cassieq-spark schema 2'
    >>> comment_with_version("cassieq-spark schema 0; orders")
    'cassieq-spark schema 2; orders'
    """
    record = f"cassieq-spark schema {KNOWN_VERSION}"
    if _RECORD.search(comment):
        return _RECORD.sub(record, comment, count=1)
    return f"{comment}; {record}" if comment else record


def is_newer(version: int | None) -> bool:
    """Whether a recorded version is one that this release does not know."""
    return version is not None and version > KNOWN_VERSION


def check_not_newer(version: int | None, keyspace: str) -> None:
    """Refuse tables of a version that this release does not know.

    Raises:
        MissingSchemaError: They are.
    """
    if is_newer(version):
        raise MissingSchemaError(
            f"the tables of keyspace {keyspace!r} have schema version {version}, and this release "
            f"of cassieq-spark knows none above {KNOWN_VERSION}; nothing was touched: upgrade "
            "cassieq-spark here"
        )


def check_version(version: int | None, keyspace: str) -> None:
    """Refuse tables of any version but this release's own.

    Args:
        version: As recorded; None if it is not: then the columns tell.
        keyspace: Where the tables are.

    Raises:
        MissingSchemaError: It is newer, or older.
    """
    check_not_newer(version, keyspace)
    if version is not None and version < KNOWN_VERSION:
        raise MissingSchemaError(
            f"the tables of keyspace {keyspace!r} have schema version {version}, and this release "
            f"of cassieq-spark needs {KNOWN_VERSION}; nothing was touched: stop what runs an "
            f"earlier release, then run: cassieq schema apply --keyspace {keyspace}"
        )
