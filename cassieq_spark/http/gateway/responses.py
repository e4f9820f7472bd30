"""Answers: JSON with CassieQ's names, and large answers sent in parts."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cassieq_spark.client import Message, Stopped, StoredMessage, Survey
from cassieq_spark.http import BASE64, TEXT
from cassieq_spark.http.accounts import own_name
from cassieq_spark.http.gateway.admission import Admission
from cassieq_spark.http.gateway.pop_receipts import PopReceipts
from cassieq_spark.http.gateway.schemas import RECEIPT
from cassieq_spark.model import Order, Position, Positions, QueueDefinition, QueueId, Range
from cassieq_spark.queues.stats import GroupStats, QueueStats, http_figures
from cassieq_spark.schemas.to_rows import json_of, json_text
from cassieq_spark.settings.queue import http_settings

M = TypeVar("M", bound=StoredMessage)

#: Headers of each answer of an endpoint. No cache may keep the answer, even if a signed URL stands
#: for a key; and a browser may not take the bytes of strangers for a page.
PRIVATE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
#: Bytes from which on an answer is large. Smaller ones are encoded on the loop, in less than 1 ms,
#: and in less time than a thread takes.
LARGE = 64 << 10
_PART = 256 << 10
#: How long a client may take for a part: an answer that nobody reads occupies memory.
_PATIENCE = timedelta(seconds=10)

#: UTF-8 of fewer bytes is sent as text; longer UTF-8, if at most a fifth is control characters.
_SHORT = 1 << 10
_CONTROL_SHARE = 5
_CONTROLS = bytes(set(range(0x20)) - set(b"\t\n\r"))


def queue_json(queue: QueueDefinition) -> dict[str, Any]:
    """A queue's definition, with CassieQ's fields and the fields of this gateway."""
    account = queue.name.partition(":")[0]
    dead = queue.dead_letter_queue
    return {
        "accountName": account,
        "queueName": own_name(queue.name),
        **http_settings(queue),
        "status": "Active",
        "version": queue.version,
        "deleteBucketsAfterFinalization": True,
        "queueStatsId": queue.queue_id,
        "dlqName": own_name(dead) if dead and dead.startswith(f"{account}:") else dead,
        "dropDead": dead is None and queue.max_deliveries > 0,
        "strictFifo": queue.order is Order.STRICT,
        "id": queue.queue_id,
        "createdAt": _instant(queue.created_at),
    }


def position_json(position: Position | None) -> dict[str, Any]:
    """The position of a message; None: unknown, as its idempotency key was put before."""
    if position is None:
        return {"monoton": None, "partition": None, "version": None, "repeated": True}
    return {
        "monoton": int(position),
        "partition": position.partition,
        "version": position.version,
        "repeated": position.is_repeat,
    }


def positions_json(monotons: Range | Positions) -> dict[str, Any]:
    """The positions of messages that were put together; by partition if there are several."""
    if isinstance(monotons, Range):
        return {"start": monotons.start, "stop": monotons.stop}
    parts = sorted(monotons.by_partition.items())
    ranges = {str(at): {"start": each.start, "stop": each.stop} for at, each in parts}
    return {"start": None, "stop": None, "partitions": ranges}


def stats_json(stats: QueueStats) -> dict[str, Any]:
    """The counts of a queue; ``size`` is the count of the group with most unsettled messages."""
    stored = stats.next - stats.finalised
    counts = {
        "id": stats.queue_id,
        "size": max((group.depth for group in stats.groups), default=stored),
        "stored": stored,
        "settled": stats.settled,
        "next": stats.next,
        "finalised": stats.finalised,
        "groups": [http_figures(group) for group in stats.groups],
    }
    if stats.partitions:
        counts["partitions"] = [stats_json(each) for each in stats.partitions]
    return counts


def stored_json(message: StoredMessage) -> dict[str, Any]:
    """A stored message."""
    text, encoding = _encoded(body_of(message))
    key, key_encoding = (None, TEXT) if message.key is None else _encoded(message.key)
    return {
        "message": text,
        "encoding": encoding,
        "partition": message.partition,
        "monoton": message.monoton,
        "key": key,
        "keyEncoding": key_encoding,
        "headers": dict(message.headers),
        "publishedAt": _instant(message.published_at),
    }


def body_of(message: StoredMessage) -> bytes:
    """The value of a message: a JSON object if the queue has a schema."""
    value = message.value
    return json_text(value) if isinstance(value, dict) else bytes(value)


def message_as_json(message: StoredMessage) -> bytes:
    """A stored message with its value: a JSON object if the queue has a schema, else null."""
    value = json_of(message.value) if isinstance(message.value, dict) else None
    return json_object(stored_json(message) | {"value": value})


def message_json(message: Message, receipts: PopReceipts) -> dict[str, Any]:
    """A message that was leased to the client."""
    return {"popReceipt": receipts.of(message.receipt), **_delivery_json(message)}


def _delivery_json(message: Message) -> dict[str, Any]:
    return {
        "deliveryCount": message.delivery_count,
        "messageTag": str(message.monoton),
        "leaseUntil": _instant(message.lease_until),
        **stored_json(message),
    }


def dead_letters_json(found: Survey) -> memoryview:
    """Dead letters, grouped by origin and reason; ``queueId`` is the id of their queue."""
    return json_array(
        {
            "queueId": found.queue.queue_id,
            "originQueue": group.origin_queue,
            "originGroup": group.origin_group,
            "reason": group.reason,
            "count": group.monotons.count,
            "monotons": str(group.monotons),
            "first": _instant(group.first),
            "last": _instant(group.last),
        }
        for group in found.groups
    )


def stopped_json(found: Iterable[Stopped]) -> list[dict[str, Any]]:
    """Dead messages at which a group has stopped."""
    return [
        {
            "partition": each.partition,
            "monotons": str(each.monotons),
            "deliveries": each.deliveries,
            "reason": each.reason,
            "lastDeliveredAt": _instant(each.last_delivered_at),
        }
        for each in found
    ]


def _encoded(data: bytes) -> tuple[str, str]:
    """Encode bytes for JSON: as text if they are UTF-8 with few control characters, else Base64.

    JSON takes six bytes for a control character, so an answer could be six times as large as the
    stored bytes.
    """
    if len(data) < _SHORT or _control_bytes(data) <= len(data) // _CONTROL_SHARE:
        with suppress(UnicodeDecodeError):
            return data.decode(), TEXT
    return b64encode(data).decode(), BASE64


def _control_bytes(data: bytes) -> int:
    """The number of control characters except line ends and tabs."""
    return len(data) - len(data.translate(None, _CONTROLS))


def _instant(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at else None


async def answer_with(
    messages: Sequence[M],
    encode: Callable[[Sequence[M]], bytes | memoryview],
    media_type: str,
    *,
    admission: Admission,
    account: str,
) -> Response:
    """Make an answer with messages; a large one is encoded in a thread, and sent in parts.

    ``admission`` counts the bytes of a large answer for the account until it is sent.
    """
    size = sum(each.size for each in messages)
    body = await asyncio.to_thread(encode, messages) if size > LARGE else encode(messages)
    return answer_of(body, media_type, admission=admission, account=account)


def answer_of(
    body: bytes | memoryview, media_type: str, *, admission: Admission, account: str
) -> Response:
    """Make an answer with a body; a large one is sent in parts, and counted until it is sent."""
    return response_of(
        200,
        [(b"content-type", media_type.encode())],
        body,
        admission=admission,
        account=account,
    )


def response_of(
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes | memoryview,
    *,
    admission: Admission,
    account: str,
) -> Response:
    """Make an answer as `answer_of` does, with a status and all its headers but the length."""
    if len(body) > LARGE:
        return LargeResponse(status, headers, body, admission, account)
    return SmallResponse(status, headers, body)


def json_array(objects: Iterable[dict[str, object]]) -> memoryview:
    """Encode a JSON array object by object, so that other threads run in between."""
    array = bytearray(b"[")
    for each in objects:
        if len(array) > 1:
            array += b","
        array += json_object(each)
    array += b"]"
    return memoryview(array)


def json_object(values: dict[str, object]) -> bytes:
    """Encode a JSON object, with text as UTF-8."""
    return to_json(values)


class SmallResponse(Response):
    """An answer whose headers are bytes already, at a third of the cost of Starlette's.

    Args:
        status: The status.
        headers: All headers but the length, with names in lower case.
        body: The body.
    """

    def __init__(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes | memoryview
    ) -> None:
        self.status_code, self.body, self.background = status, body, None
        self.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]


def json_response(values: dict[str, object], status: int = 200) -> SmallResponse:
    """A small answer in JSON, at a fifth of the cost of Starlette's."""
    return SmallResponse(status, [(b"content-type", b"application/json")], json_object(values))


