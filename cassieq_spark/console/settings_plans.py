"""The settings of a queue in the console: forms, and plans of a new queue and of an alteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cassieq_spark.client import Client
from cassieq_spark.console.pages import PageCall, flag
from cassieq_spark.console.plans import Change, ChangePlan, command_of
from cassieq_spark.console.show import NOTHING
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.model import Order, QueueDefinition, validate_name
from cassieq_spark.queues import read_record
from cassieq_spark.schemas.ddl import parse_ddl, schema_of, to_ddl
from cassieq_spark.schemas.evolution import check_change
from cassieq_spark.settings.queue import (
    ALTERABLE,
    CHOSEN,
    PERIOD,
    QueueSetting,
    dead_letter_queue_of,
)


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form.

    Attributes:
        name: The name of the field in the form.
        label: The name of the field for people.
        hint: The meaning of the field.
        value: The present content.
        choices: The possible values; empty for any value.
        is_number: True for a whole number.
        is_long: True if the field needs several lines.
        placeholder: The text that a browser shows in an empty field.
    """

    name: str
    label: str
    hint: str
    value: str
    choices: tuple[str, ...] = ()
    is_number: bool = False
    is_long: bool = False
    placeholder: str = ""


def fields_of_new() -> list[FormField]:
    """The fields of the form of a new queue."""
    return [_field(it, it.default, it.otherwise) for it in CHOSEN]


def fields_of(queue: QueueDefinition) -> list[FormField]:
    """The fields of the form that alters a queue."""
    return [_field(it, getattr(queue, it.name)) for it in settings_to_alter(queue)]


def settings_to_alter(queue: QueueDefinition) -> tuple[QueueSetting, ...]:
    """The settings of a queue that can be altered and have an effect."""
    # Without an order nothing stops, and a queue without a schema cannot get one.
    idle = {"on_dead"} if queue.order is Order.NONE else set()
    idle |= {"schema"} if queue.schema is None else set()
    return tuple(it for it in ALTERABLE if it.name not in idle)


def _field(it: QueueSetting, value: Any, otherwise: str = "") -> FormField:
    empty = "0s" if it.is_duration else "0" if it.is_number else "empty"
    return FormField(
        it.name,
        it.label.capitalize(),
        f"{it.meaning} If empty: {otherwise}." if otherwise else it.sentence(empty),
        _text(it, value),
        tuple(it.choice or ()),
        is_number=it.is_number,
        is_long=it.name == "schema",
        placeholder=otherwise,
    )


def _text(it: QueueSetting, value: Any) -> str:
    """A value as its field and its flag have it."""
    if it.is_duration:
        return PERIOD.show(value or it.zero)
    return "" if value is None else str(it.plain_of(value))


