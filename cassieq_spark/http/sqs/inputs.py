"""Inputs of the operations: one class per operation, of its name, with members as on the wire.

Types are strict. Unknown parameters are ignored, because newer clients may send some. Missing,
malformed and out-of-range parameters raise the errors that AWS sends; `error_of` makes these
errors from pydantic's.

`NewMessage.contents` checks a message. The entries of a batch are checked one by one, so that a
bad entry does not harm the others.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from cassieq_spark.http.sqs.addresses import address_in_arn
from cassieq_spark.http.sqs.contents import TRACE, Contents, body_of, check_ids
from cassieq_spark.http.sqs.errors import (
    BatchEntryIdsNotDistinct,
    BatchRequestTooLong,
    EmptyBatchRequest,
    InvalidBatchEntryId,
    InvalidParameterValue,
    MissingRequiredParameter,
    OverLimit,
    SqsError,
    TooManyEntriesInBatchRequest,
    shown,
)
from cassieq_spark.http.sqs.message_attributes import (
    Attribute,
    Attributes,
    attribute_of,
    check_names,
)
from cassieq_spark.http.sqs.move_tasks import FASTEST, MOST_KEPT
from cassieq_spark.http.sqs.outputs import Failure
from cassieq_spark.http.sqs.queue_attributes import SETTABLE, check_queue_name
from cassieq_spark.http.sqs.texts import check_id

#: Most bytes of a message, and of all messages of a batch.
LARGEST_MESSAGE = SETTABLE["MaximumMessageSize"].most
#: The bounds, in seconds, of a message or a receive equal the bounds of its queue.
LONGEST_VISIBILITY = SETTABLE["VisibilityTimeout"].most
_LONGEST_DELAY = SETTABLE["DelaySeconds"].most
_LONGEST_WAIT = SETTABLE["ReceiveMessageWaitTimeSeconds"].most

_MOST_ENTRIES = 10
_MOST_ACTIONS = 7
_MOST_TAGS = 50
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def _between(
    least: int, most: int, reason: str = "Must be >= {least} and <= {most}, if provided."
) -> AfterValidator:
    why = reason.format(least=least, most=most)

    def check(value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and not least <= value <= most:
            raise InvalidParameterValue.of(value, str(info.field_name), why)
        return value

    return AfterValidator(check)


def _given(value: str, info: ValidationInfo) -> str:
    if not value:
        raise MissingRequiredParameter.of(str(info.field_name))
    return value


def _bytes_of(value: Any) -> Any:
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else value
    except ValueError:
        raise InvalidParameterValue("A binary value must be Base64.") from None


def _is_arn(value: str, info: ValidationInfo) -> str:
    address_in_arn(str(info.field_name), value)
    return value


def _is_id(value: str | None, info: ValidationInfo) -> str | None:
    check_id(str(info.field_name), value)
    return value


Text = Annotated[str, AfterValidator(_given)]
Arn = Annotated[str, AfterValidator(_given), AfterValidator(_is_arn)]
Id = Annotated[str | None, AfterValidator(_is_id)]
Binary = Annotated[bytes, BeforeValidator(_bytes_of)]
Visibility = _between(0, LONGEST_VISIBILITY)


class Input(BaseModel):
    """The input of an operation, or a part of it."""

    model_config = ConfigDict(strict=True, extra="ignore")


class OfQueue(Input):
    """The input of an operation on a queue; the request's path may name the queue instead."""

    QueueUrl: str | None = None


class Entry(Input):
    """An entry of a batch."""

    Id: str

    def failure(self, error: SqsError) -> Failure:
        """The entry of the answer if this entry failed with ``error``."""
        return {
            "Id": self.Id,
            "SenderFault": error.is_of_sender,
            "Code": error.code,
            "Message": error.message,
        }


def _check_entries(operation: str, entries: list[Any]) -> None:
    if not entries:
        raise EmptyBatchRequest.of(operation)
    if len(entries) > _MOST_ENTRIES:
        raise TooManyEntriesInBatchRequest.of(len(entries))
    ids: set[str] = set()
    for entry in entries:
        if not _ENTRY_ID.fullmatch(entry.Id):
            raise InvalidBatchEntryId
        if entry.Id in ids:
            raise BatchEntryIdsNotDistinct.of(entry.Id)
        ids.add(entry.Id)


class AttributeValue(Input):
    """The value of a message's attribute."""

    DataType: Text
    StringValue: str | None = None
    BinaryValue: Binary | None = None
    StringListValues: list[str] | None = None
    BinaryListValues: list[str] | None = None

    def attribute(self, name: str, *, is_system: bool = False) -> Attribute:
        """Check type and value, and return the attribute.

        Raises:
            InvalidParameterValue: The type or the value is not valid.
        """
        if self.StringListValues or self.BinaryListValues:
            raise InvalidParameterValue(
                "Message attribute list values in SendMessage operation are not supported."
            )
        return attribute_of(
            name, self.DataType, self.StringValue, self.BinaryValue, is_system=is_system
        )