class LargeResponse(SmallResponse):
    """An answer that is sent in parts, as fast as the client reads."""

    def __init__(
        self,
        status: int,
        headers: list[tuple[bytes, bytes]],
        body: bytes | memoryview,
        admission: Admission,
        account: str,
    ) -> None:
        super().__init__(status, headers, body)
        self._admission, self._account = admission, account

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; if the client reads too slowly, stop, and so close the connection."""
        _ = scope, receive
        body = memoryview(self.body)
        start = {"status": self.status_code, "headers": self.raw_headers}
        with self._admission.answer(self._account, len(body)), suppress(TimeoutError):
            await send({"type": "http.response.start", **start})
            for at in range(0, len(body), _PART):
                part = {"body": bytes(body[at : at + _PART]), "more_body": at + _PART < len(body)}
                sending = send({"type": "http.response.body", **part})
                await asyncio.wait_for(sending, _PATIENCE.total_seconds())


_NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
#: Examples of answers, for the description.
QUEUE_EXAMPLE = queue_json(
    QueueDefinition(
        "acme:orders",
        version=1,
        max_deliveries=5,
        dead_letter_queue="acme:orders.dead",
        created_at=_NOON,
    )
)
_GROUP = GroupStats("default", 3, 1, 0, 0, 0, timedelta(seconds=1.5), pointer=1, floor=0)
STATS_EXAMPLE = stats_json(QueueStats(QueueId("acme:orders@1"), 0, 3, (_GROUP,)))
STORED_EXAMPLE = stored_json(StoredMessage("acme:orders", 0, None, b"hello", {}, _NOON))
_RECEIVED = Message("acme:orders", 0, None, b"hello", {}, _NOON, "default", 1, "", _NOON)
RECEIVED_EXAMPLE = {"popReceipt": RECEIPT, **_delivery_json(_RECEIVED)}
HISTORY_EXAMPLE = [
    {
        "at": "2026-11-20T12:00:00.000Z",
        "did": "leased",
        "group": "default",
        "by": "primary",
        "delivery": 1,
        "lease": "1267ade1-d684-4bd9-809a-b561e7bf5f98",
        "monotons": "0",
        "reason": None,
    }
]
