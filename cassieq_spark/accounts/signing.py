"""Signatures of requests and of URLs, as CassieQ's clients make them. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from cassieq_spark.accounts.levels import Level, letters_of, parse_letters
from cassieq_spark.accounts.secret import encoded, key_bytes, same
from cassieq_spark.errors import OptionError

REQUEST_TIME = "x-cassieq-request-time"


@dataclass(frozen=True, slots=True)
class Permission:
    """What a signed URL allows.

    Attributes:
        account: In whose name.
        levels: To do what.
        queue: With this queue only; None: with every queue of the account.
        start: Not before then; None: from always.
        end: Not from then on; None: for ever.
    """

    account: str
    levels: frozenset[Level]
    queue: str | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def text(self) -> str:
        """What is signed."""
        lines = [self.account, letters_of(self.levels)]
        if self.start is not None:
            lines.append(f"startTime:{show_time(self.start)}")
        if self.end is not None:
            lines.append(f"endTime:{show_time(self.end)}")
        if self.queue is not None:
            lines.append(f"q:{self.queue}")
        return "\n".join(lines)

    @classmethod
    def parse(cls, account: str, query: Mapping[str, str]) -> Permission:
        """Read what the query of a URL says it allows.

        Raises:
            OptionError: One of its times is none.
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
        """Whether it has begun and not ended."""
        return (self.start is None or self.start < now) and (self.end is None or now < self.end)


def sign_url(key: str, permission: Permission) -> str:
    """The query of a URL that allows what it says, to whoever has it.

    Raises:
        OptionError: The key is none, or nothing is allowed.
    """
    if not permission.levels:
        raise OptionError("a signed URL that allows nothing is of no use: give it a level")
    query = {"auth": letters_of(permission.levels)}
    if permission.queue is not None:
        query["q"] = permission.queue
    if permission.start is not None:
        query["st"] = show_time(permission.start)
    if permission.end is not None:
        query["et"] = show_time(permission.end)
    return urlencode({**query, "sig": signature(key, permission.text)})


def sign_request(key: str, account: str, method: str, path: str, at: datetime) -> dict[str, str]:
    """The headers of a request that is signed, so that the key itself stays at home.

    Method, path and time are signed; query and body are not.

    Raises:
        OptionError: The key is none.
    """
    signed = signature(key, request_text(account, method, path, at))
    return {"Authorization": f"Signed {signed}", REQUEST_TIME: show_time(at)}


def request_text(account: str, method: str, path: str, at: datetime) -> str:
    """What of a request is signed."""
    return "\n".join((account, method, "/" + path.strip("/"), show_time(at)))


def signature(key: str, text: str) -> str:
    """The signature of a text.

    Raises:
        OptionError: The key is none.
    """
    secret = key_bytes(key)
    if not secret:
        raise OptionError("a key is URL-safe Base64, and this is not: look for what was cut off")
    return encoded(hmac.digest(secret, text.encode(), hashlib.sha256))


def is_signature(given: str, key: str, text: str) -> bool:
    """Whether a text was signed with a key; takes as long whatever is right about it."""
    return same(given, signature(key, text))


def is_recent(at: datetime, now: datetime, skew: timedelta) -> bool:
    """Whether the clocks of two machines that differ by less than ``skew`` may have said so."""
    return abs(at - now) < skew


def show_time(at: datetime) -> str:
    """An instant as it is signed, in whole seconds.

    >>> show_time(datetime(2026, 11, 20, 12, tzinfo=UTC))
    '2026-11-20T12:00:00Z'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Read an instant.

    Raises:
        OptionError: It is none, or has no time zone.
    """
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise OptionError(f"a time must be such as 2026-11-20T12:00:00Z, not {text[:40]!r}")
