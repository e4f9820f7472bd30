"""What a person sees who tries the client in a REPL."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import cassieq_spark
from cassieq_spark import AsyncClient, Client
from cassieq_spark.client import client as client_module
from cassieq_spark.store.memory import MemoryStore


def test_a_repl_completes_every_public_name_of_the_package():
    assert set(cassieq_spark.__all__) <= set(dir(cassieq_spark))


def test_a_client_says_which_cassandra_it_uses_and_not_the_password(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(client_module, "open_store", lambda _: MemoryStore())
    reach: Any = {"contact_points": "10.0.0.1,10.0.0.2:9043", "keyspace": "queues"}

    client = Client(name="billing", username="ann", password="hunter2", **reach)

    assert repr(client) == (
        "<Client 'billing': Cassandra at 10.0.0.1:9042, 10.0.0.2:9043, keyspace queues>"
    )


def test_a_client_on_a_store_names_it():
    assert repr(Client.from_store(MemoryStore())) == "<Client: MemoryStore>"


def test_a_client_for_asyncio_says_whether_it_is_connected():
    async def program() -> tuple[str, str]:
        client = AsyncClient.from_store(MemoryStore(), name="billing")
        before = repr(client)
        async with client:
            return before, repr(client)

    assert asyncio.run(program()) == (
        "<AsyncClient: not connected>",
        "<AsyncClient: <Client 'billing': MemoryStore>>",
    )


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("contact_point", "did you mean 'contact_points'?"),
        ("localDC", "did you mean 'local_dc'?"),
        ("brokers", "there are contact_points, port, "),
    ],
)
def test_an_unknown_setting_of_a_client_is_named_with_the_nearest_one(name: str, advice: str):
    unknown: Any = {name: "10.0.0.1"}

    with pytest.raises(TypeError, match=f"a client has no setting '{name}'") as caught:
        Client(**unknown)
    assert advice in str(caught.value)
