"""Single messages: put, get, update, ack, as CassieQ's clients ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Message, NewMessage, StoredMessage
from cassieq_spark.http.accounts import Level
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
from cassieq_spark.http.gateway.requests import (
    QUEUE,
    Call,
    Endpoint,
    decoded,
    headers_of,
    idempotency_key,
)
from cassieq_spark.http.gateway.responses import (
    answer_with,
    json_array,
    json_object,
    message_json,
    parse_pop_receipt,
    stored_json,
)
from cassieq_spark.http.gateway.schemas import (
    BatchParameters,
    ExtendedReceipts,
    GetParameters,
    PeekParameters,
    PutParameters,
    ReceiptParameters,
    Receipts,
    RejectedReceipts,
    ReleasedReceipts,
    Update,
)
from cassieq_spark.settings.position import POSITION, StartingPosition

T = TypeVar("T")

#: What a lease of no time is: CassieQ's next get had the message again.
_SHORTEST_LEASE = timedelta(milliseconds=1)


async def put(call: Call) -> Response:
    """Publish the body."""
    queue, query = call.queue, call.query
    delay = seconds(query.initial_invisibility_seconds)
    call.gateway.holdings.check_messages(call.account)
    if (name := idempotency_key(call.request, call.scope)) is not None:
        return await _put_once(call, queue, name)
    monoton = await call.gateway.puts.put(
        queue,
        call.body,
        key=key_of(call),
        headers=headers_of(call.request),
        delay=delay or None,
        visible_at=query.visible_at,
    )
    call.gateway.holdings.add_messages(call.account, 1)
    call.gateway.turns.wake(queue)
    return JSONResponse({"monoton": monoton}, 201)


async def get(call: Call) -> Response:
    """Lease the next message."""
    messages = await receive(call, 1)
    if not messages:
        return Response(status_code=204)
    room, kind = call.gateway.room, "application/json"
    return await answer_with(messages, _single, kind, room=room, account=call.account)


def _single(messages: Sequence[Message]) -> bytes:
    return json_object(message_json(messages[0]))


async def update(call: Call) -> Response:
    """Hold a message for longer, give it back, or put another one in its place."""
    given = call.json(Update)
    queue = call.queue
    receipt = parse_pop_receipt(call.query.pop_receipt, queue)
    time = seconds(given.new_invisibility_seconds)
    if given.message is None:
        time = held_for(call, given.new_invisibility_seconds)
        action = Action("extend", time) if time else Action("release")
        (done,) = await call.gateway.settles.settle([receipt], action)
    else:
        call.gateway.holdings.check_messages(call.account)
        stale = await call.gateway.client.replace(str(receipt), given.message, delay=time)
        done = not stale
    if not done:
        raise _stale()
    held = given.message is None and bool(time)
    return JSONResponse(
        {
            "popReceipt": call.query.pop_receipt if held else None,
            "messageTag": str(receipt.monoton),
        }
    )


async def ack(call: Call) -> Response:
    """A message is done."""
    receipt = parse_pop_receipt(call.query.pop_receipt, call.queue)
    (done,) = await call.gateway.settles.ack([receipt])
    if not done:
        raise _stale()
    return Response(status_code=204)


async def receive(call: Call, most: int) -> list[Message]:
    """Lease messages; if whoever asks goes away while waiting, what came is given back."""
    query = call.query
    call.gateway.room.check_answers(call.account)
    wait = seconds(query.wait)
    if wait > call.gateway.limits.wait:
        raise RefusedError(
            f"wait is {query.wait:g} s: the limit is {call.gateway.limits.wait.total_seconds():g} "
            "s; ask again"
        )
    get = partial(
        call.gateway.turns.get,
        call.queue,
        query.group,
        most=most,
        lease=max(_SHORTEST_LEASE, held_for(call, query.invisibility_time_seconds)),
        wait=wait,
    )
    if not wait:
        return await get()
    with call.gateway.room.polls.one(call.sender):
        messages = await _unless_gone(call.request, get())
    return messages or []


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Do something, unless whoever asked goes away meanwhile; then None."""
    ours = asyncio.current_task()
    gone = asyncio.ensure_future(_gone(request))

    def leave(_: asyncio.Future[None]) -> None:
        if ours is not None:
            ours.cancel()

    gone.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if ours is None or not gone.done() or ours.uncancel():
            raise
        return None
    finally:
        gone.remove_done_callback(leave)
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _put_once(call: Call, queue: str, name: str) -> Response:
    query = call.query
    monotons = await call.gateway.client.put_many(
        queue,
        [NewMessage(call.body, key_of(call), headers_of(call.request))],
        delay=seconds(query.initial_invisibility_seconds) or None,
        visible_at=query.visible_at,
        idempotency_key=name,
    )
    call.gateway.turns.wake(queue)
    if monotons is None:
        return JSONResponse({"monoton": None})
    call.gateway.holdings.add_messages(call.account, 1)
    return JSONResponse({"monoton": monotons.start}, 201)


