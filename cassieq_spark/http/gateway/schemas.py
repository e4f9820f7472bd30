"""Schemas of requests: parameters of URLs and JSON bodies, with CassieQ's names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel

from cassieq_spark.arguments import A_YEAR, LONGEST_ATTEMPT, check_instant
from cassieq_spark.http import DEFAULT_GROUP
from cassieq_spark.http.accounts.account import NAME_PATTERN, QUEUE_PATTERN
from cassieq_spark.model import Order
from cassieq_spark.settings.plain import SqlType
from cassieq_spark.settings.queue import ALTERABLE, CHOSEN, QueueSetting
from cassieq_spark.settings.schedule import ALTERABLE as ALTERABLE_OF_SCHEDULE
from cassieq_spark.settings.schedule import SCHEDULE_SETTINGS, Of, ScheduleSetting
from cassieq_spark.settings.verbs import LONGEST_TEXT, VERBS, Verb

_A_YEAR = 365 * 86_400
_MOST_PARTITIONS = 64
_Given = TypeVar("_Given", bound="GivenSettings")

Seconds = Annotated[float, Field(ge=0, le=_A_YEAR, allow_inf_nan=False)]
#: In UTC; an instant before 1970 becomes the beginning of 1970, and the year 9999 is refused.
Instant = Annotated[AwareDatetime, AfterValidator(partial(check_instant, "a time"))]
Group = Annotated[
    str, Field(description="The consumer group.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$")
]
Position = Annotated[
    str,
    Field(
        description="earliest, latest, a monoton, or an instant such as 2026-11-20T12:00:00Z.",
        examples=["earliest"],
    ),
]
#: The encodings of bytes in JSON and URLs: text, or Base64 if the bytes are not UTF-8.
Encoding = Literal["text", "base64"]
Force = Annotated[bool, Field(description="Also while consumers hold messages.")]
#: The name of an account or key.
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
QueueName = Annotated[str, Field(min_length=1, max_length=140, pattern=QUEUE_PATTERN)]
_LONGEST_SCHEMA = 1 << 14
Partition = Annotated[int, Field(ge=0)] | None
#: A setting of CassieQ's clients that has no meaning here.
Ignored = Annotated[Any, Field(None, description="Ignored; CassieQ's clients send it.")]
#: A receipt, for examples.
RECEIPT = (
    "YWNtZTpvcmRlcnNAMS9kZWZhdWx0LzEyNjdhZGUxLWQ2ODQtNGJkOS04MDlhLWI1NjFlN2JmNWY5OC8wUNhY4Jhe"
    "zH9gQYqvDMWrWA"
)


class Payload(BaseModel):
    """JSON or parameters, with names in camelCase; unknown names are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    @classmethod
    def names(cls) -> list[str]:
        """The names in JSON or the query."""
        return [each.alias or name for name, each in cls.model_fields.items()]


class Nothing(Payload):
    """No parameters."""


class Attributes(Payload):
    """Attributes of a queue."""

    attributes: dict[str, str | None] = Field(
        description="Values by name; null removes an attribute, and those not named stay."
    )


class CreateParameters(Payload):
    """Parameters of creating a queue."""

    error_if_exists: bool = Field(False, description="409 instead of 200 if it exists.")


class GivenSettings(Payload):
    """Settings of a queue in a request."""

    drop_dead: bool = Field(False, description="Discard dead messages instead.")

    def settings(self) -> dict[str, Any]:
        """The given settings, as `Client` takes them, with names of queues without the account."""
        given = {it: getattr(self, _FIELDS[it.name]) for it in CHOSEN if self._has(it)}
        return {it.name: it.parsed(value) for it, value in given.items() if value is not None}

    def _has(self, setting: QueueSetting) -> bool:
        return _FIELDS[setting.name] in self.model_fields_set


