"""Receiving by HTTP while somebody changes the schema of the queue, or nobody gets the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from cassieq_spark import AsyncClient, Client
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway import Limits, messages
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.queues import alter_queue
from cassieq_spark.store.memory import MemoryStore

ARROW = "application/vnd.apache.arrow.stream"
NAME = "acme:trips"


class Leaving:
    """A server whose clients have disconnected by the time of the answer, while it is `on`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.on = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def gone() -> dict[str, str]:
            return {"type": "http.disconnect"}

        await self._app(scope, gone if self.on else receive, send)


@asynccontextmanager
async def gateway(store: MemoryStore) -> AsyncIterator[tuple[httpx.AsyncClient, Leaving]]:
    """A client of a gateway in this process, with the key of an account ``acme``."""
    accounts = Accounts(store, Secrets(("0123456789-abcdefghijklmnopqrstu",)))
    key = accounts.create("acme").keys[0].key
    limits = Limits()
    async with AsyncClient.from_store(store) as client:
        made = Gateway(client, accounts, limits, ConnectionLimiter(limits, ()))
        server = Leaving(make_app(lambda: made, lambda _: nullcontext()))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(server),
            base_url="http://gateway/api/v1/accounts/acme/queues/trips/messages/",
            headers={"Authorization": f"Key {key}", "Accept": ARROW},
        ) as asked:
            yield asked, server
        await made.close()


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    """The rows of an Arrow stream, with ``count`` for the number of the delivery."""
    assert answer.status_code == 200, answer.text
    found = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    return [row | {"count": row.pop("_metadata")["deliveryCount"]} for row in found]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def trips(store: MemoryStore) -> Client:
    """A client beside the gateway. The queue kills what is delivered twice."""
    client = Client.from_store(store)
    client.create_queue(NAME, schema="vendor string, card int", max_deliveries=2)
    return client


def test_a_gateway_serves_by_the_schema_that_the_queue_has(store: MemoryStore, trips: Client):
    trips.put_many(NAME, [{"vendor": vendor, "card": 1} for vendor in "ab"])

    async def program() -> list[httpx.Response]:
        async with gateway(store) as (asked, _):
            answers = [await asked.post("receive?max=1")]
            await asyncio.to_thread(alter_queue, store, NAME, schema="vendor string, fare int")
            # A message that was read ahead by the schema before, and one that a newer one wrote.
            await asyncio.to_thread(trips.put, NAME, {"vendor": "c", "fare": 5})
            answers += [await asked.post("receive?max=1") for _ in range(2)]
            await asyncio.to_thread(alter_queue, store, NAME, schema="vendor string, fare bigint")
            await asyncio.to_thread(trips.put, NAME, {"vendor": "d", "fare": 1 << 40})
            answers.append(await asked.post("receive?max=1"))
            return answers

    first, second, third, fourth = map(rows, asyncio.run(program()))

    assert first == [{"vendor": "a", "card": 1, "count": 1}]
    # What was read ahead may still have the columns before, for a tenth of a second.
    assert second in (
        [{"vendor": "b", "card": 1, "count": 1}],
        [{"vendor": "b", "fare": None, "count": 1}],
    )
    assert third == [{"vendor": "c", "fare": 5, "count": 1}]
    assert fourth == [{"vendor": "d", "fare": 1 << 40, "count": 1}]
    assert trips.peek(f"{NAME}.dead", max=9) == []


def test_of_a_column_that_was_dropped_no_request_dies(store: MemoryStore, trips: Client):
    trips.put_many(NAME, [{"vendor": vendor, "card": 1} for vendor in "abcdef"])

    async def program() -> list[httpx.Response]:
        async with gateway(store) as (asked, _):
            answers = [await asked.post("receive?max=1")]
            await asyncio.to_thread(alter_queue, store, NAME, schema="vendor string")
            answers += [await asked.post("receive?max=1") for _ in range(5)]
            return answers

    found = [row for answer in asyncio.run(program()) for row in rows(answer)]

    assert [(row["vendor"], row["count"]) for row in found] == [(each, 1) for each in "abcdef"]


@pytest.mark.parametrize("way", ["next", "receive", "lines", "named"])
def test_what_left_in_no_answer_as_it_failed_does_not_count(
    store: MemoryStore, trips: Client, monkeypatch: pytest.MonkeyPatch, way: str
):
    trips.put(NAME, {"vendor": "a", "card": 1})

    async def fails(*_: object) -> None:
        raise MemoryError

    async def program() -> httpx.Response:
        async with gateway(store) as (asked, _):
            with monkeypatch.context() as patch:
                patch.setattr(messages, "_answer", fails)
                assert {(await ask(asked, way)).status_code for _ in range(9)} <= {500, 204}
            return await asked.post("receive?wait=10")

    assert rows(asyncio.run(program())) == [{"vendor": "a", "card": 1, "count": 1}]


@pytest.mark.parametrize("way", ["next", "receive", "lines", "named"])
def test_what_a_client_was_to_get_that_has_disconnected_does_not_count(
    store: MemoryStore, trips: Client, way: str
):
    trips.put(NAME, {"vendor": "a", "card": 1})

    async def program() -> httpx.Response:
        async with gateway(store) as (asked, server):
            server.on = True
            assert {(await ask(asked, way)).status_code for _ in range(9)} == {204}
            server.on = False
            return await asked.post("receive?wait=10")

    assert rows(asyncio.run(program())) == [{"vendor": "a", "card": 1, "count": 1}]


async def ask(asked: httpx.AsyncClient, way: str) -> httpx.Response:
    if way == "next":
        return await asked.get("next")
    if way == "named":
        return await asked.post("receive", params={"attempt": str(uuid4())})
    accept = {"Accept": "application/x-ndjson"} if way == "lines" else {}
    return await asked.post("receive", headers=accept)
