"""A name that the gateway does not know is refused, with the nearest that it knows."""

from __future__ import annotations

import json

import pytest

from cassieq_spark.http.accounts import Permission, Right, sign_url
from cassieq_spark.http.gateway.app import ENDPOINTS
from cassieq_spark.http.gateway.requests import Endpoint
from tests.support.gateway import ADMIN, HTTP, Account, RunningGateway


@pytest.fixture
def orders(account: Account) -> Account:
    """An account with a queue ``orders``."""
    assert account.ask("POST", json={"queueName": "orders"}).status_code == 201
    return account


def path_of(endpoint: Endpoint, account: Account) -> str:
    names = {"account": account.name, "queue": "orders", "group": "g", "key": "k"}
    names |= {"monoton": 0, "schedule": "s"}
    return account.url + endpoint.path.format(**names)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation)
def test_no_endpoint_takes_an_unknown_parameter(orders: Account, endpoint: Endpoint):
    headers = {"Authorization": f"Key {orders.key}"} if endpoint.right else ADMIN

    answer = HTTP.request(
        endpoint.method, path_of(endpoint, orders), headers=headers, params={"colour": "red"}
    )

    assert answer.status_code == 400
    assert "'colour'" in answer.json()["message"]


@pytest.mark.parametrize(
    "endpoint",
    [each for each in ENDPOINTS if isinstance(each.body, type)],
    ids=lambda endpoint: endpoint.operation,
)
def test_no_endpoint_takes_an_unknown_field(orders: Account, endpoint: Endpoint):
    headers = {"Authorization": f"Key {orders.key}"} if endpoint.right else ADMIN
    params = {"popReceipt": "x"} if endpoint.operation == "update" else {}
    body = {**(endpoint.example or {}), "colour": "red"}

    answer = HTTP.request(
        endpoint.method, path_of(endpoint, orders), headers=headers, params=params, json=body
    )

    assert answer.status_code == 422, answer.text
    assert "unknown field 'colour'" in answer.json()["message"]


@pytest.mark.parametrize(
    "endpoint",
    [each for each in ENDPOINTS if each.body is None],
    ids=lambda endpoint: endpoint.operation,
)
def test_no_endpoint_ignores_a_body(orders: Account, endpoint: Endpoint):
    headers = {"Authorization": f"Key {orders.key}"} if endpoint.right else ADMIN
    params = {"popReceipt": "x"} if endpoint.operation == "ack" else {}
    path = path_of(endpoint, orders)

    for content in (b'{"max": 5}', iter([b'{"max": 5}'])):
        answer = HTTP.request(
            endpoint.method, path, headers=headers, params=params, content=content
        )
        assert answer.status_code == 400, answer.text
        assert "takes no body" in answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "query", "near"),
    [
        ("POST", "", "errorIfExist=true", "errorIfExists"),
        ("POST", "/orders/messages", "initialInvisiblityTime=5", "initialInvisibilitySeconds"),
        ("POST", "/orders/messages", "visible_at=x", "visibleAt"),
        ("GET", "/orders/messages/next", "invisibilityTime=5", "invisibilityTimeSeconds"),
        ("POST", "/orders/messages/receive", "Max=5", "max"),
        ("DELETE", "/orders/messages", "popreceipt=x", "popReceipt"),
        ("POST", "/orders/purge", "forced=true", "force"),
    ],
)
def test_the_nearest_known_parameter_is_named(
    orders: Account, method: str, path: str, query: str, near: str
):
    content = "{}" if path in {"", "/orders/messages"} and method == "POST" else None

    answer = orders.ask(method, f"{path}?{query}", content=content)

    assert answer.status_code == 400
    assert f"did you mean '{near}'?" in answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "near"),
    [
        ("POST", "", {"queueName": "x", "maxDeliveries": 3}, "maxDeliveryCount"),
        ("POST", "", {"queue_name": "x"}, "queueName"),
        ("POST", "", {"queueName": "x", "leaseSecond": 3}, "leaseSeconds"),
        ("PUT", "/orders/groups/g", {"starts": "latest"}, "start"),
        (
            "POST",
            "/orders/messages/release",
            {"popReceipts": ["x"], "delaySecs": 3},
            "delaySeconds",
        ),
    ],
)
def test_the_nearest_known_field_is_named(
    orders: Account, method: str, path: str, body: dict[str, object], near: str
):
    answer = orders.ask(method, path, json=body)

    assert answer.status_code == 422
    assert f"did you mean '{near}'?" in answer.json()["message"]


def test_nothing_is_put_of_a_batch_with_an_unknown_field(orders: Account):
    lines = '{"message": "a"}\n{"message": "b", "keys": "k"}\n'

    answer = orders.ask("POST", "/orders/messages/batch", content=lines)

    assert answer.status_code == 400
    assert "line 1 (counted from 0)" in answer.json()["message"]
    assert "did you mean 'key'?" in answer.json()["message"]
    assert orders.ask("GET", "/orders/statistics").json()["stored"] == 0


def test_a_header_of_ours_that_is_unknown_is_refused(orders: Account):
    for path, body in (("", "a"), ("/batch", '{"message": "a"}')):
        answer = orders.ask(
            "POST", f"/orders/messages{path}", content=body, headers={"X-Cassieq-Header": "en"}
        )
        assert answer.status_code == 400
        assert "did you mean 'x-cassieq-headers'?" in answer.json()["message"]
    assert orders.ask("GET", "/orders/statistics").json()["stored"] == 0


def test_settings_of_cassieq_that_have_no_meaning_here_are_ignored(account: Account):
    settings = {
        "queueName": "old",
        "bucketSize": 20,
        "maxDeliveryCount": 5,
        "repairWorkerPollSeconds": 5,
        "repairWorkerBucketFinalizeTimeSeconds": 15,
        "deleteBucketsAfterFinalize": True,
        "dlqName": None,
    }

    assert account.ask("POST", content=json.dumps(settings)).status_code == 201
    assert account.ask("POST", content=json.dumps(settings)).status_code == 200


def test_a_signed_url_has_parameters_of_its_own(orders: Account):
    query = sign_url(
        orders.key, Permission(orders.name, frozenset({Right.PUT_MESSAGE}), queue="orders")
    )
    url = f"{orders.queues}/orders/messages?{query}"

    assert HTTP.post(url, content="a").status_code == 201
    assert HTTP.post(f"{url}&colour=red", content="a").status_code == 400
    by_key = orders.ask("POST", "/orders/messages?q=orders", content="a")
    assert by_key.status_code == 400


def test_an_empty_body_is_none(gateway: RunningGateway, orders: Account):
    empty = orders.ask("POST", "/orders/messages/receive", content=iter([]))

    assert empty.status_code == 204