class NewQueue(GivenSettings):
    """A new queue, without its settings, which `QueueOptions` has."""

    queue_name: QueueName = Field(examples=["orders"])
    strict_fifo: bool = Field(False, description="The same as order strict.")
    bucket_size: Ignored
    repair_worker_poll_seconds: Ignored
    repair_worker_bucket_finalize_time_seconds: Ignored
    delete_buckets_after_finalize: Ignored

    def settings(self) -> dict[str, Any]:
        """The settings, as in `GivenSettings.settings`, of a new queue."""
        return super().settings() | ({"order": Order.STRICT} if self.strict_fifo else {})


class ChangedQueue(GivenSettings):
    """Changes of a queue, without the settings, which `QueueChanges` has."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("there is nothing to alter: send a setting, such as leaseSeconds")
        return self


def _field_of(setting: QueueSetting, *, with_default: bool) -> tuple[Any, Any]:
    """The field of a setting, as `create_model` takes it."""
    least, most = setting.least, setting.most
    if setting.is_duration:
        least, most = 0 if setting.without else 1, _A_YEAR
    kind: Any = {SqlType.INT: Annotated[int, Field(ge=least, le=most)], SqlType.STRING: str}[
        setting.type
    ]
    kind = _KINDS.get(setting.name, setting.choice or kind)
    default = setting.default if with_default else None
    default = default if setting.choice else setting.plain_of(default)
    # Only for numbers: null is not the way to remove a setting that is a text.
    meaning = setting.sentence("0" if setting.type is SqlType.INT else "")
    if with_default and setting.otherwise:
        meaning += f" By default {setting.otherwise}."
    return (
        kind if default is not None else kind | None,
        Field(
            default,
            alias=setting.http_name,
            title=setting.label.capitalize(),
            description=meaning,
        ),
    )


#: Fields by setting; one is renamed, because a model has an attribute ``schema`` of its own.
_FIELDS = {it.name: "columns" if it.name == "schema" else it.name for it in CHOSEN}
#: The types of settings whose bounds are narrower over HTTP than elsewhere.
_KINDS: dict[str, Any] = {
    "dead_letter_queue": QueueName,
    # Each partition costs an LWT per batch of puts.
    "partitions": Annotated[int, Field(ge=1, le=_MOST_PARTITIONS)],
    "schema": Annotated[str, Field(max_length=_LONGEST_SCHEMA)],
}


def _with_settings(
    name: str, base: type[_Given], settings: Iterable[QueueSetting], *, defaults: bool
) -> type[_Given]:
    fields: dict[str, Any] = {
        _FIELDS[it.name]: _field_of(it, with_default=defaults) for it in settings
    }
    return create_model(name, __base__=base, __doc__=base.__doc__, **fields)


QueueOptions = _with_settings("QueueOptions", NewQueue, CHOSEN, defaults=True)
QueueChanges = _with_settings("QueueChanges", ChangedQueue, ALTERABLE, defaults=False)


def _within_a_year(at: datetime) -> datetime:
    """Refuse instants more than a year ahead: messages behind this one would stay stored, too."""
    if at > datetime.now(UTC) + A_YEAR:
        raise ValueError(f"the time is more than {A_YEAR.days} days ahead")
    return at


UniqueId = Annotated[
    str | None,
    Field(
        max_length=10_000,
        description="A message whose id was published within deduplicateSeconds is not published.",
    ),
]


class PutParameters(Payload):
    """Parameters of putting messages."""

    initial_invisibility_seconds: Seconds = Field(0, description="Delay of the delivery.")
    visible_at: Annotated[Instant, AfterValidator(_within_a_year)] | None = Field(
        None, description="Earliest delivery; within a year."
    )
    key: str | None = Field(None, max_length=10_000, description="Key of the message.")
    key_encoding: Encoding = Field("text", description="base64 if the key is not text.")
    unique_id: UniqueId = None
    unique_id_encoding: Encoding = Field("text", description="base64 if the id is not text.")


class ReceiveParameters(Payload):
    """Parameters of receiving a message."""

    invisibility_time_seconds: Seconds | None = Field(
        None, description="Duration of the lease; by default leaseSeconds of the queue."
    )
    group: Group = DEFAULT_GROUP
    wait: Seconds = Field(0, description="Seconds to wait for a message.")
    attempt: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST_ATTEMPT,
        description="A name; repeated under it, a receive gets the messages of the first one.",
    )


class ReceiveManyParameters(ReceiveParameters):
    """Parameters of receiving messages."""

    max: int = Field(100, ge=1, description="Most messages.")


class ReceiptParameters(Payload):
    """The message to settle."""

    pop_receipt: str = Field(
        max_length=2_000, description="As it came with the message.", examples=[RECEIPT]
    )


class _Contents(Payload):
    encoding: Encoding = "text"
    key: str | None = None
    key_encoding: Encoding = "text"
    headers: dict[str, str | None] | None = None


class NewMessageLine(_Contents):
    """A message of a batch, as a line of JSON."""

    message: str
    unique_id: UniqueId = None
    unique_id_encoding: Encoding = "text"


class Update(_Contents):
    """A new lease, a release or a replacement of a message."""

    message: str | None = Field(None, description="Replace it by this message.")
    new_invisibility_seconds: Seconds = Field(0, description="0: release it.")


class Receipts(Payload):
    """The messages to settle."""

    # The first bad receipt ends the check: there may be millions.
    pop_receipts: Annotated[list[Annotated[str, Field(max_length=2_000)]], FailFast()] = Field(
        min_length=1
    )


def _receipts_of(verb: Verb) -> type[Receipts]:
    """Make the model of a request that settles messages."""
    it = verb.parameter
    if it is None:
        return Receipts
    kind: Any = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT, pattern=r"\S")]
    if it.is_duration:
        least = it.least.total_seconds()
        kind = Annotated[float, Field(ge=least, le=_A_YEAR, allow_inf_nan=False)]
    default = ... if it.default is None else int(it.default.total_seconds())
    field: Any = (kind, Field(default, alias=it.by_http, description=it.meaning))
    name = f"{verb.done.title()}Receipts"
    return create_model(name, __base__=Receipts, __doc__=f"Messages to {verb.name}.", value=field)


#: The bodies of requests that settle messages, by verb; ``value`` is the verb's parameter.
SETTLING = {verb.name: _receipts_of(verb) for verb in VERBS.values()}


class PeekParameters(Payload):
    """Parameters of peeking."""

    max: int = Field(10, ge=1, le=100)
    start: Position = "earliest"


class PositionParameters(Payload):
    """The position of a message, besides its monoton."""

    partition: Partition = Field(None, description="Needed if the queue has several.")


class ForceParameters(Payload):
    """Parameters of a change that may disregard consumers."""

    force: Force = False


class DeleteParameters(Payload):
    """Parameters of a deletion, which disregards consumers by default, as in CassieQ."""

    force: Force = True


class GroupOptions(Payload):
    """A new consumer group."""

    start: Position = "earliest"


class GroupSeek(Payload):
    """The new position of a consumer group."""

    to: Position
    partition: Partition = Field(None, description="Move it in this partition only.")
    force: Force = False


class GroupResume(Payload):
    """What happens to the dead messages at which a group has stopped."""

    how: Literal["retry", "dead-letter"] = Field(
        description="retry: they are delivered again, and counted from 0; dead-letter: they go to "
        "the dead-letter queue."
    )
    partition: Partition = Field(None, description="Resume it in this partition only.")


class GivenSchedule(Payload):
    """Settings of a schedule in a request."""

    def settings(self) -> dict[str, Any]:
        """The given settings, as `Client` takes them."""
        given = self.model_fields_set
        return {it.name: getattr(self, it.name) for it in SCHEDULE_SETTINGS if it.name in given}


class NewSchedule(GivenSchedule):
    """A new schedule: either ``cron`` or ``everySeconds`` says when it comes."""


class ChangedSchedule(GivenSchedule):
    """Changes of a schedule; null gives a setting back its default."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("there is nothing to alter: send a setting, such as everySeconds")
        return self


