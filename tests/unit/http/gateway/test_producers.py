from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cassieq_spark import AsyncClient, Client, NewMessage
from cassieq_spark.errors import MessageError, NotFoundError, SchemaError
from cassieq_spark.http.gateway import producers as module
from cassieq_spark.http.gateway.producers import ProducerPool
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.producer import producer as producing
from cassieq_spark.queues import alter_queue
from cassieq_spark.testing.stores import CountingStore
from tests.unit.http.gateway.conftest import PATIENCE, GatedStore

A_MOMENT = timedelta(milliseconds=2)


def test_puts_that_come_within_a_moment_are_one_publish(
    store: CountingStore, gated: GatedStore, sync: Client
):
    async def program() -> list[int]:
        async with AsyncClient.from_store(store) as client:
            puts = ProducerPool(client, A_MOMENT)
            gated.gate.clear()
            first = asyncio.create_task(puts.put("q", NewMessage(b"first")))
            assert await asyncio.to_thread(gated.arrived.acquire, timeout=PATIENCE)
            rest = [asyncio.create_task(puts.put("q", NewMessage(b"%d" % n))) for n in range(100)]
            bad = asyncio.create_task(puts.put("q", NewMessage(b"x" * (8 << 20) + b"y")))
            with pytest.raises(MessageError):
                await bad
            gated.gate.set()
            monotons = await asyncio.gather(first, *rest)
            await puts.close()
            return monotons

    assert asyncio.run(program()) == list(range(101))
    assert store.cas_count == 2
    assert [each.value for each in sync.peek("q", max=2)] == [b"first", b"0"]


def test_more_than_can_be_published_is_refused(store: CountingStore, gated: GatedStore):
    large = b"x" * (5 << 20)

    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            puts = ProducerPool(client, A_MOMENT)
            gated.gate.clear()
            under_way = asyncio.create_task(puts.put("q", NewMessage(large)))
            assert await asyncio.to_thread(gated.arrived.acquire, timeout=PATIENCE)
            gathered = asyncio.create_task(puts.put("q", NewMessage(large)))
            await asyncio.sleep(0)
            with pytest.raises(RefusedError, match="more messages than can be published") as error:
                await puts.put("q", NewMessage(large))
            assert error.value.status == 429
            gated.gate.set()
            assert await asyncio.gather(under_way, gathered) == [0, 1]
            await puts.close()

    asyncio.run(program())


def test_a_queue_that_is_made_later_is_found_then(store: CountingStore, sync: Client):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            puts = ProducerPool(client, A_MOMENT)
            with pytest.raises(NotFoundError):
                await puts.put("late", NewMessage(b"a"))
            await client.create_queue("late")
            assert await puts.put("late", NewMessage(b"a")) == 0
            await puts.close()

    asyncio.run(program())


def test_producers_that_nobody_uses_are_closed_with_all_they_have(
    store: CountingStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_MOST_PRODUCERS", 1)
    sync.create_queue("r")

    async def program() -> list[int]:
        async with AsyncClient.from_store(store) as client:
            puts = ProducerPool(client, A_MOMENT)
            monotons = await asyncio.gather(
                *(puts.put(queue, NewMessage(b"a")) for queue in "qrqrqr")
            )
            await puts.close()
            return monotons

    assert sorted(asyncio.run(program())) == [0, 0, 1, 1, 2, 2]


def test_a_put_is_checked_for_the_columns_that_the_queue_has_since(
    store: CountingStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(producing, "CACHED_FOR", timedelta(0))
    sync.create_queue("t", schema="a string, b int")

    async def program() -> list[int]:
        async with AsyncClient.from_store(store) as client:
            puts = ProducerPool(client, A_MOMENT)
            monotons = [await puts.put("t", NewMessage('{"a": "x", "b": 1}'))]
            alter_queue(store, "t", schema="a string")
            # The queue still had the column at the last batch.
            monotons += [await puts.put("t", NewMessage('{"a": "y", "b": 2}'))]
            with pytest.raises(SchemaError, match="no column 'b'"):
                await puts.put("t", NewMessage('{"a": "z", "b": 3}'))
            alter_queue(store, "t", schema="a string, c int")
            monotons += [await puts.put("t", NewMessage('{"a": "z", "c": 3}'))]
            await puts.close()
            return monotons

    assert asyncio.run(program()) == [0, 1, 2]
    assert sync.peek("t", max=3)[2].value == {"a": "z", "c": 3}


def test_a_queue_that_was_created_again_with_a_schema_gets_its_columns(
    store: CountingStore, sync: Client
):
    async def program() -> int:
        async with AsyncClient.from_store(store) as client:
            puts = ProducerPool(client, A_MOMENT)
            assert await puts.put("q", NewMessage("plain")) == 0
            await client.delete_queue("q")
            await client.create_queue("q", schema="a string", max_deliveries=0)
            monoton = await puts.put("q", NewMessage('{"a": "x"}'))
            with pytest.raises(MessageError):
                await puts.put("q", NewMessage("plain"))
            await puts.close()
            return monoton

    assert asyncio.run(program()) == 0
    assert [message.value for message in sync.peek("q")] == [{"a": "x"}]


def test_a_queue_that_was_created_again_with_an_order_takes_puts_at_once(
    store: CountingStore, sync: Client
):
    async def program() -> list[int]:
        async with AsyncClient.from_store(store) as client:
            puts = ProducerPool(client, A_MOMENT)
            assert await puts.put("q", NewMessage("before")) == 0
            await client.delete_queue("q")
            await client.create_queue("q", order="strict")
            found = [await puts.put("q", NewMessage(text)) for text in "ab"]
            await client.delete_queue("q")
            with pytest.raises(NotFoundError):
                await puts.put("q", NewMessage("c"))
            await puts.close()
            return found

    assert asyncio.run(program()) == [0, 1]
