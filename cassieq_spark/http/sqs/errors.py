"""Errors of SQS, as both protocols send them.

SqsError                          status, code in the Query protocol
├── IncompleteSignature           400 IncompleteSignature
├── MissingAuthenticationToken    403 MissingAuthenticationToken
├── InvalidSignature              403 SignatureDoesNotMatch
├── RequestExpired                403 RequestExpired
├── AccessDenied                  403 AccessDenied
├── UnknownOperation              400 InvalidAction
├── MissingAction                 400 MissingAction
├── MalformedBody                 400 MalformedInput
├── MalformedQueryString          404 MalformedQueryString
├── RequestTooLarge               413 RequestEntityTooLarge
├── InvalidParameterValue         400 InvalidParameterValue
├── MissingRequiredParameter      400 MissingParameter
├── InvalidAddress                404 InvalidAddress
├── InvalidAttributeName          400 InvalidAttributeName
├── InvalidAttributeValue         400 InvalidAttributeValue
├── InvalidMessageContents        400 InvalidMessageContents
├── QueueDoesNotExist             400 AWS.SimpleQueueService.NonExistentQueue
├── QueueNameExists               400 QueueAlreadyExists
├── QueueDeletedRecently          400 AWS.SimpleQueueService.QueueDeletedRecently
├── PurgeQueueInProgress          403 AWS.SimpleQueueService.PurgeQueueInProgress
├── OverLimit                     403 OverLimit
├── RequestThrottled              403 RequestThrottled
├── ReceiptHandleIsInvalid        404 ReceiptHandleIsInvalid
├── MessageNotInflight            400 AWS.SimpleQueueService.MessageNotInflight
├── ResourceNotFound              404 ResourceNotFoundException
├── UnsupportedOperation          400 AWS.SimpleQueueService.UnsupportedOperation
├── EmptyBatchRequest             400 AWS.SimpleQueueService.EmptyBatchRequest
├── TooManyEntriesInBatchRequest  400 AWS.SimpleQueueService.TooManyEntriesInBatchRequest
├── BatchEntryIdsNotDistinct      400 AWS.SimpleQueueService.BatchEntryIdsNotDistinct
├── InvalidBatchEntryId           400 AWS.SimpleQueueService.InvalidBatchEntryId
├── BatchRequestTooLong           400 AWS.SimpleQueueService.BatchRequestTooLong
├── InternalFailure               500 InternalFailure
└── ServiceUnavailable            503 ServiceUnavailable

A class without a message of its own has the text that AWS sends.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from cassieq_spark.errors import CassieqError

_OWN = "AWS.SimpleQueueService."
_LONGEST_SHOWN = 200


def shown(value: object) -> str:
    """Show a value of a request within the text of an error, shortened if it is long."""
    return str(value)[:_LONGEST_SHOWN]


class SqsError(CassieqError):
    """A request is refused, or failed.

    Attributes:
        message: The text of the error in the JSON protocol.
    """

    #: Name of the error's shape, which the JSON protocol sends.
    shape: ClassVar[str]
    #: Code of the error in the Query protocol, and in the failed entries of a batch.
    code: ClassVar[str]
    status: ClassVar[int] = 400
    #: The message, if none is given.
    text: ClassVar[str] = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.text)
        self.message = message or self.text

    @property
    def query_message(self) -> str:
        """The message in the Query protocol."""
        return self.message

    @property
    def is_of_sender(self) -> bool:
        """True if the sender is at fault; False if a repetition may succeed."""
        return self.status < 500  # noqa: PLR2004 (where server errors begin)


class IncompleteSignature(SqsError):
    """The signature is malformed, or lacks a part."""

    shape, code = "IncompleteSignatureException", "IncompleteSignature"
    text = "The request signature does not conform to AWS standards."


class MissingAuthenticationToken(SqsError):
    """The request is not signed."""

    shape, code, status = "MissingAuthenticationTokenException", "MissingAuthenticationToken", 403
    text = "Request is missing Authentication Token"


class InvalidSignature(SqsError):
    """The signature does not match the request, or is from another time; or the key is unknown."""

    shape, code, status = "InvalidSignatureException", "SignatureDoesNotMatch", 403
    text = (
        "The request signature we calculated does not match the signature you provided. Check "
        "your AWS Secret Access Key and signing method. Consult the service documentation for "
        "details."
    )


class RequestExpired(SqsError):
    """A presigned URL has expired."""

    shape = code = "RequestExpired"
    status = 403
    text = "Request has expired."


class AccessDenied(SqsError):
    """The key does not have the right."""

    shape, code, status = "AccessDeniedException", "AccessDenied", 403
    text = "Access to the resource is denied."


class UnknownOperation(SqsError):
    """SQS has no such operation."""

    shape, code = "UnknownOperationException", "InvalidAction"
    text = "The action is not valid for this endpoint."


class MissingAction(SqsError):
    """The request names no operation."""

    shape = code = "MissingAction"
    text = "The request must contain the parameter Action."


class MalformedBody(SqsError):
    """The body is not JSON, or not the JSON of the operation's input."""

    shape, code = "SerializationException", "MalformedInput"
    text = "The body is not valid."


