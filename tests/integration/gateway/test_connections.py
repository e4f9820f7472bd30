"""What a connection may send before anybody knows who it is, and how slowly."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.gateway import HTTP, PATIENCE, RunningGateway, running_on_memory
from tests.support.sockets import answer_of, connect, connected, head_of, received, send

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
MIB = 1 << 20


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that waits for headers and bodies for half a second only."""
    log = tmp_path_factory.mktemp("hasty") / "log"
    settings = ("head_time=0.5", "body_rate=100000", "address_connections=60", "connections=80")
    with running_on_memory(log, *settings) as gateway:
        yield gateway
        assert gateway.stop() == 0
        assert '"level": "WARNING"' not in log.read_text()


@pytest.mark.parametrize(
    "beginning",
    [
        GET + b"X-Long: ",
        b"GET /",
        b"GET /health?q=",
        GET + b"X-Long",
        GET + b"Transfer-Encoding: chunked\r\n\r\n1;",
        GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ",
    ],
)
def test_what_is_no_body_may_not_be_without_end(gateway: RunningGateway, beginning: bytes):
    with connect(gateway) as connection:
        connection.sendall(beginning)
        took_all = all(send(connection, b"x" * MIB) for _ in range(64))
        longest = max(seconds_of_health(gateway) for _ in range(5))
        answer = answer_of(connection)

    assert not took_all or (answer is not None and answer.status == 431)
    # It was 18 s; the machine may be busy with other tests.
    assert longest < 6


def metrics_of(gateway: RunningGateway) -> str:
    """Once it has noticed that connections are closed."""
    end = time.monotonic() + 30
    while (answer := HTTP.get(f"{gateway.url}/metrics")).status_code != 200:
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return answer.text


def seconds_of_health(gateway: RunningGateway) -> float:
    began = time.monotonic()
    assert HTTP.get(f"{gateway.url}/health").status_code == 200
    return time.monotonic() - began


def test_headers_beyond_the_limit_are_refused_and_just_below_are_taken(gateway: RunningGateway):
    def answered(count: int) -> tuple[int, dict[str, object]]:
        with connect(gateway) as connection:
            connection.sendall(GET + b"X: " + b"x" * (count - len(GET)) + b"\r\n\r\n")
            answer = answer_of(connection)
        assert answer is not None
        return answer.status, answer.json

    assert answered((32 << 10) - 100)[0] == 200
    status, told = answered((32 << 10) + 100)
    assert status == 431
    assert "more than 32768 bytes" in str(told["message"])
    assert told["quota"] == {"what": "headBytes", "of": "request", "limit": 32768}


def test_more_than_a_hundred_headers_are_refused(gateway: RunningGateway):
    for count, expected in ((99, 200), (100, 431)):
        with connect(gateway) as connection:
            connection.sendall(GET + b"X: y\r\n" * count + b"\r\n")
            answer = answer_of(connection)

        assert answer is not None
        assert answer.status == expected


@pytest.mark.parametrize(
    "request_",
    [GET + b"Host: y\r\n\r\n", b"GET /health HTTP/0.9\r\nHost: x\r\n\r\n"],
    ids=["two hosts", "HTTP/0.9"],
)
def test_what_a_proxy_may_have_read_otherwise_is_refused(gateway: RunningGateway, request_: bytes):
    with connect(gateway) as connection:
        connection.sendall(request_)
        answer = answer_of(connection)

    assert answer is not None
    assert answer.status == 400


@pytest.mark.parametrize(("headers", "most"), [(0, 20), (98, 2)])
def test_requests_without_end_before_the_first_answer_are_refused(
    gateway: RunningGateway, headers: int, most: int
):
    """Those that wait may have 20 requests, and 200 headers."""
    request = GET + b"X: y\r\n" * headers + b"\r\n"
    last = GET + b"Connection: close\r\n\r\n"
    with connect(gateway) as connection:
        send(connection, request * most + last)
        honest = received(connection)
    with connect(gateway) as connection:
        send(connection, request * 100_000)
        greedy = received(connection)

    assert honest.count(b"HTTP/1.1 200") == most + 1
    assert greedy.count(b"HTTP/1.1 ") <= most + 2
    assert seconds_of_health(gateway) < 6


