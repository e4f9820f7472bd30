"""What both protocols read and write: requests as they arrive, and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from typing import NamedTuple

from cassieq_spark.http.sqs.addresses import QueueAddress, address_in, address_of_path
from cassieq_spark.http.sqs.errors import MissingRequiredParameter, SqsError
from cassieq_spark.http.sqs.inputs import Input, OfQueue
from cassieq_spark.http.sqs.operations import Call, Operation
from cassieq_spark.http.sqs.outputs import Output

#: Parameters or members of a request: more than a batch of ten messages with ten attributes has.
MOST_PARAMETERS = 2_000


@dataclass(frozen=True, slots=True)
class Received:
    """A request without its body, as ASGI has it.

    Attributes:
        method: The method.
        path: The path as it was sent, with percent-encoding (``raw_path``).
        query: The query as it was sent, without the question mark.
        headers: Names in lower case, with values.
    """

    method: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header; None if the request has none."""
        return next((value for each, value in self.headers if each == name), None)


class Answer(NamedTuple):
    """An answer: status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes


class Stamp(NamedTuple):
    """What every answer has.

    Attributes:
        request_id: The id of the request, for people who look for it in the log.
        now: When it is answered; clients set their clocks by it.
    """

    request_id: str
    now: datetime

    def headers(self, content_type: str) -> dict[str, str]:
        """The headers of an answer.

        >>> from datetime import UTC
        >>> Stamp("7", datetime(2026, 11, 27, tzinfo=UTC)).headers("text/xml")["Date"]
        'Fri, 27 Nov 2026 00:00:00 GMT'
        """
        return {
            "Content-Type": content_type,
            "Date": format_datetime(self.now, usegmt=True),
            "x-amzn-RequestId": self.request_id,
        }


class Protocol(NamedTuple):
    """A protocol of SQS.

    Attributes:
        decode: The call that a request and its body are; raises `SqsError`, and nothing else.
        encode: The answer to an operation with an output.
        refuse: The answer to a request that failed.
    """

    decode: Callable[[Received, bytes], Call]
    encode: Callable[[Operation, Output, Stamp], Answer]
    refuse: Callable[[SqsError, Stamp], Answer]


def call_of(operation: Operation, given: Input, path: bytes) -> Call:
    """The call of an operation; its queue is that of the parameter, or else that of the path.

    Raises:
        MissingRequiredParameter: Neither names a queue.
        InvalidAddress, QueueDoesNotExist: See `address_in`.
    """
    if not isinstance(given, OfQueue):
        return Call(operation, given, None)
    queue: QueueAddress | None
    if given.QueueUrl:
        queue = address_in(given.QueueUrl)
    else:
        queue = address_of_path(path.decode("latin-1"))
    if queue is None:
        raise MissingRequiredParameter.of("QueueUrl")
    return Call(operation, given, queue)