class MalformedQueryString(SqsError):
    """Parameters of the Query protocol are malformed."""

    shape = code = "MalformedQueryString"
    status = 404
    text = "The query string is not valid."


class RequestTooLarge(SqsError):
    """The request has more parameters than any operation takes, or a larger body."""

    shape, code, status = "RequestEntityTooLargeException", "RequestEntityTooLarge", 413
    text = "The request is too large."


class InvalidParameterValue(SqsError):
    """A parameter is out of range, or does not fit the queue."""

    shape, code = "InvalidParameterValueException", "InvalidParameterValue"

    @classmethod
    def of(cls, value: object, parameter: str, reason: str) -> InvalidParameterValue:
        """The error of a parameter.

        >>> str(InvalidParameterValue.of(11, "MaxResults", "too many."))
        'Value 11 for parameter MaxResults is invalid. Reason: too many.'
        """
        return cls(f"Value {shown(value)} for parameter {parameter} is invalid. Reason: {reason}")


class MissingRequiredParameter(SqsError):
    """A parameter is missing."""

    shape, code = "MissingRequiredParameterException", "MissingParameter"

    @classmethod
    def of(cls, parameter: str) -> MissingRequiredParameter:
        """The error of a parameter."""
        return cls(f"The request must contain the parameter {parameter}.")


class InvalidAddress(SqsError):
    """A queue URL has no account or no queue."""

    shape = code = "InvalidAddress"
    status = 404

    @classmethod
    def of(cls, url: str) -> InvalidAddress:
        """The error of a URL."""
        return cls(f"The address {shown(url)} is not valid for this endpoint.")


class InvalidAttributeName(SqsError):
    """Queues have no attribute of this name, or the attribute cannot be set."""

    shape = code = "InvalidAttributeName"

    @classmethod
    def of(cls, name: str) -> InvalidAttributeName:
        """The error of a name."""
        return cls(f"Unknown Attribute {shown(name)}.")


class InvalidAttributeValue(SqsError):
    """The value of a queue's attribute is not valid."""

    shape = code = "InvalidAttributeValue"

    @classmethod
    def of(cls, name: str, reason: str = "") -> InvalidAttributeValue:
        """The error of an attribute."""
        why = f" Reason: {reason}" if reason else ""
        return cls(f"Invalid value for the parameter {shown(name)}.{why}")


class InvalidMessageContents(SqsError):
    """A message has characters that XML 1.0 does not allow."""

    shape = code = "InvalidMessageContents"
    text = (
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF "
        "| #xE000 to #xFFFD | #x10000 to #x10FFFF"
    )


class QueueDoesNotExist(SqsError):
    """The account has no queue of this name."""

    shape, code = "QueueDoesNotExist", _OWN + "NonExistentQueue"
    text = "The specified queue does not exist."

    @property
    def query_message(self) -> str:
        """The message in the Query protocol, whose usual text differs from the one in JSON."""
        is_usual = self.message == self.text
        return (
            "The specified queue does not exist for this wsdl version."
            if is_usual
            else self.message
        )


class QueueNameExists(SqsError):
    """A queue of this name exists, with other attributes."""

    shape, code = "QueueNameExists", "QueueAlreadyExists"

    @classmethod
    def of(cls, attribute: str) -> QueueNameExists:
        """The error of the first attribute that differs."""
        return cls(
            "A queue already exists with the same name and a different value for attribute "
            + attribute
        )


