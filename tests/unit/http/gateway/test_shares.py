"""Calls of one account wait for other calls of this account, and not for other accounts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import httpx
import pytest

from cassieq_spark import AsyncClient, Client
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway import Limits
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, Partition, Rows, Slice, Store
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.gateway import RECEIPTS, SECRET

SOON = 20
THREADS, SHARE = 8, 3
#: Of an account that asks for more than Cassandra can do.
FLOOD = {
    "statistics": ("GET", "queues/orders/statistics", None),
    "dead letters": ("GET", "queues/orders/dead", None),
    "groups": ("GET", "queues/orders/groups", None),
    "peeks": ("GET", "queues/orders/messages", None),
    "receives": ("GET", "queues/orders/messages/next?group=g{}", None),
    "rejects": ("POST", "queues/orders/messages/reject", {"reason": "x"}),
}


class SlowQueues(WrappedStore):
    """Reads of an account's queues take until it is told to go on."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.go_on = threading.Event()
        self.go_on.set()
        self.arrived = threading.Event()
        self._guard = threading.Lock()
        self._reading = self.most = 0

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        if not self.go_on.is_set() and "evil:" in str(partition):
            with self._guard:
                self._reading += 1
                self.most = max(self.most, self._reading)
            self.arrived.set()
            assert self.go_on.wait(3 * SOON)
            with self._guard:
                self._reading -= 1
        return super().read_rows(partition, which, serial=serial)


@asynccontextmanager
async def gateway(store: Store) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """A gateway with few threads; clients of two of its accounts."""
    accounts, limits = Accounts(store, Secrets((SECRET,))), Limits()
    keys = {name: accounts.create(name).keys[0].key for name in ("evil", "good")}
    async with AsyncClient.from_store(store, threads=THREADS, share=SHARE) as client:
        made = Gateway(client, accounts, limits, ConnectionLimiter(limits, ()))
        transport = httpx.ASGITransport(make_app(lambda: made, lambda _: nullcontext()))
        asked = {
            name: httpx.AsyncClient(
                transport=transport,
                base_url=f"http://gateway/api/v1/accounts/{name}/",
                headers={"Authorization": f"Key {key}"},
                timeout=None,
            )
            for name, key in keys.items()
        }
        yield asked
        await made.close()


@pytest.mark.parametrize("what", FLOOD)
def test_whatever_one_account_floods_the_gateway_with_others_are_served(what: str):
    method, path, body = FLOOD[what]
    store = SlowQueues(MemoryStore())
    with Client.from_store(store) as client:
        for name in ("evil", "good"):
            client.create_queue(f"{name}:orders", max_deliveries=5)
            client.put_many(f"{name}:orders", ["a"] * 50)
            for number in range(40):
                client.create_group(f"{name}:orders", f"g{number}")
        leased = [client.receive("evil:orders", f"g{number}") for number in range(40)]

    async def program() -> None:
        async with gateway(store) as asked:
            evil, good = asked["evil"], asked["good"]
            assert (await evil.get("queues/orders")).status_code == 200
            store.go_on.clear()
            flood = []
            for number in range(40):
                receipts = [RECEIPTS.of(each.receipt) for each in leased[number]]
                json = None if body is None else body | {"popReceipts": receipts}
                flood.append(
                    asyncio.create_task(evil.request(method, path.format(number), json=json))
                )
            assert await asyncio.to_thread(store.arrived.wait, SOON)
            try:
                await asyncio.wait_for(honest(good), SOON)
                assert not any(each.done() for each in flood)
            finally:
                store.go_on.set()
            answers = await asyncio.gather(*flood)
            assert {each.status_code for each in answers} == {200}
            assert 0 < store.most <= SHARE

    asyncio.run(program())


def test_all_that_ask_at_once_whether_it_is_ready_share_a_read():
    store = CountingStore(MemoryStore())

    async def program() -> None:
        async with gateway(store) as asked:
            store.reset()
            url = "http://gateway/ready"
            answers = await asyncio.gather(*(asked["good"].get(url) for _ in range(50)))
            assert {each.status_code for each in answers} == {200}
            assert store.read_count == 1
            assert (await asked["good"].get(url)).status_code == 200
            assert store.read_count == 2

    asyncio.run(program())


async def honest(good: httpx.AsyncClient) -> None:
    """Use a queue as a usual client does."""
    assert (await good.post("queues/orders/messages", content=b"x")).status_code == 201
    got = await good.get("queues/orders/messages/next", params={"group": "g1"})
    receipt = got.json()["popReceipt"]
    acked = await good.delete("queues/orders/messages", params={"popReceipt": receipt})
    assert acked.status_code == 204
    for path in (
        "queues",
        "queues/orders/statistics",
        "queues/orders/dead",
        "queues/orders/messages",
    ):
        assert (await good.get(path)).status_code == 200, path
