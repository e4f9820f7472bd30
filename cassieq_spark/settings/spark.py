"""The options that Spark's reader and writer share, and how the options of both are parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

from cassieq_spark.arguments import shown
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import (
    explain_missing,
    explain_unknown,
    read_values,
    required,
    settings_by_option,
)
from cassieq_spark.settings.kafka import kafka_advice
from cassieq_spark.settings.kinds import name_of

#: Options that Spark sets itself, in lower case, as Spark passes them.
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
#: The option that Spark adds when it asks for the columns of a table that CREATE TABLE makes.
_OF_TABLES = "provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """The options that reading and writing share."""

    #: The purpose of the options in errors and headings: "reading" or "writing".
    role: ClassVar[str]

    queue: str = field(metadata=required(name_of("queue"), "The queue, which must exist."))
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> Self:
        """Parse the options that a user gave; keys are case-insensitive.

        Raises:
            OptionError: Options are unknown, missing or malformed, with one line per option; or
                else the options contradict each other.
        """
        own, cluster = settings_by_option(cls), settings_by_option(ConnectionOptions)
        known = own | cluster
        of_spark = _OF_SPARK - known.keys()
        given = {key.lower(): text for key, text in raw.items() if key.lower() not in of_spark}
        _refuse_tables_and_paths(given)
        problems = [_explain_unknown(key, cls) for key in given if key not in known]
        values, connection = (read_values(each, given, problems) for each in (own, cluster))
        if problems:
            raise OptionError("\n".join(problems))
        return cls(connection=ConnectionOptions(**connection), **values)


_ROLES: list[type[RoleOptions]] = []

_Role = TypeVar("_Role", bound=type[RoleOptions])


def a_role(cls: _Role) -> _Role:
    """Register a class of options, so that errors can say that a key belongs to the other role."""
    _ROLES.append(cls)
    return cls


def options_from_session(spark: Any) -> dict[str, str]:
    """Copy the settings of a SparkSession for reaching Cassandra into options.

    Sources and sinks cannot see the session's configuration, so pass these settings to them by
    ``.options(**options_from_session(spark))``.

    Raises:
        OptionError: ``spark`` is not a SparkSession.
    """
    conf: Any = getattr(spark, "conf", None)
    if not hasattr(conf, "get"):
        raise OptionError(f"a SparkSession is needed, not {shown(spark)}")
    options = [str(item.option) for item in settings_by_option(ConnectionOptions).values()]
    found = {key: conf.get(key, None) for key in options if "." in key}
    return {key: text for key, text in found.items() if text is not None}


def _refuse_tables_and_paths(given: Mapping[str, str]) -> None:
    """Refuse options of a table in Spark's catalog, and options with a path."""
    if _OF_TABLES in given:
        raise OptionError(
            "a queue is no table of Spark's catalog, which keeps no options: for SQL use CREATE "
            "TEMPORARY VIEW ... USING cassieq OPTIONS (queue '...'), and to publish "
            "df.write.format('cassieq')"
        )
    if not given:
        raise OptionError(
            explain_missing("queue")
            + "; if this is a table of Spark's catalog, drop it, as Spark "
            "has kept none of its options, and create a temporary view"
        )
    path = given.get("path")
    if path is not None:
        queue = "..." if "/" in path else repr(path)
        raise OptionError(
            f"cassieq reads and writes a queue, not a path: use .option('queue', {queue}) instead "
            f"of load({path!r}) or save({path!r})"
        )


def _explain_unknown(key: str, cls: type[RoleOptions]) -> str:
    for role in _ROLES:
        if found := settings_by_option(role).get(key):
            return f"option {found.option!r} belongs to {role.role}, not {cls.role}"
    if advice := kafka_advice(key):
        return advice
    known = settings_by_option(cls, ConnectionOptions)
    flag = key.replace("_", "").replace("-", "")
    for each in known.values():
        if each.flag.replace("-", "") == flag:
            return f"unknown option {key!r}; as an option of Spark it is called {each.option!r}"
    return explain_unknown("option", key, [str(each.option) for each in known.values()])
