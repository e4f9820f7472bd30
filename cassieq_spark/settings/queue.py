"""The settings of a queue, each declared once: its names, its plain value, its meaning.

`QueueDefinition` has the values. From `QUEUE_SETTINGS` follow the columns of a queue's row, what
the gateway answers and its client reads, what commands show, and the view ``queues``.

>>> from datetime import timedelta
>>> queue = QueueDefinition("orders", 1, expire_after=timedelta(days=1))
>>> plain_settings(queue)["expire_after_seconds"], plain_settings(queue)["order"]
(86400, 'none')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cassieq_spark.model import OnDead, Order, QueueDefinition
from cassieq_spark.settings.plain import Plain, PlainField, SqlType


@dataclass(frozen=True, slots=True)
class QueueSetting(PlainField):
    """A setting of a queue; the object is its `QueueDefinition`.

    Attributes:
        can_be_unset: True if a queue may be without it; then `QueueDefinition` has its default.
        called: What tables for people call it; by default its name.
        if_unset: What such a table shows instead of no value, and of 0.
        choice: Turns the text of a choice into the choice.
    """

    can_be_unset: bool = False
    called: str = ""
    if_unset: str | None = None
    choice: Callable[[str], Any] | None = None

    @property
    def label(self) -> str:
        """What tables for people call it."""
        return self.called or self.name.replace("_", " ")

    def parsed(self, plain: Any) -> Any:
        """See `PlainField.parsed`."""
        return PlainField.parsed(self, plain) if self.choice is None else self.choice(plain)


_INT, _STRING = SqlType.INT, SqlType.STRING

#: All of them, in the order in which they are shown.
QUEUE_SETTINGS = (
    QueueSetting("lease", _INT, "How long a lease lasts unless it is extended.", is_duration=True),
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
        choice=Order,
    ),
    QueueSetting(
        "on_dead",
        _STRING,
        "With an order: `continue`: what is behind a dead message is delivered; `stop`: the group "
        "gets nothing more of that partition until it is resumed.",
        can_be_unset=True,
        choice=OnDead,
    ),
    QueueSetting(
        "expire_after",
        _INT,
        "How long after it became visible a message that was not consumed is discarded; null: "
        "never.",
        is_duration=True,
        can_be_unset=True,
    ),
    QueueSetting(
        "keep_settled",
        _INT,
        "How long after it became visible a message is kept that every group has settled; null: "
        "it is not kept.",
        is_duration=True,
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
