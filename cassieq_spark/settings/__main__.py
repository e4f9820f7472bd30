"""``python -m cassieq_spark.settings`` prints docs/options.md; with ``kafka``, Kafka's options."""

from __future__ import annotations

import sys
from dataclasses import MISSING
from typing import Any

from cassieq_spark.arguments import AT_ONCE
from cassieq_spark.settings import SinkOptions, SourceOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import Setting, settings_of
from cassieq_spark.settings.kafka import table
from cassieq_spark.settings.queue import LARGEST, QUEUE_SETTINGS, QueueSetting
from cassieq_spark.settings.schedule import SCHEDULE_SETTINGS, Of, ScheduleSetting


def documentation() -> str:
    """The text of docs/options.md: a table for reaching Cassandra, and one table per role."""
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
    explained = (
        "`cassieq queue create` and `alter` take these settings as flags, the methods of `Client` "
        "and `HttpQueue` by their names, and the [gateway](gateway.md) by their names in JSON. "
        "Commands write a duration as `2m`, programs as a `timedelta`, JSON in seconds; it is "
        "whole seconds. Zero takes away a setting that a queue may be without."
    )
    lines += [
        "",
        "## A queue",
        "",
        explained,
        "",
        "| Setting | In JSON | Default | Can be altered | Meaning |",
        "|---|---|---|---|---|",
        *map(_setting_row, QUEUE_SETTINGS),
    ]
    explained = (
        "`cassieq schedule create` and `alter` take these settings of a [schedule](schedules.md) "
        "as flags, the methods of `Client` and `HttpQueue` by their names, and the gateway by "
        "their names in JSON. Commands write a duration as `2m`, programs as a `timedelta`, JSON "
        "in seconds. An alter to None (in JSON null, for commands `none`) gives a setting back "
        "its default."
    )
    lines += [
        "",
        "## A schedule",
        "",
        explained,
        "",
        "| Setting | In JSON | Default | Can be altered | Meaning |",
        "|---|---|---|---|---|",
        *map(_schedule_row, SCHEDULE_SETTINGS),
    ]
    return "\n".join(lines) + "\n"


def _schedule_row(it: ScheduleSetting) -> str:
    default = it.without or ("none" if it.instead else "required")
    if it.default or it.default == AT_ONCE:
        default = f"`{it.show(it.default)}`"
    alterable = "no" if it.fixed else "yes"
    bounds = "".join(
        f" {word} {_shown(it, value)}{', by HTTP ' + _shown(it, other) if value != other else ''}."
        for word, value, other in zip(
            ("At least", "At most"), it.bounds(), it.bounds(by_http=True), strict=True
        )
        if value or other
    )
    meaning = it.meaning_by(lambda other: f"`{other.name}`") + bounds
    return f"| `{it.name}` | `{it.http_name}` | {default} | {alterable} | {meaning} |"


def _shown(it: ScheduleSetting, value: Any) -> str:
    """A bound for people; the bound of a text counts its characters."""
    if it.of is Of.TEXT:
        return (
            "64 KiB, with all schedules of the queue" if value is None else f"{value:,} characters"
        )
    return f"`{it.kind.show(value)}`"


def _setting_row(it: QueueSetting) -> str:
    default = f"`{it.shown(it.default)}`" if it.default is not None else it.otherwise or it.without
    in_json = "-" if it.is_of_storage else f"`{it.http_name}`"
    alterable = "no" if it.fixed else "yes"
    bounds = ""
    if it.is_number:
        most = f"to {it.most}" if it.most < LARGEST else "on"
        bounds = f" A whole number, from {it.least} {most}."
    if it.choice is not None:
        bounds = f" One of {', '.join(f'`{each}`' for each in it.choice)}."
    meaning = it.sentence("" if it.name in {"dead_letter_queue", "schema"} else "zero") + bounds
    return f"| `{it.name}` | {in_json} | {default} | {alterable} | {meaning} |"


def _table_row(item: Setting) -> str:
    if item.default is MISSING:
        default = "required"
        if item.unless:
            default += " unless " + ", or ".join(
                f"`{other}` is " + ("given" if value is None else f"`{value}`")
                for other, value in item.unless
            )
    elif item.default is None:
        default = item.without or "none"
    else:
        default = f"`{item.kind.show(item.default)}`"
    see = f" See [{item.see.partition('#')[0]}]({item.see})." if item.see else ""
    only = f" Only for {item.uses}." if item.uses else ""
    return f"| `{item.option}` | {item.kind.name} | {default} | {item.meaning}{only}{see} |"


if __name__ == "__main__":
    sys.stdout.write(table() if sys.argv[1:] == ["kafka"] else documentation())
