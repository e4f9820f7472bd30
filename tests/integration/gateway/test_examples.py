"""Each operation of the description has an example, which works as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from cassieq_spark.http.gateway.app import ENDPOINTS
from cassieq_spark.http.gateway.openapi import description
from cassieq_spark.http.gateway.requests import Endpoint
from cassieq_spark.http.gateway.schemas import RECEIPT
from tests.support.gateway import ADMIN, HTTP, Account, RunningGateway, running_on_memory

DESCRIPTION = description(ENDPOINTS)
#: These take the receipt of a message that is leased.
SETTLES = {"update", "ack", "ackMany", "release", "extend", "reject"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_on_memory(tmp_path_factory.mktemp("examples") / "log") as gateway:
        yield gateway


def admin(gateway: RunningGateway, method: str, path: str, **more: Any) -> httpx.Response:
    url = f"{gateway.url}/admin/api/v1/accounts{path}"
    return HTTP.request(method, url, headers=ADMIN, **more)


@pytest.fixture
def acme(gateway: RunningGateway) -> Account:
    """The account of the examples, with their queue."""
    admin(gateway, "POST", "", content='"acme"')
    key = admin(gateway, "POST", "/acme/keys", json={"keyName": uuid4().hex}).json()["key"]
    account = Account(gateway.url, "acme", key)
    account.ask("DELETE", "/orders")
    account.ask("POST", json={"queueName": "orders"})
    return account


#: The settings of the queue, where an example needs others.
SETTINGS = {
    "history": {"historySeconds": 86_400},
    "resumeGroup": {"order": "strict", "onDead": "stop"},
    "stopped": {"order": "strict", "onDead": "stop"},
}


def operation_of(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = DESCRIPTION["paths"][endpoint.path][endpoint.method.lower()]
    return operation


def named(endpoint: Endpoint) -> str:
    return endpoint.operation


def prepare(gateway: RunningGateway, account: Account, operation: str) -> str:
    """Make what the example of an operation needs; returns the receipt of a message."""
    if operation == "createAccount":
        admin(gateway, "DELETE", "/acme")
    if operation == "createSignedUrl":
        admin(gateway, "POST", "/acme/keys", json={"keyName": "primary"})
    if operation in {"createQueue", *SETTINGS}:
        account.ask("DELETE", "/orders")
    if operation in SETTINGS:
        account.ask("POST", json={"queueName": "orders", **SETTINGS[operation]})
    if "Schedule" in operation and operation != "createSchedule":
        account.ask("PUT", "/orders/schedules/nightly", json={"cron": "0 3 * * *", "message": "x"})
    if operation in {"createQueue", "createAccount", "createGroup"}:
        return ""
    account.ask("POST", "/orders/messages", content="hello")
    received = account.ask("GET", "/orders/messages/next?invisibilityTimeSeconds=0.001")
    while operation == "history" and not account.ask("GET", "/orders/messages/0/history").json():
        # Written in the background.
        pass
    if operation in {"deadLetters", "stopped"}:
        received = account.ask("GET", "/orders/messages/next?wait=5")
        receipts = [received.json()["popReceipt"]]
        account.ask(
            "POST", "/orders/messages/reject", json={"popReceipts": receipts, "reason": "x"}
        )
    if operation in SETTLES:
        received = account.ask("GET", "/orders/messages/next?wait=5")
    return str(received.json()["popReceipt"])


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=named)
def test_every_body_has_an_example_in_each_media_type(endpoint: Endpoint):
    content = operation_of(endpoint).get("requestBody", {"content": {}})["content"]

    assert all("example" in each for each in content.values())
    assert bool(content) == (endpoint.body is not None)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=named)
def test_every_required_parameter_has_an_example(endpoint: Endpoint):
    for parameter in operation_of(endpoint)["parameters"]:
        assert not parameter["required"] or "example" in parameter


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=named)
def test_the_command_of_each_operation_runs_as_it_stands(
    gateway: RunningGateway, acme: Account, endpoint: Endpoint, tmp_path: Path
):
    operation = operation_of(endpoint)
    (command,) = re.findall(r"```sh\n(.*?)\n```", operation["description"], re.DOTALL)
    receipt = prepare(gateway, acme, endpoint.operation)
    command = f"{command} -w '\n%{{http_code}}'".replace(RECEIPT, receipt)
    admins = ADMIN["Authorization"].split()[1]

    done = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"GATEWAY": acme.url, "KEY": acme.key, "ADMIN": admins},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    body, _, status = done.stdout.rpartition("\n")
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    answer = operation["responses"][status]
    assert status.startswith("2")
    assert bool(body) == ("content" in answer), body
    if body:
        (content, *_) = answer["content"].values()
        example = content["example"]
        example = json.loads(example) if isinstance(example, str) else example
        assert names_of(json.loads(body)) == names_of(example)


def names_of(value: Any) -> set[str] | list[set[str]]:
    """The names of an object, or of the first one of a list."""
    return [set(each) for each in value[:1]] if isinstance(value, list) else set(value)
