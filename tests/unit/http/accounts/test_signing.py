from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.http.accounts import ALL_RIGHTS, Permission, Right, sign_request, sign_url
from cassieq_spark.http.accounts.signing import (
    cassieq_text,
    is_recent,
    is_signature,
    parse_time,
    request_text,
    signature,
)

#: printf hello | sha256sum
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEY = "a2V5LW9mLWFuLWFjY291bnQ"  # key-of-an-account


def test_a_request_of_cassieqs_clients_is_read_as_they_sign_it():
    text = cassieq_text("acme", "GET", "api/v1/accounts/acme/queues/", NOON)

    assert text == b"acme\nGET\n/api/v1/accounts/acme/queues\n2026-11-20T12:00:00Z"
    # printf '...' | openssl dgst -sha256 -hmac key-of-an-account -binary | basenc --base64url
    assert is_signature("dVn2y3hOflAlMhBmrJ10-D_4ljm_89U7rEu-mfkNWtQ", KEY, text)
    assert not is_signature("dVn2y3hOflAlMhBmrJ10-D_4ljm_89U7rEu-mfkNWtQ", KEY, text + b"x")


def test_all_of_a_request_is_signed_that_changes_what_it_does():
    sent = [(b"Content-Type", b" text/plain "), (b"accept", b"*/*"), (b"Idempotency-Key", b"i")]
    path = "/api/v1/accounts/acme/queues/q/messages"

    headers = sign_request(
        KEY, "acme", "POST", path, NOON, query=b"key=k%20", headers=sent, body=b"hello"
    )

    arrived = [*sent, *((name.encode(), value.encode()) for name, value in headers.items())]
    text = request_text("acme", "POST", path, query=b"key=k%20", headers=arrived)
    assert text.decode().splitlines() == [
        "acme",
        "POST",
        path,
        "key=k%20",
        "content-type:text/plain",
        "idempotency-key:i",
        f"x-cassieq-content-sha256:{HELLO}",
        f"x-cassieq-nonce:{headers['x-cassieq-nonce']}",
        "x-cassieq-request-time:2026-11-20T12:00:00Z",
    ]
    scheme, given = headers["Authorization"].split()
    assert scheme == "Signed2"
    assert is_signature(given, KEY, text)


def test_no_two_requests_have_one_signature():
    twice = [sign_request(KEY, "acme", "GET", "/", NOON)["Authorization"] for _ in range(2)]

    assert twice[0] != twice[1]


def test_a_url_says_what_it_allows_and_is_read_back():
    permission = Permission(
        "acme",
        frozenset({Right.ACK_MESSAGE, Right.READ_MESSAGE}),
        "orders",
        NOON,
        NOON + timedelta(hours=1),
    )

    query = dict(parse_qsl(sign_url(KEY, permission)))

    assert permission.text == (
        "acme\nra\nstartTime:2026-11-20T12:00:00Z\nendTime:2026-11-20T13:00:00Z\nq:orders"
    )
    assert query.pop("sig") == signature(KEY, permission.text.encode())
    assert Permission.parse("acme", query) == permission


def test_a_permission_runs_strictly_between_its_ends():
    permission = Permission("acme", ALL_RIGHTS, None, NOON, NOON + timedelta(seconds=2))

    instants = [NOON + timedelta(seconds=number) for number in range(3)]
    assert [permission.runs(each) for each in instants] == [False, True, False]
    assert Permission("acme", ALL_RIGHTS).runs(NOON)
    assert Permission("acme", ALL_RIGHTS).text == "acme\nrpuagcdm"


def test_clocks_may_differ_by_less_than_the_skew():
    skew = timedelta(seconds=5)

    assert is_recent(NOON, NOON + timedelta(seconds=4), skew)
    assert is_recent(NOON + timedelta(seconds=4), NOON, skew)
    assert not is_recent(NOON, NOON + skew, skew)


def test_a_url_that_allows_nothing_is_refused():
    with pytest.raises(OptionError, match="at least one right"):
        sign_url(KEY, Permission("acme", frozenset()))


@pytest.mark.parametrize("key", ["", "a", "a b", "ä", "a+b/"])
def test_what_is_no_key_signs_nothing(key: str):
    with pytest.raises(OptionError, match="URL-safe Base64"):
        signature(key, b"text")


@pytest.mark.parametrize("text", ["", "noon", "2026-11-20T12:00:00", "0001-01-01T00:00:00+23:59"])
def test_a_time_that_is_none_is_refused(text: str):
    with pytest.raises(OptionError, match="a time must be"):
        parse_time(text)
