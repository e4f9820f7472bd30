"""Authorization: keys, signed requests and signed URLs, and what they allow."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from starlette.requests import Request

from cassieq_spark.errors import OptionError
from cassieq_spark.http.accounts import Account, AccountKey, Accounts, Permission, Right
from cassieq_spark.http.accounts.account import is_account
from cassieq_spark.http.accounts.signing import (
    BODY_DIGEST,
    NONCE,
    REQUEST_TIME,
    SIGNED,
    SIGNED_AS_CASSIEQ,
    cassieq_text,
    digest_of,
    is_recent,
    is_signature,
    parse_time,
    request_text,
    same,
)
from cassieq_spark.http.serving.errors import RefusedError, too_busy

#: The name under which the scope of a request has the name of its key, for the access log.
KEY = "cassieq.key"
#: The scope of keys and URLs that may do everything with an account. They need no scopes of their
#: own, because a purge, which they may do, forgets all idempotency keys.
ACCOUNT = "account"
#: How long a gateway uses the row of an account that it has read.
KEPT_SECONDS = 5.0
#: The absence of an account is kept for less time, because another gateway may create the account.
_ABSENCE_KEPT_SECONDS = 1.0
_MOST_KEPT = 10_000
#: Most signatures that are remembered: more than a gateway serves while they are valid.
_MOST_SIGNATURES = 1_000_000
#: Bytes from which on the digest of a body is computed in a thread.
_LARGE = 1 << 18
_CHALLENGE = {"WWW-Authenticate": "Key"}


def scope_of(key: AccountKey, permission: Permission | None = None) -> str:
    """The scope of a sender's idempotency keys; equal keys in two scopes are different keys.

    The owner's keys share one scope, so that a put can be repeated with any of these keys while
    one is being replaced. URLs of equal text that the owner's keys signed share one scope, too.
    Any other key has a scope of its own, by its name, and any other URL, by its text.
    """
    owner = key.queue is None and Right.DELETE_QUEUE in key.rights
    if permission is None:
        return ACCOUNT if owner else f"key/{key.name}"
    if owner and permission.queue is None and Right.DELETE_QUEUE in permission.rights:
        return ACCOUNT
    signer = "" if owner else f"key/{key.name}"
    text = f"{signer}\n{permission.text}".encode()
    return f"url/{hashlib.sha256(text).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights of a request: those of its key, limited by the signed URL if there is one.

    Attributes:
        key: The name of the key.
        rights: The rights.
        queues: The queues that key and URL are limited to; if two differ, no queue is allowed.
        body_digest: SHA-256 of the body that was signed; None if no body was signed.
        scope: The scope of its idempotency keys; see `scope_of`.
    """

    key: str
    rights: frozenset[Right]
    queues: tuple[str, ...]
    body_digest: str | None = None
    scope: str = ACCOUNT

    @classmethod
    def of(cls, key: AccountKey, permission: Permission | None = None) -> Grant:
        """The grant of a key, or of a URL that the key has signed."""
        if permission is None:
            return _grant_of(key)
        limited = tuple(queue for queue in (key.queue, permission.queue) if queue is not None)
        rights = key.rights & permission.rights
        return cls(key.name, rights, limited, scope=scope_of(key, permission))

    @property
    def covers_all(self) -> bool:
        """True if the grant extends to all queues of the account."""
        return not self.queues

    def covers(self, queue: str | None) -> bool:
        """True if the grant extends to a queue, named without the account; None: to all queues."""
        return not self.queues or all(queue == each for each in self.queues)


@lru_cache(maxsize=1_024)
def _grant_of(key: AccountKey) -> Grant:
    """The grant of a key, which is the same for all of its requests."""
    limited = () if key.queue is None else (key.queue,)
    return Grant(key.name, key.rights, limited, scope=scope_of(key))


async def digest_of_body(body: bytes) -> str:
    """SHA-256 of a body in hexadecimal digits; a large body is hashed in a thread."""
    is_large = len(body) > _LARGE
    return await asyncio.to_thread(digest_of, body) if is_large else digest_of(body)


async def check_body(body: bytes, digest: str | None) -> None:
    """Refuse a body whose digest is not the signed one; see `Grant.body_digest`.

    Raises:
        RefusedError: 401; another body was signed.
    """
    if digest is None:
        return
    if not same(await digest_of_body(body), digest.lower()):
        raise RefusedError("the body is not the one that was signed", 401, _CHALLENGE)


class Replays:
    """Remembers signatures while they are valid, so that no request is carried out twice.

    Bound to one event loop. Only requests of this process are known: another gateway accepts a
    signature again, and so does this one after a restart. ``skew`` is how far the time of a
    signature may be from the time here, and ``most`` is the most signatures to remember.
    """

    def __init__(self, skew: timedelta, most: int = _MOST_SIGNATURES) -> None:
        self._skew = skew.total_seconds()
        self._most = most
        # By the second in which they were made, so that expired ones are dropped together.
        self._seen: dict[int, set[str]] = {}
        self._count = 0

    def is_new(self, signature: str, at: datetime, now: datetime) -> bool:
        """Remember a valid signature, made at ``at`` by the signer's clock; False if it is known.

        Raises:
            RefusedError: 429; too many signatures are remembered.
        """
        second = int(at.timestamp())
        seen = self._seen.get(second)
        if seen is None:
            self._forget(now.timestamp() - self._skew)
            seen = self._seen[second] = set()
        if signature in seen:
            return False
        if self._count >= self._most:
            raise too_busy(f"{self._count} signed requests came within a short time")
        seen.add(signature)
        self._count += 1
        return True

    def _forget(self, before: float) -> None:
        for second in [each for each in self._seen if each + 1 < before]:
            self._count -= len(self._seen.pop(second))


