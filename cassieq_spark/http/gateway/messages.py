"""Messages: put, receive, settle and peek, one at a time as CassieQ's clients do, or many."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Message, NewMessage, StoredMessage
from cassieq_spark.errors import MessageError, SchemaError
from cassieq_spark.http.accounts import Right
from cassieq_spark.http.gateway.coalescer import Action
from cassieq_spark.http.gateway.errors import RefusedError
from cassieq_spark.http.gateway.formats import (
    ARROW,
    LINES,
    read_arrow,
    read_lines,
    write_arrow,
    write_lines,
)
from cassieq_spark.http.gateway.requests import QUEUE, Call, Endpoint, decoded
from cassieq_spark.http.gateway.responses import (
    answer_with,
    body_of,
    json_array,
    json_object,
    message_as_json,
    message_json,
    parse_pop_receipt,
    positions_json,
    stored_json,
)
from cassieq_spark.http.gateway.schemas import (
    RECEIPT,
    ExtendedReceipts,
    PeekParameters,
    PositionParameters,
    PutParameters,
    ReceiptParameters,
    Receipts,
    ReceiveManyParameters,
    ReceiveParameters,
    RejectedReceipts,
    ReleasedReceipts,
    Update,
)
from cassieq_spark.http.gateway.tables import read_table, write_table
from cassieq_spark.model import Positions
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings.position import POSITION, StartingPosition

T = TypeVar("T")

#: A lease of no time lasts this long: in CassieQ the next get had the message again.
_SHORTEST_LEASE = timedelta(milliseconds=1)

_BYTES = "application/octet-stream"
#: More digits than a monoton has.
_MONOTON = re.compile("[0-9]{1,19}")

_STORED = {
    "message": "hello",
    "encoding": "text",
    "partition": 0,
    "monoton": 0,
    "key": None,
    "keyEncoding": "text",
    "headers": {},
    "publishedAt": "2026-11-20T12:00:00Z",
}
_RECEIVED = {
    "popReceipt": RECEIPT,
    "deliveryCount": 1,
    "messageTag": "0",
    "leaseUntil": "2026-11-20T12:00:30Z",
    **_STORED,
}
_STALE = {409: "The receipt is stale"}
_NO_GROUP = {409: "The group was deleted, or the queue is being purged or deleted"}
_SETTLED = {200: "The messages are settled, except for the stale receipts listed"}


@Endpoint(
    "POST",
    QUEUE + "/messages",
    Right.PUT_MESSAGE,
    query=PutParameters,
    body=("text/plain", _BYTES, "application/json"),
    answers={
        200: "The message was put before, under the same Idempotency-Key",
        201: "The message is published and durable",
    },
    examples={200: {"monoton": None}, 201: {"monoton": 0}},
)
async def put(call: Call) -> Response:
    """Put a message: the body, byte by byte."""
    gateway, queue, query = call.gateway, call.queue, call.query
    delay, visible_at = seconds(query.initial_invisibility_seconds) or None, query.visible_at
    gateway.storage.check_messages(call.account)
    key, headers = call.message_key(), call.message_headers()
    if (name := call.idempotency_key()) is None:
        message = NewMessage(call.body, key, headers, delay, visible_at)
        monoton = await gateway.producers.put(queue, message)
    else:
        message = NewMessage(call.body, key, headers)
        monotons = await gateway.client.put_many(
            queue, [message], delay=delay, visible_at=visible_at, idempotency_key=name
        )
        if monotons is None:
            return JSONResponse({"monoton": None})
        ranges = monotons.by_partition.values() if isinstance(monotons, Positions) else [monotons]
        monoton = next(iter(ranges)).start
    gateway.storage.add_messages(call.account, 1)
    gateway.coalescer.wake(queue)
    return JSONResponse({"monoton": monoton}, 201)


@Endpoint(
    "GET",
    QUEUE + "/messages/next",
    Right.READ_MESSAGE,
    query=ReceiveParameters,
    answers={200: "The message", 204: "No message is available", **_NO_GROUP},
    examples={200: _RECEIVED},
)
async def receive(call: Call) -> Response:
    """Lease the next message."""
    messages = await _leased(call, 1)
    if not messages:
        return Response(status_code=204)
    admission, kind = call.gateway.admission, "application/json"
    return await answer_with(messages, _only, kind, admission=admission, account=call.account)


@Endpoint(
    "PUT",
    QUEUE + "/messages",
    Right.UPDATE_MESSAGE,
    query=ReceiptParameters,
    body=Update,
    answers={200: "The message is extended, released or replaced"} | _STALE,
    examples={200: {"popReceipt": RECEIPT, "messageTag": "0"}},
    example={"newInvisibilitySeconds": 300},
)
async def update(call: Call) -> Response:
    """Extend the lease of a message, release the message, or replace it by another one."""
    given = call.json(Update)
    receipt = parse_pop_receipt(call.query.pop_receipt, call.queue)
    if given.message is None:
        time = held_for(call, given.new_invisibility_seconds)
        action = Action("extend", time) if time else Action("release")
        (done,) = await call.gateway.settlements.settle([receipt], action)
    else:
        time = seconds(given.new_invisibility_seconds)
        call.gateway.storage.check_messages(call.account)
        done = not await call.gateway.client.replace(
            str(receipt),
            decoded(given.message, given.encoding, "message"),
            key=None if given.key is None else decoded(given.key, given.key_encoding, "key"),
            headers=given.headers,
            delay=time,
        )
    if not done:
        raise _stale(call)
    is_held = given.message is None and bool(time)
    return JSONResponse(
        {
            "popReceipt": call.query.pop_receipt if is_held else None,
            "messageTag": str(receipt.monoton),
        }
    )


@Endpoint(
    "DELETE",
    QUEUE + "/messages",
    Right.ACK_MESSAGE,
    query=ReceiptParameters,
    answers={204: "The message is acked"} | _STALE,
)
async def ack(call: Call) -> Response:
    """Ack a message."""
    receipt = parse_pop_receipt(call.query.pop_receipt, call.queue)
    (done,) = await call.gateway.settlements.ack([receipt])
    if not done:
        raise _stale(call)
    return Response(status_code=204)


@Endpoint(
    "POST",
    QUEUE + "/messages/batch",
    Right.PUT_MESSAGE,
    query=PutParameters,
    body=(LINES, ARROW),
    answers={
        200: "The messages were put before, under the same Idempotency-Key",
        201: "The messages are published and durable",
        415: "The body is neither JSON lines nor Arrow",
    },
    examples={200: {"start": None, "stop": None}, 201: {"start": 0, "stop": 2}},
    is_batch=True,
)
async def put_many(call: Call) -> Response:
    """Put messages that become visible together, or never."""
    gateway, queue, query = call.gateway, call.queue, call.query
    if query.key is not None or call.message_headers() is not None:
        raise RefusedError(
            "the messages of a batch have keys and headers of their own: leave out 'key' and "
            "X-Cassieq-Headers"
        )
    gateway.storage.check_messages(call.account)
    kind = _media_type(call.request.headers.get("content-type", LINES))
    limits, size = gateway.limits, 0
    # In a thread, as a large batch would block the loop.
    if kind == LINES:
        messages = await asyncio.to_thread(read_lines, call.body, limits.batch_count)
    elif kind == ARROW:
        columns = await _columns(call)
        read = read_arrow if columns is None else partial(read_table, columns=columns)
        messages, size = await asyncio.to_thread(
            read, call.body, most=limits.batch_count, most_bytes=limits.batch_bytes
        )
    else:
        raise RefusedError(f"a batch is {LINES} or {ARROW}, not {kind[:60]!r}", 415)
    with gateway.admission.decoded(call.sender, size):
        monotons = await gateway.client.put_many(
            queue,
            messages,
            delay=seconds(query.initial_invisibility_seconds) or None,
            visible_at=query.visible_at,
            idempotency_key=call.idempotency_key(),
        )
    gateway.coalescer.wake(queue)
    if monotons is None:
        return JSONResponse({"start": None, "stop": None})
    gateway.storage.add_messages(call.account, len(messages))
    return JSONResponse(positions_json(monotons), 201)


@Endpoint(
    "POST",
    QUEUE + "/messages/receive",
    Right.READ_MESSAGE,
    query=ReceiveManyParameters,
    answers={200: "Messages", 204: "No message is available", **_NO_GROUP},
    other_examples={
        LINES: json_object(_RECEIVED).decode() + "\n",
        ARROW: "columns popReceipt, deliveryCount, partition, monoton, key, headers, ..., value",
    },
)
async def receive_many(call: Call) -> Response:
    """Lease messages; the answer is JSON lines, or Arrow if the request accepts that."""
    kind = _media_type(call.request.headers.get("accept", "*/*"))
    most = call.gateway.limits.batch_count
    if call.query.max > most:
        raise RefusedError(f"max is {call.query.max}: the limit is {most}")
    # Before anything is leased, as it may fail.
    columns = await _columns(call) if kind == ARROW else None
    messages = await _leased(call, call.query.max)
    if not messages:
        return Response(status_code=204)
    write: Callable[[Sequence[Message]], bytes] = write_lines
    if kind == ARROW:
        write = write_arrow if columns is None else partial(write_table, columns=columns)
    else:
        kind = LINES
    admission = call.gateway.admission
    try:
        return await answer_with(messages, write, kind, admission=admission, account=call.account)
    except (MessageError, SchemaError) as error:
        receipts = [Receipt.parse(each.receipt) for each in messages]
        await call.gateway.settlements.settle(receipts, Action("release"))
        raise RefusedError(
            "the schema of the queue was changed just now: send the request again", 409
        ) from error


@Endpoint(
    "POST",
    QUEUE + "/messages/ack",
    Right.ACK_MESSAGE,
    body=Receipts,
    answers=_SETTLED,
    examples={200: {"stale": []}},
    example={"popReceipts": [RECEIPT]},
    is_batch=True,
)
async def ack_many(call: Call) -> Response:
    """Ack messages."""
    return await _settle(call, call.json(Receipts), None)


@Endpoint(
    "POST",
    QUEUE + "/messages/release",
    Right.UPDATE_MESSAGE,
    body=ReleasedReceipts,
    answers=_SETTLED,
    examples={200: {"stale": []}},
    example={"popReceipts": [RECEIPT], "delaySeconds": 60},
    is_batch=True,
)
async def release(call: Call) -> Response:
    """Release messages: they are delivered again, at once or after a delay."""
    given = call.json(ReleasedReceipts)
    return await _settle(call, given, Action("release", held_for(call, given.delay_seconds)))


@Endpoint(
    "POST",
    QUEUE + "/messages/extend",
    Right.UPDATE_MESSAGE,
    body=ExtendedReceipts,
    answers=_SETTLED,
    examples={200: {"stale": []}},
    example={"popReceipts": [RECEIPT], "seconds": 300},
    is_batch=True,
)
async def extend(call: Call) -> Response:
    """Extend leases: they end this many seconds from now."""
    given = call.json(ExtendedReceipts)
    return await _settle(call, given, Action("extend", held_for(call, given.seconds)))


@Endpoint(
    "POST",
    QUEUE + "/messages/reject",
    Right.ACK_MESSAGE,
    body=RejectedReceipts,
    answers=_SETTLED,
    examples={200: {"stale": []}},
    example={"popReceipts": [RECEIPT], "reason": "no such customer"},
    is_batch=True,
)
async def reject(call: Call) -> Response:
    """Send messages to the dead-letter queue."""
    given = call.json(RejectedReceipts)
    return await _settle(call, given, Action("reject", reason=given.reason))


@Endpoint(
    "GET",
    QUEUE + "/messages",
    Right.READ_MESSAGE,
    query=PeekParameters,
    answers={200: "Messages", 409: "There is no such position"},
    examples={200: [_STORED]},
)
async def peek(call: Call) -> Response:
    """Show stored messages, leased and settled ones included; leases nothing."""
    start, gateway = position(call.query.start), call.gateway
    admission, kind, limit = gateway.admission, "application/json", gateway.limits.answer_bytes
    async with admission.peeks:
        admission.check_answers(call.account)
        found = await gateway.client.peek(
            call.queue, max=call.query.max, start=start, max_bytes=limit
        )
        return await answer_with(found, _array, kind, admission=admission, account=call.account)


@Endpoint(
    "GET",
    QUEUE + "/messages/{monoton}",
    Right.READ_MESSAGE,
    query=PositionParameters,
    answers={
        200: "The message: JSON or, with Accept: application/octet-stream, its bytes alone",
        404: "There is no such queue; or no such message: `reason` is NotYet or Deleted",
    },
    examples={200: {**_STORED, "value": None}},
    other_examples={_BYTES: "hello"},
)
async def get_message(call: Call) -> Response:
    """Show one stored message by its position, leased or settled; leases nothing."""
    text, admission = call.names["monoton"], call.gateway.admission
    if not _MONOTON.fullmatch(text):
        raise RefusedError(
            f"{text[:60]!r} is not the position of a message: expected a whole number from 0", 404
        )
    kind, encode = _media_type(call.request.headers.get("accept", "")), message_as_json
    if kind == _BYTES:
        encode = body_of
    else:
        kind = "application/json"
    async with admission.peeks:
        admission.check_answers(call.account)
        found = await call.gateway.client.message(
            call.queue, int(text), partition=call.query.partition
        )
        answer = await answer_with(
            [found], lambda it: encode(it[0]), kind, admission=admission, account=call.account
        )
    # Bytes of strangers: no browser is to take them for a page.
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


async def _columns(call: Call) -> pa.Schema | None:
    """The schema of the queue; None if it has none. One read."""
    ddl = (await call.gateway.client.queue(call.queue)).schema
    return None if ddl is None else schema_of(ddl)


async def _leased(call: Call, most: int) -> list[Message]:
    """Lease messages; if the client disconnects while it waits, they are released."""
    query, gateway = call.query, call.gateway
    gateway.admission.check_answers(call.account)
    lease, longest, given = None, None, query.invisibility_time_seconds
    if given is None:
        longest = _longest_lease(call)
    else:
        lease = max(_SHORTEST_LEASE, held_for(call, given))
    wait, limit = seconds(query.wait), gateway.limits.wait
    if wait > limit:
        raise RefusedError(
            f"wait is {query.wait:g} s: the limit is {_shown(limit)}; send another request then"
        )
    receiving = partial(
        gateway.coalescer.receive,
        call.queue,
        query.group,
        most=most,
        lease=lease,
        longest=longest,
        wait=wait,
    )
    if not wait:
        return await receiving()
    polls = gateway.admission.polls
    polls.take(call.sender)
    try:
        return await _unless_disconnected(call.request, receiving()) or []
    finally:
        polls.give(call.sender)


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Await ``work``; cancel it if the client disconnects meanwhile, and return None."""
    ours = asyncio.current_task()
    disconnected = asyncio.ensure_future(_disconnected(request))

    def leave(_: asyncio.Future[None]) -> None:
        if ours is not None:
            ours.cancel()

    disconnected.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if ours is None or not disconnected.done() or ours.uncancel():
            raise
        return None
    finally:
        disconnected.remove_done_callback(leave)
        disconnected.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _settle(call: Call, given: Receipts, action: Action | None) -> Response:
    """Settle messages of one queue; acks if there is no action."""
    most = call.gateway.limits.batch_count
    if len(given.pop_receipts) > most:
        raise RefusedError(f"{len(given.pop_receipts)} receipts: the limit is {most}")
    queue, settlements = call.queue, call.gateway.settlements
    receipts = [parse_pop_receipt(each, queue) for each in given.pop_receipts]
    done = await (settlements.settle(receipts, action) if action else settlements.ack(receipts))
    pairs = zip(given.pop_receipts, done, strict=True)
    return JSONResponse({"stale": [receipt for receipt, is_done in pairs if not is_done]})


