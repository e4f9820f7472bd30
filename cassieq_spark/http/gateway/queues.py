"""Queues, consumer groups and dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse, Response

from cassieq_spark.client import Survey
from cassieq_spark.errors import ExistsError, OutcomeUnknownError, StoreError
from cassieq_spark.http.accounts import Right, own_name
from cassieq_spark.http.gateway.messages import position
from cassieq_spark.http.gateway.requests import QUEUE, QUEUES, Call, Endpoint
from cassieq_spark.http.gateway.responses import (
    QUEUE_EXAMPLE,
    STATS_EXAMPLE,
    answer_of,
    dead_letters_json,
    json_array,
    queue_json,
    stats_json,
    stopped_json,
)
from cassieq_spark.http.gateway.schemas import (
    Attributes,
    CreateParameters,
    DeadLetterParameters,
    DeadLetterSelection,
    DeleteParameters,
    ForceParameters,
    GivenSettings,
    GroupOptions,
    GroupResume,
    GroupSeek,
    NewQueue,
    Nothing,
    Payload,
    QueueChanges,
    QueueOptions,
    RedriveParameters,
)
from cassieq_spark.http.serving.errors import Quota, RefusedError, over_quota
from cassieq_spark.model import Order, QueueDefinition, Ranges, account_of
from cassieq_spark.schemas.canonical import walk
from cassieq_spark.schemas.ddl import parse_ddl, to_ddl

_ATTRIBUTES = {"attributes": {"team": "payments"}}
_DEAD = {
    "queueId": "acme:orders.dead@1",
    "originQueue": "acme:orders",
    "originGroup": "default",
    "reason": "no such customer",
    "count": 2,
    "monotons": "0-2",
    "first": "2026-11-20T12:00:00Z",
    "last": "2026-11-20T12:00:01Z",
}
_STOPPED = {
    "partition": None,
    "monotons": "3-4",
    "deliveries": 5,
    "reason": "delivered 5 times",
    "lastDeliveredAt": "2026-11-20T12:00:00Z",
}
_IN_USE = {409: "Consumers hold messages; see force"}
_NO_DEAD_LETTERS = {409: "The queue has no dead-letter queue"}
_NO_GROUP = {409: "There is no such group"}
_NO_OTHERS: Mapping[int, str] = {}

#: Most columns and fields of a schema: a put checks them while other requests wait, in about 2 ms.
_MOST_COLUMNS = 200


def _showing(
    path: str,
    meaning: str,
    example: object,
    query: type[Payload] = Nothing,
    answers: Mapping[int, str] = _NO_OTHERS,
) -> Endpoint:
    """Declare an endpoint that shows facts about queues."""
    return Endpoint(
        "GET",
        path,
        Right.GET_QUEUE_INFORMATION,
        query=query,
        answers={200: meaning, **answers},
        examples={200: example},
    )


@_showing(QUEUES, "Queues", [QUEUE_EXAMPLE])
async def list_queues(call: Call) -> Response:
    """List the queues of the account."""
    admission = call.gateway.admission
    admission.check_answers(call.account)
    found = await call.gateway.client.queues(f"{call.account}:")
    # Encoded in a thread, because a thousand queues may have large schemas.
    body = await asyncio.to_thread(json_array, map(queue_json, found))
    return answer_of(body, "application/json", admission=admission, account=call.account)


@Endpoint(
    "POST",
    QUEUES,
    Right.CREATE_QUEUE,
    query=CreateParameters,
    body=QueueOptions,
    answers={
        200: "The queue exists, with these settings",
        201: "The queue is created",
        409: "The queue exists with other settings, which `differences` lists; or it exists, and "
        "errorIfExists is true; or the account has used too many names for queues",
    },
    example={"queueName": "orders", "maxDeliveryCount": 5, "dlqName": "orders.dead"},
)
async def create_queue(call: Call) -> Response:
    """Create a queue and its dead-letter queue."""
    given = call.json(QueueOptions)
    settings = _settings_of(call, given)
    dead = settings.get("dead_letter_queue")
    if dead is None and settings.get("max_deliveries") != 0 and not given.drop_dead:
        # The name of the dead-letter queue must fit, too, or nobody could reach the queue here.
        dead = call.queue_named(f"{given.queue_name}.dead", 422)
    name = call.queue_named(given.queue_name, 422)
    await call.gateway.storage.check_queues(call.account, [name, dead] if dead else [name])
    try:
        # Without errorIfExists, a repeated call completes one that broke off.
        with in_steps() if call.query.error_if_exists else nullcontext():
            await call.gateway.client.create_queue(name, drop_dead=given.drop_dead, **settings)
    except ExistsError:
        if call.query.error_if_exists:
            raise
        _check_same(call, given, settings, await call.gateway.client.queue(name))
        return Response(status_code=200)
    return Response(status_code=201)


@_showing(QUEUE, "The definition", QUEUE_EXAMPLE)
async def get_queue(call: Call) -> Response:
    """Show the definition of a queue."""
    return JSONResponse(queue_json(await call.gateway.client.queue(call.queue)))


@_showing(QUEUE + "/attributes", "All attributes", _ATTRIBUTES)
async def get_attributes(call: Call) -> Response:
    """Show the attributes that programs have set on a queue."""
    return JSONResponse({"attributes": await call.gateway.client.attributes(call.queue)})


@Endpoint(
    "PATCH",
    QUEUE + "/attributes",
    Right.DELETE_QUEUE,
    body=Attributes,
    answers={200: "All attributes as they are now"},
    examples={200: _ATTRIBUTES},
    example=_ATTRIBUTES,
)
async def set_attributes(call: Call) -> Response:
    """Set attributes of a queue, or remove those that are null; the others stay."""
    given = call.json(Attributes).attributes
    with in_steps():
        found = await call.gateway.client.set_attributes(call.queue, given)
    return JSONResponse({"attributes": found})


@_showing(QUEUE + "/statistics", "Counts", STATS_EXAMPLE)
async def stats(call: Call) -> Response:
    """Count the messages of a queue and of its groups, exactly."""
    return JSONResponse(stats_json(await call.gateway.client.stats(call.queue)))


@Endpoint(
    "PATCH",
    QUEUE,
    Right.DELETE_QUEUE,
    body=QueueChanges,
    answers={200: "The queue as it is now", 409: "The account has used too many names"},
    examples={200: QUEUE_EXAMPLE},
    example={"leaseSeconds": 120, "maxDeliveryCount": 3},
)
async def alter_queue(call: Call) -> Response:
    """Alter settings of a queue; settings that are left out stay."""
    given = call.json(QueueChanges)
    changes = _settings_of(call, given)
    if (dead := changes.get("dead_letter_queue")) is not None:
        if not (call.may(Right.CREATE_QUEUE) and call.covers(own_name(dead))):
            # Dead messages are put into that queue, which is created if it does not exist.
            raise RefusedError(
                "dlqName needs a key for all queues with the right CreateQueue, too", 403
            )
        await call.gateway.storage.check_queues(call.account, [dead])
    with in_steps():
        altered = await call.gateway.client.alter_queue(
            call.queue, drop_dead=given.drop_dead, **changes
        )
    return JSONResponse(queue_json(altered))


@Endpoint(
    "POST",
    QUEUE + "/pause",
    Right.DELETE_QUEUE,
    answers={200: "Whether it was not paused before"},
    examples={200: {"changed": True}},
)
async def pause_queue(call: Call) -> Response:
    """Pause a queue: nobody receives messages; puts and acks continue."""
    with in_steps():
        changed = await call.gateway.client.pause_queue(call.queue)
    return JSONResponse({"changed": changed})


@Endpoint(
    "POST",
    QUEUE + "/resume",
    Right.DELETE_QUEUE,
    answers={200: "Whether it was paused before"},
    examples={200: {"changed": True}},
)
async def resume_queue(call: Call) -> Response:
    """Resume a paused queue."""
    with in_steps():
        changed = await call.gateway.client.resume_queue(call.queue)
    call.gateway.coalescer.wake(call.queue)
    return JSONResponse({"changed": changed})


@Endpoint(
    "DELETE",
    QUEUE,
    Right.DELETE_QUEUE,
    query=DeleteParameters,
    answers={200: "The queue is deleted", 409: "The queue is in use; see force"},
)
async def delete_queue(call: Call) -> Response:
    """Delete a queue and its messages."""
    # If the queue is deleted already, the answer is 404.
    await call.gateway.client.queue(call.queue)
    with in_steps():
        await call.gateway.client.delete_queue(call.queue, force=call.query.force)
    return Response(status_code=200)


@Endpoint(
    "POST",
    QUEUE + "/purge",
    Right.DELETE_QUEUE,
    query=ForceParameters,
    answers={200: "The queue as it is now"} | _IN_USE,
    examples={200: {**QUEUE_EXAMPLE, "version": 2, "id": "acme:orders@2"}},
)
async def purge_queue(call: Call) -> Response:
    """Delete all messages of a queue."""
    purged = await call.gateway.client.purge_queue(call.queue, force=call.query.force)
    return JSONResponse(queue_json(purged))


@_showing(QUEUE + "/groups", "Groups", STATS_EXAMPLE["groups"])
async def list_groups(call: Call) -> Response:
    """List the consumer groups of a queue, with their counts."""
    stats = await call.gateway.client.stats(call.queue)
    return JSONResponse(stats_json(stats)["groups"])


@Endpoint(
    "PUT",
    QUEUE + "/groups/{group}",
    Right.CREATE_QUEUE,
    body=GroupOptions,
    answers={201: "The group is created", 409: "The group exists, or there is no such position"},
    example={"start": "earliest"},
)
async def create_group(call: Call) -> Response:
    """Create a consumer group, before anybody receives messages for it."""
    start, group = position(call.json(GroupOptions).start), call.names["group"]
    client, limit = call.gateway.client, call.gateway.limits.queue_groups
    groups = {each.group for each in (await client.stats(call.queue)).groups}
    if len(groups) >= limit and group not in groups:
        raise over_quota(
            Quota("groups", "queue", limit),
            f"the queue has {len(groups)} consumer groups; the limit is {limit}: delete those "
            "that nobody reads for",
        )
    with in_steps():
        await client.create_group(call.queue, group, start)
    return Response(status_code=201)


@Endpoint(
    "POST",
    QUEUE + "/groups/{group}/seek",
    Right.DELETE_QUEUE,
    body=GroupSeek,
    answers={200: "The position from which the group continues"} | _IN_USE,
    examples={200: {"next": 0}},
    example={"to": "2026-11-20T12:00:00Z", "force": False},
)
async def seek_group(call: Call) -> Response:
    """Move a consumer group to another position; earlier messages count as settled."""
    given, group = call.json(GroupSeek), call.names["group"]
    to, partition = position(given.to), given.partition
    monoton = await call.gateway.client.seek_group(
        call.queue, group, to, partition=partition, force=given.force
    )
    return JSONResponse({"next": monoton})


@_showing(QUEUE + "/groups/{group}/stopped", "Dead messages", [_STOPPED], answers=_NO_GROUP)
async def stopped(call: Call) -> Response:
    """Show the dead messages at which a consumer group has stopped."""
    found = await call.gateway.client.stopped(call.queue, call.names["group"])
    return JSONResponse(stopped_json(found))


@Endpoint(
    "POST",
    QUEUE + "/groups/{group}/resume",
    Right.REDRIVE_MESSAGE,
    body=GroupResume,
    answers={200: "How many messages were dead"} | _NO_GROUP,
    examples={200: {"resumed": 1}},
    example={"how": "retry"},
)
async def resume_group(call: Call) -> Response:
    """Let a consumer group continue after it has stopped at a dead message."""
    given = call.json(GroupResume)
    # While Cassandra does not answer at all, nothing is resumed.
    await call.gateway.client.queue(call.queue)
    with in_steps():
        count = await call.gateway.client.resume_group(
            call.queue, call.names["group"], given.how, partition=given.partition
        )
    return JSONResponse({"resumed": count})


@Endpoint(
    "DELETE",
    QUEUE + "/groups/{group}",
    Right.DELETE_QUEUE,
    query=ForceParameters,
    answers={204: "The group is deleted"} | _IN_USE,
)
async def delete_group(call: Call) -> Response:
    """Delete a consumer group."""
    group = call.names["group"]
    if not await call.gateway.client.delete_group(call.queue, group, force=call.query.force):
        why = f"there is no group {group[:200]!r}"
        raise RefusedError(why, 404, details={"group": group[:200]})
    return Response(status_code=204)


@_showing(
    QUEUE + "/dead",
    "Dead letters",
    [_DEAD],
    DeadLetterParameters,
    {**_NO_DEAD_LETTERS, 413: "Their reasons are too many for an answer: ask for fewer"},
)
async def dead_letters(call: Call) -> Response:
    """Count the dead letters of a queue, by origin and reason."""
    admission, most = call.gateway.admission, call.gateway.limits.answer_bytes
    admission.check_answers(call.account)
    found = await _survey(call)
    # Encoded in a thread, because each letter may have a reason of its own.
    body = await asyncio.to_thread(dead_letters_json, found)
    if len(body) > most:
        raise RefusedError(
            f"the answer would have {len(body)} bytes, as the dead letters have "
            f"{len(found.groups)} origins and reasons; the limit is {most}: ask for fewer, by "
            "'limit', 'group', 'reason', 'since' or 'until'",
            413,
        )
    return answer_of(body, "application/json", admission=admission, account=call.account)


@Endpoint(
    "POST",
    QUEUE + "/dead/redrive",
    Right.REDRIVE_MESSAGE,
    query=RedriveParameters,
    body=DeadLetterSelection,
    answers={200: "How many", 409: "Other groups would get them again; see force"},
    examples={200: {"redriven": 1, "queues": {"orders": 1}, "missed": 0}},
    example={},
)
async def redrive(call: Call) -> Response:
    """Publish dead letters again, each once."""
    to = None if call.query.to is None else call.queue_named(call.query.to)
    found, gone = await _selected(call)
    origins = {group.origin_queue for group in found.groups if group.origin_queue is not None}
    for name in {to} if to is not None else origins:
        _check_target(call, name)
    call.gateway.storage.check_messages(call.account)
    # The dead-letter queue itself may be of another account, or of none.
    with in_steps():
        report = await call.gateway.client.redrive(
            found,
            to=to,
            force=call.query.force,
            across_accounts=True,
            drop_columns=call.query.drop_columns,
        )
    for queue in report.redriven:
        call.gateway.coalescer.wake(queue)
    return JSONResponse(
        {
            "redriven": sum(report.redriven.values()),
            "queues": {own_name(queue): count for queue, count in report.redriven.items()},
            "missed": gone + report.missed,
        }
    )


@Endpoint(
    "POST",
    QUEUE + "/dead/purge",
    Right.DELETE_QUEUE,
    query=DeadLetterParameters,
    body=DeadLetterSelection,
    answers={200: "How many"} | _NO_DEAD_LETTERS,
    examples={200: {"purged": 1, "missed": 0}},
    example={},
)
async def purge_dead_letters(call: Call) -> Response:
    """Discard dead letters."""
    found, gone = await _selected(call)
    with in_steps():
        report = await call.gateway.client.purge_dead_letters(found)
    return JSONResponse({"purged": report.purged, "missed": gone + report.missed})


@contextmanager
def in_steps() -> Iterator[None]:
    """Turn Cassandra's errors in a call of several steps into unknown outcomes.

    Some of the steps may be done, and a repeated call does not report those. So an error that says
    that its own step was not applied, such as `ContentionError`, becomes an unknown outcome, too.
    """
    try:
        yield
    except StoreError as error:
        raise OutcomeUnknownError(f"a part of it may be done: {error}") from error


def _check_target(call: Call, queue: str) -> None:
    """Refuse a redrive if the sender may not redrive to this queue."""
    if account_of(queue) != call.account:
        raise RefusedError("some dead letters come from queues of others: name a target in 'to'")
    if not call.covers(own_name(queue)):
        raise RefusedError(
            f"the sender may not redrive to queue {own_name(queue)!r}: the key or signed URL is "
            "for another queue",
            403,
        )


def _check_same(
    call: Call, given: NewQueue, settings: Mapping[str, Any], there: QueueDefinition
) -> None:
    """Refuse to create a queue that exists, if one of the given settings differs.

    Without the right to see queues, the sender learns which settings differ, but not their values.
    """
    existing = queue_json(there)
    asked = given.model_dump(mode="json", by_alias=True, include=given.model_fields_set)
    order, columns = settings.get("order", Order.NONE), settings.get("schema")
    # An earlier release has made a strict queue when order by key was requested.
    is_ordered_so = there.order is order or (order, there.order) == (Order.KEY, Order.STRICT)
    same = {
        "queueName": True,
        "bucketSize": True,
        "dlqName": "dead_letter_queue" not in settings,
        "order": is_ordered_so,
        "strictFifo": is_ordered_so,
        "dropDead": given.drop_dead == existing["dropDead"] or not there.max_deliveries,
        "schema": columns is not None and to_ddl(parse_ddl(columns)) == existing["schema"],
    }
    told, differences = [], []
    for name, value in asked.items():
        # Zero and null mean the same: the queue is without the setting.
        if name not in existing or (value or None) == (existing[name] or None) or same.get(name):
            continue
        difference = {"given": value}
        if call.may(Right.GET_QUEUE_INFORMATION):
            difference["existing"] = existing[name]
        values = (f"{key} {json.dumps(it)}" for key, it in difference.items())
        told.append(f"{name}: {', '.join(values)}")
        differences.append({"setting": name, **difference})
    if differences:
        raise RefusedError(
            f"queue {given.queue_name!r} exists with other settings ({'; '.join(told)}): leave "
            "these settings out, or ask the operator to alter the queue",
            409,
            details={"differences": differences},
        )


def _settings_of(call: Call, given: GivenSettings) -> dict[str, Any]:
    """The settings in a request, as the client takes them, with full names of queues."""
    settings = given.settings()
    if (columns := settings.get("schema")) is not None:
        _check_columns(columns)
    if (dead := settings.get("dead_letter_queue")) is not None:
        settings["dead_letter_queue"] = call.queue_named(dead, 422)
    return settings


def _check_columns(schema: str) -> None:
    """Refuse a schema with more columns than a put should check while other requests wait."""
    count = sum(1 for _ in walk(list(parse_ddl(schema))))
    if count > _MOST_COLUMNS:
        raise RefusedError(
            f"the schema has {count:,} columns and fields, and {_MOST_COLUMNS} is the most: ask "
            "the operator to create the queue"
        )


async def _survey(call: Call) -> Survey:
    # A redrive has other parameters as well.
    criteria = call.query.model_dump(include=set(DeadLetterParameters.model_fields))
    return await call.gateway.client.dead_letters(call.queue, **criteria)


async def _selected(call: Call) -> tuple[Survey, int]:
    """The dead letters that a request selects, and how many of them are not dead any more."""
    given, found = call.json(DeadLetterSelection), await _survey(call)
    if given.monotons is None:
        return found, 0
    if given.queue_id != found.queue.queue_id:
        raise RefusedError(
            "the dead-letter queue was purged, or created again, since the list was made: list "
            "the dead letters again",
            409,
        )
    # Run in a thread, because a long list would block the loop.
    return await asyncio.to_thread(_only, found, given.monotons)


def _only(found: Survey, monotons: str) -> tuple[Survey, int]:
    try:
        wanted = Ranges.parse(monotons)
    except ValueError as error:
        raise RefusedError(f"monotons: {error}", 422) from error
    shared = ((group, group.monotons & wanted) for group in found.groups)
    groups = tuple(replace(group, monotons=part) for group, part in shared if part)
    left = replace(found, groups=groups)
    return left, wanted.count - left.monotons.count
