"""What the HTTP client makes of answers that no gateway sends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import httpx
import pytest

from cassieq_spark.errors import CassieqError
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue
from cassieq_spark.http.client.answers import HttpError

URL = "http://gateway"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize(
    "call",
    [
        HttpQueue.receive,
        HttpQueue.create,
        HttpQueue.delete,
        lambda queue: queue.put("a"),
        lambda queue: queue.create_group("g"),
        lambda queue: queue.delete_group("g"),
    ],
    ids=["receive", "create", "delete", "put", "create_group", "delete_group"],
)
def test_a_redirect_is_no_success(call: Callable[[HttpQueue], object], status: int):
    def redirect(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers={"Location": "https://elsewhere/"})

    with HttpQueue(URL, "acme", "q", key="k") as queue:
        queue._by_process[os.getpid()] = httpx.Client(
            base_url=URL, transport=httpx.MockTransport(redirect)
        )
        with pytest.raises(HttpError, match=r"leads on to https://elsewhere/: give the URL"):
            call(queue)


def test_a_queue_that_was_closed_says_so():
    queue = HttpQueue(URL, "acme", "q", key="k")
    queue.close()

    with pytest.raises(CassieqError, match="is closed"):
        queue.stats()


def test_an_asynchronous_queue_that_was_closed_says_so():
    async def program() -> None:
        queue = AsyncHttpQueue(URL, "acme", "q", key="k")
        await queue.close()
        with pytest.raises(CassieqError, match="is closed"):
            await queue.stats()

    asyncio.run(program())