class Authorizer:
    """Decides what requests may do. Bound to one event loop.

    An account is read at most once in five seconds.

    Args:
        accounts: The accounts.
        skew: By how much the clock of a signer may differ from the clock here.
        as_cassieq: Accept requests that are signed as CassieQ's clients do.
        clock: Returns the time.
    """

    def __init__(
        self,
        accounts: Accounts,
        skew: timedelta,
        *,
        as_cassieq: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._accounts = accounts
        self._skew = skew
        self._as_cassieq = as_cassieq
        self._replays = Replays(skew)
        self._clock = clock
        self._admin_key = accounts.admin_key
        self._kept: dict[str, tuple[float, asyncio.Task[Account | None]]] = {}

    async def check(
        self, request: Request, account: str, queue: str | None, right: Right
    ) -> Grant:
        """Authorize a request for a right, and return all that its sender may do.

        Raises:
            RefusedError: 401; the request has no valid key or signature. 403; it lacks the right.
        """
        grant = self._grant(request, account, await self.keys_of(account), self._clock())
        if grant is None or not grant.covers(queue):
            raise RefusedError(
                "no valid key, signature or signed URL for this account and queue: send "
                "'Authorization: Key <key>'",
                401,
                _CHALLENGE,
            )
        request.scope[KEY] = grant.key
        if right not in grant.rights:
            raise RefusedError(f"{right.title} is not a right of this key or signed URL", 403)
        return grant

    async def keys_of(self, account: str) -> list[AccountKey]:
        """The keys of an account that have not expired; empty if the account does not exist."""
        found = await self._look_up(account)
        now = self._clock()
        return [each for each in found.keys if each.runs(now)] if found else []

    def check_admin(self, request: Request) -> None:
        """Authorize an administrator's request.

        Raises:
            RefusedError: 401; the request does not have the admin key.
        """
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind != "Key" or not same(given, self._admin_key):
            raise RefusedError(
                "this needs the admin key: cassieq gateway admin-key", 401, _CHALLENGE
            )
        request.scope[KEY] = "admin"

    def forget(self, account: str) -> None:
        """Read an account again at its next request, because it was changed here."""
        self._kept.pop(account, None)

    async def _look_up(self, name: str) -> Account | None:
        kept = self._kept.get(name)
        if kept is None and not is_account(name):
            return None
        now = time.monotonic()
        if kept is None or kept[0] < now:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = (now + KEPT_SECONDS, asyncio.create_task(self._read(name)))
            self._kept[name] = kept
        task = kept[1]
        # Shielded, because other requests wait for the same task.
        return task.result() if task.done() else await asyncio.shield(task)

    async def _read(self, name: str) -> Account | None:
        found: Account | None = None
        try:
            found = await asyncio.to_thread(self._accounts.find, name)
        except BaseException:
            self._kept.pop(name, None)
            raise
        if found is None or not found.is_active:
            kept = self._kept.get(name)
            if kept is not None:
                self._kept[name] = (time.monotonic() + _ABSENCE_KEPT_SECONDS, kept[1])
            return None
        return found

    def _grant(
        self, request: Request, account: str, keys: list[AccountKey], now: datetime
    ) -> Grant | None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind == "Key":
            return _first(keys, lambda key: same(given, key))
        if kind == SIGNED or (kind == SIGNED_AS_CASSIEQ and self._as_cassieq):
            return self._of_signed_request(request, account, keys, given, now)
        if "sig" in request.query_params:
            return _of_signed_url(account, keys, request.query_params, now)
        return None

    def _of_signed_request(
        self, request: Request, account: str, keys: list[AccountKey], given: str, now: datetime
    ) -> Grant | None:
        try:
            at = parse_time(request.headers.get(REQUEST_TIME, ""))
        except OptionError:
            return None
        # The path of request.url is not used: some releases of starlette make that URL from the
        # header Host.
        path: str = request.scope["path"]
        if not is_recent(at, now, self._skew) or not path.isprintable():
            return None
        digest = None
        if request.headers["authorization"].startswith(f"{SIGNED} "):
            digest = request.headers.get(BODY_DIGEST)
            if not digest or not request.headers.get(NONCE):
                return None
            query, headers = request.scope["query_string"], request.headers.raw
            text = request_text(account, request.method, path, query=query, headers=headers)
        else:
            text = cassieq_text(account, request.method, path, at)
        grant = _first(keys, lambda key: is_signature(given, key, text))
        if grant is None or (digest and not self._replays.is_new(given, at, now)):
            return None
        return replace(grant, body_digest=digest)


def _of_signed_url(
    account: str, keys: list[AccountKey], query: Mapping[str, str], now: datetime
) -> Grant | None:
    try:
        permission = Permission.parse(account, query)
    except OptionError:
        return None
    signature, text = query["sig"], permission.text.encode()
    if not permission.runs(now):
        return None
    return _first(keys, lambda key: is_signature(signature, key, text), permission)


def _first(
    keys: list[AccountKey], fits: Callable[[str], bool], permission: Permission | None = None
) -> Grant | None:
    # All keys are tried, so that the time reveals nothing about them.
    found = [key for key in keys if key.key is not None and fits(key.key)]
    if not found:
        return None
    return Grant.of(found[0], permission)
