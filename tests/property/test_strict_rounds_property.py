"""Requests that share rounds in a strictly ordered queue: one at a time holds messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cassieq_spark import AsyncClient, Client, Message
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.http.gateway.coalescer import Coalescer
from cassieq_spark.store.memory import MemoryStore

HOUR = timedelta(hours=1)
LINGER = timedelta(milliseconds=1)
PATIENCE = 60


@dataclass(frozen=True)
class Worker:
    """A client: how many it takes, for how long, and how many it acks at a time.

    With ``goes_away``, it gives up its first request.
    """

    most: int
    lease: timedelta
    acks: int
    goes_away: bool


WORKERS = st.lists(
    st.builds(
        Worker,
        st.integers(1, 3),
        st.sampled_from([HOUR, 2 * HOUR]),
        st.integers(1, 3),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)
PATIENT = Worker(1, HOUR, 1, goes_away=False)
FICKLE = Worker(2, HOUR, 1, goes_away=True)


class Judge:
    """Knows who holds what, and what is not acked yet."""

    def __init__(self, count: int) -> None:
        self.left = set(range(count))
        self.most_deliveries = 0
        self._holders: dict[int, set[int]] = {}

    def has(self, worker: int, messages: Sequence[Message]) -> None:
        got = {message.monoton for message in messages}
        assert not self._holders, (worker, got, self._holders, "two hold messages")
        assert min(got) == min(self.left), (got, self.left, "out of order")
        self._holders[worker] = got
        self.most_deliveries = max(each.delivery_count for each in messages)

    def settled(self, worker: int, messages: Sequence[Message]) -> None:
        """Before the ack is sent: from then on another one may have the next messages."""
        gone = {message.monoton for message in messages}
        self.left -= gone
        self._holders[worker] -= gone
        if not self._holders[worker]:
            del self._holders[worker]


async def work(
    client: AsyncClient, coalescer: Coalescer, judge: Judge, number: int, worker: Worker
) -> None:
    if worker.goes_away:
        asked = asyncio.create_task(
            coalescer.receive("q", "g", most=worker.most, lease=worker.lease, wait=HOUR)
        )
        await asyncio.sleep(0.001 * number)
        asked.cancel()
        # If it has its answer by now, that is released.
        await asyncio.wait([asked])
        if not asked.cancelled():
            await client.release(*asked.result())
    while judge.left:
        messages = await coalescer.receive(
            "q", "g", most=worker.most, lease=worker.lease, wait=timedelta(milliseconds=20)
        )
        if messages:
            judge.has(number, messages)
        for at in range(0, len(messages), worker.acks):
            done = messages[at : at + worker.acks]
            judge.settled(number, done)
            receipts = [Receipt.parse(message.receipt) for message in done]
            assert all(await coalescer.ack("q", "g", receipts))


@given(workers=WORKERS, count=st.integers(1, 12))
@example(workers=[PATIENT] * 6, count=10)
@example(workers=[FICKLE] * 9, count=10)
@settings(max_examples=settings().max_examples // 2)
def test_in_strict_order_one_request_at_a_time_holds_messages_and_all_are_served(
    workers: Sequence[Worker], count: int
):
    store = MemoryStore()
    judge = Judge(count)

    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            every = [
                asyncio.create_task(work(client, coalescer, judge, number, worker))
                for number, worker in enumerate(workers)
            ]
            await asyncio.sleep(0)
            await client.put_many("q", map(str, range(count)))
            coalescer.wake("q")
            await asyncio.wait_for(asyncio.gather(*every), PATIENCE)
            await coalescer.close()

    with Client.from_store(store) as client:
        client.create_queue("q", order="strict", max_deliveries=0)
        client.create_group("q", "g")
        asyncio.run(program())

        assert judge.left == set()
        assert judge.most_deliveries == 1 or any(each.goes_away for each in workers)
        assert client.stats("q").groups[0].depth == 0
