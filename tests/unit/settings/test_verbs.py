"""Each verb is declared once: its parameter is checked alike everywhere, and settles messages."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import AsyncClient, Client
from cassieq_spark.client import Action
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.state import Settlement
from cassieq_spark.http.accounts import Right
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue
from cassieq_spark.http.gateway.requests import ENDPOINTS
from cassieq_spark.model import Range, Ranges
from cassieq_spark.settings.verbs import LONGEST_TEXT, VERBS
from tests.support.command_line import commands, options_of

MINUTE = timedelta(minutes=1)
TWO = Ranges.of(Range(3, 5))
VALUES = {"ack": None, "release": MINUTE, "extend": MINUTE, "reject": "bad"}


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("of", [Client, AsyncClient, HttpQueue, AsyncHttpQueue])
def test_each_client_has_a_method_of_each_verb(of: type, name: str):
    assert callable(getattr(of, name))


@pytest.mark.parametrize("name", VERBS)
def test_a_method_takes_the_parameter_of_its_verb(name: str):
    _, _, *named = inspect.signature(getattr(Client, name)).parameters.values()
    parameter = VERBS[name].parameter
    default = inspect.Parameter.empty
    if parameter is not None and parameter.default is not None:
        default = parameter.default

    assert [(each.name, each.default) for each in named] == (
        [] if parameter is None else [(parameter.name, default)]
    )


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_has_a_kind_of_event_in_the_history(name: str):
    settlement = Action(name, VALUES[name]).settlement_of(TWO)

    assert [str(did) for did, _, part in settlement.parts() if part] == [VERBS[name].done]


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_has_a_command_and_an_endpoint(name: str):
    parameter, right = VERBS[name].parameter, Right(VERBS[name].right)

    assert f"{{queue}}/messages/{name}" in "".join(
        each.path for each in ENDPOINTS if each.method == "POST" and each.right is right
    )
    assert parameter is None or f"--{parameter.name}" in options_of(commands()[name])


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_a_part_of_a_settlement(name: str):
    settlement = Action(name, VALUES[name]).settlement_of(TWO)

    assert settlement.named == TWO
    given = {it.name: getattr(settlement, it.name) for it in fields(Settlement)}
    assert [each for each, value in given.items() if value] == [VERBS[name].done]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("ack", MINUTE, "'ack' takes no value"),
        ("release", -MINUTE, "delay must be from"),
        ("release", "soon", "delay must be a timedelta"),
        ("extend", timedelta(0), "by must be from"),
        ("extend", None, "by must be a timedelta, not None"),
        ("reject", " ", "reason is empty: say what is wrong"),
        ("reject", None, "reason must be a str"),
        ("rejct", "bad", "did you mean 'reject'"),
    ],
)
def test_what_no_verb_takes_is_refused(name: str, value: Any, problem: str):
    with pytest.raises(OptionError, match=problem):
        Action(name, value)


def test_what_is_left_out_has_its_default_and_a_long_reason_is_cut():
    assert Action("release").value == timedelta(0)
    assert Action("reject", "x" * 3000).value == "x" * LONGEST_TEXT
