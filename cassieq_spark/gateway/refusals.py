"""What goes wrong, as a status code and a body."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

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
_OF_STORE = {
    503: "Cassandra does not answer, or refuses: nothing is put; try again in a moment",
    504: "the answer of Cassandra was lost: it may have happened, or may yet",
}
_REASONS = {404: "NotFound", 409: "Conflict"}


class RefusedError(CassieqError):
    """A request is refused, by the gateway itself.

    Attributes:
        status: The status code.
        headers: What the answer has besides.
    """

    def __init__(
        self, message: str, status: int = 400, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


def too_busy(what: str) -> RefusedError:
    """The refusal of a request for which there is no room now."""
    return RefusedError(f"{what}; try again in a moment", 429, _RETRY_AFTER)


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
    return JSONResponse(body, status, headers)
