"""Operations on messages: send, receive, delete, and change how long a message is invisible."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Action, DeadLetter, Message, NewMessage
from cassieq_spark.http.accounts import Right, own_name
from cassieq_spark.http.gateway.messages import SHORTEST_LEASE, polled
from cassieq_spark.http.gateway.responses import LARGE, body_of
from cassieq_spark.http.gateway.sqs.calls import SqsCall, error_of, serves
from cassieq_spark.http.gateway.sqs.settings import (
    MILLISECONDS,
    KnownQueue,
    is_fifo,
    milliseconds,
    visibility_of,
)
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.http.sqs import inputs
from cassieq_spark.http.sqs.contents import TRACE, Contents
from cassieq_spark.http.sqs.errors import (
    InvalidParameterValue,
    MessageNotInflight,
    QueueDoesNotExist,
    ReceiptHandleIsInvalid,
)
from cassieq_spark.http.sqs.message_attributes import (
    Extras,
    digest_of,
    from_headers,
    md5_of,
    outputs_of,
    selected,
)
from cassieq_spark.http.sqs.outputs import MessageOutput, Output
from cassieq_spark.http.sqs.queue_attributes import BY_CONTENT
from cassieq_spark.http.sqs.texts import text_of, uuid_of
from cassieq_spark.model import Position, parts_of_id

_Entry = TypeVar("_Entry", bound=inputs.Entry)

_ALL = "All"
#: The namespace of message ids: UUIDs, as at AWS, each derived from the position of its message.
_IDS = UUID("6f1c3c55-31c5-4d0b-8d3a-9a5d2f0c7e11").bytes
_NOT_AT_ALL = timedelta(0)
#: In a receipt handle, before the milliseconds of the receive.
_RECEIVED_AT = "."
#: Most bytes of messages in an answer, unless other interfaces have put larger messages.
_HUGE = 4 << 20


@serves("SendMessage")
async def send_message(call: SqsCall) -> Output:
    """Send a message."""
    return await _send(call, await call.known_queue(), call.input.contents())


@serves("SendMessageBatch")
async def send_message_batch(call: SqsCall) -> Output:
    """Send messages; those that can be sent are published together, in order."""
    known = await call.known_queue()
    if is_fifo(known.definition):
        call.input.check_for_fifo(by_content=_is_by_content(known))

    async def send(entry: inputs.SendMessageBatchEntry) -> Output:
        return await _send(call, known, entry.contents())

    return await _each(call, call.input.Entries, send)


def _is_by_content(known: KnownQueue) -> bool:
    return known.in_effect.get(BY_CONTENT) == "true"


async def _send(call: SqsCall, known: KnownQueue, contents: Contents) -> Output:
    queue, gateway = known.definition, call.gateway
    name = queue.name
    is_ordered = is_fifo(queue)
    contents.check_for(is_fifo=is_ordered, by_content=_is_by_content(known))
    most = min(int(known.in_effect["MaximumMessageSize"]), gateway.limits.body_bytes)
    contents.check_size(most)
    if is_ordered and contents.deduplication_id is None:
        digest = hashlib.sha256(contents.body).hexdigest()
        contents = contents._replace(deduplication_id=digest)
    unique_id = contents.deduplication_id
    gateway.storage.check_messages(call.account)
    delay = None if contents.delay is None else timedelta(seconds=contents.delay)
    # A message with a delay of 0 is not delayed, even if its queue delays messages.
    is_at_once = delay == _NOT_AT_ALL and queue.delay is not None and not is_ordered
    message = NewMessage(
        contents.body,
        contents.group,
        contents.headers(call.key_id),
        delay or None,
        call.now if is_at_once else None,
        None if unique_id is None else unique_id.encode(),
    )
    position = await gateway.producers.put(name, message)
    if not position.is_repeat:
        gateway.storage.add_messages(call.account, 1, contents.size)
        gateway.coalescer.wake(name)
    number = _sequence_number(position.version, position) if is_ordered else None
    return contents.answer(_id_at(name, position), number)


@serves("ReceiveMessage")
async def receive_message(call: SqsCall) -> Output:
    """Lease messages; while the lease lasts, they are invisible to others."""
    given: inputs.ReceiveMessage = call.input
    gateway, known = call.gateway, await call.known_queue()
    gateway.admission.check_answers(call.account)
    wait, visibility = given.WaitTimeSeconds, given.VisibilityTimeout
    if wait is None:
        wait = int(known.in_effect["ReceiveMessageWaitTimeSeconds"])
    lease = visibility_of(known) if visibility is None else timedelta(seconds=visibility)
    lease = min(lease, _longest_lease(call)) if visibility is None else _held(call, lease)
    is_ordered = is_fifo(known.definition)
    receive = partial(
        gateway.coalescer.receive,
        call.queue,
        call.group,
        most=given.MaxNumberOfMessages or 1,
        lease=max(SHORTEST_LEASE, lease),
        wait=min(timedelta(seconds=wait), gateway.limits.wait),
        attempt=given.ReceiveRequestAttemptId if is_ordered else None,
        key=call.sender.key,
    )
    if wait:
        call.held = await polled(gateway, call.sender, call.request, receive)
    else:
        call.held = await receive()
    if not call.held:
        # AWS sends no empty list, and programs rely on that.
        return {}
    size = sum(each.size for each in call.held)
    if size > _HUGE:
        # Answers of several times as many bytes are made one by one, as those to peeks are.
        call.encoded = AsyncExitStack()
        await call.encoded.enter_async_context(gateway.admission.peek(call.account))
    outputs = partial(_outputs, call, is_ordered=is_ordered)
    return {"Messages": await asyncio.to_thread(outputs) if size > LARGE else outputs()}


def _outputs(call: SqsCall, *, is_ordered: bool) -> list[MessageOutput]:
    return [_output(call, each, is_ordered=is_ordered) for each in call.held]


def _output(call: SqsCall, message: Message, *, is_ordered: bool) -> MessageOutput:
    """Convert a message to its form in the answer."""
    given: inputs.ReceiveMessage = call.input
    body = text_of(body_of(message))
    attributes, extras = from_headers(message.headers)
    # A receipt begins with the id of its queue.
    _, version, _ = parts_of_id(message.receipt.partition("/")[0])
    # A dead letter continues the life of the message that died; no sender can set its headers.
    letter = DeadLetter.of(message)
    output: MessageOutput = {
        "MessageId": _id_of(message, letter, version),
        "ReceiptHandle": _handle_of(call, message),
        "MD5OfBody": md5_of(body.encode()),
        "Body": body,
    }
    if names := given.system_names:
        number = _sequence_number(version, message.monoton) if is_ordered else None
        system = _system(call, message, letter, extras, output["MessageId"], number)
        told = {
            name: text
            for name, text in system.items()
            if text is not None and (_ALL in names or name in names)
        }
        if told:
            output["Attributes"] = told
    if chosen := selected(attributes, given.MessageAttributeNames or ()):
        output["MessageAttributes"] = outputs_of(chosen)
        output["MD5OfMessageAttributes"] = str(digest_of(chosen))
    return output


def _system(  # noqa: PLR0913, PLR0917 (what is known of the message by now)
    call: SqsCall,
    message: Message,
    letter: DeadLetter,
    extras: Extras,
    message_id: str,
    number: str | None,
) -> dict[str, str | None]:
    """The system attributes of a message; ``number`` is its place in a FIFO queue, else None."""
    is_ordered, origin = number is not None, letter.origin_queue
    # As the ids that were given may be equal, AWS puts the message's id in their place.
    is_renamed = is_ordered and origin is not None
    deduplication_id = message_id if is_renamed else extras.deduplication_id
    first_at = letter.first_delivered_at or message.first_delivered_at
    # In a FIFO queue the retention begins anew, and so does the time of sending.
    sent_at = None if is_ordered else letter.published_at
    return {
        "SentTimestamp": milliseconds(sent_at or message.published_at),
        "ApproximateReceiveCount": str(message.delivery_count + letter.deliveries),
        "ApproximateFirstReceiveTimestamp": None if first_at is None else milliseconds(first_at),
        "SenderId": extras.sender,
        TRACE: extras.trace,
        "MessageGroupId": None if message.key is None else text_of(message.key),
        "MessageDeduplicationId": deduplication_id,
        "SequenceNumber": number,
        "DeadLetterQueueSourceArn": None if origin is None else call.arn_of(own_name(origin)),
    }


def _handle_of(call: SqsCall, message: Message) -> str:
    """The receipt handle: the pop receipt, and when the message was received.

    The time is not signed: a client that changes it holds a message for as long as each change
    allows, as clients of the other interfaces do.
    """
    pop_receipt = call.gateway.receipts.of(message.receipt)
    return f"{pop_receipt}{_RECEIVED_AT}{milliseconds(call.now)}"


def _id_of(message: Message, letter: DeadLetter, version: int) -> str:
    """The id of a message, which a dead letter keeps. A redriven message is a new one."""
    if letter.first_queue is not None and letter.first_position is not None:
        return _id_at(letter.first_queue, letter.first_position)
    return _id_at(message.queue, Position(message.monoton, message.partition, version))


def _id_at(queue: str, position: Position) -> str:
    """The id of the message at a position; every send, repeat and receive has the same id."""
    place = f"{queue}@{position.version}/{position.partition}/{int(position)}"
    # As `uuid.uuid5` makes it.
    digest = hashlib.sha1(_IDS + place.encode(), usedforsecurity=False)
    return uuid_of(digest.hexdigest(), 5)


def _sequence_number(version: int, monoton: int) -> str:
    """The place of a message in its queue, as 20 digits."""
    return f"{version:08d}{int(monoton):012d}"


@serves("DeleteMessage")
async def delete_message(call: SqsCall) -> Output:
    """Delete a message. Deleting a deleted message is no error."""
    await call.gateway.settlements.ack([await _receipt(call, call.input.ReceiptHandle)])
    return {}


@serves("DeleteMessageBatch")
async def delete_message_batch(call: SqsCall) -> Output:
    """Delete messages."""

    async def delete(entry: inputs.DeleteMessageBatchEntry) -> Output:
        await call.gateway.settlements.ack([await _receipt(call, entry.ReceiptHandle)])
        return {}

    return await _each(call, call.input.Entries, delete)


@serves("ChangeMessageVisibility")
async def change_message_visibility(call: SqsCall) -> Output:
    """Make a message invisible for a time from now on; 0 makes it visible at once."""
    await _change(call, call.input.ReceiptHandle, call.input.VisibilityTimeout)
    return {}


@serves("ChangeMessageVisibilityBatch")
async def change_message_visibility_batch(call: SqsCall) -> Output:
    """Make messages invisible, each for a time of its own from now on."""

    async def change(entry: inputs.ChangeMessageVisibilityBatchEntry) -> Output:
        await _change(call, entry.ReceiptHandle, entry.visibility())
        return {}

    return await _each(call, call.input.Entries, change)


async def _change(call: SqsCall, handle: str, seconds: int) -> None:
    receipt, time = await _receipt(call, handle), _held(call, timedelta(seconds=seconds))
    received = handle.rpartition(_RECEIVED_AT)[2]
    held = int(milliseconds(call.now)) - int(received) + seconds * 1_000
    if seconds and held > inputs.LONGEST_VISIBILITY * 1_000:
        reason = (
            "Total VisibilityTimeout for the message is beyond the limit "
            f"[{inputs.LONGEST_VISIBILITY} seconds]"
        )
        raise InvalidParameterValue.of(seconds, "VisibilityTimeout", reason)
    action = Action("extend", time) if time else Action("release")
    (is_done,) = await call.gateway.settlements.settle([receipt], action)
    if not is_done:
        raise MessageNotInflight


async def _receipt(call: SqsCall, handle: str) -> Receipt:
    """The receipt that a handle stands for. No read, unless it stands for none.

    Raises:
        ReceiptHandleIsInvalid: The handle is none of this queue.
        NotFoundError: There is no such queue, either.
    """
    pop_receipt, _, received = handle.rpartition(_RECEIVED_AT)
    try:
        if MILLISECONDS.fullmatch(received):
            return call.gateway.receipts.parse(pop_receipt, call.queue)
    except RefusedError:
        pass
    await call.known_queue()
    raise ReceiptHandleIsInvalid.of(handle)


def _held(call: SqsCall, time: timedelta) -> timedelta:
    """The time for which a message is withheld from others, if the sender may do this."""
    longest = _longest_lease(call)
    if time > longest:
        raise InvalidParameterValue.of(
            int(time.total_seconds()),
            "VisibilityTimeout",
            f"This key holds messages for {longest.total_seconds():.0f} s at the most.",
        )
    return time


def _longest_lease(call: SqsCall) -> timedelta:
    limits = call.gateway.limits
    may_hold = Right.UPDATE_MESSAGE in call.grant.rights
    return limits.lease if may_hold else limits.read_lease


async def _each(
    call: SqsCall, entries: Sequence[_Entry], do: Callable[[_Entry], Awaitable[Output]]
) -> dict[str, list[Any]]:
    """Run an operation for each entry of a batch; a failed entry does not harm the others.

    Raises:
        AccessDenied: The sender may not use the queue, so the whole batch is refused.
        QueueDoesNotExist: There is no such queue; likewise.
    """
    _ = call.queue
    outcomes = await asyncio.gather(*map(do, entries), return_exceptions=True)
    successful: list[Any] = []
    failed: list[Any] = []
    for entry, outcome in zip(entries, outcomes, strict=True):
        if isinstance(outcome, Exception):
            error = error_of(outcome, "sqs")
            if isinstance(error, QueueDoesNotExist):
                raise error
            failed.append(entry.failure(error))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            successful.append({"Id": entry.Id, **outcome})
    return {"Successful": successful, "Failed": failed}
