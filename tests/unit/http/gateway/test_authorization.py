"""Signed requests: what is signed is what is served, and once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from cassieq_spark.http.accounts import Accounts, Right, Secrets, sign_request
from cassieq_spark.http.gateway.authorization import Authorizer, Grant, Replays, check_body
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SKEW = 60 * SECOND
SECRET = "0123456789-abcdefghijklmnopqrstu"
PATH = "/api/v1/accounts/acme/queues/orders/messages"


class MisledRequest(Request):
    """As releases of starlette made it that take the path from the header Host."""

    @property
    def url(self) -> URL:
        return URL(f"http://{self.headers['host']}{self.scope['path']}")


class Door:
    """An account, and what lets it in; the clock stands still."""

    def __init__(self) -> None:
        accounts = Accounts(MemoryStore(), Secrets((SECRET,)))
        self.key = str(accounts.create("acme").keys[0].key)
        self.now = NOON
        self.authorizer = Authorizer(accounts, SKEW, clock=lambda: self.now)

    def sign(self, method: str = "POST", path: str = PATH, **more: object) -> dict[str, str]:
        return sign_request(self.key, "acme", method, path, self.now, **more)  # type: ignore[arg-type]

    def ask(
        self,
        headers: dict[str, str],
        method: str = "POST",
        path: str = PATH,
        query: bytes = b"",
        right: Right = Right.PUT_MESSAGE,
    ) -> Grant | None:
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": raw,
            "server": ("127.0.0.1", 80),
            "scheme": "http",
        }
        check = self.authorizer.check(MisledRequest(scope), "acme", "orders", right)
        try:
            return asyncio.run(check)
        except RefusedError:
            return None


@pytest.fixture
def door() -> Door:
    return Door()


def test_what_is_signed_is_let_in_with_the_digest_of_its_body(door: Door):
    grant = door.ask(door.sign(query=b"key=k", body=b"hello"), query=b"key=k")

    assert grant is not None
    asyncio.run(check_body(b"hello", grant.body_digest))
    for other in (b"", b"hellO", b"x" * (1 << 19)):
        with pytest.raises(RefusedError, match="not the one that was signed"):
            asyncio.run(check_body(other, grant.body_digest))


def test_the_path_that_is_signed_is_the_path_that_is_served(door: Door):
    captured = door.sign("DELETE", "/api/v1/accounts/acme/queues/small") | {
        "host": "x/api/v1/accounts/acme/queues/small?"
    }
    as_cassieq = Authorizer(door.authorizer._accounts, SKEW, as_cassieq=True, clock=lambda: NOON)

    path = "/api/v1/accounts/acme/queues/orders"
    assert door.ask(captured, "DELETE", path, right=Right.DELETE_QUEUE) is None
    door.authorizer = as_cassieq
    assert door.ask(captured, "DELETE", path, right=Right.DELETE_QUEUE) is None


@pytest.mark.parametrize(
    "change",
    [
        {"query": b"key=other"},
        {"query": b"key=k&wait=1"},
        {"query": b""},
        {"method": "PUT"},
        {"path": PATH + "/batch"},
        {"path": PATH + "/"},
        {"path": PATH + "\nkey=k"},
    ],
    ids=str,
)
def test_a_signature_is_good_for_one_request_only(door: Door, change: dict[str, object]):
    headers = door.sign(query=b"key=k")

    assert door.ask(headers, **{"query": b"key=k", **change}) is None  # type: ignore[arg-type]
    assert door.ask(headers, query=b"key=k") is not None


@pytest.mark.parametrize(
    "name",
    [
        "Idempotency-Key",
        "Content-Type",
        "X-Cassieq-Header-lang",
        "X-Cassieq-Headers",
        "X-Cassieq-Nonce",
        "X-Cassieq-Content-Sha256",
        "X-Cassieq-Request-Time",
    ],
)
def test_headers_that_change_what_is_done_are_signed(door: Door, name: str):
    headers = {each.lower(): value for each, value in door.sign().items()}

    assert door.ask(headers | {name.lower(): "2026-11-20T12:00:01Z"}) is None
    assert door.ask(headers | {"user-agent": "curl"}) is not None


def test_a_request_is_not_carried_out_again(door: Door):
    headers = door.sign()

    assert door.ask(headers) is not None
    assert door.ask(headers) is None
    door.now += SKEW - SECOND
    assert door.ask(headers) is None
    assert door.ask(door.sign()) is not None
    door.now += SECOND
    assert door.ask(headers) is None, "it is over"


def test_what_cassieqs_clients_sign_is_let_in_only_if_it_may_be(door: Door):
    headers = door.sign()
    headers["Authorization"] = headers["Authorization"].replace("Signed2", "Signed")

    assert door.ask(headers) is None


@pytest.mark.parametrize("missing", ["x-cassieq-nonce", "x-cassieq-content-sha256"])
def test_what_makes_a_signature_good_once_must_be_there(
    door: Door, missing: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cassieq_spark.http.gateway.authorization.is_signature", lambda *_: True)

    headers = door.sign()
    del headers[missing]

    assert door.ask(headers) is None


def test_signatures_are_remembered_as_long_as_they_are_good_and_no_longer():
    replays = Replays(SKEW, most=3)

    assert replays.is_new("a", NOON, NOON)
    assert replays.is_new("b", NOON + timedelta(milliseconds=900), NOON)
    assert replays.is_new("c", NOON + SKEW, NOON)
    with pytest.raises(RefusedError, match="3 signed requests"):
        replays.is_new("d", NOON, NOON)
    later = NOON + SKEW + timedelta(milliseconds=800)
    assert not replays.is_new("b", NOON + timedelta(milliseconds=900), later)
    assert not replays.is_new("c", NOON + SKEW, later)
    much_later = NOON + SKEW + 3 * SECOND
    assert replays.is_new("d", much_later, much_later)
    assert replays.is_new("e", much_later, much_later)


@pytest.mark.parametrize("name", ["", "x" * 32_000, "a b", "../acme", "acme\n", "\U0001f600"])
def test_of_a_name_that_no_account_can_have_nothing_is_read_or_kept(door: Door, name: str):
    counting = CountingStore(door.authorizer._accounts._store)
    authorizer = Authorizer(Accounts(counting, Secrets((SECRET,))), SKEW)
    request = Request({"type": "http", "headers": [], "query_string": b""})

    with pytest.raises(RefusedError):
        asyncio.run(authorizer.check(request, name, "orders", Right.PUT_MESSAGE))

    assert authorizer._kept == {}
    assert counting.read_count == 0