def _given(
    call: PageCall, settings: Iterable[QueueSetting], usual: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that a form gives; the usual values for fields that the form lacks.

    Raises:
        OptionError: A value is out of range, or contradicts another value.
    """
    given = {it.name: _value(call, it, usual[it.name]) for it in settings}
    dead_letter_queue_of(given, drop_dead=flag("drop_dead", call))
    return given


def _value(call: PageCall, it: QueueSetting, usual: Any) -> Any:
    text = call.asked(it.name, _text(it, usual)).strip()
    if it.is_duration:
        if text in {"", NOTHING}:
            return None if it.without else usual
        return it.check(_length(it, text))
    if it.is_number:
        return call.number(it.name, usual, least=it.least, most=it.most)
    if it.name == "schema":
        return to_ddl(parse_ddl(text)) if text else usual
    return it.check(text) if text or it.choice is None else usual


def _length(it: QueueSetting, text: str) -> Any:
    try:
        return PERIOD.parse(text)
    except ValueError as error:
        raise OptionError(f"{it.label} must be {PERIOD.name}, not {text!r}") from error


def _changes(call: PageCall, queue: QueueDefinition) -> dict[QueueSetting, Any]:
    """The settings that a form changes, and their new values."""
    settings = settings_to_alter(queue)
    before = {it.name: getattr(queue, it.name) for it in settings}
    given = _given(call, settings, before)
    is_dropped = flag("drop_dead", call)
    if given["max_deliveries"] and not (given["dead_letter_queue"] or is_dropped):
        # Not only because a field is empty.
        raise OptionError(
            f"name a dead-letter queue, such as {queue.name}.dead, or tick that dead messages are "
            "dropped"
        )
    return {it: given[it.name] for it in settings if given[it.name] != before[it.name]}


def _drops(call: PageCall, changes: Mapping[QueueSetting, Any]) -> bool:
    """True if dead messages are dropped from now on, which a new limit must say, too."""
    after = {it.name: value for it, value in changes.items()}
    is_removed = "dead_letter_queue" in after and after["dead_letter_queue"] is None
    return is_removed or ("max_deliveries" in after and flag("drop_dead", call))


def _plan_alter(call: PageCall) -> ChangePlan:
    looked = call.console.watcher.read(call.name())
    queue = looked.record.definition
    figures: dict[str, int | str] = {}
    words: list[object] = []
    changes = _changes(call, queue)
    for it, after in changes.items():
        if it.name == "schema":
            versions = len(queue.schemas)
            done = check_change([schema_of(each) for each in queue.schemas], parse_ddl(after))
            figures["schema"] = f"version {versions} → {versions + 1}"
            figures |= {f"column change {at}": str(each) for at, each in enumerate(done, 1)}
        else:
            figures[it.label] = f"{it.shown(getattr(queue, it.name))} → {it.shown(after)}"
        if it.name != "dead_letter_queue" or after is not None:
            words += [it.flag, _text(it, after)]
    words += ["--drop-dead"] if _drops(call, changes) else []
    if not figures:
        raise OptionError("nothing is to be altered: change a setting first")
    return ChangePlan(
        sentence=f"These settings of queue {call.name()} are altered; the others stay.",
        command=command_of("queue", "alter", call.name(), *words),
        about=f"{queue.queue_id} {queue}",
        figures=figures,
        warnings=("Readers and writers that run see the change when they are restarted.",),
        button="Alter the queue",
    )


def _alter(call: PageCall, client: Client) -> str:
    changes = _changes(call, call.queue())
    given = {it.name: after or it.zero for it, after in changes.items()}
    is_dropped = _drops(call, changes)
    if is_dropped:
        given.pop("dead_letter_queue", None)
    client.alter_queue(call.name(), drop_dead=is_dropped, **given)
    return f"Queue {call.name()} is altered. Restart its readers and writers to apply the change."


def _new(call: PageCall) -> dict[str, Any]:
    return _given(call, CHOSEN, {it.name: it.default for it in CHOSEN})


def _plan_create(call: PageCall) -> ChangePlan:
    name = validate_name("queue", call.asked("name").strip())
    record = read_record(call.console.watcher.looking, name)
    if record is not None and not record.is_gone:
        raise QueueStateError(f"there is a queue {name!r} already")
    given, is_dropped = _new(call), flag("drop_dead", call)
    words: list[object] = []
    for it in CHOSEN:
        value = given[it.name]
        words += [it.flag, _text(it, value)] if value != it.default else []
    words += ["--drop-dead"] if is_dropped else []
    if given["max_deliveries"] and not is_dropped:
        given["dead_letter_queue"] = given["dead_letter_queue"] or f"{name}.dead"
    return ChangePlan(
        sentence=f"Queue {name} is created.",
        command=command_of("queue", "create", name, *words),
        about=name,
        figures={it.label: it.shown(given[it.name]) for it in CHOSEN},
        button="Create the queue",
    )


def _create(call: PageCall, client: Client) -> str:
    name = call.asked("name").strip()
    queue = client.create_queue(name, drop_dead=flag("drop_dead", call), **_new(call))
    return f"Queue {queue.name} is ready ({queue.queue_id})."


ALTER = Change("Alter the queue", _plan_alter, _alter)
CREATE = Change(
    "Create a queue",
    _plan_create,
    _create,
    after=lambda call: call.url("queues", call.asked("name").strip()),
)
