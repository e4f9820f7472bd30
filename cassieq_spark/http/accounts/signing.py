"""The secret of the gateways, the keys derived from it, and the signatures of keys.

Signed URLs have the form that CassieQ defined.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from cassieq_spark.errors import OptionError
from cassieq_spark.http.accounts.account import Right, letters_of, parse_letters

REQUEST_TIME = "x-cassieq-request-time"
#: The header whose random value makes each signed request unique.
NONCE = "x-cassieq-nonce"
#: The header with the SHA-256 of the body.
BODY_DIGEST = "x-cassieq-content-sha256"
#: Schemes of signed requests: the gateway's, with query, headers and body; and CassieQ's.
SIGNED, SIGNED_AS_CASSIEQ = "Signed2", "Signed"

#: The parameters of a signed URL.
SIGNED_URL = frozenset({"auth", "q", "st", "et", "sig"})

_SIGNED_HEADERS = {b"content-type", b"idempotency-key"}
_SIGNED_BEGIN = b"x-cassieq-"


@dataclass(frozen=True, slots=True)
class Permission:
    """The permission that a signed URL grants.

    Attributes:
        account: The account.
        rights: The rights.
        queue: The queue that the URL is limited to; None: all queues of the account.
        start: The URL is valid after this instant; None: at once.
        end: The URL is valid before this instant; None: for ever.
    """

    account: str
    rights: frozenset[Right]
    queue: str | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def text(self) -> str:
        """The text that is signed."""
        lines = [self.account, letters_of(self.rights)]
        if self.start is not None:
            lines.append(f"startTime:{show_time(self.start)}")
        if self.end is not None:
            lines.append(f"endTime:{show_time(self.end)}")
        if self.queue is not None:
            lines.append(f"q:{self.queue}")
        return "\n".join(lines)

    @classmethod
    def parse(cls, account: str, query: Mapping[str, str]) -> Permission:
        """Parse the query of a signed URL.

        Raises:
            OptionError: A time in the query is malformed.
        """
        start, end = query.get("st"), query.get("et")
        return cls(
            account,
            parse_letters(query.get("auth", "")),
            query.get("q") or None,
            parse_time(start) if start else None,
            parse_time(end) if end else None,
        )

    def runs(self, now: datetime) -> bool:
        """True if the permission has begun, and has not ended."""
        return (self.start is None or self.start < now) and (self.end is None or now < self.end)


def sign_url(key: str, permission: Permission) -> str:
    """The query of a signed URL, which grants its permission to everybody who has the URL.

    Raises:
        OptionError: The key is malformed, or the permission has no rights.
    """
    if not permission.rights:
        raise OptionError("a signed URL needs at least one right")
    query = {"auth": letters_of(permission.rights)}
    if permission.queue is not None:
        query["q"] = permission.queue
    if permission.start is not None:
        query["st"] = show_time(permission.start)
    if permission.end is not None:
        query["et"] = show_time(permission.end)
    return urlencode({**query, "sig": signature(key, permission.text.encode())})


def sign_request(  # noqa: PLR0913 (the parts of a request, by name)
    key: str,
    account: str,
    method: str,
    path: str,
    at: datetime,
    *,
    query: bytes = b"",
    headers: Iterable[tuple[bytes, bytes]] = (),
    body: bytes = b"",
) -> dict[str, str]:
    """The headers that sign a request, so that the key itself is not sent.

    ``path`` is without percent-encoding, and ``query`` without the question mark. ``headers`` are
    all headers that are sent; see `request_text` for those that are signed.

    Raises:
        OptionError: The key is malformed.
    """
    ours = {
        REQUEST_TIME: show_time(at),
        NONCE: secrets.token_urlsafe(16),
        BODY_DIGEST: digest_of(body),
    }
    sent = [*headers, *((name.encode(), value.encode()) for name, value in ours.items())]
    text = request_text(account, method, path, query=query, headers=sent)
    return {"Authorization": f"{SIGNED} {signature(key, text)}", **ours}


def request_text(
    account: str, method: str, path: str, *, query: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The text of a request that is signed.

    The text has one line each for the account, the method, the path without percent-encoding, and
    the query as it is sent; then one line per signed header, sorted, as ``name:value`` with names
    in lower case. Signed are ``content-type``, ``idempotency-key`` and all headers that begin with
    ``x-cassieq-``, among them time, nonce and digest of the body.
    """
    named = ((name.lower(), value.strip(b" \t")) for name, value in headers)
    signed = sorted(
        name + b":" + value
        for name, value in named
        if name in _SIGNED_HEADERS or name.startswith(_SIGNED_BEGIN)
    )
    return b"\n".join((account.encode(), method.encode(), path.encode(), query, *signed))


def cassieq_text(account: str, method: str, path: str, at: datetime) -> bytes:
    """The text that CassieQ's clients sign, without query and body."""
    return "\n".join((account, method, "/" + path.strip("/"), show_time(at))).encode()


