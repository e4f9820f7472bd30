"""Queues, consumer groups and dead letters."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import JSONResponse, Response

from cassieq_spark.client import Survey
from cassieq_spark.errors import ExistsError, NotFoundError
from cassieq_spark.http.accounts import Level, own_name
from cassieq_spark.http.gateway.errors import RefusedError
from cassieq_spark.http.gateway.messages import position
from cassieq_spark.http.gateway.requests import QUEUE, QUEUES, Call, Endpoint
from cassieq_spark.http.gateway.responses import piles_json, queue_json, stats_json
from cassieq_spark.http.gateway.schemas import (
    CreateParameters,
    DeadParameters,
    DeleteParameters,
    ForceParameters,
    GroupMove,
    GroupOptions,
    QueueOptions,
    RedriveParameters,
)
from cassieq_spark.model import account_of


async def list_queues(call: Call) -> Response:
    """The queues of the account."""
    found = await call.gateway.client.queues(f"{call.account}:")
    return JSONResponse([queue_json(each) for each in found])


async def create_queue(call: Call) -> Response:
    """Make a queue."""
    given = call.json(QueueOptions)
    dead = None
    if given.dlq_name is not None:
        dead = call.queue_named(given.dlq_name, 422)
    elif given.max_delivery_count and not given.drop_dead:
        # Its name must fit, too, or nobody could reach it here.
        dead = call.queue_named(f"{given.queue_name}.dead", 422)
    name = call.queue_named(given.queue_name, 422)
    await call.gateway.holdings.check_queues(call.account, [name, dead] if dead else [name])
    try:
        await call.gateway.client.create_queue(
            name,
            lease=timedelta(seconds=given.lease_seconds),
            max_deliveries=given.max_delivery_count,
            dead_letter_queue=dead,
            drop_dead=given.drop_dead,
            strict_fifo=given.strict_fifo,
            expire_after=_period(given.expire_after_seconds),
            keep_settled=_period(given.keep_settled_seconds),
        )
    except ExistsError:
        if call.query.error_if_exists:
            raise
        return Response(status_code=200)
    return Response(status_code=201)


async def show_queue(call: Call) -> Response:
    """How a queue is defined."""
    return JSONResponse(queue_json(await call.gateway.client.queue(call.queue)))


async def show_statistics(call: Call) -> Response:
    """What a queue holds."""
    return JSONResponse(stats_json(await call.gateway.client.stats(call.queue)))


async def delete_queue(call: Call) -> Response:
    """Delete a queue."""
    queue = call.queue
    await call.gateway.client.queue(queue)
    await call.gateway.client.delete_queue(queue, force=call.query.force)
    return Response(status_code=200)


async def purge_queue(call: Call) -> Response:
    """Throw all messages of a queue away."""
    purged = await call.gateway.client.purge_queue(call.queue, force=call.query.force)
    return JSONResponse(queue_json(purged))


async def list_groups(call: Call) -> Response:
    """The consumer groups of a queue."""
    stats = await call.gateway.client.stats(call.queue)
    return JSONResponse(stats_json(stats)["groups"])


async def create_group(call: Call) -> Response:
    """Make a consumer group."""
    start = position(call.json(GroupOptions).start)
    await call.gateway.client.create_group(call.queue, call.names["group"], start)
    return Response(status_code=201)


async def move_group(call: Call) -> Response:
    """Let a group go on from elsewhere."""
    given = call.json(GroupMove)
    monoton = await call.gateway.client.seek_group(
        call.queue, call.names["group"], position(given.to), force=given.force
    )
    return JSONResponse({"next": monoton})


async def delete_group(call: Call) -> Response:
    """Delete a group."""
    group = call.names["group"]
    if not await call.gateway.client.delete_group(call.queue, group, force=call.query.force):
        raise NotFoundError(f"there is no group {group[:200]!r}")
    return Response(status_code=204)


async def list_dead(call: Call) -> Response:
    """The dead letters of a queue."""
    return JSONResponse(piles_json((await _survey(call)).piles))


async def redrive(call: Call) -> Response:
    """Publish dead letters again."""
    to = None if call.query.to is None else call.queue_named(call.query.to)
    found = await _survey(call)
    origins = {pile.origin_queue for pile in found.piles if pile.origin_queue is not None}
    for name in {to} if to is not None else origins:
        _check_target(call, name)
    call.gateway.holdings.check_messages(call.account)
    # The dead-letter queue itself may be of another account, or of none.
    report = await call.gateway.client.redrive(
        found, to=to, force=call.query.force, across_accounts=True
    )
    for queue in report.redriven:
        call.gateway.turns.wake(queue)
    return JSONResponse({"redriven": sum(report.redriven.values()), "missed": report.missed})


async def purge_dead(call: Call) -> Response:
    """Give dead letters up."""
    report = await call.gateway.client.purge_dead_letters(await _survey(call))
    return JSONResponse({"purged": report.purged, "missed": report.missed})


def _check_target(call: Call, queue: str) -> None:
    """Refuse a redrive to a queue that who asks may not redrive to."""
    if account_of(queue) != call.account:
        raise RefusedError("some of them come from queues of others: say where they go, by 'to'")
    if not call.covers(own_name(queue)):
        raise RefusedError(
            f"who asks may not redrive to queue {own_name(queue)!r}: the key, or the signed URL, "
            "is for another queue",
            403,
        )


def _period(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


async def _survey(call: Call) -> Survey:
    query = call.query
    return await call.gateway.client.dead_letters(
        call.queue,
        group=query.group,
        reason=query.reason,
        since=query.since,
        until=query.until,
        limit=query.limit,
    )


_NONE = {404: "There is no such queue"}
_HELD = {409: "Somebody holds messages; see force"}
_INVALID = {422: "The body is not what it should be"}

ENDPOINTS = (
    Endpoint(
        method="GET",
        path=QUEUES,
        operation="listQueues",
        summary="The queues of the account.",
        level=Level.GET_QUEUE_INFORMATION,
        handler=list_queues,
        answers={200: "Queues"},
    ),
    Endpoint(
        method="POST",
        path=QUEUES,
        operation="createQueue",
        summary="Create a queue, and its dead-letter queue.",
        level=Level.CREATE_QUEUE,
        handler=create_queue,
        query=CreateParameters,
        body=QueueOptions,
        answers={200: "It exists", 201: "It is made", 409: "It exists"} | _INVALID,
    ),
    Endpoint(
        method="GET",
        path=QUEUE,
        operation="getQueue",
        summary="How a queue is defined.",
        level=Level.GET_QUEUE_INFORMATION,
        handler=show_queue,
        answers={200: "A queue"} | _NONE,
    ),
    Endpoint(
        method="GET",
        path=QUEUE + "/statistics",
        operation="getStatistics",
        summary="What a queue holds, and what its groups are owed: exact.",
        level=Level.GET_QUEUE_INFORMATION,
        handler=show_statistics,
        answers={200: "Figures"} | _NONE,
    ),
    Endpoint(
        method="DELETE",
        path=QUEUE,
        operation="deleteQueue",
        summary="Delete a queue, and all that is in it.",
        level=Level.DELETE_QUEUE,
        handler=delete_queue,
        query=DeleteParameters,
        answers={200: "It is gone", 409: "Somebody uses it; see force"} | _NONE,
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/purge",
        operation="purgeQueue",
        summary="Throw all messages of a queue away.",
        level=Level.DELETE_QUEUE,
        handler=purge_queue,
        query=ForceParameters,
        answers={200: "The queue as it is now"} | _NONE | _HELD,
    ),
    Endpoint(
        method="GET",
        path=QUEUE + "/groups",
        operation="listGroups",
        summary="The consumer groups of a queue, and what they are owed.",
        level=Level.GET_QUEUE_INFORMATION,
        handler=list_groups,
        answers={200: "Groups"} | _NONE,
    ),
    Endpoint(
        method="PUT",
        path=QUEUE + "/groups/{group}",
        operation="createGroup",
        summary="Create a consumer group, before somebody gets messages for it.",
        level=Level.CREATE_QUEUE,
        handler=create_group,
        body=GroupOptions,
        answers={201: "It is made", 409: "It exists, or there is no such position"}
        | _NONE
        | _INVALID,
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/groups/{group}/seek",
        operation="moveGroup",
        summary="Let a consumer group go on from another position, and give up what is before.",
        level=Level.DELETE_QUEUE,
        handler=move_group,
        body=GroupMove,
        answers={200: "From where it goes on"} | _NONE | _HELD | _INVALID,
    ),
    Endpoint(
        method="DELETE",
        path=QUEUE + "/groups/{group}",
        operation="deleteGroup",
        summary="Delete a consumer group, and what it is owed.",
        level=Level.DELETE_QUEUE,
        handler=delete_group,
        query=ForceParameters,
        answers={204: "It is gone"} | _NONE | _HELD,
    ),
    Endpoint(
        method="GET",
        path=QUEUE + "/dead",
        operation="listDeadLetters",
        summary="The dead letters of a queue, by where they come from and why they are dead.",
        level=Level.GET_QUEUE_INFORMATION,
        handler=list_dead,
        query=DeadParameters,
        answers={200: "Dead letters", 409: "It has no dead-letter queue"} | _NONE,
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/dead/redrive",
        operation="redriveDeadLetters",
        summary="Put dead letters again, each once.",
        level=Level.REDRIVE_MESSAGE,
        handler=redrive,
        query=RedriveParameters,
        answers={200: "How many", 409: "Other groups would get them again; see force"} | _NONE,
    ),
    Endpoint(
        method="POST",
        path=QUEUE + "/dead/purge",
        operation="purgeDeadLetters",
        summary="Give dead letters up.",
        level=Level.DELETE_QUEUE,
        handler=purge_dead,
        query=DeadParameters,
        answers={200: "How many", 409: "It has no dead-letter queue"} | _NONE,
    ),
)
