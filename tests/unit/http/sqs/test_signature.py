from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from cassieq_spark.http.sqs import signature
from cassieq_spark.http.sqs.errors import (
    IncompleteSignature,
    InvalidSignature,
    MissingAuthenticationToken,
    RequestExpired,
    RequestTooLarge,
    SqsError,
)
from cassieq_spark.http.sqs.signature import (
    canonical_request,
    claim_of,
    signature_of,
    text_to_sign,
)
from cassieq_spark.http.sqs.wire import Received
from tests.support.raw_sqs import Signer, raw_json
from tests.support.sqs import ENDPOINT, KEY_ID, SECRET, URL, Door, digest, received

#: The test suite of Signature V4 that AWS publishes.
VECTORS = json.loads(Path(__file__).with_name("signature_vectors.json").read_text())
AT = "20150830T123600Z"
SCOPE = "20150830/us-east-1/service/aws4_request"
MIDNIGHT = datetime(2026, 11, 29, tzinfo=UTC)
PUBLISHED = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize("vector", VECTORS, ids=[each["name"] for each in VECTORS])
def test_the_signatures_that_aws_publishes_are_found(vector):
    headers = [(name.encode(), value.encode()) for name, value in vector["headers"]]
    request = Received(
        vector["method"], vector["path"].encode(), vector["query"].encode(), headers
    )
    signed = tuple(vector["signed"].encode().split(b";"))

    canonical = canonical_request(request, signed, digest(vector["body"].encode()))
    text = text_to_sign(AT, SCOPE, canonical)

    assert signature_of(PUBLISHED, SCOPE, text) == vector["signature"]


def signed(  # noqa: PLR0913 (what a request may have)
    method: str = "POST",
    url: str = ENDPOINT + "/",
    body: bytes = b"{}",
    *,
    secret: str = SECRET,
    key_id: str = KEY_ID,
    token: str | None = None,
    service: str = "sqs",
    region: str = "eu-central-1",
    expires: int | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[Received, bytes]:
    """A request that botocore signs, in its headers or, if it expires, in its URL."""
    request = AWSRequest(method, url, headers=headers or {}, data=body)
    credentials = Credentials(key_id, secret, token)
    if expires is None:
        SigV4Auth(credentials, service, region).add_auth(request)
    else:
        SigV4QueryAuth(credentials, service, region, expires=expires).add_auth(request)
    return received(request.prepare())


def check(request: Received, body: bytes, at: datetime | None = None, secret: Any = SECRET):
    claim = claim_of(request, at or datetime.now(UTC))
    claim.signer([] if secret is None else [secret], digest(body))
    return claim


def with_header(request: Received, name: bytes, value: bytes | None) -> Received:
    kept = [each for each in request.headers if each[0] != name]
    return replace(request, headers=kept if value is None else [*kept, (name, value)])


def changed(request: Received, old: bytes, new: bytes) -> Received:
    """The request with another text in its signature."""
    text = request.header(b"authorization") or b""
    assert old in text
    return with_header(request, b"authorization", text.replace(old, new))


def test_a_signed_request_says_who_signed_it():
    claim = check(*signed())

    assert (claim.key_id, claim.region) == (KEY_ID, "eu-central-1")


@pytest.mark.parametrize("region", ["us-east-1", "elasticmq", "cn-north-1", "local_1"])
def test_any_region_is_taken(region):
    assert check(*signed(region=region)).region == region


@pytest.mark.parametrize(
    "url",
    [
        URL,
        URL + "/",
        f"{ENDPOINT}/a%20b/%C3%A4",
        f"{ENDPOINT}/acme/orders~billing",
        f"{ENDPOINT}/acme/./x/../orders.fifo",
        f"{ENDPOINT}//acme///orders",
        f"{ENDPOINT}/acme/a:b@c!$'()*,;=",
        f"{ENDPOINT}/?Action=ListQueues&QueueNamePrefix=%C3%A4%20x&Version=2012-11-05",
        f"{ENDPOINT}/?b=2&a=2&a=1&c&d=&~=~",
    ],
)
@pytest.mark.parametrize("expires", [None, 60], ids=["header", "presigned"])
def test_odd_paths_and_queries_are_signed_as_botocore_signs_them(url, expires):
    check(*signed("GET", url, b"", expires=expires))


@pytest.mark.parametrize("expires", [None, 60], ids=["header", "presigned"])
def test_the_token_of_a_temporary_credential_is_signed(expires):
    request, body = signed(token="to/ken==", expires=expires)

    check(request, body)

    other = replace(
        request,
        query=request.query.replace(b"to%2Fken", b"to%2Fkem"),
        headers=[(name, value.replace(b"to/ken", b"to/kem")) for name, value in request.headers],
    )
    with pytest.raises(InvalidSignature):
        check(other, body)


def test_a_plus_in_a_query_is_a_space_as_where_it_is_read():
    request, body = signed("GET", f"{ENDPOINT}/?a=x%20y", b"")

    check(replace(request, query=b"a=x+y"), body)


@pytest.mark.parametrize("expires", [None, 60], ids=["header", "presigned"])
@pytest.mark.parametrize(
    "change",
    [
        lambda it: replace(it, method="PUT"),
        lambda it: replace(it, path=b"/acme/orders2"),
        lambda it: replace(it, query=it.query + b"&a=1"),
        lambda it: with_header(it, b"host", b"other"),
    ],
    ids=["method", "path", "query", "host"],
)
def test_a_changed_request_is_refused(change, expires):
    request, body = signed(url=URL + "?x=1", expires=expires)

    with pytest.raises(InvalidSignature):
        check(change(request), body)


@pytest.mark.parametrize("expires", [None, 60], ids=["header", "presigned"])
def test_another_body_is_refused(expires):
    request, _ = signed(expires=expires)

    with pytest.raises(InvalidSignature):
        check(request, b"{} ")


def test_an_unsigned_body_is_refused():
    unsigned = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}

    with pytest.raises(InvalidSignature):
        check(*signed(headers=unsigned))