#: More seconds than any setting takes, and fewer than a `timedelta` does.
_FAR = 1e9
#: The types of settings of a schedule in JSON.
_IN_JSON: dict[Of, Any] = {
    Of.TEXT: str,
    Of.DURATION: Annotated[float, Field(ge=-_FAR, le=_FAR, allow_inf_nan=False)],
    Of.INSTANT: AwareDatetime,
    Of.NUMBER: int,
    Of.HEADERS: dict[str, str | None],
}


def _field_of_schedule(it: ScheduleSetting, *, alters: bool) -> tuple[Any, Any]:
    """The field of a setting, as `create_model` takes it; its value is that of `Client`."""

    def check(given: Any) -> Any:
        # The same errors as those of `Client`.
        return it.check(timedelta(seconds=given) if it.of is Of.DURATION else given, by_http=True)

    least, most = map(it.plain_of, it.bounds(by_http=True))
    words = ("maxLength",) if it.of is Of.TEXT else ("minimum", "maximum")
    bounds = {"maximum": most, "maxLength": most, "minimum": least}
    shown: Any = {word: bounds[word] for word in words if bounds[word] is not None}
    kind: Any = Annotated[_IN_JSON[it.of], AfterValidator(check), Field(json_schema_extra=shown)]
    is_needed = it.name == "message"
    default = ... if is_needed and not alters else None if alters else it.plain_of(it.default)
    meaning = it.meaning_by(lambda other: other.http_name)
    meaning += f" By default: {it.without}." if it.without else ""
    field = Field(default, alias=it.http_name, title=it.label.capitalize(), description=meaning)
    return (kind if is_needed or default is not None else kind | None, field)


