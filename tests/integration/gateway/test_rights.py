"""What rights do not give: to lose, hide or hinder messages of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from cassieq_spark.http.accounts import Permission, Right, sign_url
from tests.support.gateway import ADMIN, HTTP, Account, RunningGateway, key_with

YEAR = 365 * 86_400
PUT = {Right.PUT_MESSAGE}


@pytest.fixture
def orders(account: Account) -> Account:
    account.ask("POST", json={"queueName": "orders"})
    return account


def put(account: Account, body: str, key: str) -> httpx.Response:
    return account.ask("POST", "/orders/messages", content=body, headers={"Idempotency-Key": key})


def by_url(account: Account, levels: set[Right], body: str, key: str, **more) -> int:
    query = sign_url(account.key, Permission(account.name, frozenset(levels), **more))
    url = f"{account.queues}/orders/messages?{query}"
    return HTTP.post(url, content=body, headers={"Idempotency-Key": key}).status_code


def test_nobody_uses_up_the_idempotency_keys_of_others(gateway: RunningGateway, orders: Account):
    stranger = key_with(gateway, orders, "stranger", Right.PUT_MESSAGE)
    shop = key_with(gateway, orders, "shop", Right.PUT_MESSAGE)

    assert put(stranger, "forged", "order-17").status_code == 201
    assert by_url(orders, PUT, "forged", "order-17") == 201
    assert put(shop, "real", "order-17").status_code == 201
    assert put(orders, "real", "order-17").status_code == 201
    batch = shop.ask(
        "POST",
        "/orders/messages/batch",
        content='{"message": "real"}',
        headers={"Idempotency-Key": "order-18", "Content-Type": "application/x-ndjson"},
    )
    assert batch.status_code == 201

    assert put(shop, "real", "order-17").status_code == 200, "its own it still repeats"
    assert by_url(orders, PUT, "forged", "order-17") == 200
    assert put(orders, "real", "order-18").status_code == 201


def test_a_put_may_be_repeated_with_another_key_of_the_owner(
    gateway: RunningGateway, orders: Account
):
    third = key_with(gateway, orders, "third", *Right)

    assert put(orders, "a", "order-17").status_code == 201
    assert put(third, "a", "order-17").status_code == 200


def test_who_may_only_read_holds_no_message_for_long(gateway: RunningGateway, orders: Account):
    reader = key_with(gateway, orders, "reader", Right.READ_MESSAGE)
    orders.ask("POST", "/orders/messages", content="a")

    paths = {"GET": "next", "POST": "receive"}

    def get(account: Account, seconds: float, method: str = "GET") -> int:
        path = f"/orders/messages/{paths[method]}?invisibilityTimeSeconds={seconds}"
        return account.ask(method, path).status_code

    for method in paths:
        assert get(reader, YEAR, method) == 400
        assert get(reader, 901, method) == 403
        assert get(orders, 12 * 3600 + 1, method) == 400
    assert get(reader, 900) == 200


def test_who_may_update_hides_no_message_for_long(orders: Account):
    orders.ask("POST", "/orders/messages", content="a")
    receipt = orders.ask("GET", "/orders/messages/next").json()["popReceipt"]

    def status(path: str, body: dict[str, object], method: str = "POST") -> int:
        return orders.ask(method, path, json=body).status_code

    one = f"/orders/messages?popReceipt={receipt}"
    assert status(one, {"newInvisibilitySeconds": YEAR}, "PUT") == 400
    many = {"popReceipts": [receipt]}
    assert status("/orders/messages/extend", {**many, "seconds": YEAR}) == 400
    assert status("/orders/messages/release", {**many, "delaySeconds": YEAR}) == 400
    assert status(one, {"newInvisibilitySeconds": 3600}, "PUT") == 200


def test_who_may_update_moves_no_group(gateway: RunningGateway, orders: Account):
    updater = key_with(
        gateway, orders, "updater", Right.READ_MESSAGE, Right.UPDATE_MESSAGE, Right.ACK_MESSAGE
    )
    orders.ask("POST", "/orders/messages", content="a")
    assert updater.ask("GET", "/orders/messages/next").status_code == 200

    path = "/orders/groups/default/seek"
    refused = updater.ask("POST", path, json={"to": "latest", "force": True})

    assert refused.status_code == 403
    assert "DeleteQueue" in refused.json()["message"]
    assert orders.ask("POST", path, json={"to": "latest", "force": True}).status_code == 200


def test_dead_messages_go_to_another_queue_only_by_a_key_that_may_create_it(
    gateway: RunningGateway, orders: Account
):
    """They are put there."""
    every = (Right.DELETE_QUEUE, Right.CREATE_QUEUE)
    body = {"dlqName": "graves", "maxDeliveryCount": 3}
    for_one = sign_url(orders.key, Permission(orders.name, frozenset(every), queue="orders"))
    deleter = key_with(gateway, orders, "deleter", Right.DELETE_QUEUE)

    refused = [
        deleter.ask("PATCH", "/orders", json=body),
        HTTP.patch(f"{orders.queues}/orders?{for_one}", json=body),
    ]

    assert [each.status_code for each in refused] == [403, 403]
    assert orders.ask("GET", "/graves").status_code == 404
    assert deleter.ask("PATCH", "/orders", json={"leaseSeconds": 90}).json()["leaseSeconds"] == 90
    both = key_with(gateway, orders, "both", *every)
    assert both.ask("PATCH", "/orders", json=body).json()["dlqName"] == "graves"
    assert orders.ask("GET", "/graves").status_code == 200


@pytest.mark.parametrize(
    "at",
    [
        "9999-12-31T23:59:59-23:59",
        "9999-12-31T23:59:59Z",
        "9998-12-31T00:00:00Z",
        "a year and a day from now",
        "292278994-08-17T07:12:55.807Z",
        "1e300",
        "noon",
    ],
)
def test_an_instant_out_of_range_is_refused_and_nothing_is_put(orders: Account, at: str):
    if at.startswith("a year"):
        at = (datetime.now(UTC) + timedelta(days=366)).isoformat()
    for path, body in (("", "a"), ("/batch", '{"message": "a"}')):
        for more in ({}, {"Idempotency-Key": "k"}):
            refused = orders.ask(
                "POST",
                f"/orders/messages{path}",
                params={"visibleAt": at},
                content=body,
                headers={"Content-Type": "application/x-ndjson", **more},
            )
            assert refused.status_code == 400, refused.text
    assert orders.ask("GET", "/orders/messages").json() == []


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "-1"])
def test_an_instant_before_the_calendar_is_long_since(orders: Account, at: str):
    done = orders.ask("POST", "/orders/messages", params={"visibleAt": at}, content="a")

    assert done.status_code == 201
    assert orders.ask("GET", "/orders/messages/next").json()["message"] == "a"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("accounts/{}/keys", {"keyName": "far", "expiresAt": "9999-12-31T23:59:59-23:59"}),
        (
            "permissions",
            {
                "accountName": "{}",
                "keyName": "primary",
                "levels": ["PutMessage"],
                "endTime": "9999-12-31T23:59:59-23:59",
            },
        ),
    ],
)
def test_administrators_give_no_instant_out_of_range_either(
    gateway: RunningGateway, account: Account, path: str, body: dict[str, object]
):
    told = {
        key: each.format(account.name) if isinstance(each, str) else each
        for key, each in body.items()
    }
    url = f"{gateway.url}/admin/api/v1/{path.format(account.name)}"

    assert HTTP.post(url, headers=ADMIN, json=told).status_code == 422


@pytest.mark.parametrize("since", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00"])
def test_no_instant_of_a_query_is_an_error_of_the_server(orders: Account, since: str):
    for name in ("since", "until"):
        told = orders.ask("GET", "/orders/dead", params={name: since})
        assert told.status_code in {200, 400}
    for start in (since, str(2**63 - 1), str(2**63), "9" * 5000):
        told = orders.ask("GET", "/orders/messages", params={"start": start})
        assert told.status_code in {200, 400, 409}
        moved = orders.ask("POST", "/orders/groups/default/seek", json={"to": start})
        assert moved.status_code in {200, 400, 404, 409}


def test_who_may_not_put_puts_nothing_by_a_schedule(gateway: RunningGateway, orders: Account):
    body = {"everySeconds": 10, "message": "forged"}
    path = "/orders/schedules/s"
    for rights, status in (
        ({Right.CREATE_QUEUE}, 403),
        ({Right.PUT_MESSAGE}, 403),
        ({Right.CREATE_QUEUE, Right.PUT_MESSAGE}, 201),
    ):
        name = "".join(sorted(each.value for each in rights))
        key = key_with(gateway, orders, f"with{name}", *rights)
        assert key.ask("PUT", path, json=body).status_code == status
    for rights, status in (
        ({Right.CREATE_QUEUE, Right.PUT_MESSAGE}, 403),
        ({Right.DELETE_QUEUE}, 403),
        ({Right.DELETE_QUEUE, Right.PUT_MESSAGE}, 200),
    ):
        name = "".join(sorted(each.value for each in rights))
        key = key_with(gateway, orders, f"alters{name}", *rights)
        assert key.ask("PATCH", path, json={"everySeconds": 20}).status_code == status
    reader = key_with(gateway, orders, "reader", Right.READ_MESSAGE, Right.GET_QUEUE_INFORMATION)
    for method, rest in (
        ("POST", "/run"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("DELETE", ""),
    ):
        assert reader.ask(method, path + rest).status_code == 403
    assert reader.ask("GET", path).json()["message"] == "forged"


@pytest.mark.parametrize(
    "body",
    [
        {"everySeconds": 9, "message": "x"},
        {"everySeconds": 1e300, "message": "x"},
        {"everySeconds": 10, "message": "x", "start": "9999-12-31T23:59:59-14:00"},
        {"everySeconds": 10, "message": "x" * 16_385},
        {"everySeconds": 10, "message": "x", "count": 10_001},
        {"everySeconds": 10, "message": "{{secret}}"},
        {"cron": "0 3 * * *", "everySeconds": 10, "message": "x"},
        {"cron": "* " * 600, "message": "x"},
        {"every": "5m", "message": "x"},
    ],
    ids=["often", "never", "far", "long", "many", "field", "both", "long cron", "unknown"],
)
def test_a_schedule_that_asks_too_much_is_refused(orders: Account, body: dict[str, object]):
    answer = orders.ask("PUT", "/orders/schedules/s", json=body)

    assert answer.status_code in {400, 422}
    assert orders.ask("GET", "/orders/schedules").json() == []
