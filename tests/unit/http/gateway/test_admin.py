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
