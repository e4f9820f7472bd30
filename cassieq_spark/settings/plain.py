"""How an attribute is named and written outside of Python: in JSON, SQL and by HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from cassieq_spark.settings.declaration import camel_case

#: A value as JSON and SQL have it.
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
        name: The attribute.
        type: The type of its plain value.
        meaning: A sentence, or two.
        is_duration: True if the attribute is a `timedelta`; its plain value is in seconds, and
            these are whole unless the type is DOUBLE.
        by_http: Its name by HTTP; by default the plain name in camelCase.
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
        """The name by HTTP: ``leaseSeconds``."""
        return self.by_http or camel_case(self.plain_name)

    def plain(self, of: object) -> Any:
        """The `Plain` value of an object; None if it has none."""
        return self.plain_of(getattr(of, self.name))

    def plain_of(self, value: Any) -> Any:
        """The `Plain` value of a value; None of None."""
        if isinstance(value, timedelta):
            seconds = value.total_seconds()
            return seconds if self.type is SqlType.DOUBLE else int(seconds)
        return value.value if isinstance(value, StrEnum) else value

    def parsed(self, plain: Any) -> Any:
        """The value that has this plain value; None has None."""
        return timedelta(seconds=plain) if self.is_duration and plain is not None else plain