def key_of(call: Call) -> bytes | None:
    """The key of a message that is put alone.

    Raises:
        RefusedError: 400; it is not Base64.
    """
    key = call.query.key
    return None if key is None else decoded(key, call.query.key_encoding, "key")


def seconds(count: float) -> timedelta:
    """So many seconds, to the millisecond."""
    return timedelta(milliseconds=round(count * 1000))


def held_for(call: Call, count: float) -> timedelta:
    """For how long messages are kept from others, if who asks may keep them for so long.

    Raises:
        RefusedError: 400; nobody may. 403; that takes the right to update.
    """
    limits, time = call.gateway.limits, seconds(count)
    if time > limits.lease:
        raise RefusedError(
            f"messages are held for {_shown(limits.lease)} at the most: extend them"
        )
    if time > limits.read_lease and not call.may(Level.UPDATE_MESSAGE):
        raise RefusedError(
            f"without the right UpdateMessage, messages are held for {_shown(limits.read_lease)} "
            "at the most",
            403,
        )
    return time


def _shown(time: timedelta) -> str:
    return f"{time.total_seconds():g} s"


def position(text: str) -> StartingPosition:
    """Read where something begins.

    Raises:
        RefusedError: 400; it is no position.
    """
    try:
        return POSITION.parse(text)
    except ValueError as error:
        raise RefusedError(f"a position must be {POSITION.name}, not {text[:60]!r}") from error


def _stale() -> RefusedError:
    return RefusedError(
        "this message is not held under this receipt any more: it was settled, or its time is "
        "over and it is being reprocessed",
        409,
    )


async def put_batch(call: Call) -> Response:
    """Publish messages that become visible together, or never."""
    queue, query = call.queue, call.query
    if query.key is not None or headers_of(call.request) is not None:
        raise RefusedError(
            "the messages of a batch have keys and headers of their own: leave 'key' and "
            "X-Cassieq-Headers out"
        )
    call.gateway.holdings.check_messages(call.account)
    kind = _media_type(call.request.headers.get("content-type", LINES))
    limits, body, size = call.gateway.limits, call.body, 0
    # In a thread: a large batch would hold up everybody else.
    if kind == LINES:
        messages = await asyncio.to_thread(read_lines, body, limits.batch_count)
    elif kind == ARROW:
        messages, size = await asyncio.to_thread(
            read_arrow, body, limits.batch_count, limits.batch_bytes
        )
    else:
        raise RefusedError(f"a batch is {LINES} or {ARROW}, not {kind[:60]!r}", 415)
    with call.gateway.room.decoded(call.sender, size):
        monotons = await call.gateway.client.put_many(
            queue,
            messages,
            delay=seconds(query.initial_invisibility_seconds) or None,
            visible_at=query.visible_at,
            idempotency_key=idempotency_key(call.request, call.scope),
        )
    call.gateway.turns.wake(queue)
    if monotons is None:
        return JSONResponse({"start": None, "stop": None})
    call.gateway.holdings.add_messages(call.account, len(messages))
    return JSONResponse({"start": monotons.start, "stop": monotons.stop}, 201)


async def get_batch(call: Call) -> Response:
    """Lease messages."""
    accepted = _media_type(call.request.headers.get("accept", "*/*"))
    most = call.gateway.limits.batch_count
    if call.query.max > most:
        raise RefusedError(f"max is {call.query.max}: the limit is {most}")
    messages = await receive(call, call.query.max)
    if not messages:
        return Response(status_code=204)
    write = write_arrow if accepted == ARROW else write_lines
    kind = ARROW if accepted == ARROW else LINES
    return await answer_with(messages, write, kind, room=call.gateway.room, account=call.account)


async def ack_batch(call: Call) -> Response:
    """Messages are done."""
    return await _settle(call, call.json(Receipts), None)


async def release(call: Call) -> Response:
    """Messages go back."""
    given = call.json(ReleasedReceipts)
    return await _settle(call, given, Action("release", held_for(call, given.delay_seconds)))


async def extend(call: Call) -> Response:
    """Messages are held for longer."""
    given = call.json(ExtendedReceipts)
    return await _settle(call, given, Action("extend", held_for(call, given.seconds)))


async def reject(call: Call) -> Response:
    """Messages go to the dead-letter queue."""
    given = call.json(RejectedReceipts)
    return await _settle(call, given, Action("reject", reason=given.reason))


async def peek(call: Call) -> Response:
    """Look at messages."""
    start, gateway = position(call.query.start), call.gateway
    room, kind, limit = gateway.room, "application/json", gateway.limits.answer_bytes
    async with room.looks:
        room.check_answers(call.account)
        found = await gateway.client.peek(
            call.queue, max=call.query.max, start=start, max_bytes=limit
        )
        return await answer_with(found, _peeked, kind, room=room, account=call.account)


