"""Schedules in the console: forms, and plans with the ticks that a schedule would have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from cassieq_spark.client import Client
from cassieq_spark.console.pages import PageCall
from cassieq_spark.console.plans import Change, ChangePlan, command_of
from cassieq_spark.console.settings_plans import FormField
from cassieq_spark.errors import OptionError
from cassieq_spark.model import validate_name
from cassieq_spark.schedules import Schedule, plan_alter, plan_schedule, read_schedule
from cassieq_spark.settings.schedule import ALTERABLE, KEPT, SCHEDULE_SETTINGS, Of, ScheduleSetting

#: How many ticks a plan shows.
_SHOWN = 5


def fields_of_schedule() -> list[FormField]:
    """The fields of the form of a new schedule."""
    return [_field(it, it.show(it.default or None)) for it in _in_form(SCHEDULE_SETTINGS)]


def fields_of_altered(schedule: Schedule) -> list[FormField]:
    """The fields of the form that alters a schedule."""
    return [_field(it, _text_of(schedule, it)) for it in _in_form(ALTERABLE)]


def facts_of(schedule: Schedule) -> list[tuple[str, str, bool]]:
    """The label and value of each setting of a schedule, and whether it is fixed."""
    return [
        (it.label.capitalize(), it.show(getattr(schedule, it.name)), bool(it.fixed)) for it in KEPT
    ]


def _in_form(settings: Iterable[ScheduleSetting]) -> Iterable[ScheduleSetting]:
    """The message first, as everything else is about it."""
    return sorted(settings, key=lambda it: it.name != "message")


def _field(it: ScheduleSetting, text: str) -> FormField:
    hint = it.meaning_by(lambda other: f"“{other.label.capitalize()}”")
    if it.without:
        hint += f" If empty: {it.without}."
    if it.of is Of.HEADERS:
        hint += " One per line, as NAME=VALUE."
    if it.own_kind is not None:
        hint += f" {it.own_kind.name.capitalize()}."
    return FormField(
        it.name,
        it.label.capitalize(),
        hint,
        text,
        is_long=it.is_long,
        placeholder=it.example,
    )


def _text_of(schedule: Schedule, it: ScheduleSetting) -> str:
    """The text of a field in the form that alters a schedule."""
    return it.show(getattr(schedule, it.name)) if it.kept else ""


def _read(call: PageCall, it: ScheduleSetting) -> Any:
    """The value of a field; None if it is empty."""
    text = call.asked(it.name)
    if it.name == "message":
        return text
    return it.read(text.strip()) if text.strip() else None


def _given(call: PageCall) -> dict[str, Any]:
    """The settings that the form of a new schedule gives."""
    found = {it.name: _read(call, it) for it in SCHEDULE_SETTINGS}
    return {name: value for name, value in found.items() if value is not None}


def _changes(call: PageCall, schedule: Schedule) -> dict[str, Any]:
    """The settings that the form changes; None for those that it takes away.

    Raises:
        OptionError: A value is malformed, or two exclude each other.
    """
    changes: dict[str, Any] = {}
    filled = set()
    for it in ALTERABLE:
        before = _text_of(schedule, it)
        # A browser ends lines with a carriage return, too.
        text = "\n".join(call.asked(it.name, before).split("\r\n")).strip()
        if text != before.strip():
            changes[it.name] = _read(call, it)
        if text:
            filled.add(it.name)
    if {"cron", "every"} <= filled:
        raise OptionError("give either cron or every: empty the other field")
    return changes


def _name_of(call: PageCall) -> str:
    return validate_name("schedule", call.asked("name").strip())


def _words(values: Mapping[str, Any], *, alters: bool) -> Iterator[str]:
    """The options of the command: those that differ from what an empty form has."""
    for it in _in_form(SCHEDULE_SETTINGS):
        if it.name in values and (alters or values[it.name] != it.default):
            value = values[it.name]
            value = it.default if value is None else value
            # Of cron and every, one replaces the other.
            if value is not None or it.can_be_taken_away:
                yield from it.words(value)


def _figures(schedule: Schedule, ticks: Iterable[Any]) -> dict[str, int | str]:
    """The figures of a plan: the settings of a schedule, and its next ticks."""
    shown = list(ticks)
    figures: dict[str, int | str] = {"when": schedule.when}
    figures |= {f"tick {n}": schedule.show(tick) for n, tick in enumerate(shown, 1)}
    if shown:
        figures["message of tick 1"] = schedule.value_of(shown[0])
    figures["key"] = schedule.key
    return figures | {f"header {name}": str(it) for name, it in schedule.headers.items()}


def _plan_create(call: PageCall) -> ChangePlan:
    name, given = _name_of(call), _given(call)
    looking = call.console.watcher.looking
    planned, queue = plan_schedule(looking, call.name(), name, now=call.console.clock(), **given)
    words = ["--queue", call.name(), *_words(given, alters=False)]
    return ChangePlan(
        sentence=f"Schedule {name} of queue {call.name()} is created.",
        command=command_of("schedule", "create", name, *words),
        about=f"{queue.queue_id} {queue}",
        figures=_figures(planned, islice(planned.ticks_after(planned.since), _SHOWN)),
        warnings=("A runner must run: cassieq schedule run, or a gateway with --schedules.",),
        button="Create the schedule",
    )


def _plan_alter(call: PageCall) -> ChangePlan:
    name, looking = call.name("schedule"), call.console.watcher.looking
    before = read_schedule(looking, call.name(), name)[0]
    changes = _changes(call, before)
    if not changes:
        raise OptionError("nothing is to be altered: change a setting first")
    now = call.console.clock()
    before, after, queue = plan_alter(looking, call.name(), name, now=now, **changes)
    words = ["--queue", call.name(), *_words(changes, alters=True)]
    ticks = islice(after.ticks_after(max(now, after.since)), _SHOWN)
    return ChangePlan(
        sentence=f"Schedule {name} of queue {call.name()} is altered.",
        command=command_of("schedule", "alter", name, *words),
        about=f"{queue.queue_id} {queue} {before.identity} {before.generation} {before.paused}",
        figures=_figures(after, ticks),
        warnings=_warnings(before, after),
        button="Alter the schedule",
    )


def _warnings(before: Schedule, after: Schedule) -> tuple[str, ...]:
    found = []
    if before.since != after.since:
        found.append(
            "The new times begin now: a message of the old ones that is late is left out."
        )
    if before.ahead:
        found.append("What was put ahead stays as it is.")
    if after.paused:
        found.append("The schedule stays paused.")
    return tuple(found)


def _create(call: PageCall, client: Client) -> str:
    name = _name_of(call)
    client.create_schedule(call.name(), name, **_given(call))
    return f"Schedule {name} is created."


def _alter(call: PageCall, client: Client) -> str:
    name = call.name("schedule")
    before = read_schedule(call.console.watcher.looking, call.name(), name)[0]
    client.alter_schedule(call.name(), name, **_changes(call, before))
    return f"Schedule {name} is altered."


def _after(call: PageCall) -> str:
    return call.url("queues", call.name(), "schedules")


#: The changes of a queue that make a schedule, by the last part of their path.
SCHEDULING: Mapping[str, Change] = {
    "create-schedule": Change("Create a schedule", _plan_create, _create, after=_after),
}
ALTER_SCHEDULE = Change("Alter the schedule", _plan_alter, _alter, after=_after)