def _schedule_model(
    base: type[GivenSchedule], settings: Iterable[ScheduleSetting], *, alters: bool
) -> Any:
    fields: dict[str, Any] = {it.name: _field_of_schedule(it, alters=alters) for it in settings}
    name = "ScheduleChanges" if alters else "ScheduleOptions"
    return create_model(name, __base__=base, __doc__=base.__doc__, **fields)


ScheduleOptions = _schedule_model(NewSchedule, SCHEDULE_SETTINGS, alters=False)
ScheduleChanges = _schedule_model(ChangedSchedule, ALTERABLE_OF_SCHEDULE, alters=True)


class TickParameters(Payload):
    """How much of the future to show."""

    ticks: int = Field(5, ge=0, le=100, description="How many of its next times.")


class DeadLetterParameters(Payload):
    """The dead letters to select."""

    group: Group | None = Field(None, description="The group that could not process them.")
    reason: str | None = Field(None, description="A part of their reason.")
    since: Instant | None = None
    until: Instant | None = None
    limit: int | None = Field(None, ge=1)


class DeadLetterSelection(Payload):
    """Exactly the dead letters that a list has shown."""

    queue_id: str | None = Field(
        None, description="`queueId` of the list: 409 if the queue was purged since."
    )
    monotons: str | None = Field(
        None,
        max_length=1 << 20,
        pattern=r"^[0-9]{1,18}-[0-9]{1,18}(,[0-9]{1,18}-[0-9]{1,18})*$",
        description="`monotons` of the list, half-open ranges; with queueId.",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.queue_id is None) != (self.monotons is None):
            raise ValueError("queueId and monotons belong together: send both, or neither")
        return self


class RedriveParameters(DeadLetterParameters):
    """The dead letters to redrive, and their target."""

    to: str | None = Field(None, description="Target queue; by default each one's origin.")
    force: bool = Field(False, description="Also if other groups get them again.")
    drop_columns: bool = Field(
        False, description="Leave out values of columns and fields that the target lacks."
    )


class KeyOptions(Payload):
    """A new key."""

    key_name: Name = Field(examples=["third"])
    levels: list[str] | None = Field(None, description="Rights; by default all.")
    queue_name: QueueName | None = Field(None, description="Limits the key to this queue.")
    expires_at: Instant | None = None


class PermissionOptions(Payload):
    """A URL to sign."""

    account_name: Name
    key_name: Name
    levels: list[str]
    start_time: Instant | None = None
    end_time: Instant | None = None
    queue_name: QueueName | None = None

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.start_time is None or self.end_time is None:
            return self
        # Times are signed, and so compared, in whole seconds.
        if self.end_time.replace(microsecond=0) <= self.start_time:
            raise ValueError("endTime must be at least a second after startTime")
        return self
