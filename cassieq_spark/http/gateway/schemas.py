"""What requests hold: parameters of URLs, and JSON, by CassieQ's names."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from cassieq_spark.arguments import A_YEAR, check_instant
from cassieq_spark.http.accounts.account import QUEUE_PATTERN
from cassieq_spark.http.gateway.coalescer import DEFAULT_GROUP

_A_YEAR = 365 * 86_400

Seconds = Annotated[float, Field(ge=0, le=_A_YEAR, allow_inf_nan=False)]
#: In UTC; before 1970 it is the beginning of 1970, and the year 9999 is refused.
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
#: How bytes travel in JSON or in a URL: as text, or, if they are not UTF-8, as Base64.
Encoding = Literal["text", "base64"]
Force = Annotated[bool, Field(description="Also while somebody holds messages.")]


class Payload(BaseModel):
    """JSON or parameters, in camelCase; what is not known is ignored, as CassieQ did."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class Nothing(Payload):
    """No parameters."""


class CreateParameters(Payload):
    """How to create a queue."""

    error_if_exists: bool = Field(default=False, description="409 instead of 200 if it exists.")


class QueueOptions(Payload):
    """A queue to be created. CassieQ's other settings are accepted, and ignored."""

    queue_name: str = Field(
        min_length=1, max_length=140, pattern=QUEUE_PATTERN, examples=["orders"]
    )
    max_delivery_count: int = Field(default=5, ge=0, le=1_000_000, description="0: never dead.")
    dlq_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=140,
        pattern=QUEUE_PATTERN,
        description="Where dead messages go; made if there is none. Else: <queue>.dead.",
    )
    drop_dead: bool = Field(default=False, description="Drop dead messages instead.")
    strict_fifo: bool = Field(
        default=False, description="Nothing before all earlier messages are settled."
    )
    lease_seconds: int = Field(default=30, ge=1, le=_A_YEAR)
    expire_after_seconds: int | None = Field(
        default=None, ge=1, le=_A_YEAR, description="Throw away what is not consumed by then."
    )
    keep_settled_seconds: int | None = Field(
        default=None, ge=1, le=_A_YEAR, description="Keep what is settled, to be read again."
    )


def _within_a_year(at: datetime) -> datetime:
    """Refuse what would stay in the store, and all behind it, for longer than a delay may be."""
    if at > datetime.now(UTC) + A_YEAR:
        raise ValueError(f"the time is more than {A_YEAR.days} days ahead")
    return at


class PutParameters(Payload):
    """How to put messages."""

    initial_invisibility_seconds: Seconds = Field(
        default=0, description="Delivered so much later."
    )
    visible_at: Annotated[Instant, AfterValidator(_within_a_year)] | None = Field(
        default=None, description="Not delivered before; within a year."
    )
    key: str | None = Field(default=None, max_length=10_000, description="Key of the message.")
    key_encoding: Encoding = Field(default="text", description="base64: the key is not text.")


class ReceiveParameters(Payload):
    """How to get messages."""

    invisibility_time_seconds: Seconds = Field(default=30, description="How long it is held.")
    group: Group = DEFAULT_GROUP
    wait: Seconds = Field(default=0, description="How long to wait for a message, in seconds.")


class ReceiveManyParameters(ReceiveParameters):
    """How to get many messages."""

    max: int = Field(default=100, ge=1, description="Most messages.")


class ReceiptParameters(Payload):
    """Which message."""

    pop_receipt: str = Field(max_length=2_000, description="As it came with the message.")


class Update(Payload):
    """What is to become of a message that is held."""

    message: str | None = Field(default=None, description="Put this in its place.")
    new_invisibility_seconds: Seconds = Field(default=0, description="0: give it back.")


class Receipts(Payload):
    """Which messages."""

    pop_receipts: list[Annotated[str, Field(max_length=2_000)]] = Field(min_length=1)


class ReleasedReceipts(Receipts):
    """Messages to be given back."""

    delay_seconds: Seconds = 0


class ExtendedReceipts(Receipts):
    """Messages to be held for longer."""

    seconds: float = Field(ge=0.001, le=_A_YEAR, allow_inf_nan=False)


class RejectedReceipts(Receipts):
    """Messages that can't be processed."""

    reason: str = Field(min_length=1, max_length=1_000, pattern=r"\S")


class PeekParameters(Payload):
    """What to look at."""

    max: int = Field(default=10, ge=1, le=100)
    start: Position = "earliest"


class ForceParameters(Payload):
    """Whether to respect others."""

    force: Force = False


class DeleteParameters(Payload):
    """Whether to respect others; CassieQ did not."""

    force: Force = True


class GroupOptions(Payload):
    """A consumer group to be created."""

    start: Position = "earliest"


class GroupSeek(Payload):
    """Where a consumer group is to go on."""

    to: Position
    force: Force = False


class DeadLetterParameters(Payload):
    """Which dead letters."""

    group: str | None = Field(default=None, description="That this group could not process.")
    reason: str | None = Field(default=None, description="With this text in their reason.")
    since: Instant | None = None
    until: Instant | None = None
    limit: int | None = Field(default=None, ge=1)


class RedriveParameters(DeadLetterParameters):
    """Which dead letters, and where they go."""

    to: str | None = Field(default=None, description="Another queue than that they came from.")
    force: bool = Field(default=False, description="Also if other groups get them once more.")


class NewMessageLine(Payload):
    """A message of a batch, in JSON."""

    message: str
    encoding: Encoding = "text"
    key: str | None = None
    key_encoding: Encoding = "text"
    headers: dict[str, str | None] | None = None


class KeyOptions(Payload):
    """A key to be made."""

    key_name: str = Field(examples=["third"])
    levels: list[str] | None = Field(default=None, description="All, if left out.")
    queue_name: str | None = Field(default=None, description="For this queue only.")
    expires_at: Instant | None = None


class PermissionOptions(Payload):
    """A URL to be signed."""

    account_name: str
    key_name: str
    levels: list[str]
    start_time: Instant | None = None
    end_time: Instant | None = None
    queue_name: str | None = None
