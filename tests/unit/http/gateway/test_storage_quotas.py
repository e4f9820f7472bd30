from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from cassieq_spark import AsyncClient, Client
from cassieq_spark.errors import StoreError
from cassieq_spark.http.gateway import admission as module
from cassieq_spark.http.gateway.admission import StorageQuotas
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore

LIMITS = Limits(account_messages=10, account_queues=3, account_stored_bytes=100_000)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


def run(store: CountingStore, work: Callable[[StorageQuotas], Awaitable[None]]) -> None:
    async def within() -> None:
        async with AsyncClient.from_store(store) as client:
            storage = StorageQuotas(client, LIMITS)
            try:
                await work(storage)
            finally:
                await storage.close()

    asyncio.run(within())


async def counted(storage: StorageQuotas) -> None:
    task = storage._accounts["a"].count
    assert task is not None
    await task


def is_refused(storage: StorageQuotas) -> bool:
    try:
        storage.check_messages("a")
    except RefusedError as error:
        return error.quota == ("messages", "account", 10)
    return False


def test_messages_of_all_queues_of_the_account_count_and_those_of_others_do_not(
    store: CountingStore, clock: Clock
):
    with Client.from_store(store) as client:
        for queue, count in (("a:x", 5), ("a:y", 4), ("b:x", 100), ("ab:x", 100)):
            client.create_queue(queue, max_deliveries=0)
            client.put_many(queue, ["v"] * count)

    async def work(storage: StorageQuotas) -> None:
        assert not is_refused(storage)
        await counted(storage)
        assert not is_refused(storage)
        storage.add_messages("a", 1, 0)
        assert is_refused(storage)

    run(store, work)


def test_bytes_count_as_they_are_stored_until_the_repair_deletes_the_messages(
    store: CountingStore, clock: Clock
):
    def is_too_much(storage: StorageQuotas) -> bool:
        limit = LIMITS.account_stored_bytes
        try:
            storage.check_messages("a")
        except RefusedError as error:
            return error.quota == ("storedBytes", "account", limit)
        return False

    with Client.from_store(store) as client:
        client.create_queue("a:x", max_deliveries=0)
        client.put("a:x", os.urandom(60_000))

    async def work(storage: StorageQuotas) -> None:
        assert not is_too_much(storage)
        await counted(storage)
        assert not is_too_much(storage)
        storage.add_messages("a", 1, 60_000)
        assert is_too_much(storage), "what is put here counts at once"
        clock.now += 31
        with suppress(RefusedError):
            storage.check_messages("a")
        await counted(storage)
        assert not is_too_much(storage), "it was not stored"
        with Client.from_store(store) as client:
            client.put("a:x", os.urandom(60_000))
        clock.now += 31
        assert not is_too_much(storage)
        await counted(storage)
        assert is_too_much(storage)
        with Client.from_store(store) as client:
            client.purge_queue("a:x")
        clock.now += 31
        with suppress(RefusedError):
            storage.check_messages("a")
        await counted(storage)
        assert not is_too_much(storage)

    run(store, work)


def test_what_the_repair_has_deleted_is_noticed_by_the_next_count(
    store: CountingStore, clock: Clock
):
    with Client.from_store(store) as client:
        client.create_queue("a:x", max_deliveries=0)
        client.put_many("a:x", ["v"] * 10)

    async def work(storage: StorageQuotas) -> None:
        assert not is_refused(storage), "nobody has counted yet"
        await counted(storage)
        assert is_refused(storage)
        with Client.from_store(store) as client:
            client.purge_queue("a:x")
        assert is_refused(storage), "it is not counted at each put"
        clock.now += 31
        assert is_refused(storage)
        await counted(storage)
        assert not is_refused(storage)

    run(store, work)


def test_a_put_reads_nothing_but_for_a_count_in_half_a_minute(store: CountingStore, clock: Clock):
    with Client.from_store(store) as client:
        client.create_queue("a:x", max_deliveries=0)
    store.reset()

    async def work(storage: StorageQuotas) -> None:
        for _ in range(3):
            storage.check_messages("a")
            await counted(storage)
            for _ in range(100):
                storage.check_messages("a")
                storage.add_messages("a", 0, 0)
            clock.now += 31

    run(store, work)

    assert store.cas_count == 0
    assert store.read_count + store.serial_read_count <= 3 * 3


def test_a_count_that_fails_refuses_nobody(
    store: CountingStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    async def work(storage: StorageQuotas) -> None:
        async def fails(_: str) -> None:
            raise StoreError("away")

        monkeypatch.setattr(storage._client, "queues", fails)
        assert not is_refused(storage)
        await counted(storage)
        assert not is_refused(storage)

    run(store, work)


def test_queues_are_looked_up_once_in_five_seconds(store: CountingStore, clock: Clock):
    with Client.from_store(store) as client:
        for queue in ("a:x", "a:y", "b:x", "b:y"):
            client.create_queue(queue, max_deliveries=0)

        async def work(storage: StorageQuotas) -> None:
            await storage.check_queues("a", ["a:x", "a:z"])
            client.delete_queue("a:x")
            with pytest.raises(RefusedError, match="has 3 queues, and would have 1 more"):
                await storage.check_queues("a", ["a:new"])
            await storage.check_queues("a", ["a:z"])
            clock.now += 6
            await storage.check_queues("a", ["a:new"])

        run(store, work)


def test_names_of_deleted_queues_count_but_can_be_used_again(
    store: CountingStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """Their rows stay, and each list of queues reads them."""
    monkeypatch.setattr(module, "_NAMES_FOR_EACH_QUEUE", 2)
    with Client.from_store(store) as client:
        for number in range(6):
            client.create_queue(f"a:q{number}", max_deliveries=0)
            client.delete_queue(f"a:q{number}")
        client.create_queue("b:q", max_deliveries=0)

    async def work(storage: StorageQuotas) -> None:
        with pytest.raises(RefusedError, match=r"has used 6 names .* would use 1 more") as refused:
            await storage.check_queues("a", ["a:new"])
        assert refused.value.status == 409
        assert refused.value.quota == ("queueNames", "account", 6)
        await storage.check_queues("a", ["a:q0", "a:q5"])
        with pytest.raises(RefusedError, match="would use 1 more"):
            await storage.check_queues("a", ["a:q1", "a:new"])
        await storage.check_queues("b", ["b:new"])

    run(store, work)
