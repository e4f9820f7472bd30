"""The typed client, against a gateway that runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cassieq_spark.errors import NotFoundError, OptionError
from cassieq_spark.http.accounts import Permission, Right, sign_url
from cassieq_spark.http.client import HttpError, HttpQueue, HttpStateError
from cassieq_spark.model import Range
from tests.support.gateway import Account, running_on_memory

MINUTE = timedelta(minutes=1)


@pytest.fixture
def orders(account: Account) -> Iterator[HttpQueue]:
    with account.queue() as orders:
        yield orders


def test_messages_go_in_and_come_out_as_they_were(orders: HttpQueue):
    assert orders.put("text", key="k", headers={"lang": "en"}) == 0
    assert orders.put_many([b"\xff\x00", "more"]) == Range(1, 3)

    text, raw, more = orders.receive(max=10)

    assert (text.value, text.key, text.headers) == (b"text", b"k", {"lang": "en"})
    assert (raw.value, more.value, more.monoton) == (b"\xff\x00", b"more", 2)
    assert (raw.delivery_count, raw.key) == (1, None)
    assert orders.receive() == []


def test_messages_are_settled_in_every_way(orders: HttpQueue):
    orders.put_many(list("abcd"))
    a, b, c, d = orders.receive(max=10, wait=MINUTE, lease=MINUTE)

    assert orders.ack(a) == []
    assert orders.release(b, delay=MINUTE) == []
    assert orders.extend(c, by=10 * MINUTE) == []
    assert orders.reject(d.receipt, reason="bad") == []
    assert orders.ack(a, c) == [a.receipt]
    assert orders.ack() == []
    (group,) = orders.stats().groups
    assert (group.waiting, group.leased) == (1, 0)


def test_what_is_repeated_under_one_idempotency_key_is_there_once(orders: HttpQueue):
    assert [orders.put("a", idempotency_key="1") for _ in range(2)] == [0, None]
    assert [orders.put_many(["b"], idempotency_key="2") for _ in range(2)] == [Range(1, 2), None]
    assert orders.put("late", delay=MINUTE) == 2
    assert [each.value for each in orders.receive(max=10)] == [b"a", b"b"]


def test_a_queue_is_made_and_deleted(account: Account):
    with HttpQueue(account.url, account.name, "new", key=account.key) as new:
        with pytest.raises(NotFoundError, match="new"):
            new.put("a")
        assert new.create(max_deliveries=3)
        assert not new.create(max_deliveries=3)
        with pytest.raises(HttpStateError, match="maxDeliveryCount"):
            new.create(max_deliveries=4)
        new.delete()
        with pytest.raises(NotFoundError):
            new.receive()


def test_it_signs_requests_and_uses_signed_urls(account: Account):
    account.queue().close()
    url = sign_url(account.key, Permission(account.name, frozenset({Right.PUT_MESSAGE})))

    with (
        HttpQueue(account.url, account.name, "orders", key=account.key, sign=True) as signing,
        HttpQueue(account.url, account.name, "orders", signed_url=url) as putting,
    ):
        assert (signing.put("a"), putting.put("b", key="k")) == (0, 1)
        assert [each.value for each in signing.receive(max=9)] == [b"a", b"b"]
        with pytest.raises(HttpError, match="403: ReadMessage") as refused:
            putting.receive()
        assert refused.value.status == 403


def test_one_way_to_prove_who_one_is_must_be_given():
    with pytest.raises(OptionError, match="one of the two"):
        HttpQueue("http://x", "a", "q")
    with pytest.raises(OptionError, match="one of the two"):
        HttpQueue("http://x", "a", "q", key="k", signed_url="sig=s")


def test_a_gateway_that_has_no_room_is_asked_again_as_long_as_there_is_patience(tmp_path: Path):
    with running_on_memory(tmp_path / "log", "held_bytes=200") as gateway:
        account = gateway.account()
        hasty = HttpQueue(
            gateway.url, account.name, "q", key=account.key, patience=timedelta(seconds=1.5)
        )
        with hasty, pytest.raises(HttpError, match="429") as refused:
            hasty.put_many(["more than two hundred bytes"] * 20)
        assert refused.value.status == 429
        gateway.kill()
        gone_client = HttpQueue(gateway.url, account.name, "q", key=account.key)
        with gone_client, pytest.raises(HttpError, match="did not answer") as gone:
            gone_client.receive()
        assert gone.value.status == 0

    asked = [line for line in (tmp_path / "log").read_text().splitlines() if "429" in line]
    assert len(asked) == 2


def test_threads_that_share_it_keep_their_connections():
    # What httpcore closes as surplus, another thread may have picked: its request would fail.
    many, connections = 40, []
    all_are_here = threading.Barrier(many)

    class Gateway(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self):
            connections.append(self.client_address)
            super().setup()

        def do_DELETE(self):
            all_are_here.wait(60)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with HttpQueue(url, "a", "orders", key="k") as queue, ThreadPoolExecutor(many) as threads:
            for _ in range(3):
                list(threads.map(lambda _: queue.delete(), range(many)))
        server.shutdown()

    assert len(connections) == many