class NewMessage(Input):
    """A message to be sent."""

    MessageBody: str
    DelaySeconds: int | None = None
    MessageAttributes: dict[str, AttributeValue] | None = None
    MessageSystemAttributes: dict[str, AttributeValue] | None = None
    MessageDeduplicationId: str | None = None
    MessageGroupId: str | None = None

    def contents(self) -> Contents:
        """Check the message, and return its contents.

        Raises:
            SqsError: A part of the message is not valid.
        """
        body = body_of(self.MessageBody)
        if self.DelaySeconds is not None and not 0 <= self.DelaySeconds <= _LONGEST_DELAY:
            reason = f"DelaySeconds must be >= 0 and <= {_LONGEST_DELAY}."
            raise InvalidParameterValue.of(self.DelaySeconds, "DelaySeconds", reason)
        check_id("MessageGroupId", self.MessageGroupId)
        check_id("MessageDeduplicationId", self.MessageDeduplicationId)
        attributes: Attributes = {}
        if given := self.MessageAttributes:
            check_names(given)
            attributes = {name: value.attribute(name) for name, value in given.items()}
        return Contents(
            body,
            attributes,
            self._trace() if self.MessageSystemAttributes else None,
            self.DelaySeconds,
            self.MessageGroupId,
            self.MessageDeduplicationId,
        )

    def _trace(self) -> Attribute | None:
        given = self.MessageSystemAttributes or {}
        for name in given:
            if name != TRACE:
                raise InvalidParameterValue(
                    f"Message system attribute name '{shown(name)}' is invalid."
                )
        if TRACE not in given:
            return None
        attribute = given[TRACE].attribute(TRACE, is_system=True)
        if attribute.is_binary:
            raise InvalidParameterValue(
                f"Message (system) attribute '{TRACE}' must be of type 'String'."
            )
        return attribute


class SendMessage(NewMessage, OfQueue):
    """Send a message; see `NewMessage.contents`."""


class SendMessageBatchEntry(NewMessage, Entry):
    """A message of a batch."""


