"""Receiving Arrow while somebody changes the schema of the queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import httpx
import pyarrow as pa
import pytest

from cassieq_spark import AsyncClient, Client
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway import Limits, messages
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.queues import alter_queue
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.store.memory import MemoryStore

ARROW = "application/vnd.apache.arrow.stream"
BEFORE = "vendor string"
NAME = "acme:trips"


@asynccontextmanager
async def gateway(store: MemoryStore) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway in this process, with the key of an account ``acme``."""
    accounts = Accounts(store, Secrets(("0123456789-abcdefghijklmnopqrstu",)))
    key = accounts.create("acme").keys[0].key
    limits = Limits()
    async with AsyncClient.from_store(store) as client:
        made = Gateway(client, accounts, limits, ConnectionLimiter(limits, ()))
        app = make_app(lambda: made, lambda _: nullcontext())
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://gateway/api/v1/accounts/acme/queues/trips/messages/",
            headers={"Authorization": f"Key {key}", "Accept": ARROW},
        ) as asked:
            yield asked
        await made.close()


def test_messages_of_a_newer_schema_are_released_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
):
    store = MemoryStore()
    sync = Client.from_store(store)
    sync.create_queue(NAME, schema=BEFORE)
    alter_queue(store, NAME, schema=f"{BEFORE}, fare int")
    sync.put(NAME, {"vendor": "v", "fare": 5})

    async def read_before(_: object) -> pa.Schema:
        return schema_of(BEFORE)

    async def program() -> tuple[httpx.Response, httpx.Response]:
        async with gateway(store) as asked:
            with monkeypatch.context() as patch:
                patch.setattr(messages, "_columns", read_before)
                refused = await asked.post("receive")
            return refused, await asked.post("receive")

    refused, answer = asyncio.run(program())

    assert (refused.status_code, answer.status_code) == (409, 200), refused.text
    assert "send the request again" in refused.json()["message"]
    (row,) = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    assert (row["vendor"], row["fare"], row["_metadata"]["deliveryCount"]) == ("v", 5, 2)
