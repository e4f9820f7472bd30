"""Who may send to the door, while it remembers parts of earlier signatures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from uuid import UUID

import httpx

from cassieq_spark.client import AsyncClient, Client
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway import Limits
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.sqs.door import SqsDoor
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.store.memory import MemoryStore
from tests.support.raw_sqs import Signer, raw_json

ACCOUNT, KEY, HOST = "acme", "primary", "gateway"
RAW = raw_json("ListQueues", {})


class Served:
    """A gateway with a door, on a store in memory."""

    def __init__(self, client: AsyncClient, store: MemoryStore) -> None:
        self.accounts = Accounts(store, Secrets(("secret-of-the-gateways-0123456789abcdef",)))
        self.accounts.create(ACCOUNT)
        limits = Limits()
        self.gateway = Gateway(client, self.accounts, limits, ConnectionLimiter(limits))
        app = make_app(lambda: self.gateway, lambda _: nullcontext())
        self._door = SqsDoor(app, lambda: self.gateway)

    def secret(self) -> str:
        """The key of the account as it is now."""
        keys = {each.name: each.key for each in self.accounts.read(ACCOUNT).keys}
        return str(keys[KEY])

    async def told(self, secret: str) -> httpx.Response:
        """The answer to a request that this key signs."""
        signed = Signer(f"{ACCOUNT}:{KEY}", secret).signed(RAW, HOST)
        transport = httpx.ASGITransport(self._door)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            return await client.post("/", content=signed.body, headers=signed.headers)

    def renew(self, *, again: bool) -> None:
        """Revoke the key; then, if ``again``, make one of the same name."""
        self.accounts.delete_key(ACCOUNT, KEY)
        if again:
            self.accounts.add_key(ACCOUNT, KEY)
        # As the request of an administrator does, or five seconds.
        self.gateway.authorizer.forget(ACCOUNT)


def run(program: Callable[[Served], Awaitable[None]]) -> None:
    """Run a program with a gateway of its own."""
    store = MemoryStore()
    with Client.from_store(store) as client:
        client.create_queue(f"{ACCOUNT}:orders", max_deliveries=0)

    async def main() -> None:
        async with AsyncClient.from_store(store) as client:
            served = Served(client, store)
            await program(served)
            await served.gateway.close()

    asyncio.run(main())


def test_a_key_that_is_revoked_signs_no_more():
    async def program(served: Served) -> None:
        secret = served.secret()
        assert (await served.told(secret)).json() == {
            "QueueUrls": [f"http://{HOST}/{ACCOUNT}/orders"]
        }
        served.renew(again=False)
        refused = await served.told(secret)
        assert refused.status_code == 403
        assert "does not match the signature you provided" in refused.json()["message"]

    run(program)


def test_a_key_that_replaces_another_one_of_its_name_signs_in_its_place():
    async def program(served: Served) -> None:
        before = served.secret()
        assert (await served.told(before)).status_code == 200
        served.renew(again=True)
        after = served.secret()
        assert after != before
        assert (await served.told(after)).status_code == 200
        assert (await served.told(before)).status_code == 403

    run(program)


def test_each_answer_has_an_id_of_its_own_and_headers_once():
    async def program(served: Served) -> None:
        answers = [await served.told(served.secret()) for _ in range(3)]
        ids = [each.headers["x-amzn-requestid"] for each in answers]
        assert len({UUID(each) for each in ids}) == 3
        assert {UUID(each).version for each in ids} == {4}
        for each in answers:
            assert each.headers["content-length"] == str(len(each.content))
            assert each.headers["cache-control"] == "no-store"
            assert len(each.headers.multi_items()) == len(set(each.headers))
            assert json.loads(each.content)["QueueUrls"]

    run(program)
