"""The settings of a queue, each declared once: its names, its plain value, its meaning.

`QueueDefinition` has the values. From `QUEUE_SETTINGS` follow the columns of a queue's row, what
the gateway answers and its client reads, what commands show, and the view ``queues``.

>>> queue = QueueDefinition("orders", 1, expire_after=timedelta(days=1))
>>> plain_settings(queue)["expire_after_seconds"], plain_settings(queue)["order"]
(86400, 'none')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from cassieq_spark.model import OnDead, Order, QueueDefinition
from cassieq_spark.settings.declaration import camel_case

#: A value as JSON and SQL have it.
Plain = int | str | None


class SqlType(StrEnum):
    """The type of a plain value, in Spark's DDL."""

    INT = "INT"
    STRING = "STRING"


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """A setting of a queue.

    Attributes:
        name: Its attribute of `QueueDefinition`.
        type: The type of its plain value.
        meaning: A sentence, or two.
        is_period: Whether it is a duration; its plain value is in whole seconds.
        can_be_unset: Whether a queue may be without it; then `QueueDefinition` has its default.
        called: What tables for people call it; by default its name.
        if_unset: What such a table shows instead of no value, and of 0.
        by_http: Its name by HTTP; by default the plain name in camelCase.
    """

    name: str
    type: SqlType
    meaning: str
    is_period: bool = False
    can_be_unset: bool = False
    called: str = ""
    if_unset: str | None = None
    by_http: str = ""

    @property
    def plain_name(self) -> str:
        """The name of its plain value, with the unit: ``lease_seconds``."""
        return f"{self.name}_seconds" if self.is_period else self.name

    @property
    def label(self) -> str:
        """What tables for people call it."""
        return self.called or self.name.replace("_", " ")

    @property
    def http_name(self) -> str:
        """Its name by HTTP: ``leaseSeconds``."""
        return self.by_http or camel_case(self.plain_name)

    def value(self, queue: QueueDefinition) -> Any:
        """Its value."""
        return getattr(queue, self.name)

    def plain(self, queue: QueueDefinition) -> Plain:
        """Its value as a plain one; None if the queue is without it."""
        value = self.value(queue)
        if isinstance(value, timedelta):
            return int(value.total_seconds())
        found: Plain = value.value if isinstance(value, StrEnum) else value
        return found

    def parsed(self, plain: Any) -> Any:
        """The value that has this plain value, which is not None."""
        return (
            timedelta(seconds=plain) if self.is_period else _CHOICES.get(self.name, _same)(plain)
        )


def _same(value: Any) -> Any:
    return value


_CHOICES: Mapping[str, Any] = {"order": Order, "on_dead": OnDead}

_INT, _STRING = SqlType.INT, SqlType.STRING

#: All of them, in the order in which they are shown.
QUEUE_SETTINGS = (
    QueueSetting("lease", _INT, "How long a lease lasts unless it is extended.", is_period=True),
    QueueSetting(
        "max_deliveries",
        _INT,
        "After this many deliveries a message is dead; 0: never.",
        can_be_unset=True,
        if_unset="no limit",
        by_http="maxDeliveryCount",
    ),
    QueueSetting(
        "dead_letter_queue",
        _STRING,
        "Where dead messages go; null: they are dropped.",
        can_be_unset=True,
        called="dead letters to",
        by_http="dlqName",
    ),
    QueueSetting("partitions", _INT, "How many partitions it has."),
    QueueSetting(
        "order",
        _STRING,
        "`none`; `key`: a group gets no message before it has settled all earlier ones of the "
        "partition, or gets them by the same lease; `strict`: of the queue.",
    ),
    QueueSetting(
        "on_dead",
        _STRING,
        "With an order: `continue`: what is behind a dead message is delivered; `stop`: the group "
        "gets nothing more of that partition until it is resumed.",
        can_be_unset=True,
    ),
    QueueSetting(
        "expire_after",
        _INT,
        "How long after it became visible a message that was not consumed is discarded; null: "
        "never.",
        is_period=True,
        can_be_unset=True,
    ),
    QueueSetting(
        "keep_settled",
        _INT,
        "How long after it became visible a message is kept that every group has settled; null: "
        "it is not kept.",
        is_period=True,
        can_be_unset=True,
    ),
    QueueSetting("bucket_size", _INT, "Messages per Cassandra partition."),
    QueueSetting("chunk_size", _INT, "Most messages per row."),
    QueueSetting(
        "schema",
        _STRING,
        "Columns of its messages, in Spark's DDL; null: messages are bytes.",
        can_be_unset=True,
        if_unset="none: messages are bytes",
    ),
)

#: Those that `QueueDefinition` derives from other attributes: these have a form of their own
#: where a queue is stored or made.
_DERIVED = {"order", "schema"}
#: Those whose column in the row of a queue has the plain value; partitions are kept by version.
_IN_COLUMNS = tuple(it for it in QUEUE_SETTINGS if it.name not in {*_DERIVED, "partitions"})


def plain_settings(queue: QueueDefinition) -> dict[str, Plain]:
    """All settings of a queue as plain values, by plain name; None where it is without one."""
    return {it.plain_name: it.plain(queue) for it in QUEUE_SETTINGS}


def http_settings(queue: QueueDefinition) -> dict[str, Plain]:
    """The same by their names in HTTP; the names of queues are full ones."""
    return {it.http_name: it.plain(queue) for it in QUEUE_SETTINGS}


def settings_from_http(found: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `QueueDefinition`, of what `http_settings` has made."""
    plain = {it: found[it.http_name] for it in QUEUE_SETTINGS}
    given = {it.name: it.parsed(value) for it, value in plain.items() if value is not None}
    order, schema = given.pop("order"), given.pop("schema", None)
    schemas = () if schema is None else (schema,)
    return given | {"strict_fifo": order is not Order.NONE, "schemas": schemas}


def columns_of_settings(queue: QueueDefinition) -> dict[str, int | str]:
    """What the row of a queue has of its settings; 0 or no text where the queue is without one.

    Not the partitions, the order and the schema, which have columns of another form.
    """
    empty: dict[SqlType, int | str] = {_INT: 0, _STRING: ""}
    return {it.plain_name: it.plain(queue) or empty[it.type] for it in _IN_COLUMNS}


def settings_from_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `QueueDefinition`, of what `columns_of_settings` has made.

    A column that an earlier release did not write counts as that of a queue without the setting.
    """
    found = {it: row[it.plain_name] for it in _IN_COLUMNS}
    return {
        it.name: it.parsed(value) for it, value in found.items() if value or not it.can_be_unset
    }
