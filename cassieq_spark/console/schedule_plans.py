"""A new schedule in the console: its form, and the plan with the ticks that it would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from itertools import islice
from typing import Any

from cassieq_spark.client import Client
from cassieq_spark.console.pages import PageCall, instant_of
from cassieq_spark.console.plans import Change, ChangePlan, command_of
from cassieq_spark.console.settings_plans import FormField
from cassieq_spark.console.show import exact
from cassieq_spark.errors import OptionError
from cassieq_spark.model import validate_name
from cassieq_spark.schedules import Schedule, plan_schedule
from cassieq_spark.schedules.schedule import CATCH_UP, MOST_COUNTED
from cassieq_spark.settings.kinds import Kind
from cassieq_spark.settings.queue import PERIOD

#: How many ticks a plan shows.
_SHOWN = 5


#: The settings that a schedule has if nobody gives others.
_DEFAULTS = {each.name: each.default for each in fields(Schedule) if each.default is not MISSING}


def _text(call: PageCall, name: str) -> str | None:
    return call.asked(name).strip() or None


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting of a schedule, as a field of the form and as options of the command.

    Attributes:
        name: The name of the setting, and of the field.
        label: The name for people.
        hint: The meaning.
        read: Reads the field of a form; None if it is empty.
        show: A value as the command takes it.
        placeholder: The text that a browser shows in an empty field.
        is_long: True if the field needs several lines.
    """

    name: str
    label: str
    hint: str
    read: Callable[[PageCall, str], Any] = _text
    show: Callable[[Any], str] = str
    placeholder: str = ""
    is_long: bool = False

    @property
    def usual(self) -> str:
        """The content of an empty form: the default of the schedule."""
        default = _DEFAULTS.get(self.name)
        return "" if default is None else self.show(default)

    def words(self, value: Any) -> list[str]:
        """The options of the command for a value; a header is an option of its own."""
        if self.name == "headers":
            return [word for it, text in value.items() for word in ("--header", f"{it}={text}")]
        return ["--" + self.name.replace("_", "-"), self.show(value)]


def _of_kind(kind: Kind[Any]) -> Callable[[PageCall, str], Any]:
    def read(call: PageCall, name: str) -> Any:
        text = call.asked(name).strip()
        try:
            return kind.parse(text) if text else None
        except OptionError as error:
            raise OptionError(f"{name} {error}") from error
        except ValueError as error:
            raise OptionError(f"{name} must be {kind.name}, not {text!r}") from error

    return read


def _count(call: PageCall, name: str) -> int | None:
    return call.number(name, 0, least=1, most=MOST_COUNTED) or None


def _headers(call: PageCall, name: str) -> dict[str, str] | None:
    found = {}
    for line in filter(None, map(str.strip, call.asked(name).splitlines())):
        header, equals, value = line.partition("=")
        if not header or not equals:
            raise OptionError(f"each line of the headers must be NAME=VALUE, not {line!r}")
        found[header] = value
    return found or None


