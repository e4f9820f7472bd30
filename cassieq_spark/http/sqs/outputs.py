"""Outputs of the operations, with names as on the wire.

Handlers answer with these dicts; members that a dict lacks are left out of the answer. AWS leaves
out ``Messages``, ``QueueUrls`` and ``Tags`` if they are empty, and programs rely on this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

#: Any of the outputs below; empty for operations without one.
Output = Mapping[str, Any]


class ValueOutput(TypedDict):
    """The value of a message's attribute; `BinaryValue` is sent as Base64."""

    DataType: str
    StringValue: NotRequired[str]
    BinaryValue: NotRequired[bytes]


class Failure(TypedDict):
    """An entry of a batch that failed; see `failure`."""

    Id: str
    SenderFault: bool
    Code: str
    Message: NotRequired[str]


class Done(TypedDict):
    """An entry of a batch that succeeded."""

    Id: str


class Sent(TypedDict):
    """Output of SendMessage."""

    MessageId: str
    MD5OfMessageBody: str
    MD5OfMessageAttributes: NotRequired[str]
    MD5OfMessageSystemAttributes: NotRequired[str]
    SequenceNumber: NotRequired[str]


class SentEntry(Sent):
    """An entry of SendMessageBatch that succeeded."""

    Id: str


class SendBatchOutput(TypedDict):
    """Output of SendMessageBatch."""

    Successful: list[SentEntry]
    Failed: list[Failure]


class BatchOutput(TypedDict):
    """Output of DeleteMessageBatch and ChangeMessageVisibilityBatch."""

    Successful: list[Done]
    Failed: list[Failure]


class MessageOutput(TypedDict):
    """A message that was received."""

    MessageId: str
    ReceiptHandle: str
    MD5OfBody: str
    Body: str
    Attributes: NotRequired[dict[str, str]]
    MD5OfMessageAttributes: NotRequired[str]
    MessageAttributes: NotRequired[dict[str, ValueOutput]]


class ReceiveOutput(TypedDict, total=False):
    """Output of ReceiveMessage."""

    Messages: list[MessageOutput]


class QueueUrlOutput(TypedDict):
    """Output of CreateQueue and GetQueueUrl."""

    QueueUrl: str


class ListQueuesOutput(TypedDict, total=False):
    """Output of ListQueues."""

    QueueUrls: list[str]
    NextToken: str


class SourcesOutput(TypedDict):
    """Output of ListDeadLetterSourceQueues."""

    queueUrls: list[str]
    NextToken: NotRequired[str]


class AttributesOutput(TypedDict, total=False):
    """Output of GetQueueAttributes."""

    Attributes: dict[str, str]


class TagsOutput(TypedDict, total=False):
    """Output of ListQueueTags."""

    Tags: dict[str, str]


class TaskOutput(TypedDict):
    """Output of StartMessageMoveTask."""

    TaskHandle: str


class CancelOutput(TypedDict):
    """Output of CancelMessageMoveTask."""

    ApproximateNumberOfMessagesMoved: int


class TaskEntry(TypedDict):
    """A message move task; `StartedTimestamp` is in milliseconds since 1970."""

    Status: str
    SourceArn: str
    StartedTimestamp: int
    ApproximateNumberOfMessagesMoved: int
    TaskHandle: NotRequired[str]
    DestinationArn: NotRequired[str]
    MaxNumberOfMessagesPerSecond: NotRequired[int]
    ApproximateNumberOfMessagesToMove: NotRequired[int]
    FailureReason: NotRequired[str]


class TasksOutput(TypedDict, total=False):
    """Output of ListMessageMoveTasks."""

    Results: list[TaskEntry]
