"""What administrators ask for: keys and their rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cassieq_spark.http.accounts import ALL_RIGHTS, letters_of
from cassieq_spark.store.memory import MemoryStore
from tests.support.gateway import InProcess


@pytest.fixture
def gateway() -> Iterator[InProcess]:
    with InProcess(MemoryStore(), "shop") as gateway:
        yield gateway


def keys_of(gateway: InProcess) -> list[str]:
    return [key["keyName"] for key in gateway.administer("GET", "/accounts/shop").json()["keys"]]


def test_a_key_without_any_right_is_refused_and_not_made(gateway: InProcess):
    refused = gateway.administer(
        "POST", "/accounts/shop/keys", json={"keyName": "third", "levels": []}
    )

    assert refused.status_code == 400
    assert "a key needs at least one right" in refused.json()["message"]
    assert keys_of(gateway) == ["primary", "secondary"]


@pytest.mark.parametrize("given", [{}, {"levels": None}], ids=["left out", "null"])
def test_a_key_whose_rights_are_not_named_has_all(gateway: InProcess, given: dict[str, object]):
    made = gateway.administer("POST", "/accounts/shop/keys", json={"keyName": "third", **given})

    assert (made.status_code, made.json()["levels"]) == (201, letters_of(ALL_RIGHTS))


@pytest.mark.parametrize(
    "queue", ["", "...", "a/b", "x" * 141], ids=["empty", "dots", "path", "long"]
)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/permissions", {"accountName": "shop", "keyName": "primary", "levels": ["ReadMessage"]}),
        ("/accounts/shop/keys", {"keyName": "third"}),
    ],
)
def test_a_url_or_key_for_a_queue_that_cannot_be_is_refused(
    gateway: InProcess, path: str, body: dict[str, object], queue: str
):
    refused = gateway.administer("POST", path, json={**body, "queueName": queue})

    assert refused.status_code == 422
    assert "queueName: " in refused.json()["message"]
    assert keys_of(gateway) == ["primary", "secondary"]


@pytest.mark.parametrize("name", ["", "k" * 51, "-k", "k y"])
def test_a_key_whose_name_is_not_valid_is_refused(gateway: InProcess, name: str):
    refused = gateway.administer("POST", "/accounts/shop/keys", json={"keyName": name})

    assert refused.status_code == 422
    assert "keyName: " in refused.json()["message"]


@pytest.mark.parametrize("field", ["accountName", "keyName"])
@pytest.mark.parametrize("name", ["", "a" * 51, "a b"])
def test_a_url_of_an_account_or_key_that_cannot_be_is_refused(
    gateway: InProcess, field: str, name: str
):
    given = {"accountName": "shop", "keyName": "primary", "levels": ["ReadMessage"], field: name}

    refused = gateway.administer("POST", "/permissions", json=given)

    assert refused.status_code == 422
    assert f"{field}: " in refused.json()["message"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            {"startTime": "2027-01-02T00:00:00.7Z", "endTime": "2027-01-02T00:00:00.9Z"},
            "endTime must be at least a second after startTime",
        ),
        ({"levels": ["PutMessage", "AckMessage"]}, "levels: key 'third' has none of these rights"),
        ({"queueName": "bills"}, "queueName: key 'third' is for queue 'orders' only"),
    ],
    ids=["no time", "no right", "no queue"],
)
def test_a_url_that_could_never_work_is_refused(
    gateway: InProcess, asked: dict[str, object], why: str
):
    key = {"keyName": "third", "levels": ["ReadMessage"], "queueName": "orders"}
    assert gateway.administer("POST", "/accounts/shop/keys", json=key).status_code == 201
    given = {"accountName": "shop", "keyName": "third", "levels": ["ReadMessage"]}

    refused = gateway.administer("POST", "/permissions", json=given | asked)
    made = gateway.administer("POST", "/permissions", json=given | {"queueName": "orders"})

    assert (refused.status_code, made.status_code) == (422, 201)
    assert why in refused.json()["message"]


@pytest.mark.parametrize("group", ["", "g" * 201], ids=["empty", "long"])
def test_dead_letters_of_a_group_that_cannot_be_are_refused(gateway: InProcess, group: str):
    assert gateway.ask("POST", json={"queueName": "orders"}).status_code == 201

    refused = gateway.ask("GET", f"/orders/dead?group={group}")

    assert refused.status_code == 400
    assert "group: " in refused.json()["message"]
