"""Every surface has every setting of a schedule, with the same bounds and the same errors.

The settings come from `SCHEDULE_SETTINGS`, and these are compared with the dataclass and the typed
dicts. A new one costs three files: an attribute of `Schedule`, an entry with its keys in
`settings/schedule.py`, and a line of the gateway's example. It fails here until all are there.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from cassieq_spark.cli import schedule as schedule_command
from cassieq_spark.client import AsyncClient, Client
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue
from cassieq_spark.http.gateway.schedules import _EXAMPLE
from cassieq_spark.http.gateway.schemas import ScheduleChanges as ChangesByHttp
from cassieq_spark.http.gateway.schemas import ScheduleOptions
from cassieq_spark.schedules import Schedule
from cassieq_spark.schedules.plain import plain_schedule, schedule_of_plain
from cassieq_spark.schedules.stored import from_stored, to_stored
from cassieq_spark.settings import __main__ as documentation
from cassieq_spark.settings.schedule import (
    ALTERABLE,
    CHOSEN,
    KEPT,
    SCHEDULE_SETTINGS,
    Of,
    ScheduleChanges,
    ScheduleSetting,
    ScheduleSettings,
    schedule_sent,
)
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import cassieq, commands, options_of
from tests.unit.console.visitor import forms_of, visiting, words_of

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
BEGIN = datetime(2040, 1, 1, tzinfo=UTC)
#: What a schedule has that nobody chooses.
OF_ITSELF = {"queue", "name", "identity", "since", "paused", "generation"}
#: Where no setting is the usual one; count has become the end.
SETTINGS: dict[str, Any] = {
    "every": 5 * SECOND * 60,
    "zone": "Asia/Kolkata",
    "key": "k",
    "headers": {"lang": "en"},
    "start": BEGIN,
    "end": BEGIN + 9 * HOUR,
    "catch_up": 7,
    "jitter": SECOND,
    "ahead": 2 * SECOND,
}


def names(settings: tuple[ScheduleSetting, ...]) -> set[str]:
    return {it.name for it in settings}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr(schedule_command, "open_store", lambda _: store)
    client = Client.from_store(store)
    client.create_queue("orders")
    client.create_schedule("orders", "s", "{{tick}}", **SETTINGS)
    return store


def the_schedule(store: MemoryStore) -> Schedule:
    return Client.from_store(store).schedule("orders", "s").schedule


def test_the_settings_are_those_of_a_schedule():
    assert names(KEPT) == {it.name for it in fields(Schedule)} - OF_ITSELF
    assert names(CHOSEN) == set(ScheduleSettings.__annotations__)
    assert names(ALTERABLE) == set(ScheduleChanges.__annotations__)
    defaults = {it.name: it.default for it in KEPT if it.name not in {"message", "key", "headers"}}
    assert defaults == {it.name: it.default for it in fields(Schedule) if it.name in defaults}


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "queue", "name"}


def options(command: str) -> set[str]:
    flags = {it.flag: it.name for it in SCHEDULE_SETTINGS}
    return {flags[it] for it in options_of(commands()[command]) if it in flags}


def fields_of_form(path: str, action: str) -> set[str]:
    """The fields of a form of the console, but for those of every form."""
    with ExitStack() as stack:
        store = MemoryStore()
        client = Client.from_store(store)
        client.create_queue("orders")
        client.create_schedule("orders", "s", "x", every=HOUR)
        visitor = stack.enter_context(visiting(store, allow_changes=True))
        visitor.look()
        text = visitor.page(path)
    (form,) = [each for each in forms_of(text) if each.action.endswith(action)]
    return set(re.findall(r'name="(\w+)"', text)) & (
        set(form.fields) | names(SCHEDULE_SETTINGS)
    ) - {"token", "name"}


CREATING: dict[str, Callable[[], set[str]]] = {
    "Client": lambda: parameters(Client.create_schedule),
    "AsyncClient": lambda: parameters(AsyncClient.create_schedule),
    "HttpQueue": lambda: parameters(HttpQueue.create_schedule),
    "AsyncHttpQueue": lambda: parameters(AsyncHttpQueue.create_schedule),
    "gateway": lambda: set(ScheduleOptions.model_fields),
    "cassieq": lambda: options("schedule create"),
    "console": lambda: fields_of_form("/queues/orders/schedules", "/create-schedule"),
}
ALTERING: dict[str, Callable[[], set[str]]] = {
    "Client": lambda: parameters(Client.alter_schedule),
    "AsyncClient": lambda: parameters(AsyncClient.alter_schedule),
    "HttpQueue": lambda: parameters(HttpQueue.alter_schedule),
    "AsyncHttpQueue": lambda: parameters(AsyncHttpQueue.alter_schedule),
    "gateway": lambda: set(ChangesByHttp.model_fields),
    # Hidden, and refused with the reason.
    "cassieq": lambda: options("schedule alter") - {"key"},
    "console": lambda: fields_of_form("/queues/orders/schedules/s", "/change/alter"),
}


@pytest.mark.parametrize("place", CREATING)
def test_a_new_schedule_can_be_given_every_setting_everywhere(place: str):
    assert CREATING[place]() == names(SCHEDULE_SETTINGS)


@pytest.mark.parametrize("place", ALTERING)
def test_every_setting_but_the_fixed_ones_is_altered_everywhere(place: str):
    assert ALTERING[place]() == names(ALTERABLE)


def test_what_is_stored_and_sent_has_every_setting(store: MemoryStore):
    schedule = the_schedule(store)

    assert from_stored("orders", to_stored([schedule])) == {"s": schedule}
    assert schedule_of_plain("orders", plain_schedule(schedule)) == schedule
    plain = {it.plain_name for it in KEPT}
    assert plain < plain_schedule(schedule).keys()
    assert {it.http_name for it in KEPT} < _EXAMPLE.keys()
    shown = json.loads(cassieq("schedule", "show", "s", "--queue", "orders", "--json").out)
    assert {name: shown[name] for name in plain} == {
        name: plain_schedule(schedule)[name] for name in plain
    }


def test_a_table_shows_every_setting(store: MemoryStore):
    shown = cassieq("schedule", "show", "s", "--queue", "orders").out

    for it in KEPT:
        value = getattr(the_schedule(store), it.name)
        if it.of is Of.HEADERS:
            assert re.search("^header lang +en$", shown, re.MULTILINE)
        elif it.of is Of.INSTANT:
            assert re.search(f"^{it.label} +{value:%Y-%m-%d %H:%M:%S} UTC$", shown, re.MULTILINE)
        elif it.name != "cron":
            assert re.search(
                rf" +(every )?{re.escape(it.show(value) or '-')}$", shown, re.MULTILINE
            )


def test_a_page_shows_every_setting(store: MemoryStore):
    with visiting(store) as visitor:
        visitor.look()
        words = words_of(visitor.page("/queues/orders/schedules/s"))

    for it in KEPT:
        value = it.show(getattr(the_schedule(store), it.name)) or "-"
        assert f"{it.label.capitalize()} {value}" in words


def test_the_page_of_options_has_every_setting():
    text = documentation.documentation().partition("## A schedule")[2]

    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == names(SCHEDULE_SETTINGS)


#: Values out of bounds, as programs give them, and as a command has them.
WRONG: list[tuple[str, Any, str]] = [
    ("every", timedelta(0), "0s"),
    ("every", timedelta(days=400), "400d"),
    ("jitter", 2 * HOUR, "2h"),
    ("jitter", timedelta(days=400), "400d"),
    ("jitter", -SECOND, ""),
    ("ahead", 2 * HOUR, "2h"),
    ("count", 0, "0"),
    ("count", 10_001, "10001"),
    ("catch_up", 1001, ""),
    ("cron", "*" * 1001, "*" * 1001),
    ("zone", "z" * 101, "z" * 101),
    ("key", "k" * 1001, "k" * 1001),
    ("headers", {"cassieq.x": "1"}, "cassieq.x=1"),
]


def told_by_command(name: str, text: str) -> str:
    (flag,) = [it.flag for it in SCHEDULE_SETTINGS if it.name == name]
    every = () if name in {"every", "cron"} else ("--every", "5m")
    words = ("schedule", "create", "new", "--queue", "orders", "--message", "x", *every)
    return cassieq(*words, flag, text).err


def told_by_gateway(name: str, value: Any) -> str:
    it = {it.name: it for it in SCHEDULE_SETTINGS}[name]
    body = {"message": "x", "everySeconds": 300.0, it.http_name: it.plain_of(value)}
    with pytest.raises(ValidationError) as refused:
        ScheduleOptions.model_validate_json(json.dumps(body))
    return str(refused.value)


@pytest.mark.parametrize(("name", "value", "text"), WRONG)
def test_a_value_out_of_bounds_has_the_same_error_everywhere(
    store: MemoryStore, name: str, value: Any, text: str
):
    client = Client.from_store(store)
    given: dict[str, Any] = {"every": 300 * SECOND} | {name: value}
    is_narrower_by_http = name == "every"

    with pytest.raises(CassieqError) as refused:
        client.create_schedule("orders", "new", "x", **given)
    problem = str(refused.value)
    with pytest.raises(CassieqError) as refused_too:
        client.alter_schedule("orders", "s", **({name: value} if name != "key" else given))
    with pytest.raises(CassieqError) as not_sent:
        schedule_sent({**given, "message": "x"})

    if name != "key":
        assert str(refused_too.value) == problem
    if not is_narrower_by_http:
        assert str(not_sent.value) == problem
        assert problem in told_by_gateway(name, value)
    if text:
        assert problem in told_by_command(name, text)


def test_accounts_of_a_gateway_have_narrower_bounds_where_each_tick_costs_others():
    for name, value, problem in (
        ("every", 9 * SECOND, "every must be from 0:00:10 to 365 days, not 0:00:09"),
        ("message", "x" * 16_385, "message must have 16384 characters at most, not 16385"),
    ):
        given: dict[str, Any] = {"message": "x", "every": HOUR} | {name: value}
        with pytest.raises(CassieqError, match=problem):
            schedule_sent(given)
        assert problem in told_by_gateway(name, value)


def test_the_description_of_the_gateway_has_the_bounds():
    shown = ScheduleOptions.model_json_schema()["properties"]

    assert (shown["message"]["maxLength"], shown["catchUp"]["maximum"]) == (16_384, 1000)
    (every, _) = shown["everySeconds"]["anyOf"]
    assert (every["minimum"], every["maximum"]) == (10, 365 * 86_400)
    assert shown["jitterSeconds"] == {
        "default": 0.0,
        "description": "Each message is put off by a time of its own, shorter than this.",
        "maximum": 3600.0,
        "minimum": 0.0,
        "title": "Jitter",
        "type": "number",
    }


def test_a_client_sends_what_it_alters_and_null_for_what_it_takes_away(
    monkeypatch: pytest.MonkeyPatch,
):
    sent: list[Any] = []

    def ask(_: HttpQueue, method: str, rest: str, parse: object, *, content: bytes) -> None:
        sent.append((method, rest, json.loads(content)))

    monkeypatch.setattr(HttpQueue, "_ask", ask)
    queue = HttpQueue("http://gateway", "acme", "orders", key="x")
    queue.alter_schedule("nightly", every=HOUR, end=None, headers=None)

    body = {"everySeconds": 3600.0, "end": None, "headers": {}}
    assert sent == [("PATCH", "/schedules/nightly", body)]
