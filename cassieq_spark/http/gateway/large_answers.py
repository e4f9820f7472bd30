"""Answers that may be large: encoded in a thread, sent in parts, counted until they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cassieq_spark.client import StoredMessage
from cassieq_spark.client.messages import size_of
from cassieq_spark.http.gateway.limits import Room

M = TypeVar("M", bound=StoredMessage)

#: Smaller ones are encoded and sent at once: that takes less than a thread, and less than 1 ms.
_LARGE = 64 << 10
_PART = 256 << 10
#: Who takes no part for so long gets no more: an answer that nobody reads is memory.
_PATIENCE = timedelta(seconds=10)
_JSON = "application/json"


async def answer_with(
    messages: Sequence[M],
    encode: Callable[[Sequence[M]], bytes | memoryview],
    media_type: str,
    *,
    room: Room,
    account: str,
) -> Response:
    """The answer that has these messages; large ones hold up nobody else.

    Args:
        messages: What it has.
        encode: Makes bytes of them.
        media_type: What these are.
        room: Where they are counted.
        account: Whose they are.
    """
    size = sum(map(size_of, messages))
    body = await asyncio.to_thread(encode, messages) if size > _LARGE else encode(messages)
    if len(body) > _LARGE:
        return LargeResponse(body, media_type, room, account)
    return Response(body, media_type=media_type)


def json_array(objects: Iterable[dict[str, object]]) -> memoryview:
    """A JSON array, made object by object, so that other threads have their turns."""
    array = bytearray(b"[")
    for each in objects:
        if len(array) > 1:
            array += b","
        array += json_object(each)
    array += b"]"
    return memoryview(array)


def json_object(values: dict[str, object]) -> bytes:
    """A JSON object, with text as UTF-8."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


class LargeResponse(Response):
    """An answer that is sent in parts, as fast as it is read.

    Args:
        body: All of it.
        media_type: What it is.
        room: Where it is counted until it is sent.
        account: To whom.
    """

    def __init__(
        self, body: bytes | memoryview, media_type: str, room: Room, account: str
    ) -> None:
        super().__init__(body, media_type=media_type)
        self._room, self._account = room, account

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; what is not read in time is cut off, with its connection."""
        _ = scope, receive
        body = memoryview(self.body)
        start = {"status": self.status_code, "headers": self.raw_headers}
        with self._room.answer(self._account, len(body)), suppress(TimeoutError):
            await send({"type": "http.response.start", **start})
            for at in range(0, len(body), _PART):
                part = {"body": bytes(body[at : at + _PART]), "more_body": at + _PART < len(body)}
                sending = send({"type": "http.response.body", **part})
                await asyncio.wait_for(sending, _PATIENCE.total_seconds())
