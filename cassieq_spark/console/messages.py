"""The pages that show messages: by position, time and key, a single message whole, its history.

They lease nothing. Bytes are untrusted: they are shown as text, and sent only as a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from starlette.responses import Response

from cassieq_spark.client.receiver import read_stored, within
from cassieq_spark.console import show
from cassieq_spark.console.pages import PageCall, page
from cassieq_spark.console.queue import about_queue
from cassieq_spark.console.watcher import Looked
from cassieq_spark.consumer.message import StoredMessage
from cassieq_spark.errors import LeaseLostError, NotFoundError, OptionError
from cassieq_spark.fetch.read import Unreadable
from cassieq_spark.groups.history import read_history
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, Range, Ranges, from_millis
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.schemas.ddl import ddl_type, schema_of
from cassieq_spark.settings.position import StartingPosition, parse_position
from cassieq_spark.store.protocol import Store

#: Choices of messages per page.
PER_PAGE = (20, 50, 100, 200)
DEFAULT_PER_PAGE = 50
#: Maximum bytes of messages on a page, approximately.
_PAGE_BYTES = 4 << 20
#: How many messages, and bytes of them, are searched for a key at a time.
SEARCHED, _SEARCHED_BYTES = 20_000, 64 << 20
#: How many columns of a typed queue the table has; the page of a message has all.
_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a page of messages.

    Attributes:
        messages: The messages, in order.
        unreadable: The unreadable messages among them, and the reasons.
        looked: The monotons that were read.
        gone: Why the next messages could not be read; they were deleted meanwhile, or are lost.
    """

    messages: Sequence[StoredMessage]
    unreadable: Sequence[tuple[Ranges, str]]
    looked: Range
    gone: str | None = None


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a message stands in a group.

    Attributes:
        group: The name of the group.
        kind: ``settled``, ``leased``, ``due``, ``waiting``, ``dead`` or ``fresh``.
        at: Until when the message is leased, or when it is due; None if neither.
        deliveries: How often the message was handed out, as far as known.
        detail: The lease and who has it, or the reason.
    """

    group: str
    kind: str
    at: datetime | None = None
    deliveries: int | None = None
    detail: str | None = None


@page("/queues/{queue}/messages")
def messages(call: PageCall) -> Response:
    """Show messages from a position on, or those with a key. About one read per bucket."""
    looked = call.console.watcher.read(call.name())
    queue = looked.record.definition
    key = call.asked("key")
    wanted = show.parse_bytes(key) if key else None
    number = _partition_of(call, queue, wanted)
    part, head = queue.of_partition(number), looked.looks[number].head
    limit = call.number("n", DEFAULT_PER_PAGE, least=1, most=PER_PAGE[-1])
    at = call.asked("from").strip() or "latest"
    start = _start_of(call, part, head, at, 0 if wanted is not None else limit)
    found = look(call.console.watcher.looking, part, head, start, limit=limit, key=wanted)
    columns = list(schema_of(queue.schema)) if queue.schema else []
    stop = max(head.finalised, found.looked.start)
    return call.render(
        "messages.html",
        **about_queue(call, looked),
        found=found,
        columns=[(each.name, _is_number(each.type)) for each in columns[:_COLUMNS]],
        more_columns=max(0, len(columns) - _COLUMNS),
        head=head,
        partition=number if queue.partitions > 1 else None,
        at=at,
        key=key,
        limit=limit,
        limits=PER_PAGE,
        earlier=max(head.finalised, stop - limit) if stop > head.finalised else None,
        later=found.looked.stop if found.looked.stop < head.next else None,
    )


@page("/queues/{queue}/messages/{partition}/{monoton}")
def message(call: PageCall) -> Response:
    """Show one message, or a part of its value, and where it stands in each group."""
    looked, one, block = _one(call)
    number = _number_of(call, looked.record.definition)
    form = call.asked("as") if call.asked("as") in {"hex", "base64"} else None
    body = show.whole(one.value, call.number("byte", 0), form=form)
    head = looked.looks[number].head
    return call.render(
        "message.html",
        **about_queue(call, looked),
        message=one,
        block=block,
        body=body,
        form=form,
        part=show.PART,
        key=show.whole(one.key) if one.key is not None else None,
        headers=list(one.headers.items()),
        columns=list(one.value.items()) if isinstance(one.value, dict) else None,
        types=_types_of(looked.record.definition),
        stands=stands_of(looked, number, one.monoton),
        partition=number,
        previous=one.monoton - 1 if one.monoton > head.finalised else None,
        following=one.monoton + 1 if one.monoton + 1 < head.next else None,
    )


@page("/queues/{queue}/messages/{partition}/{monoton}/value")
def value(call: PageCall) -> Response:
    """Send the value of a message as a file: its bytes, or the JSON of its columns."""
    _, one, _ = _one(call)
    ending = "json" if isinstance(one.value, dict) else "bin"
    name = f"{one.partition}-{one.monoton}.{ending}"
    return Response(
        show.as_bytes(one.value),
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
        },
    )


@page("/queues/{queue}/messages/{partition}/{monoton}/history")
def history(call: PageCall) -> Response:
    """Show who had a message, and when; also of a message that is deleted. See `read_history`."""
    looked = call.console.watcher.read(call.name())
    number = _number_of(call, looked.record.definition)
    part, head = looked.record.definition.of_partition(number), looked.looks[number].head
    monoton = _monoton_of(call, part, Range(0, head.next), "it has published")
    return call.render(
        "history.html",
        **about_queue(call, looked),
        monoton=monoton,
        events=read_history(call.console.watcher.looking, part, monoton),
        is_stored=monoton >= head.finalised,
        partition=number,
    )


def look(  # noqa: PLR0913 (where, and what of it)
    store: Store,
    queue: QueueDefinition,
    head: LedgerHead,
    start: int,
    *,
    limit: int,
    key: bytes | None = None,
) -> Found:
    """Read messages of a partition from a monoton on.

    Args:
        store: Where the queue is kept.
        queue: The queue, or the partition of it.
        head: The head of its ledger.
        start: The first monoton to read.
        limit: Maximum number of messages.
        key: Only messages with this key, among the next `SEARCHED`; None for all.
    """
    start = min(max(start, head.finalised), head.next)
    stop = min(head.next, start + (limit if key is None else SEARCHED))
    unreadable = Unreadable()
    found: list[StoredMessage] = []
    read_to, at, gone = start, start, None
    most = _PAGE_BYTES if key is None else _SEARCHED_BYTES

    def read() -> Iterator[StoredMessage]:
        nonlocal read_to
        for each in read_stored(store, queue, Ranges.of(Range(start, stop)), unreadable.add):
            read_to = each.monoton + 1
            yield each

    try:
        for each in within(read(), most) if start < stop else ():
            at = each.monoton + 1
            if key is None or each.key == key:
                found.append(each)
            if len(found) >= limit:
                break
        else:
            # What is left can't be read, unless it was too much.
            at = stop if read_to == at else at
    except LeaseLostError as error:
        gone = str(error)
    told = [(ranges, reason) for reason, ranges in unreadable.by_reason().items()]
    return Found(found, told, Range(start, max(at, start)), gone)


def stands_of(looked: Looked, partition: int, monoton: int) -> list[Stand]:
    """Where a message stands in each group. No read."""
    return [
        stand_of(name, state, monoton)
        for name, state in looked.looks[partition].states.items()
        if name != ADMIN_GROUP
    ]


def stand_of(group: str, state: GroupState, monoton: int) -> Stand:
    """Where a message stands in a group."""
    for slot in state.slots:
        if monoton in slot.monotons and not slot.is_parked:
            kind = "leased" if slot.due_at >= state.now else "due"
            lease = f"{slot.lease} of {slot.by}" if slot.by else str(slot.lease)
            return Stand(group, kind, slot.due_at, slot.deliveries, lease)
    for row in state.waiting:
        if monoton in row.monotons:
            if row.reason is not None:
                return Stand(group, "dead", None, row.deliveries, row.reason)
            kind = "due" if row.due <= state.now_ms else "waiting"
            return Stand(group, kind, from_millis(row.due), row.deliveries)
    is_parked = any(slot.is_parked and monoton in slot.monotons for slot in state.slots)
    is_fresh = is_parked or monoton >= state.head.pointer
    return Stand(group, "fresh" if is_fresh else "settled")


def _one(call: PageCall) -> tuple[Looked, StoredMessage, LedgerBlock | None]:
    looked = call.console.watcher.read(call.name())
    number = _number_of(call, looked.record.definition)
    part, head = looked.record.definition.of_partition(number), looked.looks[number].head
    monoton = _monoton_of(call, part, Range(head.finalised, head.next), "it stores")
    store = call.console.watcher.looking
    found = look(store, part, head, monoton, limit=1)
    if not found.messages or found.messages[0].monoton != monoton:
        why = found.gone or "; ".join(reason for _, reason in found.unreadable) or "it is gone"
        raise NotFoundError(f"message {monoton} of queue {part.label!r} can't be shown: {why}")
    block = Ledger(store, part.queue_id).read_block_of(monoton)
    return looked, found.messages[0], block


def _monoton_of(call: PageCall, part: QueueDefinition, known: Range, does: str) -> int:
    """The monoton in the path, if it is among those that the queue stores, or has published."""
    text = call.name("monoton")
    is_number = text.isascii() and text.isdecimal() and len(text) < len(str(2**63))
    if not is_number or int(text) not in known:
        raise NotFoundError(
            f"queue {part.label!r} has no message {text}: {does} those of the monotons {known}"
        )
    return int(text)


def _number_of(call: PageCall, queue: QueueDefinition) -> int:
    text = call.name("partition")
    if not (text.isascii() and text.isdecimal() and len(text) <= 4) or (  # noqa: PLR2004 (more digits than partitions have)
        int(text) >= queue.partitions
    ):
        raise NotFoundError(
            f"queue {queue.name!r} has no partition {text}: they are 0 to {queue.partitions - 1}"
        )
    return int(text)


def _partition_of(call: PageCall, queue: QueueDefinition, key: bytes | None) -> int:
    """The requested partition, or that of the key, if a key is searched for."""
    if queue.partitions > 1 and key is not None:
        return partition_of_key(key, queue.partitions)
    return call.number("partition", 0, most=queue.partitions - 1)


def _start_of(call: PageCall, part: QueueDefinition, head: LedgerHead, at: str, limit: int) -> int:
    """The monoton of a position; of the last messages, for ``latest``."""
    if at == "latest":
        return max(head.finalised, head.next - limit) if limit else head.finalised
    position = parse_at(at)
    if isinstance(position, int):
        return position
    return Ledger(call.console.watcher.looking, part.queue_id).find_position(head, position)


def parse_at(text: str) -> StartingPosition:
    """Read a position that a user has typed.

    Raises:
        OptionError: The text is not a position.
    """
    try:
        return parse_position(text.replace(",", ""))
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(
            f"{text!r} is no position: give earliest, latest, a monoton, or an instant such as "
            "2026-11-20T12:00:00Z"
        ) from error


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _types_of(queue: QueueDefinition) -> dict[str, str]:
    if queue.schema is None:
        return {}
    return {field.name: ddl_type(field.type) for field in schema_of(queue.schema)}