class SendMessageBatch(OfQueue):
    """Send one to ten messages."""

    Entries: list[SendMessageBatchEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_entries("SendMessageBatch", self.Entries)
        size = sum(map(_size_of, self.Entries))
        if size > LARGEST_MESSAGE:
            raise BatchRequestTooLong.of(LARGEST_MESSAGE, size)
        return self

    def check_for_fifo(self, *, by_content: bool) -> None:
        """Check the ids of all messages for a FIFO queue; AWS refuses the whole batch.

        Raises:
            InvalidParameterValue: A message lacks an id that it needs.
        """
        for each in self.Entries:
            try:
                check_ids(each.MessageGroupId, each.MessageDeduplicationId, by_content=by_content)
            except MissingRequiredParameter as error:
                raise InvalidParameterValue(error.message) from None


def _size_of(message: NewMessage) -> int:
    """The size in bytes of a message that is not checked yet."""
    size = _length(message.MessageBody)
    for name, each in (message.MessageAttributes or {}).items():
        size += _length(name) + _length(each.DataType)
        size += len(each.BinaryValue or b"") + _length(each.StringValue or "")
    return size


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class ReceiveMessage(OfQueue):
    """Receive messages."""

    AttributeNames: list[str] | None = None
    MessageSystemAttributeNames: list[str] | None = None
    MessageAttributeNames: list[str] | None = None
    MaxNumberOfMessages: Annotated[
        int | None, _between(1, 10, "Must be between {least} and {most}, if provided.")
    ] = None
    VisibilityTimeout: Annotated[int | None, Visibility] = None
    WaitTimeSeconds: Annotated[int | None, _between(0, _LONGEST_WAIT)] = None
    ReceiveRequestAttemptId: Id = None

    @property
    def system_names(self) -> frozenset[str]:
        """Names of the system attributes that the request asks for."""
        return frozenset((*(self.AttributeNames or ()), *(self.MessageSystemAttributeNames or ())))


class DeleteMessage(OfQueue):
    """Delete a message."""

    ReceiptHandle: Text


class DeleteMessageBatchEntry(Entry):
    """A message to delete."""

    ReceiptHandle: Text


class DeleteMessageBatch(OfQueue):
    """Delete one to ten messages."""

    Entries: list[DeleteMessageBatchEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_entries("DeleteMessageBatch", self.Entries)
        return self


class ChangeMessageVisibility(OfQueue):
    """Change how long a message stays invisible from now on; 0 makes it visible at once."""

    ReceiptHandle: Text
    VisibilityTimeout: Annotated[int, Visibility]


class ChangeMessageVisibilityBatchEntry(Entry):
    """A message whose visibility is to be changed; see `visibility`."""

    ReceiptHandle: Text
    VisibilityTimeout: int

    def visibility(self) -> int:
        """Check the visibility timeout, and return it in seconds.

        Raises:
            InvalidParameterValue: The timeout is out of range.
        """
        if not 0 <= self.VisibilityTimeout <= LONGEST_VISIBILITY:
            raise InvalidParameterValue.of(
                self.VisibilityTimeout,
                "VisibilityTimeout",
                f"Must be >= 0 and <= {LONGEST_VISIBILITY}, if provided.",
            )
        return self.VisibilityTimeout


class ChangeMessageVisibilityBatch(OfQueue):
    """Change the visibility of one to ten messages."""

    Entries: list[ChangeMessageVisibilityBatchEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_entries("ChangeMessageVisibilityBatch", self.Entries)
        return self


class CreateQueue(Input):
    """Create a queue; see `queue_attributes` for its attributes."""

    QueueName: Text
    Attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_queue_name(self.QueueName, self.Attributes or {})
        check_tags(self.tags or {})
        return self


class GetQueueUrl(Input):
    """Get the URL of a queue."""

    QueueName: Text
    QueueOwnerAWSAccountId: str | None = None


class _Page(Input):
    NextToken: str | None = None
    MaxResults: Annotated[int | None, _between(1, 1_000)] = None

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.NextToken and self.MaxResults is None:
            raise InvalidParameterValue(
                "MaxResults is a mandatory parameter when you provide a value for NextToken."
            )
        return self


class ListQueues(_Page):
    """List the URLs of the queues of an account."""

    QueueNamePrefix: str | None = None


class ListDeadLetterSourceQueues(_Page, OfQueue):
    """List the queues whose dead letters a queue gets."""


class GetQueueAttributes(OfQueue):
    """Get attributes of a queue."""

    AttributeNames: list[str] | None = None


class SetQueueAttributes(OfQueue):
    """Set attributes of a queue; see `queue_attributes`."""

    Attributes: dict[str, str]


class DeleteQueue(OfQueue):
    """Delete a queue."""


class PurgeQueue(OfQueue):
    """Delete all messages of a queue."""


class TagQueue(OfQueue):
    """Add tags to a queue, or replace tags of the same keys."""

    Tags: dict[str, str]

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_tags(self.Tags)
        return self


class UntagQueue(OfQueue):
    """Remove tags from a queue."""

    TagKeys: list[str]


class ListQueueTags(OfQueue):
    """List the tags of a queue."""


class AddPermission(OfQueue):
    """Add a statement to the policy of a queue."""

    Label: Text
    AWSAccountIds: list[str]
    Actions: list[str]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not _ENTRY_ID.fullmatch(self.Label):
            raise InvalidParameterValue.of(
                self.Label,
                "Label",
                "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in "
                "length.",
            )
        if not self.AWSAccountIds:
            raise MissingRequiredParameter.of("AWSAccountIds")
        if not self.Actions:
            raise MissingRequiredParameter.of("Actions")
        if len(self.Actions) > _MOST_ACTIONS:
            raise OverLimit(
                f"{len(self.Actions)} Actions were found, maximum allowed is {_MOST_ACTIONS}."
            )
        for action in self.Actions:
            if action not in ACTIONS:
                raise InvalidParameterValue.of(
                    f"SQS:{action}",
                    "ActionName",
                    "Please refer to the appropriate WSDL for a list of valid actions. ",
                )
        return self


class RemovePermission(OfQueue):
    """Remove a statement from the policy of a queue."""

    Label: Text


class StartMessageMoveTask(Input):
    """Move the messages of a dead-letter queue to another queue, or back to their sources."""

    SourceArn: Arn
    DestinationArn: Annotated[str, AfterValidator(_is_arn)] | None = None
    MaxNumberOfMessagesPerSecond: Annotated[int | None, _between(1, FASTEST)] = None


class CancelMessageMoveTask(Input):
    """Cancel a message move task."""

    TaskHandle: Text


class ListMessageMoveTasks(Input):
    """List the last message move tasks of a queue."""

    SourceArn: Arn
    MaxResults: Annotated[int | None, _between(1, MOST_KEPT)] = None


#: The actions that a permission can allow.
ACTIONS = frozenset(
    {
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)


def check_tags(tags: dict[str, str]) -> None:
    """Check all tags of a queue together.

    Raises:
        InvalidParameterValue: There are more than 50 tags, or a tag is empty or too long.
    """
    if len(tags) > _MOST_TAGS:
        raise InvalidParameterValue(f"Too many tags added: a queue has at most {_MOST_TAGS}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128:  # noqa: PLR2004 (AWS)
            raise InvalidParameterValue("Tag keys must be between 1 and 128 characters in length.")
        if len(value) > 256:  # noqa: PLR2004 (AWS)
            raise InvalidParameterValue(
                "Tag values must be between 0 and 256 characters in length."
            )


def error_of(error: ValidationError, malformed: type[SqsError]) -> SqsError:
    """Convert pydantic's error about an input to an error of SQS.

    Args:
        error: The error that pydantic raised.
        malformed: The protocol's error for a parameter of the wrong type.
    """
    first = error.errors(include_url=False, include_context=False)[0]
    names = [str(each) for each in first["loc"]]
    if names and (first["type"] == "missing" or first["input"] is None):
        return MissingRequiredParameter.of(shown(names[-1]))
    where = ".".join(names)
    # The names of our classes are left out.
    why = first["msg"].partition(" or instance of ")[0]
    return malformed(f"{shown(where)}: {why}" if where else why)
