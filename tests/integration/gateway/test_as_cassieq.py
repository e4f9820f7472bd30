"""What CassieQ's clients ask for, and what they are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from cassieq_spark.http.gateway.app import ENDPOINTS
from tests.support.gateway import Account

DEFINITION = {
    "accountName",
    "queueName",
    "bucketSize",
    "maxDeliveryCount",
    "status",
    "version",
    "deleteBucketsAfterFinalization",
    "queueStatsId",
    "dlqName",
    "strictFifo",
    "id",
}


@pytest.fixture
def orders(account: Account) -> Account:
    """An account with a queue ``orders``."""
    assert account.ask("POST", json={"queueName": "orders"}).status_code == 201
    return account


def next_of(account: Account, **query: object) -> httpx.Response:
    return account.ask("GET", "/orders/messages/next", params=query)


def settled(account: Account, method: str, receipt: str, **more: object) -> httpx.Response:
    return account.ask(method, "/orders/messages", params={"popReceipt": receipt}, **more)


def test_a_queue_is_made_once(account: Account):
    options = {"queueName": "orders", "maxDeliveryCount": 3, "dlqName": "bad", "bucketSize": 20}

    made = [account.ask("POST", json=options) for _ in range(2)]
    refused = account.ask("POST", params={"errorIfExists": "true"}, json=options)

    assert [(each.status_code, each.text) for each in made] == [(201, ""), (200, "")]
    assert refused.status_code == 409
    assert refused.json()["reason"] == "Conflict"
    shown = account.ask("GET", "/orders").json()
    assert set(shown) >= DEFINITION
    assert (shown["maxDeliveryCount"], shown["dlqName"]) == (3, "bad"), (
        "CassieQ dropped the latter"
    )
    assert (shown["accountName"], shown["status"]) == (account.name, "Active")
    assert account.ask("GET", "/bad").status_code == 200


def test_an_account_sees_its_own_queues_only(orders: Account, gateway):
    other = gateway.account()
    other.ask("POST", json={"queueName": "theirs", "dropDead": True})

    names = [each["queueName"] for each in orders.ask("GET").json()]

    assert names == ["orders", "orders.dead"]
    assert orders.ask("GET", "/theirs").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/nothing", None),
        ("GET", "/nothing/statistics", None),
        ("DELETE", "/nothing", None),
        ("POST", "/nothing/messages", "a"),
        ("GET", "/nothing/messages/next", None),
        ("GET", "/nothing/messages", None),
        ("GET", "/not%20a%20name/messages/next", None),
        ("POST", "/nothing/purge", None),
        ("GET", "/nothing/groups", None),
        ("GET", "/nothing/dead", None),
        ("POST", "/nothing/messages/batch", '{"message": "a"}'),
    ],
)
def test_a_queue_that_there_is_not_is_told_as_such(
    account: Account, method: str, path: str, body: str | None
):
    answer = account.ask(method, path, content=body)

    assert answer.status_code == 404, answer.text
    told = answer.json()
    assert told["reason"] == "NotFound"
    assert told["account"] == account.name
    assert told["queueName"] in {"nothing", "not a name"}
    assert told["operation"]


def test_a_message_is_put_got_and_acked_once(orders: Account):
    put = orders.ask("POST", "/orders/messages", content="hello")
    got = next_of(orders).json()
    nothing = next_of(orders)
    acked, again = (settled(orders, "DELETE", got["popReceipt"]) for _ in range(2))

    assert (put.status_code, put.json()) == (
        201,
        {"monoton": 0, "partition": 0, "version": 1, "repeated": False},
    )
    assert (got["message"], got["deliveryCount"], got["messageTag"]) == ("hello", 1, "0")
    assert (nothing.status_code, nothing.content) == (204, b"")
    assert (acked.status_code, acked.content) == (204, b"")
    assert (again.status_code, again.json()["reason"]) == (409, "Conflict")


def test_a_body_comes_back_as_it_was(orders: Account):
    orders.ask("POST", "/orders/messages", content=b"\xff\x00")
    orders.ask("POST", "/orders/messages", content="")

    bodies = [next_of(orders).json() for _ in range(2)]

    assert [(each["message"], each["encoding"]) for each in bodies] == [
        ("/wA=", "base64"),
        ("", "text"),
    ]


def test_a_message_that_is_given_back_comes_again_and_counts(orders: Account):
    orders.ask("POST", "/orders/messages", content="a")
    first = next_of(orders).json()

    back = settled(orders, "PUT", first["popReceipt"], json={})
    second = next_of(orders).json()

    assert (back.status_code, back.json()) == (200, {"popReceipt": None, "messageTag": "0"})
    assert (second["message"], second["deliveryCount"]) == ("a", 2)
    assert settled(orders, "DELETE", first["popReceipt"]).status_code == 409


def test_a_message_is_held_for_longer_under_the_same_receipt(orders: Account):
    orders.ask("POST", "/orders/messages", content="a")
    got = next_of(orders).json()

    held = settled(orders, "PUT", got["popReceipt"], json={"newInvisibilitySeconds": 300})

    assert held.json() == {"popReceipt": got["popReceipt"], "messageTag": "0"}
    assert settled(orders, "DELETE", got["popReceipt"]).status_code == 204
    gone = settled(orders, "PUT", got["popReceipt"], json={"newInvisibilitySeconds": 300})
    assert gone.status_code == 409


def test_another_message_takes_the_place_of_one(orders: Account):
    orders.ask("POST", "/orders/messages", content="old")
    got = next_of(orders).json()

    changed = settled(orders, "PUT", got["popReceipt"], json={"message": "new"})

    assert (changed.status_code, changed.json()["popReceipt"]) == (200, None)
    assert next_of(orders).json()["message"] == "new"
    late = settled(orders, "PUT", got["popReceipt"], json={"message": "newer"})
    assert late.status_code == 409


def test_a_lease_that_runs_out_lets_the_message_come_again(orders: Account):
    orders.ask("POST", "/orders/messages", content="a")

    first = next_of(orders, invisibilityTimeSeconds=0).json()
    second = next_of(orders, wait=10).json()

    assert [first["deliveryCount"], second["deliveryCount"]] == [1, 2]


def test_a_message_may_be_invisible_at_first(orders: Account):
    later = datetime.now(UTC) + timedelta(hours=1)
    orders.ask(
        "POST", "/orders/messages", content="late", params={"initialInvisibilitySeconds": 99}
    )
    orders.ask("POST", "/orders/messages", content="x", params={"visibleAt": later.isoformat()})
    orders.ask("POST", "/orders/messages", content="now", params={"initialInvisibilitySeconds": 0})

    assert next_of(orders).json()["message"] == "now"
    assert next_of(orders).status_code == 204
    (group,) = orders.ask("GET", "/orders/statistics").json()["groups"]
    assert (group["leased"], group["waiting"]) == (1, 2)


def test_the_size_is_what_is_put_and_not_acked(orders: Account):
    assert orders.ask("GET", "/orders/statistics").json()["size"] == 0
    for body in "abc":
        orders.ask("POST", "/orders/messages", content=body)
    assert orders.ask("GET", "/orders/statistics").json()["size"] == 3
    settled(orders, "DELETE", next_of(orders).json()["popReceipt"])
    next_of(orders)

    assert orders.ask("GET", "/orders/statistics").json()["size"] == 2


def test_a_message_that_is_never_acked_goes_to_the_dead_letter_queue(account: Account):
    account.ask("POST", json={"queueName": "orders", "maxDeliveryCount": 2, "dlqName": "bad"})
    account.ask("POST", "/orders/messages", content="poison")
    for count in (1, 2):
        got = next_of(account).json()
        assert got["deliveryCount"] == count
        settled(account, "PUT", got["popReceipt"], json={})

    assert next_of(account).status_code == 204
    dead = account.ask("GET", "/bad/messages/next").json()
    assert dead["message"] == "poison"


def test_a_queue_is_deleted_with_what_is_held_and_can_be_made_anew(orders: Account):
    orders.ask("POST", "/orders/messages", content="old")
    receipt = next_of(orders).json()["popReceipt"]

    gone = orders.ask("DELETE", "/orders")
    after = [orders.ask("GET", "/orders"), orders.ask("DELETE", "/orders")]
    orders.ask("POST", json={"queueName": "orders"})

    assert (gone.status_code, gone.content) == (200, b"")
    assert [each.status_code for each in after] == [404, 404]
    assert orders.ask("GET", "/orders").json()["version"] == 2
    assert next_of(orders).status_code == 204
    assert settled(orders, "DELETE", receipt).status_code == 409


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "status"),
    [
        ("GET", "/orders/messages/next", {"invisibilityTimeSeconds": -1}, None, 400),
        ("GET", "/orders/messages/next", {"invisibilityTimeSeconds": "nan"}, None, 400),
        ("GET", "/orders/messages/next", {"group": "no group"}, None, 400),
        ("POST", "/orders/messages", {"initialInvisibilitySeconds": -1}, "a", 400),
        ("POST", "/orders/messages", {"visibleAt": "2027-01-01T00:00:00"}, "a", 400),
        (
            "POST",
            "/orders/messages",
            {"visibleAt": "2027-01-01T00:00:00Z", "initialInvisibilitySeconds": 5},
            "a",
            400,
        ),
        ("DELETE", "/orders/messages", {}, None, 400),
        ("DELETE", "/orders/messages", {"popReceipt": "MDoyOm54WHNOZw"}, None, 400),
        ("DELETE", "/orders/messages", {"popReceipt": "é/"}, None, 400),
        ("PUT", "/orders/messages", {"popReceipt": "x"}, "{}", 400),
        ("PUT", "/orders/messages", {"popReceipt": "x"}, "{", 400),
        ("POST", "", {}, '{"queueName": "not a name"}', 422),
        ("POST", "", {}, "{}", 422),
        ("POST", "", {}, '{"queueName": "x", "dlqName": "a b"}', 422),
        ("POST", "", {}, '{"queueName": "x", "maxDeliveryCount": -1}', 422),
        ("POST", "", {}, "no json", 400),
        ("POST", "", {}, '{"queueName": "x", "dropDead": true, "dlqName": "y"}', 400),
    ],
)
def test_what_is_malformed_is_told_as_such(  # noqa: PLR0913, PLR0917 (what is asked, and told)
    orders: Account,
    method: str,
    path: str,
    query: dict[str, object],
    body: str | None,
    status: int,
):
    answer = orders.ask(method, path, params=query, content=body)

    assert answer.status_code == status, answer.text
    assert answer.json()["reason"] == "Error"
    assert answer.json()["message"]


def test_a_receipt_is_good_for_its_own_queue_only(orders: Account):
    orders.ask("POST", json={"queueName": "other"})
    orders.ask("POST", "/other/messages", content="a")
    receipt = orders.ask("GET", "/other/messages/next").json()["popReceipt"]

    assert settled(orders, "DELETE", receipt).status_code == 400
    assert orders.ask("GET", "/other/statistics").json()["size"] == 1


@pytest.mark.parametrize("method", ["HEAD", "PATCH", "PUT"])
def test_another_verb_is_refused_and_does_nothing(orders: Account, method: str):
    orders.ask("POST", "/orders/messages", content="a")

    answer = orders.ask(method, "/orders/messages/next")

    assert answer.status_code == 405
    assert next_of(orders).json()["deliveryCount"] == 1


def test_another_path_is_refused(account: Account):
    answer = account.ask("GET", "/orders/nowhere/at/all")

    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")


def test_the_examples_of_the_description_are_what_is_asked_and_answered(orders: Account):
    endpoints = {endpoint.operation: endpoint for endpoint in ENDPOINTS}
    for endpoint in ENDPOINTS:
        if isinstance(endpoint.body, type):
            endpoint.body.model_validate(endpoint.example)
    orders.ask("POST", "/orders/messages", content="hello")
    peeked = orders.ask("GET", "/orders/messages").json()
    received = next_of(orders).json()
    told = {
        "peek": peeked,
        "receive": received,
        "update": settled(orders, "PUT", received["popReceipt"], json={}).json(),
        "listQueues": orders.ask("GET").json(),
        "getQueue": orders.ask("GET", "/orders").json(),
        "stats": orders.ask("GET", "/orders/statistics").json(),
        "listGroups": orders.ask("GET", "/orders/groups").json(),
    }

    for operation, answer in told.items():
        assert shape_of(answer) == shape_of(endpoints[operation].examples[200]), operation


def shape_of(value: object) -> object:
    """The names in JSON, without what they hold."""
    if isinstance(value, list):
        return [shape_of(each) for each in value[:1]]
    if isinstance(value, dict):
        return {name: shape_of(each) for name, each in value.items() if name != "headers"}
    return None
