"""What reading and writing have in common: one way from a user's keys to options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import ClassVar, Self, TypeVar

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.cluster import ClusterOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import option, options_by_key, read_values
from cassieq_spark.settings.kinds import name_of

#: Set by Spark itself; in lower case, as Spark hands keys over.
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """What reading and writing have in common."""

    #: What is done with these options, for errors and headings.
    role: ClassVar[str]

    queue: str = field(metadata=option("queue", name_of("queue"), "The queue, which must exist."))
    connection: ConnectionOptions = field(default_factory=lambda: ClusterOptions().connection())

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> Self:
        """Read the options that a user gave; keys in any case of letters.

        Raises:
            OptionError: All that is unknown, missing or malformed, a line each; or, if nothing
                is, options that contradict each other.
        """
        known = options_by_key(cls) | options_by_key(ClusterOptions)
        of_spark = _OF_SPARK - known.keys()
        given = {key.lower(): text for key, text in raw.items() if key.lower() not in of_spark}
        problems = [_explain_unknown(key, cls) for key in given if key not in known]
        own = read_values(cls, given, problems)
        cluster = read_values(ClusterOptions, given, problems)
        if problems:
            raise OptionError("\n".join(problems))
        return cls(connection=ClusterOptions(**cluster).connection(), **own)


#: What there is; see `a_role`.
_ROLES: list[type[RoleOptions]] = []

_Role = TypeVar("_Role", bound=type[RoleOptions])


def a_role(cls: _Role) -> _Role:
    """Make a class of options known, so that a key given in the wrong place is told as that."""
    _ROLES.append(cls)
    return cls


def _explain_unknown(key: str, cls: type[RoleOptions]) -> str:
    if key == "path":
        return "cassieq reads and writes a queue, not a path: use .option('queue', ...)"
    for role in _ROLES:
        if key in options_by_key(role):
            return (
                f"option {options_by_key(role)[key].key!r} belongs to {role.role}, not {cls.role}"
            )
    known = options_by_key(cls) | options_by_key(ClusterOptions)
    nearest = get_close_matches(key, known, n=1)
    if nearest:
        return f"unknown option {key!r}; did you mean {known[nearest[0]].key!r}?"
    return f"unknown option {key!r}; known: {', '.join(item.key for item in known.values())}"
