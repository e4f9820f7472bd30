"""Queues with a schema, by HTTP: messages are JSON objects."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.arrow_streams import stream_of
from tests.support.gateway import Account, RunningGateway

ARROW = "application/vnd.apache.arrow.stream"
TRIP = {"vendor": "v", "fare": "1.50", "stops": [{"zone": 3}]}
MANY = ", ".join(f"c{number} int" for number in range(201))
SCHEMA = "vendor string not null, fare decimal(10,2), stops array<struct<zone:int>>"


def put(account: Account, path: str, table: pa.Table, **more: Any) -> Any:
    return account.ask(
        "POST",
        f"{path}/messages/batch",
        content=stream_of(table),
        headers={"Content-Type": ARROW},
        **more,
    )


def received(account: Account, path: str) -> pa.Table:
    answer = account.ask("POST", f"{path}/messages/receive", headers={"Accept": ARROW})
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_stream(answer.content).read_all()


@pytest.fixture(scope="module")
def shop(gateway: RunningGateway) -> Account:
    account = gateway.account()
    answer = account.ask("POST", content=json.dumps({"queueName": "trips", "schema": SCHEMA}))
    assert answer.status_code == 201, answer.text
    return account


def test_the_schema_is_a_part_of_the_definition(shop: Account):
    assert shop.ask("GET", "/trips").json()["schema"] == SCHEMA


def test_a_message_is_replaced_by_another_object(gateway: RunningGateway):
    account = gateway.account()
    account.ask("POST", content=json.dumps({"queueName": "trips", "schema": SCHEMA}))
    account.ask("POST", "/trips/messages", content=json.dumps(TRIP))
    receipt = account.ask("GET", "/trips/messages/next").json()["popReceipt"]

    def replace(row: dict[str, Any]) -> Any:
        body = json.dumps({"message": json.dumps(row)})
        return account.ask("PUT", "/trips/messages", params={"popReceipt": receipt}, content=body)

    refused, done = replace({"fare": "1"}), replace(TRIP | {"fare": "2.50"})

    assert (refused.status_code, done.status_code) == (400, 200), done.text
    assert "'vendor' string is missing" in refused.json()["message"]
    new = json.loads(account.ask("GET", "/trips/messages/next").json()["message"])
    assert new == TRIP | {"fare": "2.50"}


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
    (row,) = received(shop, "/trips").to_pylist()

    assert (json.loads(single["message"]), single["key"]) == (TRIP, "k")
    assert json.loads(json.loads(as_line)["message"]) == TRIP
    assert {name: row[name] for name in TRIP} == TRIP | {"fare": Decimal("1.50")}
    assert row["_metadata"]["monoton"] == 2
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


ROWS = pa.table(
    {
        "Stops": pa.array([[{"zone": 3}], None], pa.list_(pa.struct([("zone", pa.int32())]))),
        "vendor": pa.array(["v", "w"]).dictionary_encode(),
        "fare": pa.array([1, None], pa.int8()),
        "_key": ["k", None],
        "_headers": pa.array([[("h", "1")], None], pa.map_(pa.string(), pa.string())),
    }
)


def test_an_arrow_stream_has_the_columns_of_the_queue_both_ways(shop: Account):
    made = shop.ask("POST", content=json.dumps({"queueName": "rides", "schema": SCHEMA}))
    answer = put(shop, "/rides", ROWS)
    table = received(shop, "/rides")

    assert (made.status_code, answer.status_code) == (201, 201), answer.text
    assert table.drop_columns("_metadata").to_pylist() == [
        {"vendor": "v", "fare": Decimal("1.00"), "stops": [{"zone": 3}]},
        {"vendor": "w", "fare": None, "stops": None},
    ]
    told = table.column("_metadata").to_pylist()
    assert [each["key"] for each in told] == [b"k", None]
    assert [each["headers"] for each in told] == [[("h", "1")], []]
    assert [each["deliveryCount"] for each in told] == [1, 1]
    receipts = [each["popReceipt"] for each in told]
    acked = shop.ask("POST", "/rides/messages/ack", content=json.dumps({"popReceipts": receipts}))
    assert acked.json() == {"stale": []}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (pa.table({"vendor": ["v"], "fair": [1]}), "did you mean 'fare'"),
        (pa.table({"fare": [1]}), "'vendor' string is missing"),
        (pa.table({"vendor": ["v"], "fare": ["x"]}), "'fare'"),
        (pa.table({"vendor": ["v"], "_delay": [5]}), "initialInvisibilitySeconds"),
        (
            ROWS.select(["vendor"]).append_column(
                "_headers",
                pa.array([[("cassieq.x", "1")]] * 2, pa.map_(pa.string(), pa.string())),
            ),
            "reserved",
        ),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_with_a_400(
    shop: Account, table: pa.Table, problem: str
):
    before = shop.ask("GET", "/trips/statistics").json()["stored"]

    answer = put(shop, "/trips", table)

    assert answer.status_code == 400, answer.text
    assert problem in answer.json()["message"]
    assert shop.ask("GET", "/trips/statistics").json()["stored"] == before
