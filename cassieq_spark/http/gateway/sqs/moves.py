"""Operations on message move tasks, which `movers` carries out.

Tasks are attributes of the dead-letter queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from cassieq_spark.errors import NotFoundError
from cassieq_spark.http.gateway.sqs.calls import SqsCall, serves
from cassieq_spark.http.gateway.sqs.movers import tasks_in
from cassieq_spark.http.gateway.sqs.queues import VISIBLE, counts
from cassieq_spark.http.gateway.sqs.settings import (
    TASK,
    TO_END,
    KnownQueue,
    is_fifo,
    milliseconds,
)
from cassieq_spark.http.sqs import inputs
from cassieq_spark.http.sqs.addresses import QueueAddress, address_in_arn
from cassieq_spark.http.sqs.errors import (
    AccessDenied,
    InvalidParameterValue,
    QueueDoesNotExist,
    ResourceNotFound,
)
from cassieq_spark.http.sqs.move_tasks import (
    ACTIVE,
    MOST_KEPT,
    RUNNING,
    MoveTask,
    handle_of,
    newest,
    task_of,
)
from cassieq_spark.http.sqs.outputs import Output


@serves("StartMessageMoveTask")
async def start_message_move_task(call: SqsCall) -> Output:
    """Begin to move the messages of a dead-letter queue."""
    given: inputs.StartMessageMoveTask = call.input
    source, queue, known = await _existing(call, "SourceArn", given.SourceArn)
    destination = None
    if given.DestinationArn is not None:
        if given.DestinationArn == given.SourceArn:
            raise InvalidParameterValue(
                "Source queue arn and destination queue arn cannot be the same."
            )
        target, _, there = await _existing(call, "DestinationArn", given.DestinationArn)
        if is_fifo(there.definition) is not is_fifo(known.definition):
            raise InvalidParameterValue(
                "The source queue and destination queue must be of the same queue type."
            )
        destination = target.queue
    if not call.grant.covers_all:
        # The letters go to queues other than the one to which such a key is limited.
        raise AccessDenied("A key that is for one queue cannot move messages to another.")
    queues = await call.gateway.client.queues(f"{call.account}:")
    if not any(each.dead_letter_queue == queue for each in queues):
        raise InvalidParameterValue("Source queue must be configured as a Dead Letter Queue.")
    now = int(milliseconds(call.now))
    _check_none_runs(known.attributes, now)
    task = MoveTask(
        id=uuid4().hex,
        runner=call.movers.id,
        started=now,
        beat=now,
        to_move=int((await counts(call, queue))[VISIBLE]),
        destination=destination,
        rate=given.MaxNumberOfMessagesPerSecond,
    )
    changes: dict[str, str | None] = {TASK + task.id: task.text}
    for old in newest(tasks_in(known.attributes).values())[MOST_KEPT - 1 :]:
        changes |= {TASK + old.id: None, TO_END + old.id: None}
    held = await call.gateway.client.set_attributes(queue, changes)
    call.known.forget(queue)
    try:
        _check_none_runs(held, now, but=task.id)
    except InvalidParameterValue:
        # Two tasks were started at once.
        await call.gateway.client.set_attributes(queue, {TASK + task.id: None})
        raise
    call.movers.run(queue, task, call.sender.key, is_new=True)
    return {"TaskHandle": handle_of(task.id, source.arn(call.region))}


@serves("ListMessageMoveTasks")
async def list_message_move_tasks(call: SqsCall) -> Output:
    """List the last tasks of a queue, newest first; a task whose gateway has died is continued."""
    given: inputs.ListMessageMoveTasks = call.input
    source, queue, known = await _existing(call, "SourceArn", given.SourceArn)
    now, results = int(milliseconds(call.now)), []
    for task in newest(tasks_in(known.attributes).values())[: given.MaxResults or 1]:
        status = _status(task, known.attributes, now)
        if status == RUNNING and task.is_abandoned(now) and call.grant.covers_all:
            await _adopt(
                call, queue, task.model_copy(update={"runner": call.movers.id, "beat": now})
            )
        results.append(task.entry(source, call.region, status))
    return {"Results": results} if results else {}


async def _adopt(call: SqsCall, queue: str, task: MoveTask) -> None:
    """Continue a task whose gateway has died."""
    await call.gateway.client.set_attributes(queue, {TASK + task.id: task.text})
    call.known.forget(queue)
    call.movers.run(queue, task, call.sender.key)


@serves("CancelMessageMoveTask")
async def cancel_message_move_task(call: SqsCall) -> Output:
    """End a task; messages that it has moved stay moved."""
    given: inputs.CancelMessageMoveTask = call.input
    number, source = task_of(given.TaskHandle)
    _, queue, known = await _existing(call, "SourceArn", source.arn(call.region))
    task = tasks_in(known.attributes).get(number)
    if task is None:
        raise ResourceNotFound
    if _status(task, known.attributes, int(milliseconds(call.now))) != RUNNING:
        raise InvalidParameterValue.of(
            given.TaskHandle, "TaskHandle", "Only a running task can be cancelled."
        )
    await call.gateway.client.set_attributes(queue, {TO_END + number: "true"})
    call.known.forget(queue)
    call.movers.look(number)
    return {"ApproximateNumberOfMessagesMoved": task.moved}


def _status(task: MoveTask, attributes: Mapping[str, str], now: int) -> str:
    return task.status_at(now, is_to_end=TO_END + task.id in attributes)


def _check_none_runs(attributes: Mapping[str, str], now: int, but: str = "") -> None:
    for task in tasks_in(attributes).values():
        if task.id != but and _status(task, attributes, now) in ACTIVE:
            raise InvalidParameterValue(
                "There is already a task running. Only one active task is allowed for a source "
                "queue arn at a given time."
            )


async def _existing(
    call: SqsCall, parameter: str, arn: str
) -> tuple[QueueAddress, str, KnownQueue]:
    """The queue of an ARN: its address, full name, and present definition and attributes."""
    address = address_in_arn(parameter, arn)
    try:
        name = call.whole_name(address)
        return address, name, await call.known.read(name)
    except (NotFoundError, QueueDoesNotExist):
        raise ResourceNotFound.of(parameter) from None
