"""The configuration file, such as conf/cassieq.toml: settings for all commands."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import explain_unknown

#: The environment variable with the path of the file, used if no argument gives the path.
VARIABLE = "CASSIEQ_CONFIG"
#: The tables of the file: how to reach Cassandra, the limits of the gateway, the repair job.
CASSANDRA, GATEWAY, REPAIR = "cassandra", "gateway", "repair"

#: The types of settings in the file.
Setting = str | int | bool

#: The names of types in errors.
_KINDS: dict[type, str] = {
    str: "text",
    int: "a number",
    float: "a fraction",
    list: "an array",
    dict: "a table",
}


def read_settings(path: Path, known: Mapping[str, Collection[str]]) -> dict[str, dict[str, Any]]:
    """Read a file of settings.

    Args:
        path: A TOML file.
        known: The names of settings by table: flags without the dashes in front.

    Returns:
        The settings in the file, by table.

    Raises:
        OptionError: The file can't be read, is not TOML, or has an unknown table or setting.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise OptionError(f"configuration {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"configuration {path} is not TOML: {error}") from error
    problems = _unknown("table", content, known)
    for table, names in known.items():
        settings = content.get(table, {})
        if not isinstance(settings, dict):
            problems.append(f"[{table}] must be a table, not {_kind(settings)}")
            continue
        problems += _unknown(f"setting of [{table}]", settings, names)
        problems += [
            f"{name!r} of [{table}] must be text, a whole number, true or false, "
            f"not {_kind(value)}"
            for name, value in settings.items()
            if not isinstance(value, Setting)
        ]
    if problems:
        raise OptionError(f"configuration {path}: " + "; ".join(problems))
    return {table: dict(content.get(table, {})) for table in known}


def _kind(value: object) -> str:
    """Name the type of a TOML value without showing the value, which may be a password."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _unknown(what: str, given: Mapping[str, object], known: Collection[str]) -> list[str]:
    return [explain_unknown(what, name, known) for name in given if name not in known]
