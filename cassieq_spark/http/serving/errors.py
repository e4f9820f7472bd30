"""Errors as answers: status codes, bodies and headers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from cassieq_spark.errors import (
    CassieqError,
    DeletedError,
    InvariantError,
    LeaseLostError,
    MessageError,
    NotFoundError,
    NotYetError,
    OptionError,
    OutcomeUnknownError,
    QueueStateError,
    SchemaError,
    StoreError,
    UnreadableError,
)

logger = logging.getLogger(__name__)

#: A request failed unexpectedly.
FAILED = "gateway.failed"

#: Cassandra failed; the answer to the client has no details.
STORE_FAILED = "gateway.store_failed"

_RETRY_AFTER = {"Retry-After": "1"}
_SOON = timedelta(seconds=1)
_OF_STORE = {
    503: "Cassandra does not answer, or refuses: repeat the request in a moment",
    504: "the outcome is unknown: all or a part of it may have been done, or may be yet",
}
_REASONS = {404: "NotFound", 409: "Conflict"}
_REASONS_OF: dict[type[Exception], str] = {NotYetError: "NotYet", DeletedError: "Deleted"}


class Quota(NamedTuple):
    """A quota or another limit that is reached.

    Attributes:
        what: The resource: requests, bytes, longPolls, queues, messages, connections, ...
        of: The holder of the quota: key, account, share (what is left for one account), all,
            address, request, connection.
        limit: The value of the quota.
    """

    what: str
    of: str
    limit: int


class RefusedError(CassieqError):
    """The gateway refuses a request.

    Attributes:
        status: The status code.
        headers: Headers of the answer.
        quota: The quota or limit that is reached; None if the reason is another one.
        details: Fields of the answer besides the fields of every error.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        headers: Mapping[str, str] | None = None,
        quota: Quota | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.quota = quota
        self.details = dict(details or {})


def too_busy(what: str) -> RefusedError:
    """The refusal of a request that may succeed in a moment."""
    return RefusedError(f"{what}; try again in a moment", 429, _RETRY_AFTER)


def over_quota(
    quota: Quota, why: str, *, status: int = 429, retry_after: timedelta = _SOON
) -> RefusedError:
    """The refusal of a request because a quota or limit is reached; ``why`` explains it."""
    seconds = f"{retry_after.total_seconds():.0f}"
    return RefusedError(
        f"{why}; try again in {seconds} s", status, {"Retry-After": seconds}, quota
    )


#: Status codes by class of error; the first class that fits decides.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (NotFoundError, 404),
    (QueueStateError, 409),
    (LeaseLostError, 409),
    (OutcomeUnknownError, 504),
    (StoreError, 503),
    (OptionError, 400),
    (MessageError, 400),
    (SchemaError, 400),
    (InvariantError, 500),
    (UnreadableError, 500),
    # No client gets this answer.
    (ClientDisconnect, 400),
    # The client of the queues is closed, because the server shuts down.
    (CassieqError, 503),
)


def status_of(error: Exception) -> int:
    """The status code of an error."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def told_of(error: Exception, operation: str, names: Mapping[str, str]) -> tuple[int, str]:
    """The status of an error, and its text for the client; the log has the rest.

    Args:
        error: The error.
        operation: The name of the operation.
        names: Account and queue, if known.
    """
    status = status_of(error)
    fields = {"operation": operation, **names}
    if isinstance(error, StoreError):
        # The text of the error names nodes, and is logged only.
        extra = {"action": STORE_FAILED, **fields}
        logger.warning("%s failed: %s", operation, error, extra=extra)
        return status, _OF_STORE[status]
    if status == 500:  # noqa: PLR2004 (a bug of ours)
        extra = {"action": FAILED, **fields}
        logger.error("%s failed: %s", operation, error, exc_info=error, extra=extra)
        return status, "the gateway failed unexpectedly; its log has the details"
    return status, str(error)


def answer_to(error: Exception, operation: str, names: Mapping[str, str]) -> JSONResponse:
    """The answer to a failed request; ``names`` are account and queue, if known."""
    status, message = told_of(error, operation, names)
    reason = _REASONS_OF.get(type(error)) or _REASONS.get(status, "Error")
    body: dict[str, Any] = {"reason": reason, "operation": operation, "message": message, **names}
    headers: dict[str, str] = _RETRY_AFTER if status in {503, 504} else {}
    if isinstance(error, RefusedError):
        headers, body = error.headers, body | error.details
        if error.quota is not None:
            body["quota"] = error.quota._asdict()
    return JSONResponse(body, status, headers)
