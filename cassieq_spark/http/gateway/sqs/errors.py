"""Errors of the gateway and of queues as those of SQS."""

from __future__ import annotations

from cassieq_spark.http.serving.errors import told_of
from cassieq_spark.http.sqs.errors import (
    AccessDenied,
    InternalFailure,
    InvalidParameterValue,
    QueueDoesNotExist,
    RequestThrottled,
    RequestTooLarge,
    ServiceUnavailable,
    SqsError,
)

_BY_STATUS: dict[int, type[SqsError]] = {
    401: AccessDenied,
    403: AccessDenied,
    413: RequestTooLarge,
    429: RequestThrottled,
    500: InternalFailure,
    503: ServiceUnavailable,
    # The outcome is unknown: AWS's clients repeat what fails so.
    504: ServiceUnavailable,
}


def error_of(error: Exception, operation: str) -> SqsError:
    """The error of SQS for any error; those of Cassandra, and bugs, are logged.

    Args:
        error: What was raised.
        operation: What was to be done, for the log.
    """
    if isinstance(error, SqsError):
        return error
    status, message = told_of(error, operation, {})
    if status == 404:  # noqa: PLR2004 (not found)
        return QueueDoesNotExist()
    return _BY_STATUS.get(status, InvalidParameterValue)(message)
