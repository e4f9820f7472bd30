"""Messages: put, receive, settle and peek, one at a time as CassieQ's clients do, or many."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cassieq_spark.client import Action, Message, NewMessage, StoredMessage, plain_event
from cassieq_spark.http.accounts import Right
from cassieq_spark.http.gateway.coalescer import Received
from cassieq_spark.http.gateway.formats import (
    ARROW,
    LINES,
    read_arrow,
    read_lines,
    write_arrow,
    write_lines,
)
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.pop_receipts import PopReceipts
from cassieq_spark.http.gateway.requests import QUEUE, Call, Endpoint, decoded
from cassieq_spark.http.gateway.responses import (
    HISTORY_EXAMPLE,
    RECEIVED_EXAMPLE,
    STORED_EXAMPLE,
    answer_of,
    answer_with,
    body_of,
    json_array,
    json_object,
    json_response,
    message_as_json,
    message_json,
    position_json,
    positions_json,
    stored_json,
)
from cassieq_spark.http.gateway.schemas import (
    RECEIPT,
    SETTLING,
    PeekParameters,
    PositionParameters,
    PutParameters,
    ReceiptParameters,
    Receipts,
    ReceiveManyParameters,
    ReceiveParameters,
    Update,
)
from cassieq_spark.http.gateway.tables import read_table, write_table
from cassieq_spark.http.serving.bodies import Sender
from cassieq_spark.http.serving.disconnects import has_left, unless_disconnected
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.model import Position, QueueDefinition
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings.position import POSITION, StartingPosition
from cassieq_spark.settings.verbs import VERBS, Verb

T = TypeVar("T")
M = TypeVar("M", bound=StoredMessage)

#: A lease of 0 seconds lasts this long; in CassieQ the next get has the message again.
SHORTEST_LEASE = timedelta(milliseconds=1)

_JSON, _BYTES = "application/json", "application/octet-stream"
#: More digits than a monoton has.
_MONOTON = re.compile("[0-9]{1,19}")

_STALE = {409: "The receipt is stale"}
_OTHER_PUT = {409: "The Idempotency-Key was used for other messages"}
_PUT_EXAMPLE = {"monoton": 0, "partition": 0, "version": 1, "repeated": False}
_NO_GROUP = {409: "The group was deleted, or the queue is being purged or deleted"}


@Endpoint(
    "POST",
    QUEUE + "/messages",
    Right.PUT_MESSAGE,
    query=PutParameters,
    body=("text/plain", _BYTES, _JSON),
    answers={
        200: "The message was put before, under the same Idempotency-Key or unique id",
        201: "The message is published and durable",
        **_OTHER_PUT,
    },
    examples={200: {**_PUT_EXAMPLE, "repeated": True}, 201: _PUT_EXAMPLE},
)
async def put(call: Call) -> Response:
    """Put a message: the body, byte by byte."""
    gateway, queue, query = call.gateway, call.queue, call.query
    gateway.storage.check_messages(call.account)
    message = NewMessage(
        call.body,
        call.message_key(),
        call.message_headers(),
        seconds(query.initial_invisibility_seconds) or None,
        query.visible_at,
        call.message_id(),
    )
    position: Position | None
    if (name := call.idempotency_key()) is None:
        position = await gateway.producers.put(queue, message)
    else:
        position = await gateway.client.put(queue, message, idempotency_key=name)
    if position is None or position.is_repeat:
        return json_response(position_json(position))
    gateway.storage.add_messages(call.account, 1, len(call.body))
    gateway.coalescer.wake(queue)
    return json_response(position_json(position), 201)


@Endpoint(
    "GET",
    QUEUE + "/messages/next",
    Right.READ_MESSAGE,
    query=ReceiveParameters,
    answers={200: "The message", 204: "No message is available", **_NO_GROUP},
    examples={200: RECEIVED_EXAMPLE},
)
async def receive(call: Call) -> Response:
    """Lease the next message."""
    return await _handed_over(call, await _leased(call, 1), _only)


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
    given, pop_receipt = call.json(Update), call.query.pop_receipt
    receipt = call.gateway.receipts.parse(pop_receipt, call.queue)
    time = timedelta(0)
    if given.message is None:
        time = held_for(call, given.new_invisibility_seconds)
        action = Action("extend", time) if time else Action("release")
        (done,) = await call.gateway.settlements.settle([receipt], action)
    else:
        call.gateway.storage.check_messages(call.account)
        done = not await call.gateway.client.replace(
            str(receipt),
            decoded(given.message, given.encoding, "message"),
            key=None if given.key is None else decoded(given.key, given.key_encoding, "key"),
            headers=given.headers,
            delay=seconds(given.new_invisibility_seconds),
        )
    if not done:
        raise _stale(call)
    held = {"popReceipt": pop_receipt if time else None, "messageTag": str(receipt.monoton)}
    return JSONResponse(held)


@Endpoint(
    "DELETE",
    QUEUE + "/messages",
    Right.ACK_MESSAGE,
    query=ReceiptParameters,
    answers={204: "The message is acked"} | _STALE,
)
async def ack(call: Call) -> Response:
    """Ack a message."""
    receipt = call.gateway.receipts.parse(call.query.pop_receipt, call.queue)
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
        **_OTHER_PUT,
        415: "The body is neither JSON lines nor Arrow",
    },
    examples={200: {"start": None, "stop": None}, 201: {"start": 0, "stop": 2}},
    is_batch=True,
)
async def put_many(call: Call) -> Response:
    """Put several messages atomically: all become visible together, or none does."""
    gateway, queue, query = call.gateway, call.queue, call.query
    if query.key is not None or call.message_headers() is not None:
        raise RefusedError(
            "the messages of a batch have keys and headers of their own: leave out 'key' and "
            "X-Cassieq-Headers"
        )
    gateway.storage.check_messages(call.account)
    kind = _media_type(call.request.headers.get("content-type", LINES))
    limits = gateway.limits
    with ExitStack() as held:
        # Decoded in a thread, because a large batch would block the loop.
        if kind == LINES:
            async with gateway.admission.decoders:
                messages = await asyncio.to_thread(read_lines, call.body, limits.batch_count)
        elif kind == ARROW:
            columns = await _columns(call)
            read = read_arrow if columns is None else partial(read_table, columns=columns)
            async with gateway.admission.decoders:
                messages, size = await asyncio.to_thread(
                    read, call.body, most=limits.batch_count, most_bytes=limits.batch_bytes
                )
                held.enter_context(gateway.admission.decoded(call.sender, size))
        else:
            raise RefusedError(f"a batch is {LINES} or {ARROW}, not {kind[:60]!r}", 415)
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
    if len(monotons):
        gateway.storage.add_messages(call.account, len(monotons), len(call.body))
    return JSONResponse(positions_json(monotons), 201)


@Endpoint(
    "POST",
    QUEUE + "/messages/receive",
    Right.READ_MESSAGE,
    query=ReceiveManyParameters,
    answers={200: "Messages", 204: "No message is available", **_NO_GROUP},
    other_examples={
        LINES: json_object(RECEIVED_EXAMPLE).decode() + "\n",
        ARROW: "columns popReceipt, deliveryCount, partition, monoton, key, headers, ..., value",
    },
)
async def receive_many(call: Call) -> Response:
    """Lease messages; the answer is JSON lines, or Arrow if the request accepts that."""
    kind = ARROW if _accepted(call) == ARROW else LINES
    most = call.gateway.limits.batch_count
    if call.query.max > most:
        raise RefusedError(f"max is {call.query.max}: the limit is {most}")
    messages = await _leased(call, call.query.max)
    write: Callable[[Sequence[Message], PopReceipts], bytes] = write_lines
    if kind == ARROW:
        columns = None if messages.queue is None else _columns_of(messages.queue)
        write = write_arrow if columns is None else partial(write_table, columns=columns)
    return await _handed_over(call, messages, write, kind)


def _settle_by(verb: Verb) -> None:
    """Declare the endpoint that settles messages with a verb."""
    body, parameter = SETTLING[verb.name], verb.parameter

    async def settle(call: Call) -> Response:
        given = call.json(body)
        if parameter is None:
            return await _settle(call, given, None)
        value = vars(given)["value"]
        value = held_for(call, value) if parameter.is_duration else value
        return await _settle(call, given, Action(verb.name, value))

    # A single message is acked by an endpoint of its own.
    settle.__name__ = "ack_many" if verb.name == "ack" else verb.name
    settle.__doc__ = verb.meaning
    example = {} if parameter is None else {parameter.by_http: parameter.plain(parameter.example)}
    Endpoint(
        "POST",
        f"{QUEUE}/messages/{verb.name}",
        Right(verb.right),
        body=body,
        answers={200: "The messages are settled, except for the stale receipts listed"},
        examples={200: {"stale": []}},
        example={"popReceipts": [RECEIPT], **example},
        is_batch=True,
    )(settle)


for _verb in VERBS.values():
    _settle_by(_verb)


@Endpoint(
    "GET",
    QUEUE + "/messages",
    Right.READ_MESSAGE,
    query=PeekParameters,
    answers={200: "Messages", 409: "There is no such position"},
    examples={200: [STORED_EXAMPLE]},
)
async def peek(call: Call) -> Response:
    """Show stored messages, including leased and settled ones; no message is leased."""
    start, gateway = position(call.query.start), call.gateway
    async with gateway.admission.peek(call.account):
        found = await gateway.client.peek(
            call.queue, max=call.query.max, start=start, max_bytes=gateway.limits.answer_bytes
        )
        return await _answer(call, found, _array)


@Endpoint(
    "GET",
    QUEUE + "/messages/{monoton}",
    Right.READ_MESSAGE,
    query=PositionParameters,
    answers={
        200: "The message: JSON or, with Accept: application/octet-stream, its bytes alone",
        404: "There is no such queue; or no such message: `reason` is NotYet or Deleted",
    },
    examples={200: {**STORED_EXAMPLE, "value": None}},
    other_examples={_BYTES: "hello"},
)
async def get_message(call: Call) -> Response:
    """Show one stored message by its position, even if it is leased or settled; leases nothing."""
    monoton, gateway = _monoton_of(call), call.gateway
    is_raw = _accepted(call) == _BYTES
    encode = body_of if is_raw else message_as_json
    async with gateway.admission.peek(call.account):
        found = await gateway.client.message(call.queue, monoton, partition=call.query.partition)
        kind = _BYTES if is_raw else _JSON
        return await _answer(call, [found], lambda it: encode(it[0]), kind)


@Endpoint(
    "GET",
    QUEUE + "/messages/{monoton}/history",
    Right.GET_QUEUE_INFORMATION,
    query=PositionParameters,
    answers={200: "Events, the earliest first"},
    examples={200: HISTORY_EXAMPLE},
)
async def history(call: Call) -> Response:
    """Show who got, extended, released, acked or rejected a message; only of queues that keep it.

    Best effort: events may be missing.
    """
    monoton, admission = _monoton_of(call), call.gateway.admission
    admission.check_answers(call.account)
    found = await call.gateway.client.history(call.queue, monoton, partition=call.query.partition)
    # Encoded in a thread, because a lease may be extended any number of times.
    body = await asyncio.to_thread(json_array, map(plain_event, found))
    return answer_of(body, _JSON, admission=admission, account=call.account)


def _monoton_of(call: Call) -> int:
    """The position of a message in the path.

    Raises:
        RefusedError: 404; no message can have this position.
    """
    text = call.names["monoton"]
    if not _MONOTON.fullmatch(text):
        raise RefusedError(
            f"{text[:60]!r} is not the position of a message: expected a whole number from 0", 404
        )
    return int(text)


async def _answer(
    call: Call,
    messages: Sequence[M],
    encode: Callable[[Sequence[M]], bytes | memoryview],
    kind: str = _JSON,
) -> Response:
    admission = call.gateway.admission
    return await answer_with(messages, encode, kind, admission=admission, account=call.account)


async def _handed_over(
    call: Call,
    messages: Sequence[Message],
    encode: Callable[[Sequence[Message], PopReceipts], bytes],
    kind: str = _JSON,
) -> Response:
    """Answer with leased messages; with 204 if there are none, or if the client has gone.

    A delivery counts only if the answer may have left (I8): if the encoding fails, or the client
    has disconnected meanwhile, the messages are given back.
    """
    if not messages:
        return Response(status_code=204)
    may_leave = False
    try:
        receipts = call.gateway.receipts
        answer = await _answer(call, messages, lambda some: encode(some, receipts), kind)
        may_leave = not has_left(call.request)
    finally:
        if not may_leave:
            call.gateway.coalescer.give_back(messages)
    return answer if may_leave else Response(status_code=204)


async def _columns(call: Call) -> pa.Schema | None:
    """The schema of the queue; None if the queue has no schema. One read."""
    return _columns_of(await call.gateway.client.queue(call.queue))


def _columns_of(queue: QueueDefinition) -> pa.Schema | None:
    return None if queue.schema is None else schema_of(queue.schema)


async def _leased(call: Call, most: int) -> Received:
    """Lease messages; if the client disconnects meanwhile, they are given back, uncounted."""
    query, gateway = call.query, call.gateway
    gateway.admission.check_answers(call.account)
    lease, longest, given = None, None, query.invisibility_time_seconds
    if given is None:
        longest = _longest_lease(call)
    else:
        lease = max(SHORTEST_LEASE, held_for(call, given))
    wait, limit = seconds(query.wait), gateway.limits.wait
    if wait > limit:
        raise RefusedError(
            f"wait is {query.wait:g} s: the limit is {_shown(limit)}; send another request then"
        )
    receive = partial(
        gateway.coalescer.receive,
        call.queue,
        query.group,
        most=most,
        lease=lease,
        longest=longest,
        wait=wait,
        attempt=query.attempt,
        key=call.sender.key,
    )
    if not wait:
        return await receive()
    return await polled(gateway, call.sender, call.request, receive)


async def polled(
    gateway: Gateway,
    sender: Sender,
    request: Request,
    receive: Callable[[], Coroutine[Any, Any, Received]],
) -> Received:
    """Receive messages for a waiting request; empty if its client disconnects meanwhile.

    Raises:
        RefusedError: 429; too many requests wait.
    """
    polls = gateway.admission.polls
    polls.take(sender)
    try:
        return await unless_disconnected(request, receive()) or Received()
    finally:
        polls.give(sender)


async def _settle(call: Call, given: Receipts, action: Action | None) -> Response:
    """Settle messages of one queue; without an action, ack them."""
    most = call.gateway.limits.batch_count
    if len(given.pop_receipts) > most:
        raise RefusedError(f"{len(given.pop_receipts)} receipts: the limit is {most}")
    queue, settlements = call.queue, call.gateway.settlements
    parse = call.gateway.receipts.parse
    receipts = [parse(each, queue) for each in given.pop_receipts]
    done = await (settlements.settle(receipts, action) if action else settlements.ack(receipts))
    pairs = zip(given.pop_receipts, done, strict=True)
    return JSONResponse({"stale": [receipt for receipt, is_done in pairs if not is_done]})


def seconds(count: float) -> timedelta:
    """Convert a number of seconds to a duration in whole milliseconds."""
    return timedelta(milliseconds=round(count * 1000))


def held_for(call: Call, count: float) -> timedelta:
    """Check for how many seconds messages are withheld from others; return the duration.

    Raises:
        RefusedError: 400; too long for any sender. 403; too long without the right UpdateMessage.
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
    """Parse a position in a queue.

    Raises:
        RefusedError: 400; the text is not a position.
    """
    try:
        return POSITION.parse(text)
    except ValueError as error:
        raise RefusedError(f"a position must be {POSITION.name}, not {text[:60]!r}") from error


def _only(messages: Sequence[Message], receipts: PopReceipts) -> bytes:
    return json_object(message_json(messages[0], receipts))


def _array(found: Sequence[StoredMessage]) -> memoryview:
    return json_array(map(stored_json, found))


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def _accepted(call: Call) -> str:
    return _media_type(call.request.headers.get("accept", ""))


def _shown(time: timedelta) -> str:
    return f"{time.total_seconds():g} s"


def _stale(call: Call) -> RefusedError:
    return RefusedError(
        "the receipt is stale: the message was settled, or its lease ended and it is delivered "
        "again",
        409,
        details={"stale": [call.query.pop_receipt]},
    )
