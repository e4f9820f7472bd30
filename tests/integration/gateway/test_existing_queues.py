"""A queue that exists is created again with the same settings only."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cassieq_spark.http.accounts import Right
from tests.support.gateway import Account, RunningGateway, key_with

SETTINGS: dict[str, Any] = {
    "maxDeliveryCount": 3,
    "dlqName": "bad",
    "order": "key",
    "partitions": 4,
    "leaseSeconds": 45,
    "expireAfterSeconds": 86_400,
    "keepSettledSeconds": 3600,
}


def create(account: Account, **settings: Any):
    return account.ask("POST", json={"queueName": "orders", **settings})


def differences(answer) -> list[tuple[str, Any, Any]]:
    found = answer.json()["differences"]
    return [(each["setting"], each["given"], each["existing"]) for each in found]


def test_with_the_same_settings_nothing_happens(account: Account):
    made, again = create(account, **SETTINGS), create(account, **SETTINGS)
    before = account.ask("GET", "/orders").json()

    assert (made.status_code, again.status_code) == (201, 200)
    assert before == account.ask("GET", "/orders").json()
    assert (before["version"], before["leaseSeconds"]) == (1, 45)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("maxDeliveryCount", 4),
        ("dlqName", "worse"),
        ("order", "none"),
        ("partitions", 8),
        ("leaseSeconds", 46),
        ("expireAfterSeconds", None),
        ("keepSettledSeconds", 3601),
        ("schema", "a INT"),
    ],
)
def test_a_setting_that_differs_is_named(account: Account, setting: str, value: object):
    create(account, **SETTINGS)

    refused = create(account, **(SETTINGS | {setting: value}))

    assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")
    assert differences(refused) == [(setting, value, SETTINGS.get(setting))]
    told = f"{setting}: given {json.dumps(value)}, existing {json.dumps(SETTINGS.get(setting))}"
    assert told in refused.json()["message"]
    assert create(account, **SETTINGS).status_code == 200


def test_who_may_not_see_queues_learns_no_setting_of_one(
    gateway: RunningGateway, account: Account
):
    create(account, maxDeliveryCount=3)
    creator = key_with(gateway, account, "creator", Right.CREATE_QUEUE)

    refused = create(creator, maxDeliveryCount=4)

    assert refused.status_code == 409
    assert refused.json()["differences"] == [{"setting": "maxDeliveryCount", "given": 4}]
    assert "3" not in refused.json()["message"]


def test_every_setting_that_differs_is_named(account: Account):
    create(account, maxDeliveryCount=3)

    refused = create(account, maxDeliveryCount=0, strictFifo=True, dropDead=True)

    assert differences(refused) == [
        ("dropDead", True, False),
        ("strictFifo", True, False),
        ("maxDeliveryCount", 0, 3),
    ]


def test_a_setting_that_is_left_out_is_not_compared(account: Account):
    create(account, **SETTINGS)

    assert create(account).status_code == 200
    assert create(account, leaseSeconds=45).status_code == 200


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        # An earlier release has made it by order key.
        ({"strictFifo": True}, {"order": "key"}),
        ({"strictFifo": True}, {"order": "strict", "strictFifo": True}),
        ({"dropDead": True, "maxDeliveryCount": 0}, {"dropDead": False}),
        ({"expireAfterSeconds": 0}, {"expireAfterSeconds": None, "keepSettledSeconds": 0}),
        ({"schema": "a int, b string not null"}, {"schema": "a INT , b STRING NOT NULL"}),
    ],
)
def test_two_ways_to_say_the_same_are_no_difference(
    account: Account, settings: dict[str, Any], same: dict[str, Any]
):
    assert create(account, **settings).status_code == 201

    assert create(account, **settings).status_code == 200
    again = create(account, **same)
    assert again.status_code == 200, again.text


def test_order_by_key_is_not_strict_order(account: Account):
    create(account, order="key")

    answer = create(account, strictFifo=True)

    assert answer.status_code == 409
    assert [each["setting"] for each in answer.json()["differences"]] == ["strictFifo"]


def test_error_if_exists_refuses_the_same_settings_too(account: Account):
    create(account)

    answer = account.ask("POST", params={"errorIfExists": "true"}, json={"queueName": "orders"})

    assert answer.status_code == 409
    assert "differences" not in answer.json()


def test_of_many_that_create_a_queue_at_once_all_succeed(account: Account):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: create(account, **SETTINGS).status_code, range(8)))

    assert sorted(answers) == [200] * 7 + [201]
