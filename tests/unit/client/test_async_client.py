from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta

import pytest

from cassieq_spark import AsyncClient, Client, Message, NewMessage
from cassieq_spark.client import AsyncProducer
from cassieq_spark.errors import CassieqError, NotAppliedError, OptionError
from cassieq_spark.model import BucketSlice, QueueId, Range
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.faults import FakeClock

SECOND = timedelta(seconds=1)
PATIENCE = 60


def test_the_same_methods_as_coroutines(client: Client, store: CountingStore):
    async def program() -> None:
        async with AsyncClient.from_store(store) as queues:
            await queues.create_queue("mail")
            assert (await queues.queue("mail")).dead_letter_queue == "mail.dead"
            assert await queues.put("mail", "a", key="k", headers={"h": "1"}) == 0
            assert await queues.put_many("mail", ["b", NewMessage("c")]) == Range(1, 3)
            named = {"txn_app_id": "x", "txn_version": 1}
            assert await queues.put_many("mail", ["d", "e"], **named) == Range(3, 5)
            assert await queues.put_many("mail", ["d", "e"], **named) is None
            assert [each.value for each in await queues.peek("mail", max=2)] == [b"a", b"b"]

            messages = await queues.receive("mail", "g", max=10)
            assert await queues.ack(messages[0]) == []
            assert await queues.release(messages[1], delay=SECOND) == []
            assert await queues.extend(messages[2], by=SECOND) == []
            assert await queues.reject(messages[3], reason="bad") == []
            assert await queues.replace(messages[4], "f") == []
            assert await queues.ack(*messages) == [
                each.receipt for each in messages if each.monoton in (0, 1, 3, 4)
            ]
            (figures,) = (await queues.stats("mail")).groups
            assert figures.depth == 2

    asyncio.run(program())


def test_a_message_is_put_whole(client: Client, store: CountingStore):
    async def program() -> None:
        async with AsyncClient.from_store(store) as queues:
            await queues.put("q", NewMessage("a", key="k"))
            with pytest.raises(OptionError, match="a NewMessage and headers beside it"):
                await queues.put("q", NewMessage("b"), headers={"h": "1"})

    asyncio.run(program())

    assert [(each.key, each.value) for each in client.peek("q")] == [(b"k", b"a")]


PUBLIC = [name for name in dir(Client) if not name.startswith("_") and name != "receiver"]


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "from_store"])
def test_each_method_takes_what_the_blocking_one_takes(name: str):
    ours, blocking = (inspect.signature(getattr(of, name)) for of in (AsyncClient, Client))

    assert ours.parameters == blocking.parameters
    assert inspect.iscoroutinefunction(getattr(AsyncClient, name)) == (
        name not in {"producer", "exchange"}
    )


def test_the_loop_goes_on_while_receives_wait_and_waiting_needs_no_thread(store: CountingStore):
    async def program() -> int:
        async with AsyncClient.from_store(store, threads=1) as queues:
            await queues.create_queue("q")
            waiting = [
                asyncio.create_task(queues.receive("q", f"g{n}", wait=100 * SECOND))
                for n in range(20)
            ]
            ticks = 0
            while not any(task.done() for task in waiting):
                await asyncio.sleep(0.01)
                ticks += 1
                if ticks == 30:
                    await queues.put("q", "v")
            received = await asyncio.gather(*waiting)
            assert all(messages[0].value == b"v" for messages in received)
            return ticks

    assert asyncio.run(asyncio.wait_for(program(), PATIENCE)) >= 30


