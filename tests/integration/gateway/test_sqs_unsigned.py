"""A gateway for tests: requests that are not signed, and purges without a pause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.gateway import ADMIN, HTTP, RunningGateway, running_on_memory

LIST = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
CREATE = {**LIST, "X-Amz-Target": "AmazonSQS.CreateQueue"}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    log: Path = tmp_path_factory.mktemp("local") / "log"
    with running_on_memory(log, "sqs_unsigned=dev", "purge_pause=0") as gateway:
        refused = HTTP.post(gateway.url, headers=LIST, content="{}")
        assert refused.status_code == 403, "there is no such account yet"
        made = HTTP.post(f"{gateway.url}/admin/api/v1/accounts", headers=ADMIN, content='"dev"')
        assert made.status_code == 201
        yield gateway
        assert gateway.stop() == 0


def asked(gateway: RunningGateway, content: str = "{}", **headers: str) -> httpx.Response:
    return HTTP.post(gateway.url, headers=LIST | headers, content=content)


def created(gateway: RunningGateway, name: str) -> str:
    """The URL of a new queue."""
    asks = {"headers": CREATE, "json": {"QueueName": name}}
    while (made := HTTP.post(gateway.url, **asks)).is_error:
        # Until the gateway has forgotten that there was no such account.
        assert made.status_code == 403
    return str(made.json()["QueueUrl"])


def test_a_request_that_is_not_signed_is_of_the_account(local: RunningGateway):
    assert created(local, "q") == f"{local.url}/dev/q"
    assert f"{local.url}/dev/q" in asked(local).json()["QueueUrls"]
    form = HTTP.post(local.url, data={"Action": "GetQueueUrl", "QueueName": "q"})
    assert f"<QueueUrl>{local.url}/dev/q</QueueUrl>" in form.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://page.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "rebound.example"},
        {
            "Authorization": "AWS4-HMAC-SHA256 Credential=dev/20260101/x/sqs/aws4_request, "
            "SignedHeaders=host;x-amz-date, Signature=" + 64 * "0"
        },
    ],
)
def test_neither_is_one_of_a_page_in_a_browser_nor_one_with_a_wrong_signature(
    local: RunningGateway, headers: dict[str, str]
):
    assert asked(local, **headers).is_client_error


def test_neither_is_a_link(local: RunningGateway):
    answer = HTTP.get(local.url, params={"Action": "ListQueues"})

    assert answer.status_code == 403
    assert "MissingAuthenticationToken" in answer.text


def test_a_request_that_is_not_signed_is_refused_if_nothing_else_is_said(gateway: RunningGateway):
    answer = asked(gateway)

    assert answer.status_code == 403
    assert "MissingAuthenticationToken" in answer.text


def test_a_queue_is_purged_again_at_once_if_the_gateway_lets_it(local: RunningGateway):
    purge = {**LIST, "X-Amz-Target": "AmazonSQS.PurgeQueue"}
    queue = {"QueueUrl": created(local, "often")}

    for _ in range(3):
        assert HTTP.post(local.url, headers=purge, json=queue).status_code == 200