def test_another_secret_is_refused():
    with pytest.raises(InvalidSignature) as caught:
        check(*signed(secret="other"))

    assert str(caught.value).startswith("The request signature we calculated does not match")


def test_an_unknown_key_is_refused_even_with_the_secret_that_stands_for_none():
    request, body = signed(secret=signature._NO_SECRET)

    with pytest.raises(InvalidSignature):
        check(request, body, secret=None)


def test_an_unknown_key_is_as_much_work_as_a_known_one(monkeypatch):
    work = []
    monkeypatch.setattr(
        signature, "signature_of", lambda *given: work.append(given[0]) or "0" * 64
    )
    request, body = signed()

    for secret in (SECRET, None):
        with pytest.raises(SqsError):
            check(request, body, secret=secret)

    assert work == [SECRET, signature._NO_SECRET]


def at_midnight(seconds: int, **given: Any) -> Received:
    """A request that was signed so many seconds after a midnight."""
    signer = Signer(KEY_ID, SECRET, MIDNIGHT + timedelta(seconds=seconds), **given)
    return signer.signed(raw_json("ListQueues", {}), "gateway").received("gateway")


def test_before_and_after_midnight_requests_are_signed_for_their_day():
    now = MIDNIGHT + timedelta(seconds=2)

    for seconds in (-1, 1, -1):
        claim = check(at_midnight(seconds), b"{}", now)
        assert claim.at == MIDNIGHT + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("scope", "other"),
    [
        ("20261129/eu-central-1/sqs/aws4_request", "20261128/eu-central-1/sqs/aws4_request"),
        ("20261129/eu-central-1/sqs/aws4_request", "20261129/us-east-1/sqs/aws4_request"),
    ],
    ids=["day", "region"],
)
def test_the_signing_key_of_another_scope_signs_nothing(scope, other):
    request = at_midnight(1)
    # Both signing keys are remembered by now.
    check(request, b"{}", MIDNIGHT)
    signature_of(SECRET, other, b"")
    names = claim_of(request, MIDNIGHT).signing.headers
    canonical = canonical_request(request, names, digest(b"{}"))
    text = text_to_sign("20261129T000001Z", scope, canonical)
    right, wrong = (signature_of(SECRET, each, text).encode() for each in (scope, other))

    with pytest.raises(InvalidSignature):
        check(changed(request, right, wrong), b"{}", MIDNIGHT)


