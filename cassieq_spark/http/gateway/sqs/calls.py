"""Requests as their handlers see them, the table of handlers, and errors converted to SQS's."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from cassieq_spark.errors import OptionError
from cassieq_spark.http import DEFAULT_GROUP
from cassieq_spark.http.accounts import full_name
from cassieq_spark.http.gateway.authorization import Grant
from cassieq_spark.http.gateway.coalescer import Received as Messages
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.sqs.known_queues import KnownQueues
from cassieq_spark.http.gateway.sqs.settings import KnownQueue
from cassieq_spark.http.serving.bodies import Sender
from cassieq_spark.http.serving.errors import told_of
from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import (
    AccessDenied,
    InternalFailure,
    InvalidParameterValue,
    QueueDoesNotExist,
    RequestThrottled,
    RequestTooLarge,
    ServiceUnavailable,
    SqsError,
    UnsupportedOperation,
    shown,
)
from cassieq_spark.http.sqs.outputs import Output

if TYPE_CHECKING:
    from cassieq_spark.http.gateway.sqs.movers import Movers

#: Separates the name of a queue from the name of a consumer group.
_OF_GROUP = "~"
_HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,255}")


@dataclass(slots=True)
class SqsCall:
    """An authorized request of SQS.

    Attributes:
        gateway: The gateway that serves the request.
        known: The queues as they were read a moment ago.
        movers: The message move tasks that the gateway runs.
        request: The HTTP request.
        sender: The account and key that sent it.
        grant: What the sender may do.
        key_id: The access key id of the sender.
        input: The input of the operation.
        address: The queue, if the operation is of a queue.
        url: The base of queue URLs that the operator names; None: see `base`.
        region: The region that the sender named.
        now: When the request is served.
        held: The messages that were leased for the request, until its answer leaves.
        encoded: Exits when the answer is encoded; None if nothing is to be exited then.
    """

    gateway: Gateway
    known: KnownQueues
    movers: Movers
    request: Request
    sender: Sender
    grant: Grant
    key_id: str
    input: Any
    address: QueueAddress | None
    url: str | None
    region: str
    now: datetime
    held: Messages = field(default_factory=Messages)
    encoded: AsyncExitStack | None = None

    @property
    def account(self) -> str:
        """The account of the sender."""
        return self.sender.account

    @property
    def queue(self) -> str:
        """The full name of the queue, for an operation on messages.

        Raises:
            QueueDoesNotExist: No queue can have this name.
            AccessDenied: The sender may not use the queue.
        """
        if self.address is None:
            raise QueueDoesNotExist
        return self.full_name(self.address)

    @property
    def whole_queue(self) -> str:
        """The full name of the queue, for an operation on the queue itself.

        Raises:
            UnsupportedOperation: The address names a consumer group, too.
        """
        if self.address is None:
            raise QueueDoesNotExist
        return self.whole_name(self.address)

    def whole_name(self, address: QueueAddress) -> str:
        """The full name of a queue that the sender names, with the checks of `whole_queue`."""
        full = self.full_name(address)
        if _OF_GROUP in address.queue:
            raise UnsupportedOperation(
                f"{address.queue} is a consumer group of a queue: name the queue alone"
            )
        return full

    @property
    def group(self) -> str:
        """The consumer group in the address, as in ``orders~billing``; else ``default``."""
        return DEFAULT_GROUP if self.address is None else group_in(self.address)

    def full_name(self, address: QueueAddress) -> str:
        """The full name of a queue that the sender names, without its consumer group.

        Raises:
            QueueDoesNotExist: No queue can have this name.
            AccessDenied: The sender may not use the queue.
        """
        name = address.queue.partition(_OF_GROUP)[0]
        if address.account != self.account:
            raise AccessDenied(
                f"Access to the resource is denied: {shown(address.account)} is not the account "
                f"of this key, which is {self.account}."
            )
        if not self.grant.covers(name):
            raise AccessDenied
        try:
            return full_name(address.account, name)
        except OptionError:
            raise QueueDoesNotExist from None

    async def known_queue(self) -> KnownQueue:
        """The queue of the operation, as it was read a moment ago.

        Raises:
            NotFoundError: The queue does not exist.
        """
        return await self.known.find(self.queue)

    @property
    def base(self) -> str:
        """The base of queue URLs."""
        if self.url is not None:
            return self.url
        host = self.request.headers.get("host", "")
        name = host if _HOST.fullmatch(host) else "localhost"
        return f"{self.request.scope['scheme']}://{name}"

    def url_of(self, queue: str) -> str:
        """The URL of a queue of the account."""
        return QueueAddress(self.account, queue).url(self.base)

    def arn_of(self, queue: str) -> str:
        """The ARN of a queue of the account."""
        return QueueAddress(self.account, queue).arn(self.region)


def group_in(address: QueueAddress) -> str:
    """The consumer group in an address, as in ``orders~billing``; else ``default``."""
    return address.queue.partition(_OF_GROUP)[2] or DEFAULT_GROUP


Handler = Callable[[SqsCall], Awaitable[Output]]

#: The handler of each operation, by the operation's name.
HANDLERS: dict[str, Handler] = {}


def serves(operation: str) -> Callable[[Handler], Handler]:
    """Declare the handler of an operation."""

    def declare(handler: Handler) -> Handler:
        HANDLERS[operation] = handler
        return handler

    return declare


_BY_STATUS: dict[int, type[SqsError]] = {
    401: AccessDenied,
    403: AccessDenied,
    413: RequestTooLarge,
    429: RequestThrottled,
    500: InternalFailure,
    503: ServiceUnavailable,
    # The outcome is unknown: AWS's clients repeat requests that fail with this error.
    504: ServiceUnavailable,
}


def error_of(error: Exception, operation: str) -> SqsError:
    """Convert any error to an error of SQS; Cassandra's errors, and bugs, are logged.

    Args:
        error: The error that was raised.
        operation: The name of the operation, for the log.
    """
    if isinstance(error, SqsError):
        return error
    status, message = told_of(error, operation, {})
    if status == 404:  # noqa: PLR2004 (not found)
        return QueueDoesNotExist()
    return _BY_STATUS.get(status, InvalidParameterValue)(message)