def _peeked(found: Sequence[StoredMessage]) -> bytes:
    return json_array(map(stored_json, found))


async def _settle(call: Call, given: Receipts, action: Action | None) -> Response:
    most = call.gateway.limits.batch_count
    if len(given.pop_receipts) > most:
        raise RefusedError(f"{len(given.pop_receipts)} receipts: the limit is {most}")
    queue = call.queue
    receipts: Sequence[Receipt] = [parse_pop_receipt(each, queue) for each in given.pop_receipts]
    settles = call.gateway.settles
    done = await (settles.settle(receipts, action) if action else settles.ack(receipts))
    pairs = zip(given.pop_receipts, done, strict=True)
    return JSONResponse({"stale": [receipt for receipt, is_done in pairs if not is_done]})


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


_SETTLED = {
    200: "Done, but for those that are told of as stale",
    404: "There is no such queue",
    422: "The body is not what it should be",
}

ENDPOINTS = (
    Endpoint(
        method="POST",
        path=QUEUE + "/messages",
        operation="putMessage",
        summary="Put a message: the body, as it is.",
        level=Level.PUT_MESSAGE,
        handler=put,
        query=PutParameters,
        body=("text/plain", "application/octet-stream", "application/json"),
        answers={
            200: "It was put before, under the same Idempotency-Key",
            201: "It is put, and will not be lost",
            404: "There is no such queue",
            413: "It is too large",
        },
    ),
    Endpoint(
        method="GET",
        path=QUEUE + "/messages/next",
        operation="getMessage",
        summary="Get the next message, and hold it for a time.",
        level=Level.READ_MESSAGE,
        handler=get,
        query=GetParameters,
        answers={200: "A message", 204: "There is none", 404: "There is no such queue"},
    ),
    Endpoint(
        method="PUT",
        path=QUEUE + "/messages",
        operation="updateMessage",
        summary="Hold a message for longer, give it back, or put another one in its place.",
        level=Level.UPDATE_MESSAGE,
        handler=update,
        query=ReceiptParameters,
        body=Update,
        answers={
            200: "Done",
            404: "There is no such queue",
            409: "It is not held under this receipt any more",
            422: "The body is not what it should be",
        },
    ),
    Endpoint(
        method="DELETE",
        path=QUEUE + "/messages",
        operation="ackMessage",
        summary="A message is done.",
        level=Level.ACK_MESSAGE,
        handler=ack,
        query=ReceiptParameters,
        answers={
            204: "Done",
            404: "There is no such queue",
            409: "It is not held under this receipt any more",
        },
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/messages/batch",
        operation="putMessages",
        summary="Put messages that become visible together, or never.",
        level=Level.PUT_MESSAGE,
        handler=put_batch,
        query=PutParameters,
        body=(LINES, ARROW),
        answers={
            200: "They were put before, under the same Idempotency-Key",
            201: "They are put, and will not be lost",
            404: "There is no such queue",
            413: "They are too large",
            415: "Neither JSON lines nor Arrow",
        },
        is_batch=True,
    ),
    Endpoint(
        method="GET",
        path=QUEUE + "/messages/batch",
        operation="getMessages",
        summary="Get messages, and hold them for a time: JSON lines, or Arrow if accepted.",
        level=Level.READ_MESSAGE,
        handler=get_batch,
        query=BatchParameters,
        answers={200: "Messages", 204: "There is none", 404: "There is no such queue"},
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/messages/ack",
        operation="ackMessages",
        summary="Messages are done.",
        level=Level.ACK_MESSAGE,
        handler=ack_batch,
        body=Receipts,
        answers=_SETTLED,
        is_batch=True,
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/messages/nack",
        operation="nackMessages",
        summary="Give messages back, to be delivered again, at once or later.",
        level=Level.UPDATE_MESSAGE,
        handler=release,
        body=ReleasedReceipts,
        answers=_SETTLED,
        is_batch=True,
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/messages/extend",
        operation="extendMessages",
        summary="Hold messages for so many seconds from now on.",
        level=Level.UPDATE_MESSAGE,
        handler=extend,
        body=ExtendedReceipts,
        answers=_SETTLED,
        is_batch=True,
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/messages/reject",
        operation="rejectMessages",
        summary="Send messages to the dead-letter queue.",
        level=Level.ACK_MESSAGE,
        handler=reject,
        body=RejectedReceipts,
        answers=_SETTLED,
        is_batch=True,
    ),
    Endpoint(
        method="GET",
        path=QUEUE + "/messages",
        operation="peekMessages",
        summary="Look at messages, whoever has them; holds nothing.",
        level=Level.READ_MESSAGE,
        handler=peek,
        query=PeekParameters,
        answers={200: "Messages", 404: "There is no such queue", 409: "No such position"},
    ),
)