def digest_of(body: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def signature(key: str, text: bytes) -> str:
    """The signature of a text.

    Raises:
        OptionError: The key is malformed.
    """
    secret = key_bytes(key)
    if not secret:
        raise OptionError("a key is URL-safe Base64, and this is not: was it cut off?")
    return encoded(hmac.digest(secret, text, hashlib.sha256))


def is_signature(given: str, key: str, text: bytes) -> bool:
    """True if a text was signed with a key; compares in constant time."""
    return same(given, signature(key, text))


def is_recent(at: datetime, now: datetime, skew: timedelta) -> bool:
    """True if two times differ by less than ``skew``."""
    return abs(at - now) < skew


def show_time(at: datetime) -> str:
    """Write an instant as it is signed, in whole seconds.

    >>> show_time(datetime(2026, 11, 20, 12, tzinfo=UTC))
    '2026-11-20T12:00:00Z'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse an instant.

    Raises:
        OptionError: The text is malformed, or has no time zone.
    """
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise OptionError(f"a time must be such as 2026-11-20T12:00:00Z, not {text[:40]!r}")


_LEAST_CHARACTERS = 32
#: A line with fewer different characters is a separator, not a secret.
_LEAST_DIFFERENT = 8
_SECRET = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT = "#"
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ADMIN = ("admin",)
_RECEIPTS = ("receipts",)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets from which keys are derived; new keys are derived from the first secret.

    Attributes:
        values: At least one secret, each with at least 32 letters, digits, ``_`` or ``-``.
    """

    values: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.values or any(len(each) < _LEAST_CHARACTERS for each in self.values):
            raise OptionError(
                "the secret of the gateway must have at least 32 characters in each line; make "
                "one with: cassieq gateway secret"
            )
        for number, value in enumerate(self.values, 1):
            if not _SECRET.fullmatch(value) or len(set(value)) < _LEAST_DIFFERENT:
                raise OptionError(
                    f"secret {number} of the gateway is not valid: expected a line of at least 32 "
                    "letters, digits, '_' or '-', as 'cassieq gateway secret' makes it; a comment "
                    "begins with '#'"
                )

    @classmethod
    def parse(cls, text: str) -> Secrets:
        """Parse secrets, one in each line; a line that begins with ``#`` is a comment.

        Raises:
            OptionError: No line is a secret, or a line is neither a secret nor a comment.
        """
        lines = (line.strip() for line in text.splitlines())
        return cls(tuple(line for line in lines if line and not line.startswith(_COMMENT)))

    @property
    def newest(self) -> str:
        """The fingerprint of the first secret."""
        return _fingerprint(self.values[0])

    def key(self, fingerprint: str, account: str, name: str, salt: str) -> str | None:
        """The key of an account; None if its secret is not one of these secrets."""
        for value in self.values:
            if _fingerprint(value) == fingerprint:
                return _derive(value, ("key", account, name, salt))
        return None

    def seal(self, fingerprint: str, parts: tuple[str, ...]) -> str | None:
        """A seal over texts, which nobody can make without the secret.

        None if no secret has this fingerprint, or if a text has a line feed, because two tuples
        would then have the same seal.
        """
        for value in self.values:
            if _fingerprint(value) == fingerprint and not any("\n" in each for each in parts):
                return _derive(value, ("seal", *parts))
        return None

    @property
    def receipt_keys(self) -> tuple[bytes, ...]:
        """The keys that sign receipts, one per secret; new receipts are signed with the first.

        Each key has 32 bytes.
        """
        derived = (_derive(value, _RECEIPTS) for value in self.values)
        return tuple(hashlib.sha256(each.encode()).digest() for each in derived)

    @property
    def admin_key(self) -> str:
        """The key for administration, derived from the first secret only.

        So a replaced secret allows no administration, while keys of accounts that were derived
        from this secret stay valid.
        """
        return _derive(self.values[0], _ADMIN)


def new_secret() -> str:
    """A new random secret."""
    return secrets.token_urlsafe(48)


def new_salt() -> str:
    """A new random salt, by which a key differs from earlier keys of the same name."""
    return secrets.token_urlsafe(24)


def key_bytes(key: str) -> bytes | None:
    """Decode a key to bytes; None if the key is malformed."""
    if not _KEY.fullmatch(key):
        return None
    try:
        return urlsafe_b64decode(key + "=" * (-len(key) % 4))
    except ValueError:
        return None


def encoded(digest: bytes) -> str:
    """Encode bytes as URL-safe Base64 without padding, the form of keys and signatures."""
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def same(one: str, other: str) -> bool:
    """True if two secrets are equal; compares in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def _derive(secret: str, parts: tuple[str, ...]) -> str:
    # No part has a line feed: names cannot have one, and salts are Base64.
    text = "\n".join(("cassieq-gateway", *parts)).encode()
    return encoded(hmac.digest(secret.encode(), text, hashlib.sha512))


def _fingerprint(secret: str) -> str:
    return _derive(secret, ("fingerprint",))[:12]