def test_a_secret_that_was_good_a_moment_ago_signs_nothing_when_it_is_replaced():
    request, body = signed()
    check(request, body)

    for secret in ("another", None):
        with pytest.raises(InvalidSignature):
            check(request, body, secret=secret)


def test_each_signature_is_computed_anew_although_its_parts_are_remembered():
    request, body = signed()
    check(request, body)
    text = request.header(b"authorization") or b""
    last = b"0" if text[-1:] != b"0" else b"1"

    with pytest.raises(InvalidSignature):
        check(with_header(request, b"authorization", text[:-1] + last), body)


def test_the_values_of_a_header_that_is_repeated_are_signed_in_order():
    names = (b"a", b"b")
    headers = [(b"a", b" 1  2"), (b"b", b""), (b"a", b"3"), (b"c", b"4")]
    request = Received("GET", b"/", b"", headers)

    assert canonical_request(request, names, "d") == b"GET\n/\n\na:1 2,3\nb:\n\na;b\nd"


def test_an_empty_secret_is_a_secret():
    request, body = signed(secret="")

    check(request, body, secret="")


def test_a_header_of_aws_that_is_not_signed_is_refused():
    request, body = signed()
    added = replace(
        request, headers=[*request.headers, (b"x-amz-target", b"AmazonSQS.PurgeQueue")]
    )

    with pytest.raises(InvalidSignature, match="'x-amz-target' must be a 'SignedHeader'"):
        check(added, body)


def test_other_headers_need_not_be_signed():
    request, body = signed()

    check(with_header(request, b"user-agent", b"proxy"), body)


def test_a_request_whose_host_is_not_signed_is_refused():
    request, body = signed()

    with pytest.raises(InvalidSignature, match="'Host' must be"):
        check(changed(request, b"SignedHeaders=host;", b"SignedHeaders="), body)


@pytest.mark.parametrize("minutes", [-14, 0, 14])
def test_clocks_may_differ_by_a_quarter_of_an_hour(minutes):
    request, body = signed()

    check(request, body, datetime.now(UTC) + timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("minutes", "why"), [(16, "Signature expired: "), (-16, "Signature not yet current: ")]
)
def test_a_signature_of_another_time_is_refused(minutes, why):
    request, body = signed()

    with pytest.raises(InvalidSignature, match=why):
        check(request, body, datetime.now(UTC) + timedelta(minutes=minutes))


def test_a_presigned_url_is_valid_until_it_expires():
    request, body = signed(expires=3_600)
    now = datetime.now(UTC)

    check(request, body, now + timedelta(seconds=3_590))
    with pytest.raises(RequestExpired):
        check(request, body, now + timedelta(seconds=3_610))


def test_a_presigned_url_of_a_later_time_is_refused():
    request, body = signed(expires=3_600)

    with pytest.raises(InvalidSignature, match="not yet current"):
        check(request, body, datetime.now(UTC) - timedelta(minutes=16))


@pytest.mark.parametrize("seconds", [604_800, 1])
def test_a_presigned_url_is_valid_for_a_week_at_most(seconds):
    check(*signed(expires=seconds))


@pytest.mark.parametrize("seconds", [604_801, 0, -1, 10**9])
def test_a_presigned_url_of_longer_validity_is_refused(seconds):
    with pytest.raises(IncompleteSignature, match="X-Amz-Expires"):
        check(*signed(expires=seconds))


@pytest.mark.parametrize(
    "missing", ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders"]
)
def test_a_presigned_url_needs_all_its_parts(missing):
    request, body = signed(expires=60)
    query = b"&".join(
        each
        for each in request.query.split(b"&")
        if not each.startswith(f"X-Amz-{missing}".encode())
    )

    with pytest.raises((IncompleteSignature, InvalidSignature)):
        check(replace(request, query=query), body)


def test_a_part_that_is_given_twice_is_refused():
    request, body = signed(expires=60)

    with pytest.raises(IncompleteSignature, match="X-Amz-Expires is given twice"):
        check(replace(request, query=request.query + b"&X-Amz-Expires=604800"), body)


def test_two_signatures_are_refused():
    one, body = signed()
    other, _ = signed(expires=60)

    with pytest.raises(IncompleteSignature, match="more than one"):
        check(replace(one, query=other.query), body)