_SETTINGS = (
    _Setting(
        "cron",
        "Cron",
        "Minute, hour, day of the month, month, day of the week; or fill in the next field.",
        placeholder="0 3 * * mon-fri",
    ),
    _Setting(
        "every",
        "Every",
        "The time between messages, at least 1s, counted from the start, or from 1970.",
        _of_kind(PERIOD),
        PERIOD.show,
        placeholder="5m",
    ),
    _Setting("zone", "Time zone", "Of the cron expression, and of {{local}} and {{date}}."),
    _Setting(
        "key",
        "Key",
        "The key of the messages. If empty: the name of the schedule.",
        placeholder="the name of the schedule",
    ),
    _Setting("headers", "Headers", "One per line, as NAME=VALUE.", _headers, is_long=True),
    _Setting(
        "start",
        "Start",
        "No message before this instant. If empty: at once.",
        instant_of,
        exact,
        placeholder="2026-12-01T00:00:00Z",
    ),
    _Setting(
        "end",
        "End",
        "No message from this instant on. If empty: without end.",
        instant_of,
        exact,
        placeholder="2027-01-01T00:00:00Z",
    ),
    _Setting("count", "Count", "How many times it comes. If empty: without end.", _count),
    _Setting(
        "catch_up",
        "Catch up",
        f"How many messages come late, at most, if no runner ran: {CATCH_UP.name}.",
        _of_kind(CATCH_UP),
        CATCH_UP.show,
    ),
    _Setting(
        "jitter",
        "Jitter",
        "Each message is put off by a time of its own, shorter than this.",
        _of_kind(PERIOD),
        PERIOD.show,
    ),
    _Setting(
        "ahead",
        "Ahead",
        "Each message is put so much earlier, to be delivered at its time.",
        _of_kind(PERIOD),
        PERIOD.show,
    ),
)
_MESSAGE = FormField(
    "message",
    "Message",
    "The body; {{tick}}, {{local}}, {{date}}, {{unix}}, {{schedule}} and {{queue}} stand for what "
    "the tick is. In a queue with a schema: a JSON object of its columns.",
    "",
    is_long=True,
)


def fields_of_schedule() -> list[FormField]:
    """The fields of the form of a new schedule."""
    of_settings = (
        FormField(it.name, it.label, it.hint, it.usual, (), False, it.is_long, it.placeholder)
        for it in _SETTINGS
    )
    return [_MESSAGE, *of_settings]


def _settings_of(call: PageCall) -> dict[str, Any]:
    found = {it.name: it.read(call, it.name) for it in _SETTINGS}
    return {name: value for name, value in found.items() if value is not None}


def _name_of(call: PageCall) -> str:
    return validate_name("schedule", call.asked("name").strip())


def _words(call: PageCall) -> Iterator[str]:
    """The options of the command: those that differ from what an empty form has."""
    for it in _SETTINGS:
        value = it.read(call, it.name)
        if value is not None and call.asked(it.name).strip() != it.usual:
            yield from it.words(value)


def _plan_create(call: PageCall) -> ChangePlan:
    name, message = _name_of(call), call.asked("message")
    looking = call.console.watcher.looking
    planned, queue = plan_schedule(
        looking, call.name(), name, message, now=call.console.clock(), **_settings_of(call)
    )
    ticks = list(islice(planned.ticks_after(planned.since), _SHOWN))
    figures: dict[str, int | str] = {"when": planned.when}
    figures |= {f"tick {n}": _shown(planned, tick) for n, tick in enumerate(ticks, 1)}
    figures |= {"message of tick 1": planned.value_of(ticks[0]), "key": planned.key}
    figures |= {f"header {header}": str(value) for header, value in planned.headers.items()}
    words = ["--queue", call.name(), "--message", message, *_words(call)]
    return ChangePlan(
        sentence=f"Schedule {name} of queue {call.name()} is created.",
        command=command_of("schedule", "create", name, *words),
        about=f"{queue.queue_id} {queue}",
        figures=figures,
        warnings=(
            "A runner must run: cassieq schedule run, or a gateway with --schedules.",
            "To change a schedule later, delete it and create another one.",
        ),
        button="Create the schedule",
    )


def _shown(schedule: Schedule, tick: datetime) -> str:
    """An instant, with the local time of the schedule if that is another one."""
    local = f" ({schedule.local(tick).isoformat()})" if schedule.zone != "UTC" else ""
    return f"{exact(tick)}{local}"


def _create(call: PageCall, client: Client) -> str:
    name = _name_of(call)
    client.create_schedule(call.name(), name, call.asked("message"), **_settings_of(call))
    return f"Schedule {name} is created."


#: The changes of a queue that make a schedule, by the last part of their path.
SCHEDULING: Mapping[str, Change] = {
    "create-schedule": Change(
        "Create a schedule",
        _plan_create,
        _create,
        after=lambda call: call.url("queues", call.name(), "schedules"),
    ),
}
