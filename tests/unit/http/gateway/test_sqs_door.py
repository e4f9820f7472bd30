"""Which requests are of SQS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import httpx
import pytest

from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.sqs.door import is_of_sqs
from tests.support.raw_sqs import Raw, Signer, raw_form, raw_json


@pytest.mark.parametrize(
    ("method", "path", "query", "is_sqs"),
    [
        ("POST", "/", b"", True),
        ("POST", "/acme/orders", b"", True),
        ("POST", "/console1/orders", b"", True),
        ("GET", "/acme/orders", b"Version=1&Action=ReceiveMessage", True),
        ("GET", "/acme/orders", b"", False),
        ("POST", "/api/v1/accounts/acme/queues", b"Action=ListQueues", False),
        ("POST", "/admin/api/v1/accounts", b"", False),
        ("GET", "/console", b"Action=ListQueues", False),
        ("POST", "/console/login", b"", False),
        ("DELETE", "/acme/orders", b"Action=DeleteQueue", False),
    ],
)
def test_method_and_path_say_which_requests_are_of_sqs(
    method: str, path: str, query: bytes, is_sqs: bool
):
    scope = {"method": method, "path": path, "query_string": query, "headers": []}

    assert is_of_sqs(scope) is is_sqs
    assert is_of_sqs({**scope, "headers": [(b"x-amz-target", b"AmazonSQS.SendMessage")]})


@pytest.mark.parametrize("path", [b"/", b"/acme/orders"])
@pytest.mark.parametrize("raw_of", [raw_json, raw_form])
def test_a_gateway_without_the_door_tells_a_client_of_sqs_how_to_open_it(
    raw_of: Callable[[str, dict[str, str]], Raw], path: bytes
):
    app = make_app(lambda: pytest.fail("nothing of the gateway is needed"), nullcontext)
    raw = replace(raw_of("ListQueues", {}), path=path)
    signed = Signer("acme", "secret").signed(raw, "gateway")

    async def told(headers: Sequence[tuple[bytes, bytes]]) -> str:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            answer = await client.post(path.decode(), content=signed.body, headers=headers)
        assert answer.status_code in {404, 405}
        return str(answer.json()["message"])

    assert asyncio.run(told(signed.headers)).endswith("start it with --sqs")
    assert asyncio.run(told(())).endswith("see /openapi.json")
