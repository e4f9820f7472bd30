"""The settings of a queue as flags of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from cassieq_spark.cli.options import Value, check_not_empty
from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.ddl import to_ddl
from cassieq_spark.schemas.files import parse_schema, read_schema_file
from cassieq_spark.settings.queue import (
    LARGEST,
    PERIOD,
    QUEUE_SETTINGS,
    QueueSetting,
    check_settings,
    dead_letter_queue_of,
)

_SchemaFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the schema: DDL, Spark's JSON, Avro (.avsc), or a Parquet file.",
        show_default=False,
    ),
]
_DropDead = Annotated[
    bool,
    typer.Option("--drop-dead", help="Discard dead messages; there is no dead-letter queue."),
]


def settings_flags(*, alters: bool) -> Callable[..., dict[str, Any]]:
    """A function whose parameters are the settings of a queue as flags.

    It returns the given settings, checked, as `Client.create_queue` and `Client.alter_queue` take
    them.

    Args:
        alters: True if the queue exists: then no flag has a default, and flags of settings that
            can't be altered are hidden, to be refused with a reason.
    """

    def read(
        *, schema: str | None, schema_file: Path | None, drop_dead: bool, **given: Any
    ) -> dict[str, Any]:
        check_not_empty("--dead-letter-queue", given["dead_letter_queue"])
        given["schema"] = _columns(schema, schema_file)
        settings = {name: value for name, value in given.items() if value is not None}
        check_settings(settings, alters=alters)
        dead_letter_queue_of(settings, drop_dead=drop_dead)
        return settings | ({"drop_dead": True} if drop_dead else {})

    parameters = [
        *_parameters(QUEUE_SETTINGS, alters=alters),
        _parameter("schema_file", _SchemaFile),
        _parameter("drop_dead", _DropDead, default=False),
    ]
    vars(read)["__signature__"] = inspect.Signature(parameters)
    return read


def _parameters(settings: Iterable[QueueSetting], *, alters: bool) -> Iterable[inspect.Parameter]:
    for it in settings:
        default = None if alters else it.default
        yield _parameter(it.name, _annotation(it, default, alters=alters), default)


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def _annotation(it: QueueSetting, default: Any, *, alters: bool) -> Any:
    meaning = it.sentence("0s" if it.is_duration else "0" if it.is_number else "")
    without = False if alters or default is not None else it.otherwise or it.without
    if it.is_duration:
        return Annotated[timedelta | None, Value(PERIOD, meaning, without=without)]
    kind: Any = it.choice or (int if it.is_number else str)
    info = typer.Option(
        help=meaning,
        min=it.least if it.is_number else None,
        max=it.most if it.is_number and it.most < LARGEST else None,
        show_default=True if default is not None else without,
        hidden=alters and bool(it.fixed),
    )
    return Annotated[kind if default is not None else kind | None, info]


def _columns(schema: str | None, file: Path | None) -> str | None:
    """The schema that was given, in Spark's DDL."""
    if schema is not None and file is not None:
        raise OptionError("--schema and --schema-file exclude each other: give one of them")
    if file is not None:
        return to_ddl(read_schema_file(file))
    return None if schema is None else to_ddl(parse_schema(schema))
