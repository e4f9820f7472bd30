"""The columns of a message without a schema, by name and type of Spark; needs no Arrow.

Spark asks for them in each process beside the driver, before anything makes rows.
"""

from __future__ import annotations

COLUMNS = {
    "queue": "STRING",
    "partition": "INT",
    "monoton": "BIGINT",
    "key": "BINARY",
    "value": "BINARY",
    "headers": "MAP<STRING, STRING>",
    "published_at": "TIMESTAMP",
    "delivery_count": "INT",
    "receipt": "STRING",
}


def row_columns(*, include_headers: bool, include_receipts: bool = False) -> list[str]:
    """The names of the columns, in order."""
    included = {"headers": include_headers, "receipt": include_receipts}
    return [name for name in COLUMNS if included.get(name, True)]


def row_ddl(*, include_headers: bool, include_receipts: bool = False) -> str:
    """The schema of the source for Spark: ``queue STRING, monoton BIGINT, ...``; all nullable."""
    names = row_columns(include_headers=include_headers, include_receipts=include_receipts)
    return ", ".join(f"{name} {COLUMNS[name]}" for name in names)
