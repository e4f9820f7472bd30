"""Signature Version 4: finds who signed a request, by its headers or by a presigned URL.

A check has two steps, because the key is read between them, and the body arrives after the
headers: `claim_of` reads the claim of a request, and checks everything that needs no key;
`Claim.signer` computes the signature.

An unknown key costs the same work as a known one, and the signature is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

from cassieq_spark.http.sqs.errors import (
    IncompleteSignature,
    InvalidSignature,
    MissingAuthenticationToken,
    RequestExpired,
    RequestTooLarge,
    shown,
)
from cassieq_spark.http.sqs.texts import remembered
from cassieq_spark.http.sqs.wire import MOST_PARAMETERS, Received

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sqs"
#: How far the time of a signature may be from the time here.
SKEW = timedelta(minutes=15)
#: The longest time for which a presigned URL can be valid.
LONGEST = timedelta(days=7)

_END = "aws4_request"
_TIME = "%Y%m%dT%H%M%SZ"
_AUTHORIZATION = b"authorization"
_DATE = b"x-amz-date"
_HOST = b"host"
_SIGNED_BEGIN = b"x-amz-"
_QUERY_SIGNATURE = b"X-Amz-Signature"
#: Quantifiers are possessive (``++``), without backtracking: else a header could take seconds.
_FIELDS = re.compile(
    r"AWS4-HMAC-SHA256 ++Credential=(?P<credential>[^\s,]++),? *+"
    r"SignedHeaders=(?P<headers>[^\s,]++),? *+"
)
_SIGNATURE = "Signature="
_CREDENTIAL = re.compile(
    r"(?P<key>[A-Za-z0-9._:-]{1,128})/(?P<date>[0-9]{8})/(?P<region>[A-Za-z0-9_-]{1,64})/"
    r"(?P<service>[a-z0-9-]+)/aws4_request"
)
_HEX = re.compile(r"[0-9a-f]{64}")
_SECONDS = re.compile(r"[0-9]{1,6}")
_LONGEST_FIELD = 4_000
_MOST_HEADERS = 200
#: Stands in for the secret of an unknown key.
_NO_SECRET = "none"  # noqa: S105 (it opens nothing)


class _Signing(NamedTuple):
    """How a request is signed; many requests of a client have the same.

    Attributes:
        key_id: The access key id.
        date: The day of the scope.
        region: The region of the scope.
        scope: Day, region, service and end, as they are signed.
        headers: Names of the headers that are signed, in order.
    """

    key_id: str
    date: str
    region: str
    scope: str
    headers: tuple[bytes, ...]


class Claim(NamedTuple):
    """The claim of a signed request; nothing in it is proven before `signer`.

    Attributes:
        signing: How the request is signed.
        at: When the request was signed.
        time: The same as text, as it is signed.
        signature: The signature in the request, in hexadecimal digits.
        received: The request.
        is_presigned: True if the signature is in the query.
    """

    signing: _Signing
    at: datetime
    time: str
    signature: str
    received: Received
    is_presigned: bool

    @property
    def key_id(self) -> str:
        """The access key id."""
        return self.signing.key_id

    @property
    def region(self) -> str:
        """The region of the scope; any region is allowed."""
        return self.signing.region

    def signer(self, secrets: Sequence[str], body_digest: str) -> int:
        """Find which of several secrets has signed the request; return its index.

        All secrets are tried, and an empty sequence costs the same work as one secret, so that
        the time reveals nothing about secrets.

        Args:
            secrets: The secrets of the keys that the access key id may name.
            body_digest: SHA-256 of the body that has arrived, in hexadecimal digits.

        Raises:
            InvalidSignature: No secret has signed the request, or ``secrets`` is empty.
        """
        scope, headers = self.signing.scope, self.signing.headers
        request = canonical_request(
            self.received, headers, body_digest, is_presigned=self.is_presigned
        )
        text = text_to_sign(self.time, scope, request)
        found = [
            hmac.compare_digest(signature_of(each, scope, text), self.signature)
            for each in secrets or (_NO_SECRET,)
        ]
        if not secrets or True not in found:
            raise InvalidSignature
        return found.index(True)


def claim_of(received: Received, now: datetime) -> Claim:
    """Read the claim of a request from its signature, and check all that needs no key.

    Raises:
        MissingAuthenticationToken: The request is not signed.
        IncompleteSignature: The signature is malformed.
        InvalidSignature: The scope is of another service, the time is too far from the time here,
            or a header that must be signed is not.
        RequestExpired: A presigned URL has expired.
        RequestTooLarge: The request has too many headers or parameters.
    """
    if len(received.headers) > _MOST_HEADERS or received.query.count(b"&") > MOST_PARAMETERS:
        raise RequestTooLarge
    given = received.values(_AUTHORIZATION)
    is_presigned = _QUERY_SIGNATURE in received.query
    if len(given) + is_presigned > 1:
        raise IncompleteSignature("The request has more than one signature.")
    if given:
        claim = _claim_of_header(received, _text(given[0]))
        _check_clock(claim.at, now)
    elif is_presigned:
        query = _presigned(received.query)
        claim = _claim_of_query(received, query)
        _check_expiry(claim.at, query, now)
    else:
        raise MissingAuthenticationToken
    _check_headers(claim)
    return claim


def canonical_request(
    received: Received,
    signed: tuple[bytes, ...],
    body_digest: str,
    *,
    is_presigned: bool = False,
) -> bytes:
    """The canonical text of a request; its digest is signed."""
    query = received.query
    parts = [
        received.method.encode(),
        _canonical_path(received.path),
        _canonical_query(query, is_presigned=is_presigned) if query else b"",
    ]
    for name in signed:
        values = [b" ".join(each.split()) for each in received.values(name)]
        parts.append(b"%b:%b" % (name, values[0] if len(values) == 1 else b",".join(values)))
    parts += (b"", b";".join(signed), body_digest.encode())
    return b"\n".join(parts)


def text_to_sign(time: str, scope: str, request: bytes) -> bytes:
    """The text under the signature: time and scope, and the digest of a canonical request."""
    digest = hashlib.sha256(request).hexdigest()
    return f"{ALGORITHM}\n{time}\n{scope}\n{digest}".encode()


def signature_of(secret: str, scope: str, text: bytes) -> str:
    """The signature of a text in hexadecimal digits; see `text_to_sign`."""
    # Not `hmac.digest`, which lets other threads run, and then waits for its turn.
    signing = _signing_key(secret, scope).copy()
    signing.update(text)
    return signing.hexdigest()


@lru_cache(maxsize=1_024)
def _signing_key(secret: str, scope: str) -> hmac.HMAC:
    """A digest under the signing key, of nothing yet; copy it."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    return hmac.new(key, digestmod=hashlib.sha256)


