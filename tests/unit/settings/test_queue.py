"""Settings of a queue: what somebody may give, and that each is declared once for all surfaces."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import timedelta
from typing import Any, Unpack

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.model import OnDead, Order, QueueDefinition
from cassieq_spark.settings.queue import (
    ALTERABLE,
    CHOSEN,
    QUEUE_SETTINGS,
    QueueChanges,
    QueueSettings,
    StoredQueueSettings,
    check_settings,
    dead_letter_queue_of,
    http_settings_given,
    settings_from_http,
    takes,
)

BY_NAME = {it.name: it for it in QUEUE_SETTINGS}
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("given", "declared"),
    [(QueueChanges, ALTERABLE), (QueueSettings, CHOSEN), (StoredQueueSettings, QUEUE_SETTINGS)],
)
def test_editors_know_each_setting_that_is_declared(given: Any, declared: Any):
    assert set(given.__annotations__) == {it.name for it in declared}


def test_a_new_queue_is_as_its_definition_says_but_for_the_limit_of_deliveries():
    plain = QueueDefinition("q", 1)
    defaults = {it.name: it.default for it in CHOSEN}

    assert {name for name, it in defaults.items() if getattr(plain, name) != it} == {
        "max_deliveries"
    }


def test_each_attribute_of_a_definition_is_a_setting_or_no_choice():
    derived = {"schemas": "schema"}
    names = {derived.get(it.name, it.name) for it in fields(QueueDefinition)}

    assert names - set(BY_NAME) == {"name", "version", "created_at", "partition"}


def test_what_is_not_given_is_left_out():
    assert check_settings({"lease": HOUR, "order": None, "schema": None}) == {"lease": HOUR}


def test_zero_takes_away_what_a_queue_may_be_without():
    zero = {it.name: it.zero for it in ALTERABLE if it.without and it.name != "schema"}

    assert check_settings(zero, alters=True) == {
        "max_deliveries": 0,
        "dead_letter_queue": None,
        "expire_after": None,
        "keep_settled": None,
        "delay": None,
        "deduplicate": None,
        "history": None,
    }
    assert http_settings_given(zero) == {
        "maxDeliveryCount": 0,
        "dlqName": "",
        "expireAfterSeconds": 0,
        "keepSettledSeconds": 0,
        "delaySeconds": 0,
        "deduplicateSeconds": 0,
        "historySeconds": 0,
    }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"lease": timedelta(0)}, "lease must be whole seconds, at least a second"),
        ({"lease": 60}, "lease must be a timedelta, not 60"),
        ({"lease": timedelta(days=20_001)}, "at most 20000 days"),
        ({"expire_after": timedelta(milliseconds=1500)}, "expire_after must be whole seconds"),
        ({"max_deliveries": True}, "max deliveries must be a whole number"),
        ({"partitions": 257}, "partitions must be at most 256"),
        ({"order": "keys"}, "did you mean 'key'"),
        ({"on_dead": 1}, "on_dead must be one of continue, stop"),
        ({"dead_letter_queue": "no spaces"}, "queue name"),
    ],
)
def test_what_no_queue_can_have_is_refused(given: dict[str, Any], problem: str):
    with pytest.raises(OptionError, match=problem):
        check_settings(given)


@pytest.mark.parametrize("name", [it.name for it in QUEUE_SETTINGS if it.fixed])
def test_what_cannot_be_altered_is_refused_with_a_reason(name: str):
    with pytest.raises(OptionError, match=r"can't be altered, because .*; create another queue"):
        check_settings({name: BY_NAME[name].default or 1}, alters=True)


def test_an_unknown_setting_is_refused_with_the_nearest_one():
    with pytest.raises(TypeError, match="no setting 'leese': did you mean 'lease'"):
        check_settings({"leese": HOUR})


@pytest.mark.parametrize(("given", "drop_dead"), [({"max_deliveries": 0}, False), ({}, True)])
def test_dead_messages_cannot_both_go_somewhere_and_be_dropped(
    given: dict[str, Any], drop_dead: bool
):
    with pytest.raises(OptionError, match="cannot be combined with dropping dead messages"):
        dead_letter_queue_of({**given, "dead_letter_queue": "graves"}, drop_dead=drop_dead)


def test_a_meaning_says_what_holds_without_the_setting():
    limit, lease = BY_NAME["max_deliveries"], BY_NAME["lease"]

    assert limit.sentence().endswith("is dead; 0: no limit.")
    assert BY_NAME["expire_after"].sentence("0s").endswith("is discarded; 0s: never.")
    assert lease.sentence("0s") == lease.meaning


def test_a_value_is_shown_as_it_is_given():
    shown = {
        "lease": (HOUR, "1h"),
        "max_deliveries": (0, "no limit"),
        "expire_after": (None, "never"),
        "order": (Order.KEY, "key"),
        "bucket_size": (8192, "8192"),
    }

    assert {name: BY_NAME[name].shown(it) for name, (it, _) in shown.items()} == {
        name: text for name, (_, text) in shown.items()
    }


def test_what_is_given_by_http_is_what_a_definition_has():
    given = {"lease": HOUR, "order": "key", "on_dead": OnDead.STOP, "partitions": 3}

    sent = http_settings_given(given)

    assert sent == {"leaseSeconds": 3600, "order": "key", "onDead": "stop", "partitions": 3}
    whole = {it.http_name: None for it in QUEUE_SETTINGS} | sent
    assert settings_from_http(whole) == {
        "lease": HOUR,
        "partitions": 3,
        "on_dead": OnDead.STOP,
        "order": Order.KEY,
        "schemas": (),
    }


def test_help_shows_each_setting_with_its_default():
    @takes(CHOSEN, defaults=True)
    def create(name: str, **settings: Unpack[QueueSettings]) -> None: ...

    @takes(ALTERABLE, defaults=False)
    def alter(name: str, **changes: Unpack[QueueChanges]) -> None: ...

    created, altered = (inspect.signature(each).parameters for each in (create, alter))
    assert list(created) == ["name", *(it.name for it in CHOSEN)]
    assert (created["max_deliveries"].default, altered["max_deliveries"].default) == (5, None)
    assert created["lease"].annotation == "timedelta | None"
    assert "partitions" not in altered
