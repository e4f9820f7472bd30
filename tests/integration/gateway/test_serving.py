"""The server itself: limits, waiting, logs, metrics, encryption, and its end."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from cassieq_spark.http.client import HttpError, HttpQueue
from cassieq_spark.http.gateway.app import ENDPOINTS
from tests.support.certificates import make_certificates
from tests.support.gateway import (
    ADMIN,
    HTTP,
    PATIENCE,
    Account,
    RunningGateway,
    running_on_memory,
)


def waiting(account: Account, **query: object) -> httpx.Response:
    return account.ask("GET", "/orders/messages/next", params={"wait": 50, **query})


def requests_under_way(gateway: RunningGateway) -> int:
    text = HTTP.get(f"{gateway.url}/metrics").text
    (line,) = (each for each in text.splitlines() if each.startswith("cassieq_gateway_requests_u"))
    return int(float(line.split()[1]))


def until_under_way(gateway: RunningGateway, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while requests_under_way(gateway) != count:
        assert time.monotonic() < end


def test_a_get_that_waits_has_its_message_once_it_is_put(
    gateway: RunningGateway, account: Account
):
    account.ask("POST", json={"queueName": "orders"})
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(waiting, account)
        until_under_way(gateway, 1)

        account.ask("POST", "/orders/messages", content="a")

        assert answer.result(PATIENCE).json()["message"] == "a"


def test_in_strict_order_one_client_at_a_time_has_messages(
    gateway: RunningGateway, account: Account
):
    with account.queue("orders", order="strict") as orders, ThreadPoolExecutor(5) as threads:
        orders.put_many([f"{number}" for number in range(10)])
        first = orders.receive()
        answers = [threads.submit(waiting, account, wait=2) for _ in range(5)]
        until_under_way(gateway, 5)

        assert orders.ack(*first) == []

        told = [each.result(PATIENCE) for each in answers]
        got = [each.json()["message"] for each in told if each.status_code == 200]

    assert [each.value for each in first] == [b"0"]
    assert got == ["1"]
    assert sorted(each.status_code for each in told) == [200, 204, 204, 204, 204]


def test_what_comes_for_a_client_that_went_away_is_not_lost(
    gateway: RunningGateway, account: Account
):
    account.ask("POST", json={"queueName": "orders"})
    request = (
        f"GET /api/v1/accounts/{account.name}/queues/orders/messages/next?wait=50 HTTP/1.1\r\n"
        f"Host: x\r\nAuthorization: Key {account.key}\r\n\r\n"
    )
    host, port = gateway.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)))) as connection:
        connection.sendall(request.encode())
        until_under_way(gateway, 1)
    until_under_way(gateway, 0)

    account.ask("POST", "/orders/messages", content="a")

    assert waiting(account).json()["message"] == "a"


def test_a_body_that_breaks_off_is_not_put(tmp_path: Path):
    with running_on_memory(tmp_path / "log") as gateway:
        account = gateway.account()
        account.ask("POST", json={"queueName": "orders"})
        request = (
            f"POST /api/v1/accounts/{account.name}/queues/orders/messages HTTP/1.1\r\n"
            f"Host: x\r\nAuthorization: Key {account.key}\r\nContent-Length: 100\r\n\r\nhalf"
        )
        host, port = gateway.url.removeprefix("http://").split(":")
        with closing(socket.create_connection((host, int(port)))) as connection:
            connection.sendall(request.encode())
            until_under_way(gateway, 1)
        until_under_way(gateway, 0)

        assert account.ask("GET", "/orders/statistics").json()["stored"] == 0
        assert gateway.stop() == 0

    told = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [each["status"] for each in told if each["operation"] == "put"] == [400]
    assert {each["action"] for each in told} == {"gateway.request"}


def test_more_than_there_is_room_for_is_refused(tmp_path: Path):
    settings = ("requests=4", "body_bytes=100", "batch_bytes=1000", "batch_count=3", "wait=60")
    with running_on_memory(tmp_path / "log", *settings) as gateway:
        account = gateway.account()
        account.ask("POST", json={"queueName": "orders"})

        large = account.ask("POST", "/orders/messages", content="x" * 101)
        streamed = account.ask("POST", "/orders/messages", content=iter([b"x" * 60] * 2))
        many = account.ask("POST", "/orders/messages/batch", content='{"message": "a"}\n' * 4)
        greedy = account.ask("POST", "/orders/messages/receive", params={"max": 4})
        curious = account.ask("GET", "/orders/messages", params={"max": 101})
        patient = waiting(account, wait=61)
        settled = account.ask("POST", "/orders/messages/ack", json={"popReceipts": ["x"] * 4})
        with ThreadPoolExecutor(2) as threads:
            answers = [threads.submit(waiting, account) for _ in range(2)]
            until_under_way(gateway, 2)
            refused = account.ask("POST", "/orders/messages", content="x")
            assert gateway.stop() == 0
            ended = [each.result(PATIENCE).status_code for each in answers]

    assert [each.status_code for each in (large, streamed)] == [413, 413]
    assert [each.status_code for each in (many, greedy, curious, patient, settled)] == [400] * 5
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert ended == [204, 204], "a request that waits is answered before the end"


def test_bodies_are_held_as_far_as_there_is_room(tmp_path: Path):
    with running_on_memory(tmp_path / "log", "held_bytes=1000") as gateway:
        account = gateway.account()
        account.ask("POST", json={"queueName": "orders"})

        refused = account.ask("POST", "/orders/messages", content="x" * 1001)
        taken = account.ask("POST", "/orders/messages", content="x" * 1000)
        again = account.ask("POST", "/orders/messages", content="x" * 1000)

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert [taken.status_code, again.status_code] == [201, 201]


def test_the_log_has_a_line_for_each_request_and_no_secret(tmp_path: Path):
    with running_on_memory(tmp_path / "log") as gateway:
        account = gateway.account()
        account.ask("POST", json={"queueName": "orders"})
        account.ask("POST", "/orders/messages", content="the body")
        receipt = account.ask("GET", "/orders/messages/next").json()["popReceipt"]
        account.ask("DELETE", "/orders/messages", params={"popReceipt": receipt})
        HTTP.get(f"{account.queues}?auth=g&sig=the-signature")
        assert gateway.stop() == 0

    text = (tmp_path / "log").read_text()
    told = [json.loads(line) for line in text.splitlines()]
    assert [(each["operation"], each["status"], each["key"]) for each in told] == [
        ("createAccount", 201, "admin"),
        ("createQueue", 201, "primary"),
        ("put", 201, "primary"),
        ("receive", 200, "primary"),
        ("ack", 204, "primary"),
        ("listQueues", 401, None),
    ]
    assert {each["action"] for each in told} == {"gateway.request"}
    admins = ADMIN["Authorization"].split()[1]
    secrets = (account.key, receipt, "the body", "the-signature", admins)
    assert [each for each in secrets if each in text] == []


def test_requests_are_counted(gateway: RunningGateway, account: Account):
    account.ask("GET", "/nothing")

    text = HTTP.get(f"{gateway.url}/metrics").text

    assert 'cassieq_gateway_requests_total{operation="getQueue",status="404"}' in text
    assert 'cassieq_gateway_request_seconds_bucket{le="0.001",operation="getQueue"}' in text
    assert "cassieq_gateway_held_bytes 0.0" in text


def test_it_is_alive_and_ready(gateway: RunningGateway):
    assert HTTP.get(f"{gateway.url}/health").status_code == 200
    assert HTTP.head(f"{gateway.url}/ready").status_code == 200
    assert HTTP.get(f"{gateway.url}/ready").json() == {"status": "ready"}


def test_pages_of_the_named_origin_may_ask_and_others_may_not(gateway: RunningGateway):
    def asked(origin: str) -> httpx.Response:
        asks = {"Origin": origin, "Access-Control-Request-Method": "PUT"}
        return HTTP.options(f"{gateway.url}/api/v1/accounts/a/queues", headers=asks)

    ours, theirs = asked("https://pages.example"), asked("https://elsewhere.example")

    assert ours.headers["access-control-allow-origin"] == "https://pages.example"
    assert "access-control-allow-origin" not in theirs.headers
    assert (ours.status_code, theirs.status_code) == (200, 400)


def test_the_description_has_every_endpoint(gateway: RunningGateway):
    told = HTTP.get(f"{gateway.url}/openapi.json").json()

    operations = {
        (verb.upper(), path): operation
        for path, verbs in told["paths"].items()
        for verb, operation in verbs.items()
    }
    assert operations.keys() == {(each.method, each.path) for each in ENDPOINTS}
    assert len({each["operationId"] for each in operations.values()}) == len(ENDPOINTS)


def test_the_page_loads_nothing_from_another_host_and_may_not(gateway: RunningGateway):
    page = HTTP.get(f"{gateway.url}/")

    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert sorted(loaded) == [
        "openapi.json",
        "viewer/start.js",
        "viewer/swagger-ui-bundle.js",
        "viewer/swagger-ui.css",
    ]
    assert re.findall(r"<script>|style=|on[a-z]+=", page.text) == []
    files = [HTTP.get(f"{gateway.url}/{name}") for name in loaded]
    assert [file.status_code for file in files] == [200] * 4
    assert all(len(file.content) > 50 for file in files)
    for answer in (page, *(file for file in files if "viewer" in str(file.url))):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "://" not in policy


@pytest.mark.parametrize("name", ["..%2Fapp.py", "../app.py", "LICENSE/../../app.py", "none.js"])
def test_nothing_but_the_files_of_the_page_is_served(gateway: RunningGateway, name: str):
    assert HTTP.get(f"{gateway.url}/viewer/{name}").status_code == 404


def test_requests_are_encrypted_if_there_is_a_certificate(tmp_path: Path):
    certificates = make_certificates(tmp_path)

    with running_on_memory(tmp_path / "log", f"certificate={certificates.node}") as gateway:
        account = gateway.account()
        trusting = HttpQueue(
            gateway.url, account.name, "orders", key=account.key, ca_file=str(certificates.ca)
        )
        doubtful = HttpQueue(gateway.url, account.name, "orders", key=account.key)
        with trusting, doubtful:
            assert trusting.create()
            assert trusting.put("a") == 0
            with pytest.raises(HttpError, match=r"did not answer.*CERTIFICATE"):
                doubtful.put("b")

    assert gateway.url.startswith("https://")


def test_a_tls_handshake_has_to_be_complete_in_time(tmp_path: Path):
    certificates = make_certificates(tmp_path)
    settings = (f"certificate={certificates.node}", "head_time=0.3")

    with (
        running_on_memory(tmp_path / "log", *settings) as gateway,
        socket.create_connection(("127.0.0.1", urlsplit(gateway.url).port)) as silent,
    ):
        silent.settimeout(PATIENCE)
        assert silent.recv(1) == b""


def test_many_clients_at_once_lose_nothing_and_get_nothing_twice(account: Account):
    account.ask("POST", json={"queueName": "orders"})
    got: list[str] = []
    lock = threading.Lock()

    def work(worker: int) -> None:
        for number in range(10):
            body = f"{worker}:{number}"
            assert account.ask("POST", "/orders/messages", content=body).status_code == 201
            message = waiting(account).json()
            acked = account.ask(
                "DELETE", "/orders/messages", params={"popReceipt": message["popReceipt"]}
            )
            assert acked.status_code == 204
            with lock:
                got.append(message["message"])

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(work, range(32)))

    assert sorted(got) == sorted(
        f"{worker}:{number}" for worker in range(32) for number in range(10)
    )


def test_where_nothing_can_listen_is_told(tmp_path: Path):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        with (
            pytest.raises(AssertionError, match=f"cannot listen on 127.0.0.1:{port}"),
            running_on_memory(tmp_path / "log", f"port={port}"),
        ):
            pass
