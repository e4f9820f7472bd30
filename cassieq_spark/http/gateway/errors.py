"""What goes wrong, as a status code and a body."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from cassieq_spark.errors import (
    CassieqError,
    InvariantError,
    LeaseLostError,
    MessageError,
    NotFoundError,
    OptionError,
    OutcomeUnknownError,
    QueueStateError,
    StoreError,
    UnreadableError,
)

logger = logging.getLogger(__name__)

#: A request failed for a reason that nobody has thought of.
FAILED = "gateway.failed"

#: Cassandra failed; who asked is told no more than that.
STORE_FAILED = "gateway.store_failed"

_RETRY_AFTER = {"Retry-After": "1"}
_SOON = timedelta(seconds=1)
_OF_STORE = {
    503: "Cassandra does not answer, or refuses: nothing is put; try again in a moment",
    504: "the answer of Cassandra was lost: it may have happened, or may yet",
}
_REASONS = {404: "NotFound", 409: "Conflict"}


class Budget(NamedTuple):
    """A budget, or another limit, that does not allow a request.

    Attributes:
        what: Of what: requests, bytes, longPolls, queues, messages, connections, headBytes, ...
        of: Whose: key, account, share (what one account may have of what all share), all, address,
            request, connection.
        limit: How much it is.
    """

    what: str
    of: str
    limit: int


class RefusedError(CassieqError):
    """A request is refused, by the gateway itself.

    Attributes:
        status: The status code.
        headers: What the answer has besides.
        budget: Which budget does not allow it; None if it is refused for another reason.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        headers: Mapping[str, str] | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.budget = budget


def too_busy(what: str) -> RefusedError:
    """The refusal of a request for which there is no room now."""
    return RefusedError(f"{what}; try again in a moment", 429, _RETRY_AFTER)


def over_budget(
    budget: Budget, why: str, *, status: int = 429, retry_after: timedelta = _SOON
) -> RefusedError:
    """The refusal of a request that a budget does not allow.

    Args:
        budget: Which one.
        why: A sentence that says so.
        status: The status code.
        retry_after: When it may be worth while to try again.
    """
    seconds = int(retry_after.total_seconds())
    headers = {"Retry-After": f"{seconds}"}
    return RefusedError(f"{why}; try again in {seconds} s", status, headers, budget)


#: What an error means; the first that fits counts.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (NotFoundError, 404),
    (QueueStateError, 409),
    (LeaseLostError, 409),
    (OutcomeUnknownError, 504),
    (StoreError, 503),
    (OptionError, 400),
    (MessageError, 400),
    (InvariantError, 500),
    (UnreadableError, 500),
    # Nobody is there to be told.
    (ClientDisconnect, 400),
    # A client that is closed, as this server is about to end.
    (CassieqError, 503),
)


def status_of(error: Exception) -> int:
    """The status code that says what went wrong."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def answer_to(error: Exception, operation: str, names: Mapping[str, str]) -> JSONResponse:
    """The answer to a request that failed.

    Args:
        error: Why.
        operation: What was asked for.
        names: Account and queue, as far as they are known.
    """
    status = status_of(error)
    message = str(error)
    if status == 500:  # noqa: PLR2004 (the only one that is nobody's but ours)
        logger.error(
            "%s failed: %s",
            operation,
            error,
            exc_info=error,
            extra={"action": FAILED, "operation": operation, **names},
        )
        message = "this should not happen; the gateway's log says more"
    if isinstance(error, StoreError):
        # Its text names nodes.
        logger.warning(
            "%s failed: %s",
            operation,
            error,
            extra={"action": STORE_FAILED, "operation": operation, **names},
        )
        message = _OF_STORE[status]
    headers: dict[str, str] = {}
    if isinstance(error, RefusedError):
        headers = error.headers
    elif status in {503, 504}:
        headers = _RETRY_AFTER
    body: dict[str, Any] = {
        "reason": _REASONS.get(status, "Error"),
        "operation": operation,
        "message": message,
        **names,
    }
    if isinstance(error, RefusedError) and error.budget is not None:
        body["budget"] = error.budget._asdict()
    return JSONResponse(body, status, headers)
