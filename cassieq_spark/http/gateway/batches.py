"""Many messages by one request, and what CassieQ had no words for: reject, peek."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.responses import JSONResponse, Response

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import StoredMessage
from cassieq_spark.http.accounts import Level
from cassieq_spark.http.gateway.answers import parse_pop_receipt, stored_json
from cassieq_spark.http.gateway.endpoint import QUEUE, Call, Endpoint
from cassieq_spark.http.gateway.formats import (
    ARROW,
    LINES,
    read_arrow,
    read_lines,
    write_arrow,
    write_lines,
)
from cassieq_spark.http.gateway.headers import headers_of, idempotency_key
from cassieq_spark.http.gateway.large_answers import answer_with, json_array
from cassieq_spark.http.gateway.messages import held_for, position, receive, seconds
from cassieq_spark.http.gateway.payloads import (
    BatchParameters,
    ExtendedReceipts,
    PeekParameters,
    PutParameters,
    Receipts,
    RejectedReceipts,
    ReleasedReceipts,
)
from cassieq_spark.http.gateway.refusals import RefusedError
from cassieq_spark.http.gateway.settles import Action


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


def _peeked(found: Sequence[StoredMessage]) -> memoryview:
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
