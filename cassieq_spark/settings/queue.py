"""The settings of a queue, each declared once: its names, bounds, default and meaning.

`QueueDefinition` has the values. From `QUEUE_SETTINGS` follow the arguments of `Client` and of
commands, the requests and answers of the gateway and its client, the console's forms, the columns
of a queue's row, the view ``queues``, and docs/options.md.

>>> from datetime import timedelta
>>> queue = QueueDefinition("orders", 1, expire_after=timedelta(days=1))
>>> plain_settings(queue)["expire_after_seconds"], plain_settings(queue)["order"]
(86400, 'none')
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from cassieq_spark.arguments import check_choice, check_count, check_flag, did_you_mean, shown
from cassieq_spark.errors import OptionError
from cassieq_spark.model import (
    DEFAULT_BUCKET_SIZE,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_LEASE,
    TYPED_BUCKET_SIZE,
    TYPED_CHUNK_SIZE,
    OnDead,
    Order,
    QueueDefinition,
    UniquePer,
    validate_name,
)
from cassieq_spark.settings.kinds import Kind, duration
from cassieq_spark.settings.plain import Plain, PlainField, SqlType

if TYPE_CHECKING:
    import pyarrow as pa

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Most partitions of a queue: each has a ledger, which every reader and every repair run reads.
MOST_PARTITIONS = 256
#: The largest number that a column of the type ``int`` holds.
LARGEST = 2**31 - 1
_SECOND = timedelta(seconds=1)
#: The longest duration of a setting: its seconds fit into an ``int`` column, and its sum with a
#: date stays within the calendar.
_LONGEST = timedelta(days=20_000)
#: The kind of settings that are durations.
PERIOD: Kind[timedelta] = duration(_LONGEST, zero=True)


class QueueChanges(TypedDict, total=False):
    """Settings of a queue that can be altered; docs/options.md has their meaning.

    None stands for a setting that is not given; zero removes an optional setting.
    """

    lease: timedelta | None
    max_deliveries: int | None
    dead_letter_queue: str | None
    on_dead: OnDead | str | None
    expire_after: timedelta | None
    keep_settled: timedelta | None
    delay: timedelta | None
    deduplicate: timedelta | None
    unique_per: UniquePer | str | None
    history: timedelta | None
    schema: pa.Schema | str | None


class QueueSettings(QueueChanges, total=False):
    """Settings of a new queue; docs/options.md has their meaning and defaults."""

    partitions: int | None
    order: Order | str | None


class StoredQueueSettings(QueueSettings, total=False):
    """All settings of a new queue, including those on which the keys of stored messages depend."""

    bucket_size: int | None
    chunk_size: int | None


@dataclass(frozen=True, slots=True)
class QueueSetting(PlainField):
    """A setting of a queue; the object is its `QueueDefinition`.

    Attributes:
        default: The value of a new queue; None: no value, or the one that ``otherwise`` describes.
        otherwise: The default of a new queue, where it depends on something.
        without: What holds for a queue without the setting; empty: every queue has the setting.
        called: Its name for people; by default ``name``.
        fixed: Why the setting can't be altered, and what to do instead; empty: it can be altered.
        is_of_storage: True if the keys of all stored messages depend on the setting. Accounts of a
            gateway do not choose it.
        least: The smallest whole number.
        most: The largest whole number.
        choice: The enumeration of its values; None: the setting is not one of a few words.
    """

    default: Any = None
    otherwise: str = ""
    without: str = ""
    called: str = ""
    fixed: str = ""
    is_of_storage: bool = False
    least: int = 1
    most: int = LARGEST
    choice: type[StrEnum] | None = None

    @property
    def label(self) -> str:
        """The name that people read."""
        return self.called or self.name.replace("_", " ")

    @property
    def flag(self) -> str:
        """The option of commands."""
        return "--" + self.name.replace("_", "-")

    @property
    def zero(self) -> Any:
        """The value by which a program removes the setting."""
        if self.is_duration:
            return timedelta(0)
        return 0 if self.is_number else ""

    @property
    def is_number(self) -> bool:
        """True if its value is a whole number."""
        return self.type is SqlType.INT and not self.is_duration

    def sentence(self, empty: str | None = None) -> str:
        """The meaning of the setting, and what holds for a queue without the setting.

        Args:
            empty: How users write that a queue has no such setting, as in ``0s``; None: as plain
                values do.
        """
        if empty is None:
            empty = "0" if self.is_number else "null"
        rest = f"; {empty}: {self.without}" if self.without and empty else ""
        return f"{self.meaning.removesuffix('.')}{rest}."

    def shown(self, value: Any) -> str:
        """A value as people read and write it."""
        if not value:
            return self.without or str(value)
        return PERIOD.show(value) if self.is_duration else str(self.plain_of(value))

    def parsed(self, plain: Any) -> Any:
        """Convert a plain value back, as `PlainField.parsed` does; words become enum members."""
        return PlainField.parsed(self, plain) if self.choice is None else self.choice(plain)

    def check(self, given: Any) -> Any:
        """Convert a value that a program gives to the type that `QueueDefinition` has.

        Raises:
            OptionError: The value is of a wrong type, or out of range.
        """
        if self.choice is not None:
            check_choice(self.name, given, self.choice)
            return self.choice(given)
        if self.is_duration:
            return self._check_duration(given)
        if self.is_number:
            return check_count(self.label, given, least=self.least, most=self.most)
        if self.name == "dead_letter_queue":
            is_taken_away = isinstance(given, str) and not given
            return None if is_taken_away else validate_name("queue", given)
        # A schema may be an Arrow schema: the caller converts it to text.
        return given

    def _check_duration(self, given: object) -> timedelta | None:
        if not isinstance(given, timedelta):
            raise OptionError(
                f"{self.name} must be a timedelta, not {shown(given)}: use timedelta, e.g. "
                "timedelta(seconds=5)"
            )
        if not given and self.without:
            return None
        if not _SECOND <= given <= _LONGEST or given % _SECOND:
            raise OptionError(
                f"{self.name} must be whole seconds, at least a second and at most "
                f"{_LONGEST.days} days, not {given}"
            )
        return timedelta(days=given.days, seconds=given.seconds)


_INT, _STRING = SqlType.INT, SqlType.STRING
_COPY = "create another queue, and copy the remaining messages with a query"
_OF_KEYS = f"the keys of all stored messages depend on it; {_COPY}"

#: All settings, in the order in which they are shown.
QUEUE_SETTINGS = (
    QueueSetting(
        "lease",
        _INT,
        "How long a lease lasts unless it is extended: as long as that, a reader that died keeps "
        "its messages from others.",
        is_duration=True,
        default=DEFAULT_LEASE,
    ),
    QueueSetting(
        "max_deliveries",
        _INT,
        "After this many deliveries without being settled, a message is dead.",
        default=5,
        without="no limit",
        least=0,
        by_http="maxDeliveryCount",
    ),
    QueueSetting(
        "dead_letter_queue",
        _STRING,
        "The queue for dead messages, created if it does not exist. Without one they are dropped.",
        otherwise="NAME.dead",
        without="none",
        called="dead-letter queue",
        by_http="dlqName",
    ),
    QueueSetting(
        "partitions",
        _INT,
        "The number of its partitions. Each is published to and read by itself; messages with the "
        "same key are in the same one.",
        default=1,
        fixed="the partition of a key depends on their number; create another queue, write to "
        "that one, and let readers finish this one first",
        most=MOST_PARTITIONS,
    ),
    QueueSetting(
        "order",
        _STRING,
        "key: a group gets no message before it has settled all earlier ones of its key, or gets "
        "them by the same lease; strict: all earlier ones of the queue, which has one partition; "
        "none: no order.",
        default=Order.NONE,
        fixed="running readers would use the old order beside new readers; " + _COPY,
        choice=Order,
    ),
    QueueSetting(
        "on_dead",
        _STRING,
        "With an order, continue: what is behind a dead message is delivered; stop: the group "
        "gets nothing more of its key until it is resumed, and a stream nothing more of its "
        "partition.",
        default=OnDead.CONTINUE,
        called="at a dead message",
        choice=OnDead,
    ),
    QueueSetting(
        "expire_after",
        _INT,
        "How long after it became visible a message that was not consumed is discarded.",
        is_duration=True,
        without="never",
    ),
    QueueSetting(
        "keep_settled",
        _INT,
        "How long after it became visible a message is kept that every group has settled, so that "
        "groups can go back to it.",
        is_duration=True,
        without="not kept",
    ),
    QueueSetting(
        "delay",
        _INT,
        "How long after its publication a message is delivered, at the earliest, unless it has a "
        "time of its own. A queue with an order keeps it.",
        is_duration=True,
        without="at once",
    ),
    QueueSetting(
        "deduplicate",
        _INT,
        "How long after a message was published another one with the same unique id counts as the "
        "same, and is not published; a day at most.",
        is_duration=True,
        without="messages have no unique ids",
    ),
    QueueSetting(
        "unique_per",
        _STRING,
        "key: messages with one unique id and different keys are different ones; queue: they are "
        "the same, in a queue with one partition.",
        default=UniquePer.KEY,
        choice=UniquePer,
    ),
    QueueSetting(
        "history",
        _INT,
        "How long the history of messages is kept: who got, extended, released, acked or rejected "
        "them, and when. Takes a write more for each lease and settlement, in the background; a "
        "year at most.",
        is_duration=True,
        without="not kept",
    ),
    QueueSetting(
        "bucket_size",
        _INT,
        "Messages in a partition of Cassandra; a multiple of the chunk size.",
        otherwise=f"{DEFAULT_BUCKET_SIZE}; {TYPED_BUCKET_SIZE} with a schema",
        fixed=_OF_KEYS,
        is_of_storage=True,
    ),
    QueueSetting(
        "chunk_size",
        _INT,
        "Messages in a row of Cassandra, at most.",
        otherwise=f"{DEFAULT_CHUNK_SIZE}; {TYPED_CHUNK_SIZE} with a schema",
        fixed=_OF_KEYS,
        is_of_storage=True,
    ),
    QueueSetting(
        "schema",
        _STRING,
        "Columns of its messages, in Spark's DDL, such as vendor string not null, fare "
        "decimal(10,2). Of a queue that has messages, columns that may be null can be added and "
        "dropped, types widened, and not null taken away.",
        without="messages are bytes",
    ),
)
_BY_NAME = {it.name: it for it in QUEUE_SETTINGS}
#: The limit of deliveries of a message in a new queue, unless another one is given.
DEFAULT_MAX_DELIVERIES: int = _BY_NAME["max_deliveries"].default

#: The settings that can be altered: the keys of `QueueChanges`.
ALTERABLE = tuple(it for it in QUEUE_SETTINGS if not it.fixed)
#: The settings that every user can choose: the keys of `QueueSettings`.
CHOSEN = tuple(it for it in QUEUE_SETTINGS if not it.is_of_storage)

#: The settings that `QueueDefinition` derives from other attributes, which have a form of their
#: own where a queue is stored or made.
_DERIVED = {"schema"}
#: The settings that are attributes of `QueueDefinition`.
_DEFINED = tuple(it for it in QUEUE_SETTINGS if it.name not in _DERIVED)
#: The settings whose plain value is in a column of the queue's row; partitions and order are kept
#: by version.
_IN_COLUMNS = tuple(it for it in _DEFINED if it.name not in {"order", "partitions"})
#: The settings whose column every release has written.
_ALWAYS_THERE = {"bucket_size", "chunk_size", "lease"}


def check_settings(given: Mapping[str, Any], *, alters: bool = False) -> dict[str, Any]:
    """Check the settings that a program gives, and return those that are not None, by name.

    Args:
        given: Settings by name, as in `StoredQueueSettings`.
        alters: True if the queue exists.

    Raises:
        OptionError: A value is out of range, or a setting can't be altered.
        TypeError: A name is not the name of a setting.
    """
    if unknown := given.keys() - _BY_NAME.keys():
        name = min(unknown)
        advice = did_you_mean(name, _BY_NAME, f"there are {', '.join(_BY_NAME)}")
        raise TypeError(f"a queue has no setting {name!r}: {advice}")
    found = {_BY_NAME[name]: it for name, it in given.items() if it is not None}
    for setting in found:
        if alters and setting.fixed:
            raise OptionError(f"the {setting.label} can't be altered, because {setting.fixed}")
    return {it.name: it.check(value) for it, value in found.items()}


def dead_letter_queue_of(given: Mapping[str, Any], *, drop_dead: bool) -> str | None:
    """The dead-letter queue that the given settings name.

    Args:
        given: The given settings, by name.
        drop_dead: True if dead messages are to be dropped.

    Raises:
        OptionError: The dead-letter queue is not a valid name, or contradicts another setting.
    """
    is_dropped = check_flag("drop_dead", drop_dead)
    target: str | None = given.get("dead_letter_queue")
    if target is None:
        return None
    validate_name("queue", target)
    if is_dropped or given.get("max_deliveries") == 0:
        raise OptionError(
            f"dead-letter queue {target!r} cannot be combined with dropping dead messages, or "
            "with max deliveries 0: leave it out"
        )
    return target


def check_definition(queue: QueueDefinition) -> None:
    """Check the value of each setting of a queue.

    Raises:
        OptionError: A value is out of range.
    """
    for setting in _DEFINED:
        value = getattr(queue, setting.name)
        if value is not None or not setting.without:
            setting.check(value)


def takes(settings: Iterable[QueueSetting], *, defaults: bool) -> Callable[[_Function], _Function]:
    """Show, to ``help`` and `inspect`, which settings a function takes as ``**settings``.

    Args:
        settings: The settings, which are keyword arguments.
        defaults: True to show their defaults; False to show only that they are optional.
    """

    def show(function: _Function) -> _Function:
        before = inspect.signature(function)
        *own, _ = before.parameters.values()
        shown = [
            inspect.Parameter(
                it.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=it.default if defaults else None,
                annotation=_annotations()[it.name],
            )
            for it in settings
        ]
        vars(function)["__signature__"] = before.replace(parameters=[*own, *shown])
        return function

    return show


@cache
def _annotations() -> dict[str, str]:
    """The types of settings as text, by name."""
    found: dict[str, Any] = {}
    for each in (QueueChanges, QueueSettings, StoredQueueSettings):
        found |= each.__annotations__
    return {name: getattr(it, "__forward_arg__", str(it)) for name, it in found.items()}


def plain_settings(queue: QueueDefinition) -> dict[str, Plain]:
    """All settings of a queue as plain values, by plain name; None for one that is not set."""
    return {it.plain_name: it.plain(queue) for it in QUEUE_SETTINGS}


def http_settings(queue: QueueDefinition) -> dict[str, Plain]:
    """All settings of a queue as plain values, by HTTP name; names of queues are full names."""
    return {it.http_name: it.plain(queue) for it in QUEUE_SETTINGS}


def http_settings_given(given: Mapping[str, Any]) -> dict[str, Plain]:
    """The settings that a program gives, by their names in HTTP; zero removes a setting.

    Raises:
        OptionError: A value is out of range.
        TypeError: A name is not the name of a setting.
    """
    found: dict[QueueSetting, Any] = {
        _BY_NAME[name]: it for name, it in check_settings(given).items()
    }
    return {
        it.http_name: it.plain_of(it.zero if value is None else value)
        for it, value in found.items()
    }


def settings_from_http(found: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the result of `http_settings` to arguments of `QueueDefinition`."""
    plain = {it: found[it.http_name] for it in QUEUE_SETTINGS}
    given = {it.name: it.parsed(value) for it, value in plain.items() if value is not None}
    schema = given.pop("schema", None)
    return given | {"schemas": () if schema is None else (schema,)}


def columns_of_settings(queue: QueueDefinition) -> dict[str, int | str]:
    """The columns of a queue's row that have its settings; 0 or empty text if one is not set.

    Partitions, order and schema are left out, because their columns have another form.
    """
    empty: dict[SqlType, int | str] = {_INT: 0, _STRING: ""}
    return {it.plain_name: it.plain(queue) or empty[it.type] for it in _IN_COLUMNS}


def settings_from_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the result of `columns_of_settings` to arguments of `QueueDefinition`.

    If an earlier release did not write a column, the queue counts as one without the setting.
    """
    found = {it: row[it.plain_name] for it in _IN_COLUMNS}
    return {
        it.name: it.parsed(value)
        for it, value in found.items()
        if value or it.name in _ALWAYS_THERE
    }
