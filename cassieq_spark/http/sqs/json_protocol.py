"""AWS JSON 1.0: the header ``X-Amz-Target`` names the operation; input and output are JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from cassieq_spark.http.members import has_more_members
from cassieq_spark.http.sqs.errors import (
    MalformedBody,
    MissingAction,
    RequestTooLarge,
    SqsError,
    UnknownOperation,
)
from cassieq_spark.http.sqs.inputs import error_of
from cassieq_spark.http.sqs.operations import Call, Operation, operation_named
from cassieq_spark.http.sqs.outputs import Output
from cassieq_spark.http.sqs.texts import remembered
from cassieq_spark.http.sqs.wire import (
    MOST_PARAMETERS,
    Answer,
    Protocol,
    Received,
    Stamp,
    call_of,
)

CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET = b"x-amz-target"
_PREFIX = "AmazonSQS."
_JSON_TYPE = b"application/x-amz-json"
#: Members that are sent even if they are empty; AWS leaves out all other empty members.
_KEPT = {"queueUrls"}


def decode(received: Received, body: bytes) -> Call:
    """Decode a request into a call.

    Raises:
        SqsError: The request is malformed, or names no operation or queue.
    """
    operation = _operation_of(received.header(TARGET) or b"")
    if has_more_members(body, MOST_PARAMETERS):
        raise RequestTooLarge
    try:
        given = operation.input.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise error_of(error, MalformedBody) from None
    return call_of(operation, given, received.path)


@remembered
def _operation_of(header: bytes) -> Operation:
    """The operation that the header names.

    Raises:
        MissingAction: The header names none.
        UnknownOperation: SQS has no such operation.
    """
    target = header.decode("latin-1")
    if not target:
        raise MissingAction
    if not target.startswith(_PREFIX):
        raise UnknownOperation
    return operation_named(target.removeprefix(_PREFIX))


def encode(operation: Operation, output: Output, stamp: Stamp) -> Answer:
    """Encode the output of an operation; the body is empty if the operation has no output."""
    body = b""
    if operation.has_output:
        # Values that are neither true nor empty, such as 0, are sent.
        sent = {name: value for name, value in output.items() if value or _is_sent(name, value)}
        body = _json(sent)
    return Answer(200, stamp.headers(CONTENT_TYPE), body)


def refuse(error: SqsError, stamp: Stamp) -> Answer:
    """Encode an error as the answer to a request."""
    headers = stamp.headers(CONTENT_TYPE)
    # The header `x-amzn-errortype` is not sent: with its prefix, the Java SDK does not know the
    # exception.
    side = "Sender" if error.is_of_sender else "Receiver"
    headers["x-amzn-query-error"] = f"{error.code};{side}"
    body = {"__type": f"com.amazonaws.sqs#{error.shape}", "message": error.message}
    return Answer(error.status, headers, _json(body))


JSON = Protocol(decode, encode, refuse)


def is_json(received: Received) -> bool:
    """True if a request speaks this protocol."""
    if received.header(TARGET) is not None:
        return True
    return (received.header(b"content-type") or b"").lower().startswith(_JSON_TYPE)


def _is_sent(name: str, value: Any) -> bool:
    return name in _KEPT or value not in ([], {})


def _json(value: dict[str, Any]) -> bytes:
    if "Messages" in value:
        # Attributes may be bytes, for which pydantic has another Base64 than AWS.
        return _encoded(value)
    try:
        return to_json(value)
    except ValueError:
        # A text has a surrogate, which UTF-8 cannot encode.
        return _encoded(value)


def _encoded(value: dict[str, Any]) -> bytes:
    # Texts are written as UTF-8: escapes would take up to twice as many bytes, and much memory for
    # large bodies.
    return _ENCODER.encode(value).encode(errors="replace")


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_base64)