class QueueDeletedRecently(SqsError):
    """A queue of this name was deleted in the last 60 seconds."""

    shape, code = "QueueDeletedRecently", _OWN + "QueueDeletedRecently"
    text = (
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name."
    )


class PurgeQueueInProgress(SqsError):
    """The queue was purged a moment ago."""

    shape, code, status = "PurgeQueueInProgress", _OWN + "PurgeQueueInProgress", 403

    @classmethod
    def of(cls, queue: str, pause: timedelta) -> PurgeQueueInProgress:
        """The error of a queue."""
        seconds = f"{pause.total_seconds():g}"
        return cls(f"Only one PurgeQueue operation on {queue} is allowed every {seconds} seconds.")


class OverLimit(SqsError):
    """A limit of the queue is reached."""

    shape = code = "OverLimit"
    status = 403


class RequestThrottled(SqsError):
    """A quota of the sender is reached."""

    shape = code = "RequestThrottled"
    status = 403
    text = "Rate exceeded"


class ReceiptHandleIsInvalid(SqsError):
    """The text is not a receipt handle."""

    shape = code = "ReceiptHandleIsInvalid"
    status = 404

    @classmethod
    def of(cls, handle: str) -> ReceiptHandleIsInvalid:
        """The error of a text."""
        return cls(f'The input receipt handle "{shown(handle)}" is not a valid receipt handle.')


class MessageNotInflight(SqsError):
    """The message is not in flight."""

    shape, code = "MessageNotInflight", _OWN + "MessageNotInflight"
    text = "The specified message isn't in flight."


class ResourceNotFound(SqsError):
    """The queue or task of a request about message move tasks does not exist."""

    shape = code = "ResourceNotFoundException"
    status = 404
    text = "Task does not exist."

    @classmethod
    def of(cls, parameter: str) -> ResourceNotFound:
        """The error of the parameter that has an ARN."""
        return cls(f"The resource that you specified for the {parameter} parameter doesn't exist.")


class UnsupportedOperation(SqsError):
    """The operation is not supported, or not supported for this queue."""

    shape, code = "UnsupportedOperation", _OWN + "UnsupportedOperation"
    text = "The operation is not supported."


class EmptyBatchRequest(SqsError):
    """A batch has no entries."""

    shape, code = "EmptyBatchRequest", _OWN + "EmptyBatchRequest"

    @classmethod
    def of(cls, operation: str) -> EmptyBatchRequest:
        """The error of an operation."""
        return cls(f"There should be at least one {operation}RequestEntry in the request.")


class TooManyEntriesInBatchRequest(SqsError):
    """A batch has more than ten entries."""

    shape, code = "TooManyEntriesInBatchRequest", _OWN + "TooManyEntriesInBatchRequest"

    @classmethod
    def of(cls, count: int) -> TooManyEntriesInBatchRequest:
        """The error of a number of entries."""
        return cls(f"Maximum number of entries per request are 10. You have sent {count}.")


class BatchEntryIdsNotDistinct(SqsError):
    """Two entries of a batch have the same id."""

    shape, code = "BatchEntryIdsNotDistinct", _OWN + "BatchEntryIdsNotDistinct"

    @classmethod
    def of(cls, entry: str) -> BatchEntryIdsNotDistinct:
        """The error of an id."""
        return cls(f"Id {entry} repeated.")


class InvalidBatchEntryId(SqsError):
    """The id of an entry has a character that is not allowed, or is empty or too long."""

    shape, code = "InvalidBatchEntryId", _OWN + "InvalidBatchEntryId"
    text = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It "
        "can be at most 80 letters long."
    )


class BatchRequestTooLong(SqsError):
    """The messages of a batch are together larger than the limit."""

    shape, code = "BatchRequestTooLong", _OWN + "BatchRequestTooLong"

    @classmethod
    def of(cls, limit: int, size: int) -> BatchRequestTooLong:
        """The error of a size in bytes."""
        return cls(
            f"Batch requests cannot be longer than {limit} bytes. You have sent {size} bytes."
        )


class InternalFailure(SqsError):
    """The gateway failed."""

    shape = code = "InternalFailure"
    status = 500
    text = "The request processing has failed because of an unknown error, exception or failure."


class ServiceUnavailable(SqsError):
    """Cassandra does not answer, or the outcome is unknown."""

    shape = code = "ServiceUnavailable"
    status = 503
    text = "The request has failed due to a temporary failure of the server."
