"""What the HTTP client sends when a message is put."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import httpx
import pytest

from cassieq_spark import NewMessage
from cassieq_spark.errors import OptionError
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue

URL = "http://gateway"
WHOLE = NewMessage(b"\xff", key="k", headers={"h": "1"}, delay=timedelta(seconds=2))
PARTS: dict[str, Any] = {"key": "k", "headers": {"h": "1"}, "delay": timedelta(seconds=2)}


class Sent:
    """A gateway that takes each message, and remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None, str | None, bytes]] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        headers = request.headers.get("X-Cassieq-Headers")
        key = request.headers.get("Idempotency-Key")
        self.requests.append((str(request.url), headers, key, request.content))
        return httpx.Response(201, json={"monoton": 7})


def put(sent: Sent, message: Any, **more: Any) -> int | None:
    with HttpQueue(URL, "acme", "q", key="k") as queue:
        queue._by_process[os.getpid()] = httpx.Client(base_url=URL, transport=sent.transport)
        return queue.put(message, **more)


def put_async(sent: Sent, message: Any, **more: Any) -> int | None:
    async def run() -> int | None:
        async with AsyncHttpQueue(URL, "acme", "q", key="k") as queue:
            queue._requests.http = httpx.AsyncClient(base_url=URL, transport=sent.transport)
            return await queue.put(message, **more)

    return asyncio.run(run())


@pytest.mark.parametrize("call", [put, put_async])
def test_a_whole_message_is_sent_as_its_parts_are(call: Any):
    sent = Sent()

    assert call(sent, WHOLE, idempotency_key="once") == 7
    assert call(sent, WHOLE.value, **PARTS, idempotency_key="once") == 7

    whole, parts = sent.requests
    assert whole == parts
    assert whole[1:] == ('{"h": "1"}', "once", b"\xff")
    assert "key=k" in whole[0]
    assert "initialInvisibilitySeconds=2" in whole[0]


@pytest.mark.parametrize("call", [put, put_async])
@pytest.mark.parametrize("name", PARTS)
def test_what_is_given_beside_a_whole_message_is_refused(call: Any, name: str):
    sent = Sent()

    with pytest.raises(OptionError, match=f"a NewMessage and {name} beside it"):
        call(sent, NewMessage("a"), **{name: PARTS[name]})

    assert sent.requests == []
