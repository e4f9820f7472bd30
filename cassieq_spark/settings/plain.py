"""The names and values of attributes outside of Python: in JSON, in SQL and over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from cassieq_spark.settings.declaration import camel_case

#: A value as it is in JSON and SQL.
Plain = int | float | str | None


class SqlType(StrEnum):
    """The type of a plain value, in Spark's DDL."""

    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"


@dataclass(frozen=True, slots=True)
class PlainField:
    """An attribute of an object, as surfaces other than Python show it.

    Attributes:
        name: The name of the attribute.
        type: The type of its plain value.
        meaning: One or two sentences of explanation.
        is_duration: True if the attribute is a `timedelta`; its plain value is in seconds, which
            are whole unless the type is DOUBLE.
        by_http: Its name in HTTP; by default the plain name in camelCase.
    """

    name: str
    type: SqlType
    meaning: str
    is_duration: bool = False
    by_http: str = ""

    @property
    def plain_name(self) -> str:
        """The name of the plain value, with the unit: ``lease_seconds``."""
        return f"{self.name}_seconds" if self.is_duration else self.name

    @property
    def http_name(self) -> str:
        """The name in HTTP: ``leaseSeconds``."""
        return self.by_http or camel_case(self.plain_name)

    def plain(self, of: object) -> Any:
        """The `Plain` value of this attribute of an object; None if the object has none."""
        return self.plain_of(getattr(of, self.name))

    def plain_of(self, value: Any) -> Any:
        """Convert a value of this attribute to its `Plain` value; None stays None."""
        if isinstance(value, timedelta):
            seconds = value.total_seconds()
            return seconds if self.type is SqlType.DOUBLE else int(seconds)
        return value.value if isinstance(value, StrEnum) else value

    def parsed(self, plain: Any) -> Any:
        """Convert a plain value back to the value; None stays None."""
        return timedelta(seconds=plain) if self.is_duration and plain is not None else plain