class GatedStore(WrappedStore):
    """Holds up every read of chunks, which comes after the lease, until it is opened."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gate = threading.Event()
        self.arrived = threading.Event()

    def read_chunks(self, queue_id: QueueId, slices: Iterable[BucketSlice]):
        self.arrived.set()
        assert self.gate.wait(PATIENCE)
        return super().read_chunks(queue_id, slices)


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


def test_what_is_leased_while_a_receive_is_cancelled_is_given_back(
    client: Client, store: CountingStore, clock: FakeClock
):
    client.put("q", "v")
    gated = GatedStore(store)

    async def program() -> None:
        async with AsyncClient.from_store(gated) as queues:
            receiving = asyncio.create_task(queues.receive("q", "g"))
            await until(gated.arrived)
            assert client.stats("q").groups[0].leased == 1
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            # Once the client waits for what is under way, as it closes.
            asyncio.get_running_loop().call_soon(gated.gate.set)

    asyncio.run(asyncio.wait_for(program(), PATIENCE))

    clock.advance(timedelta(milliseconds=1))
    (message,) = client.receive("q", "g")
    assert message.delivery_count == 1


def test_a_program_that_is_cancelled_without_closing_gives_back_too(
    client: Client, store: CountingStore, clock: FakeClock
):
    client.put("q", "v")
    gated = GatedStore(store)
    queues = AsyncClient.from_store(gated)

    async def program() -> None:
        await queues.__aenter__()
        receiving = asyncio.create_task(queues.receive("q", "g"))
        await until(gated.arrived)
        receiving.cancel()
        await asyncio.wait([receiving])
        gated.gate.set()

    asyncio.run(asyncio.wait_for(program(), PATIENCE))
    asyncio.run(queues.close())

    clock.advance(timedelta(milliseconds=1))
    assert [each.delivery_count for each in client.receive("q", "g")] == [1]


def test_a_receive_that_is_cancelled_while_it_waits_holds_nothing(
    client: Client, store: CountingStore
):
    async def program() -> None:
        async with AsyncClient.from_store(store) as queues:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queues.receive("q", "g", wait=100 * SECOND), 0.3)

    asyncio.run(asyncio.wait_for(program(), PATIENCE))

    client.put("q", "v")
    assert [each.delivery_count for each in client.receive("q", "g")] == [1]


def test_what_is_cancelled_before_a_thread_is_free_never_happens(
    client: Client, store: CountingStore
):
    client.put("q", "v")
    gated = GatedStore(store)

    async def program() -> None:
        async with AsyncClient.from_store(gated, threads=1) as queues:
            receiving = asyncio.create_task(queues.receive("q", "g"))
            await until(gated.arrived)
            putting = asyncio.create_task(queues.put("q", "never"))
            await asyncio.sleep(0)
            putting.cancel()
            await asyncio.wait([putting])
            gated.gate.set()
            assert [each.value for each in await receiving] == [b"v"]

    asyncio.run(asyncio.wait_for(program(), PATIENCE))

    assert [each.value for each in client.peek("q")] == [b"v"]


def test_closing_waits_for_what_is_under_way_and_ends_those_who_wait(
    client: Client, trouble: FaultyStore
):
    client.put("q", "v")
    client.create_queue("empty")
    gated = GatedStore(trouble)
    looked = threading.Event()

    async def program() -> tuple[list[Message], list[Message]]:
        async with AsyncClient.from_store(gated) as queues:
            receiving = asyncio.create_task(queues.receive("q", "g"))
            await until(gated.arrived)
            await queues.receive("empty", "g")
            trouble.interrupt(looked.set, after=3)
            waiting = asyncio.create_task(queues.receive("empty", "g", wait=100 * SECOND))
            await until(looked)
            asyncio.get_running_loop().call_soon(gated.gate.set)
        with pytest.raises(CassieqError, match="this client is closed"):
            await queues.put("q", "late")
        return await receiving, await waiting

    received, waited = asyncio.run(asyncio.wait_for(program(), PATIENCE))

    assert [each.value for each in received] == [b"v"]
    assert waited == []


def test_errors_are_raised_where_they_are_awaited(trouble: FaultyStore, client: Client):
    def fail() -> None:
        raise NotAppliedError("no replicas")

    async def program() -> None:
        async with AsyncClient.from_store(trouble) as queues:
            trouble.interrupt(fail, after=0)
            with pytest.raises(NotAppliedError):
                await queues.put("q", "v")
            with pytest.raises(OptionError, match="max"):
                await queues.receive("q", "g", max=0)

    asyncio.run(program())


def test_a_client_is_for_async_with():
    queues = AsyncClient.from_store(MemoryStore())

    with pytest.raises(CassieqError, match="async with"):
        asyncio.run(queues.put("q", "v"))
    with pytest.raises(OptionError, match="threads"):
        AsyncClient.from_store(MemoryStore(), threads=0)
    asyncio.run(queues.close())


def test_connecting_fails_where_it_is_awaited():
    async def program() -> None:
        async with AsyncClient(keyspace="No Such"):
            pass

    with pytest.raises(OptionError, match="keyspace"):
        asyncio.run(program())


def test_many_puts_at_a_time_are_few_lwts(client: Client, store: CountingStore):
    async def program() -> list[int]:
        async with (
            AsyncClient.from_store(store) as queues,
            queues.producer("q", linger=timedelta(milliseconds=50)) as producer,
        ):
            return await asyncio.gather(*(producer.put(str(n)) for n in range(1_000)))

    monotons = asyncio.run(asyncio.wait_for(program(), PATIENCE))

    stored = {each.monoton: each.value for each in client.peek("q", max=2_000)}
    assert stored == {monoton: b"%d" % n for n, monoton in enumerate(monotons)}
    assert store.cas_count <= 50


def gathered(producer: AsyncProducer) -> Sequence[object]:
    return producer._blocking._batcher._filling


def test_a_put_that_is_cancelled_before_its_batch_is_left_out(
    client: Client, store: CountingStore
):
    async def program() -> None:
        async with (
            AsyncClient.from_store(store) as queues,
            queues.producer("q", linger=timedelta(hours=1)) as producer,
        ):
            putting = [asyncio.create_task(producer.put(text)) for text in "ab"]
            while len(gathered(producer)) < 2:  # noqa: ASYNC110 (another thread fills it)
                await asyncio.sleep(0)
            putting[0].cancel()
            await asyncio.sleep(0)
            await producer.flush()
            assert await putting[1] == 0

    asyncio.run(asyncio.wait_for(program(), PATIENCE))

    assert [each.value for each in client.peek("q")] == [b"b"]


def test_leaving_a_producer_tells_of_an_error_that_nobody_asked_for(
    client: Client, trouble: FaultyStore
):
    def fail() -> None:
        raise NotAppliedError("no replicas")

    async def program() -> None:
        async with AsyncClient.from_store(trouble) as queues, queues.producer("q") as producer:
            trouble.interrupt(fail, after=0)
            await producer.put("v")

    with pytest.raises(NotAppliedError):
        asyncio.run(asyncio.wait_for(program(), PATIENCE))


@pytest.mark.parametrize("asks", [False, True])
def test_leaving_a_producer_raises_an_error_whose_future_nobody_asked(
    trouble: FaultyStore, client: Client, asks: bool
):
    def fail() -> None:
        raise NotAppliedError("no replicas")

    async def program() -> None:
        async with AsyncClient.from_store(trouble) as queues, queues.producer("q") as producer:
            trouble.interrupt(fail, after=0)
            put = producer.try_put("v")
            assert put is not None
            await asyncio.wait([put])
            if asks:
                with pytest.raises(NotAppliedError):
                    await put
            await producer.flush()

    with nullcontext() if asks else pytest.raises(NotAppliedError):
        asyncio.run(asyncio.wait_for(program(), PATIENCE))


def test_a_put_of_a_server_that_is_cancelled_is_left_out(client: Client, store: CountingStore):
    async def program() -> None:
        async with (
            AsyncClient.from_store(store) as queues,
            queues.producer("q", linger=3600 * SECOND) as producer,
        ):
            put, kept = producer.try_put("a"), producer.try_put("b")
            assert put is not None
            assert kept is not None
            put.cancel()
            await asyncio.wait([put])
            await producer.flush()
            assert await kept == 0

    asyncio.run(asyncio.wait_for(program(), PATIENCE))

    assert [each.value for each in client.peek("q")] == [b"b"]


def test_a_server_puts_without_threads_and_is_refused_rather_than_kept_waiting(
    client: Client, store: CountingStore
):
    async def program() -> None:
        async with (
            AsyncClient.from_store(store) as queues,
            queues.producer("q", linger=3600 * SECOND, max_batch=2) as producer,
        ):
            first, second = producer.try_put("a"), producer.try_put(NewMessage("b", key="k"))
            assert first is not None
            assert second is not None
            assert await asyncio.gather(first, second) == [0, 1]

    asyncio.run(program())
