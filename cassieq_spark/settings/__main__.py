"""``python -m cassieq_spark.settings`` prints docs/options.md; with ``kafka``, Kafka's options."""

from __future__ import annotations

import sys
from dataclasses import MISSING

from cassieq_spark.settings import SinkOptions, SourceOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import Setting, settings_of
from cassieq_spark.settings.kafka import table


def documentation() -> str:
    """docs/options.md: a table for reaching Cassandra, and one per role."""
    lines = [
        "# Options",
        "",
        "Printed by `python -m cassieq_spark.settings`; change it there.",
        "Case does not matter in the name of an option.",
    ]
    sections = [
        ("Reaching Cassandra", ConnectionOptions),
        *((role.role.capitalize(), role) for role in (SinkOptions, SourceOptions)),
    ]
    for heading, cls in sections:
        lines += ["", f"## {heading}", "", "| Option | Type | Default | Meaning |"]
        lines += ["|---|---|---|---|"]
        lines += [_table_row(item) for item in settings_of(cls)]
    return "\n".join(lines) + "\n"


def _table_row(item: Setting) -> str:
    if item.default is MISSING:
        default = "required"
        if item.unless:
            default += " unless `{}` is `{}`".format(*item.unless)
    elif item.default is None:
        default = item.without or "none"
    else:
        default = f"`{item.kind.show(item.default)}`"
    see = f" See [{item.see.partition('#')[0]}]({item.see})." if item.see else ""
    only = f" Only for {' and '.join(item.only_for)}." if item.only_for else ""
    return f"| `{item.option}` | {item.kind.name} | {default} | {item.meaning}{only}{see} |"


if __name__ == "__main__":
    sys.stdout.write(table() if sys.argv[1:] == ["kafka"] else documentation())
