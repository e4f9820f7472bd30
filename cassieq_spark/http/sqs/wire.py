"""The types that both protocols read and write: requests as they arrive, and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import NamedTuple

from cassieq_spark.http.sqs.addresses import address_in, address_of_path
from cassieq_spark.http.sqs.errors import MissingRequiredParameter, SqsError
from cassieq_spark.http.sqs.inputs import Input, OfQueue
from cassieq_spark.http.sqs.operations import Call, Operation
from cassieq_spark.http.sqs.outputs import Output

#: Most parameters or members of a request: more than ten messages with ten attributes have.
MOST_PARAMETERS = 2_000


@dataclass(slots=True)
class Received:
    """A request without its body, in the form of ASGI.

    Attributes:
        method: The method.
        path: The path as it was sent, with percent-encoding (``raw_path``).
        query: The query as it was sent, without the question mark.
        headers: Header names in lower case, with their values.
    """

    method: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    _first: dict[bytes, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The last value of a name stays, which is the first one in the reversed headers.
        self._first = dict(self.headers[::-1])

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header; None if the request has none."""
        return self._first.get(name)

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header, in order."""
        if len(self._first) < len(self.headers):
            return [value for each, value in self.headers if each == name]
        # No header is repeated.
        return [self._first[name]] if name in self._first else []


class Answer(NamedTuple):
    """An answer: status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes


class Stamp(NamedTuple):
    """The facts that every answer carries.

    Attributes:
        request_id: The id of the request, for people who look for it in the log.
        now: The time of the answer, by which clients correct their clocks.
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
            "Date": _date_of(int(self.now.timestamp())),
            "x-amzn-RequestId": self.request_id,
        }


@lru_cache(maxsize=16)
def _date_of(second: int) -> str:
    """A second since 1970 as in the header Date; all answers of a second have the same."""
    return format_datetime(datetime.fromtimestamp(second, UTC), usegmt=True)


class Protocol(NamedTuple):
    """A protocol of SQS.

    Attributes:
        decode: Decodes a request and its body into a call; raises `SqsError`, and nothing else.
        encode: Encodes the output of an operation.
        refuse: Encodes an error as an answer.
    """

    decode: Callable[[Received, bytes], Call]
    encode: Callable[[Operation, Output, Stamp], Answer]
    refuse: Callable[[SqsError, Stamp], Answer]


def call_of(operation: Operation, given: Input, path: bytes) -> Call:
    """The call of an operation on the queue that the parameter names, or else the path.

    Raises:
        MissingRequiredParameter: Neither the parameter nor the path names a queue.
        InvalidAddress, QueueDoesNotExist: See `address_in`.
    """
    if not isinstance(given, OfQueue):
        return Call(operation, given, None)
    url = given.QueueUrl
    queue = address_in(url) if url else address_of_path(path.decode("latin-1"))
    if queue is None:
        raise MissingRequiredParameter.of("QueueUrl")
    return Call(operation, given, queue)
