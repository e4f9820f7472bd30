"""docs/options.md from the declarations. Pure."""

from __future__ import annotations

from dataclasses import MISSING, Field
from typing import Any

from cassieq_spark.settings.cluster import ClusterOptions
from cassieq_spark.settings.declaration import Option, declared_options
from cassieq_spark.settings.reading import SourceOptions
from cassieq_spark.settings.writing import SinkOptions


def documentation() -> str:
    """docs/options.md: a table for reaching Cassandra, and one per role."""
    lines = [
        "# Options",
        "",
        "Printed by `python -m cassieq_spark.settings`; change it there.",
        "Case does not matter in the name of an option.",
    ]
    sections = [
        ("Reaching Cassandra", ClusterOptions),
        *((role.role.capitalize(), role) for role in (SinkOptions, SourceOptions)),
    ]
    for heading, cls in sections:
        lines += ["", f"## {heading}", "", "| Option | Type | Default | Meaning |"]
        lines += ["|---|---|---|---|"]
        lines += [_table_row(declared, item) for declared, item in declared_options(cls)]
    return "\n".join(lines) + "\n"


def _table_row(declared: Field[Any], item: Option) -> str:
    if declared.default is MISSING:
        default = "required"
        if item.unless:
            default += " unless `{}` is `{}`".format(*item.unless)
    elif declared.default is None:
        default = "none"
    else:
        default = f"`{item.kind.show(declared.default)}`"
    return f"| `{item.key}` | {item.kind.name} | {default} | {item.meaning} |"