def test_headers_have_to_be_complete_in_time(hasty: RunningGateway):
    with connect(hasty) as connection:
        for _ in range(20):
            if not send(connection, b"\r\n"):
                break
            time.sleep(0.1)
        else:
            pytest.fail("empty lines were taken for ever")
    with connect(hasty) as connection:
        connection.sendall(GET)
        slow = answer_of(connection)
    with connect(hasty) as connection:
        nothing = answer_of(connection)

    assert slow is not None
    assert (slow.status, slow.json["quota"]["what"]) == (408, "headTime")
    assert nothing is None


def test_headers_have_to_be_complete_in_time_also_after_an_answer(hasty: RunningGateway):
    with connect(hasty) as connection:
        connection.sendall(GET + b"\r\n")
        first = answer_of(connection)
        connection.sendall(GET)
        second = answer_of(connection)

    assert (first and first.status, second and second.status) == (200, 408)


def test_the_rest_of_a_body_that_nobody_reads_does_not_keep_a_connection(hasty: RunningGateway):
    with connect(hasty) as connection:
        connection.sendall(GET + b"Content-Length: 1000000\r\n\r\n")
        first = answer_of(connection)
        for _ in range(30):
            if not send(connection, b"x"):
                break
            time.sleep(0.1)
        else:
            pytest.fail("it was kept")

    assert first is not None
    assert first.status == 200


def test_a_body_has_to_arrive_fast_enough(hasty: RunningGateway):
    account = hasty.account()
    account.ask("POST", json={"queueName": "orders"})
    with connect(hasty) as connection:
        connection.sendall(head_of(account, "POST", "/orders/messages", length=1_000_000))
        for _ in range(30):
            if not send(connection, b"x" * 1000):
                break
            time.sleep(0.1)
        answer = answer_of(connection)
    with connect(hasty) as connection:
        connection.sendall(head_of(account, "POST", "/orders/messages", length=300_000))
        for _ in range(3):
            send(connection, b"x" * 100_000)
            time.sleep(0.4)
        steady = answer_of(connection)

    assert answer is not None
    assert answer.status == 408
    assert "100000 bytes a second at least" in answer.json["message"]
    assert steady is not None
    assert steady.status == 201


def test_one_address_has_so_many_connections(hasty: RunningGateway):
    with connected(hasty, 60), connect(hasty) as connection:
        answer = answer_of(connection)

    assert answer is not None
    assert answer.status == 429
    assert answer.json["quota"] == {"what": "connections", "of": "address", "limit": 60}
    assert "--proxy" in answer.json["message"]
    text = metrics_of(hasty)
    assert 'cassieq_gateway_refused_total{of="address",quota="connections"}' in text


def test_all_together_have_so_many_connections_proxies_included(tmp_path):
    settings = ("address_connections=5", "connections=20", "proxies=127.0.0.0/8")
    with running_on_memory(tmp_path / "log", *settings) as gateway:
        with connected(gateway, 20), connect(gateway) as connection:
            answer = answer_of(connection)
        end = time.monotonic() + PATIENCE
        # Until the gateway has seen that they are closed.
        while HTTP.get(f"{gateway.url}/health").status_code != 200:
            assert time.monotonic() < end
        assert gateway.account().name

    assert answer is not None
    assert (answer.status, answer.json["quota"]["of"]) == (503, "all")


def test_only_a_proxy_says_who_asks(tmp_path):
    def logged(*settings: str) -> str:
        log = tmp_path / "log"
        with running_on_memory(log, *settings) as gateway:
            headers = {"X-Forwarded-For": "203.0.113.7"}
            HTTP.get(f"{gateway.url}/api/v1/accounts/a/queues", headers=headers)
            assert gateway.stop() == 0
        return log.read_text()

    assert '"client": "127.0.0.1"' in logged()
    assert '"client": "203.0.113.7"' in logged("proxies=127.0.0.1")
