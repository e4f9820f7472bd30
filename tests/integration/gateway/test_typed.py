"""Queues with a schema, by HTTP: messages are JSON objects."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.support.gateway import Account, RunningGateway

ARROW = "application/vnd.apache.arrow.stream"
TRIP = {"vendor": "v", "fare": "1.50", "stops": [{"zone": 3}]}
MANY = ", ".join(f"c{number} int" for number in range(201))
SCHEMA = "vendor string not null, fare decimal(10,2), stops array<struct<zone:int>>"


@pytest.fixture(scope="module")
def shop(gateway: RunningGateway) -> Account:
    account = gateway.account()
    answer = account.ask("POST", content=json.dumps({"queueName": "trips", "schema": SCHEMA}))
    assert answer.status_code == 201, answer.text
    return account


def test_the_schema_is_a_part_of_the_definition(shop: Account):
    assert shop.ask("GET", "/trips").json()["schema"] == SCHEMA


@pytest.mark.parametrize("schema", ["fare", "fare variant", 5, MANY, "a int, " * 20_000])
def test_what_is_no_schema_is_refused(shop: Account, schema: Any):
    answer = shop.ask("POST", content=json.dumps({"queueName": "other", "schema": schema}))

    assert answer.status_code in {400, 422}
    assert shop.ask("GET", "/other").status_code == 404


def test_objects_come_out_as_they_went_in(shop: Account):
    one = shop.ask("POST", "/trips/messages", content=json.dumps(TRIP), params={"key": "k"})
    line = json.dumps({"message": json.dumps(TRIP)})
    two = shop.ask("POST", "/trips/messages/batch", content=f"{line}\n{line}")
    assert (one.status_code, two.status_code) == (201, 201), (one.text, two.text)

    single = shop.ask("GET", "/trips/messages/next").json()
    (as_line,) = shop.ask("POST", "/trips/messages/receive", params={"max": 1}).text.splitlines()
    answer = shop.ask("POST", "/trips/messages/receive", headers={"Accept": ARROW})
    (row,) = pa.ipc.open_stream(answer.content).read_all().to_pylist()

    assert (json.loads(single["message"]), single["key"]) == (TRIP, "k")
    assert json.loads(json.loads(as_line)["message"]) == TRIP
    assert json.loads(row["value"]) == TRIP
    assert len(shop.ask("GET", "/trips/messages").json()) == 3


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"hello", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "no dict of columns"),
        (b"{}", "'vendor' string is missing"),
        (b'{"vendor": null}', "'vendor'"),
        (b'{"vendor": "v", "fair": 1}', "did you mean 'fare'"),
        (b'{"vendor": "v", "fare": 1e999}', "'fare'"),
        (b'{"vendor": "v", "vendor": "w"}', "vendor"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_400(shop: Account, body: bytes, problem: str):
    before = shop.ask("GET", "/trips/statistics").json()["stored"]

    answer = shop.ask("POST", "/trips/messages", content=body)

    assert answer.status_code == 400
    assert problem in answer.json()["message"]
    assert shop.ask("GET", "/trips/statistics").json()["stored"] == before
