"""The page of the schedules of a queue, and the changes that it offers."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from cassieq_spark.client import Client
from cassieq_spark.console.pages import PageCall, page
from cassieq_spark.console.plans import Change, ChangePlan, command_of
from cassieq_spark.console.queue import about_queue
from cassieq_spark.console.schedule_plans import (
    ALTER_SCHEDULE,
    facts_of,
    fields_of_altered,
    fields_of_schedule,
)
from cassieq_spark.schedules import Schedule, read_schedule, read_schedules_progress

#: How many of its next ticks the page shows of each schedule.
_NEXT = 3


@page("/queues/{queue}/schedules")
def schedules(call: PageCall) -> Response:
    """Show the schedules of a queue.

    One read, one per partition that has schedules, and those of `Watcher.read`.
    """
    looked, store = call.console.watcher.read(call.name()), call.console.watcher.looking
    found = read_schedules_progress(store, call.name(), ticks=_NEXT)
    more = about_queue(call, looked)
    return call.render("schedules.html", **more, schedules=found, fields=fields_of_schedule())


@page("/queues/{queue}/schedules/{schedule}")
def schedule(call: PageCall) -> Response:
    """Show the settings of a schedule, and the form that alters them.

    One read more than those of `Watcher.read`.
    """
    looked = call.console.watcher.read(call.name())
    it = _named(call)
    more = about_queue(call, looked)
    fields = fields_of_altered(it)
    return call.render("schedule.html", **more, it=it, facts=facts_of(it), fields=fields)


def _named(call: PageCall) -> Schedule:
    """The schedule in the path. One read."""
    return read_schedule(call.console.watcher.looking, call.name(), call.name("schedule"))[0]


def _plan(call: PageCall, sentence: str, command: str, button: str) -> ChangePlan:
    it = _named(call)
    return ChangePlan(
        sentence=sentence,
        command=command_of("schedule", command, it.name, "--queue", it.queue),
        # A schedule that was deleted and made again meanwhile is another one.
        about=f"{it.identity} {it.paused}",
        figures={"when": it.when, "message": it.message},
        button=button,
    )


def _plan_pause(call: PageCall) -> ChangePlan:
    name = call.name("schedule")
    return _plan(
        call, f"Schedule {name} puts nothing until it is resumed.", "pause", "Pause the schedule"
    )


def _pause(call: PageCall, client: Client) -> str:
    changed = client.pause_schedule(call.name(), call.name("schedule"))
    return f"Schedule {call.name('schedule')} is paused{'' if changed else ' already'}."


def _plan_resume(call: PageCall) -> ChangePlan:
    name = call.name("schedule")
    sentence = f"Schedule {name} goes on; what came during its pause is not made up for."
    return _plan(call, sentence, "resume", "Resume the schedule")


def _resume(call: PageCall, client: Client) -> str:
    changed = client.resume_schedule(call.name(), call.name("schedule"))
    return f"Schedule {call.name('schedule')} {'goes on' if changed else 'was not paused'}."


def _plan_run(call: PageCall) -> ChangePlan:
    sentence = f"Schedule {call.name('schedule')} puts a message now; its times stay as they are."
    return _plan(call, sentence, "run-now", "Put a message")


def _run(call: PageCall, client: Client) -> str:
    position = client.run_schedule_now(call.name(), call.name("schedule"))
    return f"Schedule {call.name('schedule')} has put message {position.text}."


def _plan_delete(call: PageCall) -> ChangePlan:
    sentence = f"Schedule {call.name('schedule')} is deleted; messages that it has put stay."
    return _plan(call, sentence, "delete", "Delete the schedule")


def _delete(call: PageCall, client: Client) -> str:
    client.delete_schedule(call.name(), call.name("schedule"))
    return f"Schedule {call.name('schedule')} is deleted."


def _after(call: PageCall) -> str:
    return call.url("queues", call.name(), "schedules")


#: The changes of a schedule, by the last part of their path.
OF_SCHEDULE: Mapping[str, Change] = {
    "alter": ALTER_SCHEDULE,
    "delete": Change("Delete the schedule", _plan_delete, _delete, True, _after),
    "pause": Change("Pause the schedule", _plan_pause, _pause, after=_after),
    "resume": Change("Resume the schedule", _plan_resume, _resume, after=_after),
    "run": Change("Put a message now", _plan_run, _run, after=_after),
}
