"""What the SQS door reads of a queue, and how often."""

from __future__ import annotations

import asyncio

import pytest

from cassieq_spark import AsyncClient, Client
from cassieq_spark.errors import NotFoundError
from cassieq_spark.http.gateway.sqs.known_queues import KnownQueues
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore

NAME = "shop:orders"
TEAM = {"team": "payments"}


@pytest.fixture
def store() -> CountingStore:
    store = MemoryStore()
    with Client.from_store(store) as client:
        client.create_queue(NAME, max_deliveries=0)
        client.set_attributes(NAME, TEAM)
    return CountingStore(store)


def test_all_requests_of_a_second_share_one_read_of_a_queue_and_its_attributes(
    store: CountingStore,
):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            known = KnownQueues(client)
            first, *others = await asyncio.gather(*(known.find(NAME) for _ in range(50)))
            assert (first.definition.name, first.attributes) == (NAME, TEAM)
            assert all(each is first for each in others)
            assert store.read_count == 1
            await known.read(NAME)
            assert store.read_count == 2
            known.forget(NAME)
            assert await known.find(NAME) == first
            assert (store.read_count, store.serial_read_count) == (3, 0)

    asyncio.run(program())


def test_a_queue_that_is_missing_is_looked_for_once_by_all_requests_of_a_second(
    store: CountingStore,
):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            known = KnownQueues(client)
            finds = (known.find("shop:none") for _ in range(5))
            found = await asyncio.gather(*finds, return_exceptions=True)
            assert {type(each) for each in found} == {NotFoundError}
            assert (store.read_count, store.serial_read_count) == (1, 1)

    asyncio.run(program())