def _claim_of_header(received: Received, authorization: str) -> Claim:
    begin, found, signature = authorization.rpartition(_SIGNATURE)
    signing = _signing_of(begin) if found and len(authorization) <= _LONGEST_FIELD else None
    if signing is None:
        if not authorization.startswith("AWS4-"):
            # The header is of another scheme, such as the gateway's own.
            raise MissingAuthenticationToken
        raise IncompleteSignature(
            "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature' "
            f"parameters, and the algorithm {ALGORITHM}."
        )
    at = received.header(_DATE)
    if at is None:
        raise IncompleteSignature("Authorization header requires existence of an 'X-Amz-Date'.")
    return _claim(received, signing, _text(at), signature.rstrip(" "), is_presigned=False)


@remembered
def _signing_of(begin: str) -> _Signing | None:
    """Parse the header up to the signature, once for many requests; None if it is malformed.

    Nothing of a request is cached, and no outcome of a check: each signature is computed anew.

    Raises:
        IncompleteSignature, InvalidSignature: See `_signing`.
    """
    found = _FIELDS.fullmatch(begin)
    return None if found is None else _signing(*found.groups())


def _claim_of_query(received: Received, query: Mapping[str, str]) -> Claim:
    if query.get("X-Amz-Algorithm") != ALGORITHM:
        raise IncompleteSignature(f"X-Amz-Algorithm must be {ALGORITHM}.")
    signing = _signing(query.get("X-Amz-Credential", ""), query.get("X-Amz-SignedHeaders", ""))
    time, signature = query.get("X-Amz-Date", ""), query.get("X-Amz-Signature", "")
    return _claim(received, signing, time, signature, is_presigned=True)


