"""Schedules of a queue, which put messages again and again."""

from __future__ import annotations

from typing import Any

from pydantic.alias_generators import to_camel
from starlette.responses import JSONResponse, Response

from cassieq_spark.client import plain_progress, plain_schedule
from cassieq_spark.http.accounts import Right
from cassieq_spark.http.gateway.queues import in_steps
from cassieq_spark.http.gateway.requests import QUEUE, Call, Endpoint
from cassieq_spark.http.gateway.responses import position_json
from cassieq_spark.http.gateway.schemas import (
    GivenSchedule,
    ScheduleChanges,
    ScheduleOptions,
    TickParameters,
)
from cassieq_spark.http.serving.errors import RefusedError

SCHEDULES = QUEUE + "/schedules"
SCHEDULE = SCHEDULES + "/{schedule}"

_EXAMPLE: dict[str, Any] = {
    "schedule": "nightly",
    "cron": "0 3 * * *",
    "everySeconds": None,
    "zone": "Europe/Berlin",
    "message": '{"day": "{{date}}"}',
    "key": "nightly",
    "headers": {},
    "start": None,
    "end": None,
    "catchUp": 1,
    "jitterSeconds": 0.0,
    "aheadSeconds": 0.0,
    "paused": False,
    "since": "2026-11-20T12:00:00Z",
    "id": "6f1c8a0d2b7e4c5f9a3d1e8b7c6f5a40",
    "generation": 0,
}
_PROGRESS = {"last": None, "next": ["2026-11-21T02:00:00Z"], "lagSeconds": None}


@Endpoint(
    "GET",
    SCHEDULES,
    Right.GET_QUEUE_INFORMATION,
    answers={200: "Schedules, by name: the last tick of each, the next one, and how late it is"},
    examples={200: [_EXAMPLE | _PROGRESS]},
)
async def list_schedules(call: Call) -> Response:
    """List the schedules of a queue, and how late they are."""
    found = await call.gateway.client.schedules(call.queue)
    return JSONResponse([_camel(plain_progress(each)) for each in found])


@Endpoint(
    "GET",
    SCHEDULE,
    Right.GET_QUEUE_INFORMATION,
    query=TickParameters,
    answers={200: "The schedule, its last tick, the next ones, and how late it is"},
    examples={200: _EXAMPLE | _PROGRESS},
)
async def get_schedule(call: Call) -> Response:
    """Show a schedule, and when it comes next."""
    name = call.names["schedule"]
    found = await call.gateway.client.schedule(call.queue, name, ticks=call.query.ticks)
    return JSONResponse(_camel(plain_progress(found)))


@Endpoint(
    "PUT",
    SCHEDULE,
    Right.CREATE_QUEUE,
    body=ScheduleOptions,
    answers={201: "The schedule is created", 409: "The queue has a schedule of this name"},
    examples={201: _EXAMPLE},
    example={"cron": "0 3 * * *", "zone": "Europe/Berlin", "message": '{"day": "{{date}}"}'},
)
async def create_schedule(call: Call) -> Response:
    """Create a schedule, which puts a message again and again."""
    given = _settings_of(call, ScheduleOptions)
    await call.gateway.storage.check_schedules(call.account)
    with in_steps():
        made = await call.gateway.client.create_schedule(
            call.queue, call.names["schedule"], **given
        )
    return JSONResponse(_camel(plain_schedule(made)), 201)


@Endpoint(
    "PATCH",
    SCHEDULE,
    Right.DELETE_QUEUE,
    body=ScheduleChanges,
    answers={200: "The schedule as it is now"},
    examples={200: _EXAMPLE},
    example={"cron": "0 4 * * *"},
)
async def alter_schedule(call: Call) -> Response:
    """Alter a schedule; settings that are left out stay."""
    given = _settings_of(call, ScheduleChanges)
    with in_steps():
        altered = await call.gateway.client.alter_schedule(
            call.queue, call.names["schedule"], **given
        )
    return JSONResponse(_camel(plain_schedule(altered)))


@Endpoint(
    "POST",
    SCHEDULE + "/pause",
    Right.DELETE_QUEUE,
    answers={200: "Whether it was not paused before"},
    examples={200: {"changed": True}},
)
async def pause_schedule(call: Call) -> Response:
    """Pause a schedule: it puts nothing until it is resumed."""
    with in_steps():
        changed = await call.gateway.client.pause_schedule(call.queue, call.names["schedule"])
    return JSONResponse({"changed": changed})


@Endpoint(
    "POST",
    SCHEDULE + "/resume",
    Right.DELETE_QUEUE,
    answers={200: "Whether it was paused before"},
    examples={200: {"changed": True}},
)
async def resume_schedule(call: Call) -> Response:
    """Resume a paused schedule; what came during the pause is not made up for."""
    with in_steps():
        changed = await call.gateway.client.resume_schedule(call.queue, call.names["schedule"])
    return JSONResponse({"changed": changed})


@Endpoint(
    "POST",
    SCHEDULE + "/run",
    Right.PUT_MESSAGE,
    answers={201: "Where the message is"},
    examples={201: {"monoton": 0, "partition": 0, "version": 1, "repeated": False}},
)
async def run_schedule_now(call: Call) -> Response:
    """Put a message of a schedule at once; its times stay as they are."""
    call.gateway.storage.check_messages(call.account)
    position = await call.gateway.client.run_schedule_now(call.queue, call.names["schedule"])
    call.gateway.coalescer.wake(call.queue)
    return JSONResponse(position_json(position), 201)


@Endpoint("DELETE", SCHEDULE, Right.DELETE_QUEUE, answers={204: "The schedule is deleted"})
async def delete_schedule(call: Call) -> Response:
    """Delete a schedule; messages that it has put stay."""
    with in_steps():
        await call.gateway.client.delete_schedule(call.queue, call.names["schedule"])
    return Response(status_code=204)


def _settings_of(call: Call, model: type[GivenSchedule]) -> dict[str, Any]:
    """The settings in a request of somebody who may put messages by a schedule."""
    given = call.json(model)
    if not call.may(Right.PUT_MESSAGE):
        raise RefusedError("a schedule puts messages: this takes the right PutMessage, too", 403)
    call.gateway.storage.check_messages(call.account)
    return given.settings()


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    return {to_camel(name): value for name, value in values.items()}
