"""The operations of SQS, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cassieq_spark.http.accounts import Right
from cassieq_spark.http.sqs import inputs
from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import UnknownOperation, shown


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of SQS.

    Attributes:
        input: The model of its input.
        right: The right that it needs.
        has_output: False if its answer is empty.
    """

    input: type[inputs.Input]
    right: Right
    has_output: bool = True

    @property
    def name(self) -> str:
        """The name of the operation on the wire."""
        return self.input.__name__

    @property
    def is_of_queue(self) -> bool:
        """True if a queue URL, or the path of the request, names its queue."""
        return issubclass(self.input, inputs.OfQueue)


class Call(NamedTuple):
    """A request for an operation.

    Attributes:
        operation: The operation.
        input: The input, of the class ``operation.input``.
        queue: The queue; None if no queue URL is part of the operation's input.
    """

    operation: Operation
    input: Any
    queue: QueueAddress | None


#: All operations by name. Changing a queue needs the right to delete it, as in the HTTP API: a
#: shorter retention deletes messages.
OPERATIONS: Mapping[str, Operation] = {
    each.name: each
    for each in (
        Operation(inputs.AddPermission, Right.DELETE_QUEUE, has_output=False),
        Operation(inputs.CancelMessageMoveTask, Right.REDRIVE_MESSAGE),
        Operation(inputs.ChangeMessageVisibility, Right.UPDATE_MESSAGE, has_output=False),
        Operation(inputs.ChangeMessageVisibilityBatch, Right.UPDATE_MESSAGE),
        Operation(inputs.CreateQueue, Right.CREATE_QUEUE),
        Operation(inputs.DeleteMessage, Right.ACK_MESSAGE, has_output=False),
        Operation(inputs.DeleteMessageBatch, Right.ACK_MESSAGE),
        Operation(inputs.DeleteQueue, Right.DELETE_QUEUE, has_output=False),
        Operation(inputs.GetQueueAttributes, Right.GET_QUEUE_INFORMATION),
        Operation(inputs.GetQueueUrl, Right.GET_QUEUE_INFORMATION),
        Operation(inputs.ListDeadLetterSourceQueues, Right.GET_QUEUE_INFORMATION),
        Operation(inputs.ListMessageMoveTasks, Right.REDRIVE_MESSAGE),
        Operation(inputs.ListQueueTags, Right.GET_QUEUE_INFORMATION),
        Operation(inputs.ListQueues, Right.GET_QUEUE_INFORMATION),
        Operation(inputs.PurgeQueue, Right.DELETE_QUEUE, has_output=False),
        Operation(inputs.ReceiveMessage, Right.READ_MESSAGE),
        Operation(inputs.RemovePermission, Right.DELETE_QUEUE, has_output=False),
        Operation(inputs.SendMessage, Right.PUT_MESSAGE),
        Operation(inputs.SendMessageBatch, Right.PUT_MESSAGE),
        Operation(inputs.SetQueueAttributes, Right.DELETE_QUEUE, has_output=False),
        Operation(inputs.StartMessageMoveTask, Right.REDRIVE_MESSAGE),
        Operation(inputs.TagQueue, Right.DELETE_QUEUE, has_output=False),
        Operation(inputs.UntagQueue, Right.DELETE_QUEUE, has_output=False),
    )
}


def operation_named(name: str) -> Operation:
    """The operation with this name.

    Raises:
        UnknownOperation: SQS has no operation with this name.
    """
    found = OPERATIONS.get(name)
    if found is None:
        raise UnknownOperation(f"The action {shown(name)} is not valid for this endpoint.")
    return found