def seconds(count: float) -> timedelta:
    """A number of seconds as a duration, to the millisecond."""
    return timedelta(milliseconds=round(count * 1000))


def held_for(call: Call, count: float) -> timedelta:
    """A number of seconds for which messages are withheld from others, if the sender may do that.

    Raises:
        RefusedError: 400; nobody may. 403; that takes the right to update.
    """
    limits, time = call.gateway.limits, seconds(count)
    if time > limits.lease:
        raise RefusedError(
            f"messages are held for {_shown(limits.lease)} at the most: extend the lease later"
        )
    if time > _longest_lease(call):
        raise RefusedError(
            f"without the right UpdateMessage, messages are held for {_shown(limits.read_lease)} "
            "at the most",
            403,
        )
    return time


def _longest_lease(call: Call) -> timedelta:
    limits = call.gateway.limits
    return limits.lease if call.may(Right.UPDATE_MESSAGE) else limits.read_lease


def position(text: str) -> StartingPosition:
    """A position in a queue.

    Raises:
        RefusedError: 400; the text is not a position.
    """
    try:
        return POSITION.parse(text)
    except ValueError as error:
        raise RefusedError(f"a position must be {POSITION.name}, not {text[:60]!r}") from error


def _only(messages: Sequence[Message]) -> bytes:
    return json_object(message_json(messages[0]))


def _array(found: Sequence[StoredMessage]) -> memoryview:
    return json_array(map(stored_json, found))


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def _shown(time: timedelta) -> str:
    return f"{time.total_seconds():g} s"


def _stale(call: Call) -> RefusedError:
    return RefusedError(
        "the receipt is stale: the message was settled, or its lease ended and it is delivered "
        "again",
        409,
        details={"stale": [call.query.pop_receipt]},
    )
