"""Single messages: put, get, update, ack, as CassieQ's clients ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cassieq_spark.client import Message, NewMessage
from cassieq_spark.http.accounts import Level
from cassieq_spark.http.gateway.answers import message_json, parse_pop_receipt
from cassieq_spark.http.gateway.endpoint import QUEUE, Call, Endpoint
from cassieq_spark.http.gateway.headers import decoded, headers_of, idempotency_key
from cassieq_spark.http.gateway.large_answers import answer_with, json_object
from cassieq_spark.http.gateway.payloads import (
    GetParameters,
    PutParameters,
    ReceiptParameters,
    Update,
)
from cassieq_spark.http.gateway.refusals import RefusedError
from cassieq_spark.http.gateway.settles import Action
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
)
