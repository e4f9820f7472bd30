"""Whatever a message is, it comes out of a gateway as it went in, or it is refused."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cassieq_spark.errors import OptionError
from cassieq_spark.http.client import HttpQueue
from tests.support.arrow_streams import stream_of
from tests.support.gateway import HTTP, Account, RunningGateway

ARROW = "application/vnd.apache.arrow.stream"
HEADERS = pa.map_(pa.string(), pa.string())

#: Whatever UTF-8 can hold, control characters and spaces at the ends among it.
TEXTS = st.text(max_size=12)
BYTES = st.binary(max_size=12)
KEYS = st.none() | BYTES
NAMED = st.dictionaries(TEXTS.filter(bool), st.none() | TEXTS, max_size=3)
ROWS = st.tuples(KEYS, BYTES, NAMED)

#: So that on a slow machine nothing comes again before the last example.
LEASE = timedelta(minutes=10)
HELD = {"invisibilityTimeSeconds": LEASE.total_seconds()}

Row = tuple[bytes | None, bytes, dict[str, str | None]]


@pytest.fixture(scope="module")
def shop(gateway: RunningGateway) -> Account:
    account = gateway.account()
    account.queue().close()
    return account


def on_its_own(account: Account, row: Row) -> httpx.Response:
    key, value, headers = row
    query = {} if key is None else {"key": b64encode(key).decode(), "keyEncoding": "base64"}
    sent = {"X-Cassieq-Headers": json.dumps(headers)}
    return account.ask("POST", "/orders/messages", content=value, params=query, headers=sent)


def as_a_line(account: Account, row: Row) -> httpx.Response:
    key, value, headers = row
    line: dict[str, Any] = {"message": b64encode(value).decode(), "encoding": "base64"}
    if key is not None:
        line |= {"key": b64encode(key).decode(), "keyEncoding": "base64"}
    line["headers"] = headers
    return account.ask("POST", "/orders/messages/batch", content=json.dumps(line))


def as_arrow(account: Account, row: Row) -> httpx.Response:
    key, value, headers = row
    arrays = {
        "key": pa.array([key], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "headers": pa.array([list(headers.items())], HEADERS),
    }
    return account.ask(
        "POST",
        "/orders/messages/batch",
        content=stream_of(pa.table(arrays)),
        headers={"Content-Type": ARROW},
    )


def by_the_client(account: Account, row: Row) -> None:
    key, value, headers = row
    with HttpQueue(account.url, account.name, "orders", key=account.key) as queue:
        queue.put(value, key=key, headers=headers)


def plain(told: dict[str, Any]) -> Row:
    def read(text: str, encoding: str) -> bytes:
        return b64decode(text) if encoding == "base64" else text.encode()

    key = None if told["key"] is None else read(told["key"], told["keyEncoding"])
    return key, read(told["message"], told["encoding"]), told["headers"]


def seen_by_peek(account: Account) -> Row:
    last = account.ask("GET", "/orders/statistics").json()["stored"] - 1
    (found,) = account.ask("GET", "/orders/messages", params={"start": last}).json()
    return plain(found)


def got_as_cassieq_does(account: Account) -> Row:
    return plain(account.ask("GET", "/orders/messages/next", params=HELD).json())


def got_as_a_line(account: Account) -> Row:
    # A text would be split at any line separator that Unicode has.
    (line,) = account.ask("POST", "/orders/messages/receive", params=HELD).content.splitlines()
    return plain(json.loads(line))


def got_as_arrow(account: Account) -> Row:
    answer = account.ask(
        "POST", "/orders/messages/receive", params=HELD, headers={"Accept": ARROW}
    )
    (row,) = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    return row["key"], row["value"], dict(row["headers"])


def got_by_the_client(account: Account) -> Row:
    with HttpQueue(account.url, account.name, "orders", key=account.key) as queue:
        (message,) = queue.receive(lease=LEASE)
    return message.key, message.value, dict(message.headers)


GETS = [got_as_cassieq_does, got_as_a_line, got_as_arrow, got_by_the_client]


@settings(max_examples=40, database=None, suppress_health_check=list(HealthCheck))
@given(
    put=st.sampled_from([on_its_own, as_a_line, as_arrow, by_the_client]),
    get=st.sampled_from(GETS),
    row=ROWS,
)
@example(on_its_own, got_as_cassieq_does, (b"\xff\x00", b"\xff", {}))
@example(by_the_client, got_by_the_client, (b"\xff", b"", {"Größe": " \r\n", "n": None}))
@example(as_a_line, got_as_a_line, ("é".encode(), b"\xc3", {" ": ""}))
@example(as_a_line, got_as_a_line, (None, "\x85".encode(), {"\x85": "\u2028"}))
@example(as_arrow, got_as_arrow, (b"", b"", {"\x00": "\x00"}))
def test_a_message_comes_out_as_it_went_in(shop: Account, put, get, row: Row):
    answer = put(shop, row)

    assert answer is None or answer.status_code == 201, answer.text
    assert seen_by_peek(shop) == row
    assert get(shop) == row


def test_text_stays_text(shop: Account):
    shop.ask("POST", "/orders/messages", content="ä", params={"key": "é"})

    found = shop.ask("GET", "/orders/messages/next").json()

    assert (found["message"], found["encoding"]) == ("ä", "text")
    assert (found["key"], found["keyEncoding"]) == ("é", "text")


def test_the_utf8_of_a_header_arrives_as_text(shop: Account):
    shop.ask("POST", "/orders/messages", headers={b"X-Cassieq-Header-Ort": "Zürich".encode()})

    assert got_as_cassieq_does(shop)[2] == {"ort": "Zürich"}


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Cassieq-Header-", "a value without a name")],
        [("X-Cassieq-Header-a", "1"), ("X-Cassieq-Header-A", "2")],
        [("X-Cassieq-Header-a", "1"), ("X-Cassieq-Headers", '{"a": "2"}')],
        [("X-Cassieq-Header-a", b"\xff is not UTF-8")],
        [("X-Cassieq-Headers", '{"": "a value without a name"}')],
        [("X-Cassieq-Headers", '{"a": "1", "a": "2"}')],
        [("X-Cassieq-Headers", '{"a": 1}')],
        [("X-Cassieq-Headers", '{"a": {"b": "c"}}')],
        [("X-Cassieq-Headers", '{"a": "\\ud800"}')],
        [("X-Cassieq-Headers", '[["a", "1"]]')],
        [("X-Cassieq-Headers", '"a"')],
        [("X-Cassieq-Headers", "[" * 30_000)],
        [("X-Cassieq-Headers", "a")],
        [("Idempotency-Key", b"\xff")],
    ],
    ids=range(14),
)
def test_headers_that_would_be_dropped_or_changed_are_refused(shop: Account, headers):
    before = shop.ask("GET", "/orders/statistics").json()["stored"]

    answer = HTTP.post(
        f"{shop.queues}/orders/messages",
        headers=[("Authorization", f"Key {shop.key}"), *headers],
        content=b"a",
    )

    assert answer.status_code == 400, answer.text
    assert shop.ask("GET", "/orders/statistics").json()["stored"] == before


@pytest.mark.parametrize(
    "query", ["key=%ff", "key=a&key=b", "key=a&keyEncoding=base64", "key=a&keyEncoding=hex"]
)
def test_keys_that_would_be_changed_are_refused(shop: Account, query: str):
    answer = shop.ask("POST", f"/orders/messages?{query}", content="a")

    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    "line",
    [
        {"message": "a", "headers": {"": "1"}},
        {"message": "a", "key": "a", "keyEncoding": "base64"},
        {"message": "a", "key": "a", "keyEncoding": "hex"},
    ],
    ids=range(3),
)
def test_a_line_that_would_be_changed_is_refused(shop: Account, line: dict[str, object]):
    answer = shop.ask("POST", "/orders/messages/batch", content=json.dumps(line))

    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "a?b", "", " ", "ä", "a" * 141])
def test_a_queue_that_nobody_could_reach_is_not_made(shop: Account, name: str):
    as_queue = shop.ask("POST", json={"queueName": name})
    as_dead_letter_queue = shop.ask("POST", json={"queueName": "new", "dlqName": name})

    assert (as_queue.status_code, as_dead_letter_queue.status_code) == (422, 422)
    assert [each["queueName"] for each in shop.ask("GET").json()] == ["orders", "orders.dead"]


def test_a_dead_letter_queue_is_reached_too(gateway: RunningGateway):
    account = gateway.account()

    too_long = account.ask("POST", json={"queueName": "a" * 136})
    fits = account.ask("POST", json={"queueName": "a" * 135})

    assert (too_long.status_code, fits.status_code) == (422, 201)
    made = [each["queueName"] for each in account.ask("GET").json()]
    assert [account.ask("GET", f"/{each}").status_code for each in made] == [200, 200]


@pytest.mark.parametrize("name", [".", "..", "a/b", "a?b", "", "a" * 141])
def test_the_client_refuses_a_queue_that_it_could_not_reach(name: str):
    with pytest.raises(OptionError, match="queue name"):
        HttpQueue("http://127.0.0.1:1", "acme", name, key="k")


@pytest.mark.parametrize("key", ["", " a", "a ", "a\n", "a\x00"])
def test_the_client_refuses_an_idempotency_key_that_would_be_changed(shop: Account, key: str):
    with (
        HttpQueue(shop.url, shop.name, "orders", key=shop.key) as queue,
        pytest.raises(OptionError, match="idempotency key"),
    ):
        queue.put("a", idempotency_key=key)