def _signing(credential: str, headers: str) -> _Signing:
    """Parse a credential, and the names of the headers that are signed.

    Raises:
        InvalidSignature: The credential is malformed, or its scope is of another service.
        IncompleteSignature: The names are not sorted, or one is given twice.
    """
    found = _CREDENTIAL.fullmatch(credential)
    if found is None:
        raise InvalidSignature(
            "Credential must have the form <access key id>/<date>/<region>/sqs/aws4_request, not "
            f"'{shown(credential)}'."
        )
    if found["service"] != SERVICE:
        raise InvalidSignature(f"Credential should be scoped to correct service: '{SERVICE}'.")
    names = headers.split(";")
    if len(names) > _MOST_HEADERS or names != sorted(set(names)):
        raise IncompleteSignature("SignedHeaders must be sorted and distinct.")
    key_id, date, region = found["key"], found["date"], found["region"]
    scope = f"{date}/{region}/{SERVICE}/{_END}"
    return _Signing(key_id, date, region, scope, tuple(map(_bytes, names)))


@lru_cache(maxsize=1_024)
def _time_of(text: str) -> datetime:
    """The time of a signature; many clients sign in the same second.

    Raises:
        ValueError: It is not such a time.
    """
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)


def _claim(
    received: Received, signing: _Signing, time: str, signature: str, *, is_presigned: bool
) -> Claim:
    try:
        at = _time_of(time)
    except ValueError:
        raise IncompleteSignature("Date must be in ISO-8601 'basic format'.") from None
    if signing.date != time[:8]:
        raise InvalidSignature("Date in Credential scope does not match YYYYMMDD of X-Amz-Date.")
    if not _HEX.fullmatch(signature):
        raise IncompleteSignature("A signature has 64 hexadecimal digits.")
    return Claim(signing, at, time, signature, received, is_presigned)


def _check_headers(claim: Claim) -> None:
    """Refuse a request with a header that must be signed and is not."""
    signed = claim.signing.headers
    if _HOST not in signed:
        raise InvalidSignature("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    for name, _ in claim.received.headers:
        if name.startswith(_SIGNED_BEGIN) and name not in signed:
            raise InvalidSignature(
                f"'{shown(_text(name))}' must be a 'SignedHeader' in the AWS Authorization."
            )


def _check_clock(at: datetime, now: datetime) -> None:
    if abs(at - now) <= SKEW:
        return
    signed, ours, minutes = at.strftime(_TIME), now.strftime(_TIME), SKEW.seconds // 60
    if at < now:
        edge = (now - SKEW).strftime(_TIME)
        raise InvalidSignature(
            f"Signature expired: {signed} is now earlier than {edge} ({ours} - {minutes} min.)"
        )
    edge = (now + SKEW).strftime(_TIME)
    raise InvalidSignature(
        f"Signature not yet current: {signed} is still later than {edge} ({ours} + {minutes} min.)"
    )


def _check_expiry(at: datetime, query: Mapping[str, str], now: datetime) -> None:
    text = query.get("X-Amz-Expires", "")
    seconds = int(text) if _SECONDS.fullmatch(text) else 0
    if not 1 <= seconds <= LONGEST.total_seconds():
        raise IncompleteSignature(
            "X-Amz-Expires must be a number of seconds, at least 1 and less than a week (604800)."
        )
    if at > now + SKEW:
        _check_clock(at, now)
    if now > at + timedelta(seconds=seconds):
        raise RequestExpired


def _presigned(query: bytes) -> dict[str, str]:
    """The parameters of a query that belong to its signature.

    Raises:
        IncompleteSignature: A parameter is given twice.
    """
    found: dict[str, str] = {}
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if not name.startswith(b"X-Amz-"):
            continue
        if (text := _text(name)) in found:
            raise IncompleteSignature(f"{shown(text)} is given twice.")
        found[text] = _text(unquote_to_bytes(value))
    return found


@remembered
def _canonical_path(path: bytes) -> bytes:
    """The path without dot segments, encoded once more, as for all services but S3."""
    kept: list[str] = []
    for segment in _text(path).split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    end = "/" if kept and path.endswith(b"/") else ""
    return quote("/" + "/".join(kept) + end, safe="/~", encoding="latin-1").encode()


def _canonical_query(query: bytes, *, is_presigned: bool) -> bytes:
    pairs: list[tuple[str, str]] = []
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if not pair or (is_presigned and name == _QUERY_SIGNATURE):
            continue
        pairs.append((_canonical(name), _canonical(value)))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs)).encode()


def _canonical(text: bytes) -> str:
    # A plus is a space, as it is when the parameters are read.
    return quote_from_bytes(unquote_to_bytes(text.replace(b"+", b" ")), safe="~")


def _text(data: bytes) -> str:
    """Decode bytes without loss, one character per byte."""
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