@pytest.mark.parametrize("authorization", [None, b"Key abc", b"Basic YTpi", b""])
def test_an_unsigned_request_is_refused(authorization):
    request, body = signed()

    with pytest.raises(MissingAuthenticationToken):
        check(with_header(request, b"authorization", authorization), body)


def test_the_signature_of_another_service_is_refused():
    with pytest.raises(InvalidSignature, match="correct service: 'sqs'"):
        check(*signed(service="s3"))


def test_the_scope_is_of_the_day_of_the_request():
    request, body = signed()
    day = datetime.now(UTC).strftime("/%Y%m%d/").encode()

    with pytest.raises(InvalidSignature, match="Date in Credential scope"):
        check(changed(request, day, b"/20200101/"), body)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"aws4_request", b"aws5_request"),
        (b"Credential=", b"Credential=/"),
        (b"Credential=acme", "Credential=äcme".encode()),
        # As Celery sends keys whose URL was encoded twice.
        (b"acme:owner", b"acme%3Aowner"),
        (b"AWS4-HMAC-SHA256", b"AWS4-HMAC-SHA1"),
        (b"AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256"),
        (b", Signature=", b", Signature=0"),
        (b", Signature=", b", Sign="),
        (b"host;x-amz-date", b"x-amz-date;host"),
        (b"host;x-amz-date", b"host;host;x-amz-date"),
        (b"host;x-amz-date", b"Host;x-amz-date"),
        (b"host;x-amz-date", b";".join(b"h%d" % n for n in range(300))),
    ],
)
def test_a_malformed_signature_is_refused(old, new):
    request, body = signed()

    with pytest.raises((IncompleteSignature, InvalidSignature)):
        check(changed(request, old, new), body)


@pytest.mark.parametrize(
    "time", [None, b"", b"2026-11-27T00:00:00Z", b"20261399T000000Z", b"\xff"]
)
def test_a_malformed_time_is_refused(time):
    request, body = signed()

    with pytest.raises((IncompleteSignature, InvalidSignature)):
        check(with_header(request, b"x-amz-date", time), body)


def test_a_request_of_too_many_headers_or_parameters_is_refused():
    request, body = signed()

    with pytest.raises(RequestTooLarge):
        check(replace(request, headers=[*request.headers, *[(b"a", b"b")] * 300]), body)
    with pytest.raises(RequestTooLarge):
        check(replace(request, query=b"&" * 3_000), body)


def test_a_client_with_a_wrong_secret_gets_the_error_of_aws(protocol, client_of, door):
    client = client_of(protocol, door, aws_secret_access_key="other")

    with pytest.raises(ClientError, match="SignatureDoesNotMatch") as caught:
        client.list_queues()

    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_client_with_an_unknown_key_gets_the_error_of_aws(protocol, client_of, door):
    client = client_of(protocol, door, aws_access_key_id="nobody")

    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client.list_queues()


def test_a_presigned_url_is_called_by_anybody(client_of):
    door = Door()
    client = client_of("query", door)
    url = client.generate_presigned_url("receive_message", {"QueueUrl": URL}, 60, "GET")
    request = AWSRequest("GET", url).prepare()

    answer = door.serve(*received(request))

    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/xml")
    assert door.calls[0].operation.name == "ReceiveMessage"
    assert door.calls[0].queue == ("acme", "orders")


def test_a_request_may_be_repeated_with_the_same_signature(client_of, door):
    client_of("json", door).list_queues()

    again = door.serve(*door.requests[0])

    assert again.status == 200


@pytest.mark.parametrize(
    "part", ["SignedHeaders=Signature=", "Credential=", "Signature=", "SignedHeaders=x Signature="]
)
def test_a_malformed_signature_costs_little(part):
    begin = b"AWS4-HMAC-SHA256 Credential="
    text = begin + part.encode() * (3_900 // len(part)) + b","
    headers = [(b"host", b"h"), (b"authorization", text), (b"x-amz-date", b"x")]
    began = time.process_time()

    with pytest.raises(SqsError):
        claim_of(Received("POST", b"/", b"", headers), datetime.now(UTC))

    assert time.process_time() - began < 0.1
