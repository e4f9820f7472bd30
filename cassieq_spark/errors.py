"""Every error that leaves this package, in one tree.

CassieqError                       retryable: is the same call worth repeating?
├── OptionError (ValueError)       an option is unknown, missing, malformed; before any I/O
├── SetupError                     this machine lacks a JDK, pyarrow, a download
├── SchemaError (TypeError)        columns do not fit the queue, or a new schema its earlier ones
├── MessageError (ValueError)      a message the queue does not take: a null, too large, misfit
├── QueueStateError                the queue or group is not in the state that is needed
│   ├── NotFoundError              there is no such queue, group, message, account or key
│   │   ├── NotYetError            no message has this position yet
│   │   └── DeletedError           the message of this position is deleted
│   ├── ExistsError                there is one of that name already
│   ├── BatchOrderError            a sink has published a later batch than this one
│   ├── BatchChangedError          this batch, or key, was published with another content
│   └── SchemaChangedError         messages have columns that were added meanwhile      retryable
├── LeaseLostError                 another reader holds the messages, or has finished them
├── UnreadableError                stored bytes are no messages: damaged, or not of this program
├── StoreError                     Cassandra failed; the driver's error is __cause__
│   ├── ConnectError               no node answers, or it refuses these credentials
│   ├── MissingSchemaError         keyspace or table missing, or of another release
│   ├── NotAppliedError            certainly not applied                            retryable
│   ├── ClockError                 a server's clock and ours disagree               retryable
│   ├── OutcomeUnknownError        may have been applied; resolve it, never guess
│   ├── TooLargeError              more than one compare-and-set takes; certainly not applied
│   └── ContentionError            lost a compare-and-set too often                 retryable
└── InvariantError                 a state that the design rules out; never caught, never retried

Errors cross process borders, so everything beyond the message must have a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager
from typing import ClassVar

#: What a query needs that cannot continue with its checkpoint. Its batches count from 0 again, and
#: a sink that knows batches by their numbers, such as Spark's files, would skip them.
NEW_CHECKPOINT = (
    "a new checkpoint location, and a new place for what the query writes by batch number (the "
    "folder of files, the txnAppId of Delta), where batches that begin at 0 again would be "
    "skipped or overwritten"
)


class CassieqError(Exception):
    """Base of every error of this package."""

    #: True if the same call may succeed when repeated a little later, and is safe to repeat.
    retryable: ClassVar[bool] = False


class OptionError(CassieqError, ValueError):
    """An option is unknown, missing, malformed, or contradicts another one."""


class SetupError(CassieqError):
    """This machine lacks something that is needed; the message says how to get it."""


class SchemaError(CassieqError, TypeError):
    """Columns do not fit the queue, or a new schema does not fit its earlier ones."""


class MessageError(CassieqError, ValueError):
    """A message that the queue does not take: its value is null, or it is too large."""


class QueueStateError(CassieqError):
    """A queue or a consumer group is not in the required state, or is another one."""


class NotFoundError(QueueStateError):
    """There is no such queue, consumer group, message, dead letter, account or key."""


class NotYetError(NotFoundError):
    """No message has this position in the queue yet."""


class DeletedError(NotFoundError):
    """The message of this position was settled by every group, or expired, and is deleted."""


class ExistsError(QueueStateError):
    """A queue, a consumer group, an account or a key of that name exists already."""


class BatchOrderError(QueueStateError):
    """A sink has published a later batch than the one that it is given."""


class BatchChangedError(QueueStateError):
    """A batch of this number, or under this key, was published with another content."""


class SchemaChangedError(QueueStateError):
    """Messages were written by a newer version of the schema than the reader's definition has."""

    retryable = True


class LeaseLostError(CassieqError):
    """A lease ran out and its messages went to another reader."""


class UnreadableError(CassieqError):
    """Stored messages can't be read: they are damaged, or another program wrote them."""


class StoreError(CassieqError):
    """Cassandra failed; the driver's own error is the cause."""


class ConnectError(StoreError):
    """No node answers at the contact points, or the cluster refuses these credentials."""


class MissingSchemaError(StoreError):
    """The keyspace or one of its tables does not exist, or is of another release."""


class NotAppliedError(StoreError):
    """The request was certainly not applied."""

    retryable = True


class OutcomeUnknownError(StoreError):
    """The request may have been applied, or may be applied later; a serial read shows it."""


class TooLargeError(StoreError):
    """The request has more operations than one compare-and-set takes; nothing was applied."""


class ContentionError(StoreError):
    """Other processes won every attempt at a compare-and-set."""

    retryable = True


class ClockError(StoreError):
    """A server's clock disagrees with this machine's, by minutes; nothing was changed."""

    retryable = True


class InvariantError(CassieqError):
    """A state that the design rules out: a bug, or rows changed by hand."""


@contextmanager
def in_doubt(what: object, doubtful: Sized) -> Iterator[None]:
    """Turn errors into `OutcomeUnknownError` if an earlier request may have been applied.

    An error such as `NotAppliedError` or `ContentionError` tells of the last request only.

    Args:
        what: What the requests change; the message names it.
        doubtful: The requests that were applied, or whose answers were lost; others may be added
            within.
    """
    try:
        yield
    except OutcomeUnknownError:
        raise
    except StoreError as error:
        if not doubtful:
            raise
        raise OutcomeUnknownError(
            f"{what}: an earlier request of the call may be applied, now or later; then: {error}"
        ) from error
