"""The tables, as ``schema.cql`` declares them: the keys of a row, and its other columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from string import Template


class Table(StrEnum):
    """The tables of a keyspace."""

    QUEUE = "queue"
    LEDGER = "ledger"
    GROUP_STATE = "group_state"
    CHUNK = "chunk"
    LOCK = "lock"
    REPAIR = "repair"
    ACCOUNT = "account"


#: ``gc_grace_seconds`` of tables where a deleted row that comes back does no harm: as long as
#: Cassandra keeps hints for a node that is away (``max_hint_window``), as no hint lives longer.
GRACE = 3 * 3600
#: ``gc_grace_seconds`` of tables where such a row would be reported, or be held by two readers.
#: Not longer than idempotency keys live: what has expired is dropped after the longer of the two
#: times.
ROW_GRACE = 24 * 3600


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table.

    Attributes:
        partition: The columns of the partition key.
        clustering: The columns of the clustering key.
        columns: The other columns, with their CQL types.
        gc_grace_seconds: How long Cassandra keeps the mark of a deletion for replicas that missed
            the deletion; an operator may keep it for longer.
    """

    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    columns: dict[str, str]
    gc_grace_seconds: int = GRACE


_COMMENT = re.compile(r"\s*--")
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_COLUMN = re.compile(r"^    (\w+) (\w+),$", re.MULTILINE)
_KEY = re.compile(r"PRIMARY KEY \(\(([^)]*)\),?([^)]*)\)")


@cache
def named_texts(filename: str) -> dict[str, Template]:
    """The statements of a ``.cql`` file of this package, in the order of the file.

    Raises:
        ValueError: See `parse_named_texts`.
    """
    return parse_named_texts(files(__package__).joinpath(filename).read_text("utf-8"))


def parse_named_texts(text: str) -> dict[str, Template]:
    r"""Split a text at its lines ``-- name --``, and drop all other comments.

    >>> parse_named_texts("-- all --\n-- Every row.\nSELECT * FROM $table\n")["all"].template
    'SELECT * FROM $table'

    Raises:
        ValueError: A name occurs twice, or has no statement.
    """
    _, *parts = _NAME.split(text)
    found: dict[str, Template] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = (line.rstrip() for line in body.splitlines() if not _COMMENT.match(line))
        statement = "\n".join(filter(None, lines))
        if not statement:
            raise ValueError(f"statement {name!r} is empty")
        if name in found:
            raise ValueError(f"statement {name!r} occurs twice")
        found[name] = Template(statement)
    return found


def parse_shape(create_table: str) -> Shape:
    r"""Read the shape of a table from the template of the statement that creates it.

    >>> parse_shape("CREATE TABLE t (\n    a text,\n    b int,\n    PRIMARY KEY ((a))\n)")
    Shape(partition=('a',), clustering=(), columns={'b': 'int'}, gc_grace_seconds=10800)
    """
    key = _KEY.search(create_table)
    if key is None:
        raise ValueError(f"no primary key in {create_table}")
    partition, clustering = (
        tuple(name.strip() for name in names.split(",") if name) for names in key.groups()
    )
    columns = dict(_COLUMN.findall(create_table))
    rest = {name: columns[name] for name in columns if name not in partition + clustering}
    return Shape(partition, clustering, rest, ROW_GRACE if "$row_grace" in create_table else GRACE)


SHAPES = {table: parse_shape(named_texts("schema.cql")[table].template) for table in Table}
