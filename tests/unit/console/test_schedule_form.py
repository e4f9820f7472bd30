"""The form of a new schedule, and the plan that it leads to."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark.cli import schedule as schedule_command
from cassieq_spark.client import Client
from cassieq_spark.console.schedule_plans import fields_of_schedule
from cassieq_spark.settings.schedule import ScheduleSettings
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import cassieq
from tests.unit.console.visitor import Visitor, words_of


def test_a_schedule_is_created_after_its_next_ticks_were_shown(
    operator: Visitor, store: MemoryStore
):
    client = Client.from_store(store)
    text = operator.page("/queues/orders/schedules")

    asked = operator.submit(
        text,
        "/change/create-schedule",
        name="weekly",
        cron="0 3 * * mon",
        zone="Asia/Kolkata",
        message='{"day": "{{date}}"}',
        headers="lang=en\r\nfrom=a=b\r\n",
        start="2040-01-01T00:00:00Z",
        count="3",
        catch_up="none",
        ahead="1m",
    )

    words = words_of(asked.text)
    assert "Schedule weekly of queue orders is created." in words
    assert "tick 1 2040-01-01T21:30:00Z (2040-01-02T03:00:00+05:30) tick 2 2040-01-08" in words
    assert "tick 4" not in words
    assert 'message of tick 1 {"day": "2040-01-02"} key weekly header lang en' in words
    assert "A runner must run" in words
    (command,) = re.findall("(cassieq schedule create .*?) Copy", words)
    assert [each.schedule.name for each in client.schedules("orders")] == ["beat", "nightly"]

    done = operator.confirm(asked)

    assert "Schedule weekly is created." in words_of(done.text)
    made = client.schedule("orders", "weekly").schedule
    assert (made.cron, made.zone, made.message) == (
        "0 3 * * mon",
        "Asia/Kolkata",
        '{"day": "{{date}}"}',
    )
    assert (made.key, made.headers) == ("weekly", {"lang": "en", "from": "a=b"})
    assert (made.catch_up, made.ahead, made.jitter) == (0, timedelta(minutes=1), timedelta(0))
    assert made.start == datetime(2040, 1, 1, tzinfo=UTC)
    client.delete_schedule("orders", "weekly")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_command, "open_store", lambda _: store)
        assert cassieq(*shlex.split(command)[1:]).code == 0
    again = client.schedule("orders", "weekly").schedule
    assert again == replace(made, identity=again.identity, since=again.since)


def test_the_form_of_a_schedule_has_all_settings_and_its_defaults(
    operator: Visitor, store: MemoryStore
):
    client = Client.from_store(store)
    by_client = client.create_schedule("orders", "a", "x", every=timedelta(minutes=5))

    text = operator.page("/queues/orders/schedules")
    asked = operator.submit(text, "/change/create-schedule", name="b", every="5m", message="x")
    operator.confirm(asked)

    assert "cassieq schedule create b --queue orders --message x --every 5m Copy" in words_of(
        asked.text
    )
    made = client.schedule("orders", "b").schedule
    same = {"name": "a", "key": "a", "identity": by_client.identity, "since": by_client.since}
    assert replace(made, **same) == by_client
    names = {each.name for each in fields_of_schedule()}
    assert names == {"message", *ScheduleSettings.__annotations__}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "give either cron"),
        ({"every": "5m", "cron": "0 3 * * *"}, "give either cron"),
        ({"every": "5"}, "every must be a duration such as"),
        ({"every": "5m", "name": "a/b"}, "schedule name 'a/b' is not valid"),
        ({"every": "5m", "name": "nightly"}, "has a schedule 'nightly' already"),
        ({"every": "5m", "catch_up": "all"}, "catch_up must be none, last or a number"),
        ({"every": "5m", "count": "0"}, "count must be at least 1"),
        ({"every": "5m", "headers": "a"}, "headers: each line must be NAME=VALUE"),
        ({"every": "5m", "start": "2040-01-01"}, "start must be an instant with a time zone"),
        ({"every": "5m", "message": "{{tik}}"}, "did you mean 'tick'"),
        ({"every": "5m", "end": "2001-01-01T00:00:00Z"}, "before it ticks"),
        ({"cron": "0 3 * * *", "zone": "Mars/Olympus"}, "there is no time zone"),
    ],
)
def test_a_schedule_that_is_not_valid_is_refused_by_its_plan(
    operator: Visitor, fields: dict[str, str], problem: str
):
    text = operator.page("/queues/orders/schedules")

    refused = operator.submit(
        text, "/change/create-schedule", **{"name": "new", "message": "x"} | fields
    )

    assert refused.status_code in {400, 409}
    assert problem in words_of(refused.text)


def test_a_schedule_that_a_queue_does_not_take_is_refused_by_its_plan(
    operator: Visitor, store: MemoryStore
):
    Client.from_store(store).create_queue("ordered", order="strict")
    for queue, more, problem in (
        ("trips", {"message": '{"vendor": 5, "no": 1}'}, "has no column 'no'"),
        ("ordered", {"ahead": "1m"}, "would hold up all later ones"),
    ):
        fields = {"name": "new", "message": "x", "every": "5m"} | more
        text = operator.page(f"/queues/{queue}/schedules")
        refused = operator.submit(text, "/change/create-schedule", **fields)

        assert refused.status_code == 400
        assert problem in words_of(refused.text)


def test_a_plan_of_a_schedule_does_not_hold_once_the_queue_was_altered(
    operator: Visitor, store: MemoryStore
):
    client = Client.from_store(store)
    text = operator.page("/queues/empty/schedules")
    asked = operator.submit(text, "/change/create-schedule", name="n", message="x", every="1m")
    client.alter_queue("empty", delay=timedelta(minutes=1))

    assert operator.confirm(asked).status_code == 409
    assert client.schedules("empty") == []


def test_a_schedule_is_altered_after_its_next_ticks_were_shown(
    operator: Visitor, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schedule_command, "open_store", lambda _: store)
    client = Client.from_store(store)
    settings = {"headers": {"lang": "en", "from": "a"}, "end": datetime(2041, 1, 1, tzinfo=UTC)}
    for name in ("a", "b"):
        client.create_schedule("empty", name, "x", cron="0 3 * * *", **settings)  # type: ignore[arg-type]
        client.pause_schedule("empty", name)
    text = operator.page("/queues/empty/schedules/a")

    asked = operator.submit(text, "/change/alter", cron="", every="5m", end="", message="{{date}}")
    words = words_of(asked.text)
    before = client.schedule("empty", "a").schedule
    done = operator.confirm(asked)

    assert "Schedule a of queue empty is altered." in words
    assert "when every 5m tick 1 20" in words
    assert "The new times begin now" in words
    assert "The schedule stays paused." in words
    (command,) = re.findall("(cassieq schedule alter .*?) Copy", words)
    assert (before.cron, before.generation) == ("0 3 * * *", 0)
    assert "Schedule a is altered." in words_of(done.text)
    altered = client.schedule("empty", "a").schedule
    assert (altered.every, altered.end, altered.message) == (
        timedelta(minutes=5),
        None,
        "{{date}}",
    )
    assert (altered.headers, altered.paused) == ({"lang": "en", "from": "a"}, True)
    # The command that the page showed does the same.
    assert "--end none" in command
    assert cassieq(*shlex.split(command.replace(" a ", " b ", 1))[1:]).code == 0
    same = {"name": "a", "key": "a", "identity": altered.identity, "since": altered.since}
    assert replace(client.schedule("empty", "b").schedule, **same) == altered


def test_a_form_that_changes_nothing_and_one_of_an_altered_schedule_alter_nothing(
    operator: Visitor, store: MemoryStore
):
    client = Client.from_store(store)
    client.create_schedule("empty", "a", "x\ny", cron="0 3 * * *", headers={"b": "1", "a": "2"})
    text = operator.page("/queues/empty/schedules/a")

    nothing = operator.submit(text, "/change/alter")
    asked = operator.submit(text, "/change/alter", zone="Asia/Kolkata")
    client.alter_schedule("empty", "a", message="other")

    assert "nothing is to be altered" in words_of(nothing.text)
    assert operator.confirm(asked).status_code == 409
    assert client.schedule("empty", "a").schedule.zone == "UTC"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"cron": "0 3 * *"}, "not five"),
        ({"every": "5m"}, "give either cron"),
        ({"jitter": "2h"}, "jitter must be from 0:00:00 to 1:00:00"),
        ({"message": "{{tik}}"}, "did you mean 'tick'"),
    ],
)
def test_an_alter_that_is_not_valid_is_refused_by_its_plan(
    operator: Visitor, fields: dict[str, str], problem: str
):
    text = operator.page("/queues/orders/schedules/nightly")

    refused = operator.submit(text, "/change/alter", **fields)

    assert refused.status_code == 400
    assert problem in words_of(refused.text)
