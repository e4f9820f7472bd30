"""Contents of messages that are sent: their parts, with checks, and their digests."""

from __future__ import annotations

from typing import NamedTuple

from cassieq_spark.http.sqs.errors import (
    InvalidMessageContents,
    InvalidParameterValue,
    MissingRequiredParameter,
)
from cassieq_spark.http.sqs.message_attributes import (
    Attribute,
    Attributes,
    Extras,
    digest_of,
    md5_of,
    size_of,
    to_headers,
)
from cassieq_spark.http.sqs.outputs import Sent
from cassieq_spark.http.sqs.texts import is_xml

_NOT_OF_TYPE = "The request include parameter that is not valid for this queue type."
_NO_DEDUPLICATION_ID = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)


class Contents(NamedTuple):
    """A message to be sent. Only the rules of its queue are still to be checked; see `check_for`.

    Attributes:
        body: The body; not empty.
        attributes: Attributes by name.
        trace: The trace header, if one is given.
        delay: Seconds until the delivery; None: the queue's delay.
        group: The message group id.
        deduplication_id: The deduplication id.
    """

    body: bytes
    attributes: Attributes
    trace: Attribute | None = None
    delay: int | None = None
    group: str | None = None
    deduplication_id: str | None = None

    @property
    def size(self) -> int:
        """Bytes that count against the limit of a message."""
        return len(self.body) + size_of(self.attributes)

    def headers(self, sender: str) -> dict[str, str]:
        """The headers of the message, for the queue."""
        trace = None if self.trace is None else self.trace.data.decode(errors="replace")
        extras = Extras(sender=sender, trace=trace, deduplication_id=self.deduplication_id)
        return to_headers(self.attributes, extras)

    def answer(self, message_id: str, sequence_number: str | None = None) -> Sent:
        """The answer to the request that sent the message."""
        answer: Sent = {"MessageId": message_id, "MD5OfMessageBody": md5_of(self.body)}
        if (digest := digest_of(self.attributes)) is not None:
            answer["MD5OfMessageAttributes"] = digest
        if self.trace is not None:
            system = digest_of({TRACE: self.trace})
            answer["MD5OfMessageSystemAttributes"] = str(system)
        if sequence_number is not None:
            answer["SequenceNumber"] = sequence_number
        return answer

    def check_size(self, most: int) -> None:
        """Check the size against the limit of the queue.

        Raises:
            InvalidParameterValue: The message is larger.
        """
        if self.size > most:
            raise InvalidParameterValue(
                "One or more parameters are invalid. Reason: Message must be shorter than "
                f"{most} bytes."
            )

    def check_for(self, *, is_fifo: bool, by_content: bool) -> None:
        """Check the message against the type of its queue.

        Args:
            is_fifo: True for a FIFO queue.
            by_content: True if the queue deduplicates by content.

        Raises:
            MissingRequiredParameter: A message of a FIFO queue has no group.
            InvalidParameterValue: Another parameter is missing, or not allowed for this type.
        """
        if not is_fifo:
            if self.deduplication_id is not None:
                raise InvalidParameterValue.of(
                    self.deduplication_id,
                    "MessageDeduplicationId",
                    "The request includes a parameter that is not valid for this queue type.",
                )
            return
        check_ids(self.group, self.deduplication_id, by_content=by_content)
        if self.delay:
            raise InvalidParameterValue.of(self.delay, "DelaySeconds", _NOT_OF_TYPE)


#: The only system attribute that a message can be sent with.
TRACE = "AWSTraceHeader"


def check_ids(group: str | None, deduplication_id: str | None, *, by_content: bool) -> None:
    """Check that a message of a FIFO queue has the ids that it needs.

    Raises:
        MissingRequiredParameter: The message has no group.
        InvalidParameterValue: The message has no deduplication id, and the queue does not
            deduplicate by content.
    """
    if group is None:
        raise MissingRequiredParameter.of("MessageGroupId")
    if deduplication_id is None and not by_content:
        raise InvalidParameterValue(_NO_DEDUPLICATION_ID)


def body_of(text: str) -> bytes:
    """The body of a message.

    Raises:
        MissingRequiredParameter: The text is empty.
        InvalidMessageContents: The text has a character that XML 1.0 does not allow.
    """
    if not text:
        raise MissingRequiredParameter.of("MessageBody")
    if not is_xml(text):
        raise InvalidMessageContents
    return text.encode()
