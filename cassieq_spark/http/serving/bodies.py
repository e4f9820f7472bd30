"""Limits of request bodies: the size and speed of one body, and the bytes that all may hold.

| class | limits |
|---|---|
| `Pool` | one resource that requests share, such as bytes of bodies: in all, by account, by key |
| `Body` | size and speed of one body |
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeVar

from starlette.requests import ClientDisconnect, Request

from cassieq_spark.http.serving.errors import Quota, RefusedError, over_quota
from cassieq_spark.settings.gateway import Limits

#: A connection sets this key in the scope of a request whose whole body has arrived.
WHOLE = "cassieq-whole"

K = TypeVar("K")

#: The rest of a refused body is not read.
_CLOSE = {"Connection": "close"}


class Sender(NamedTuple):
    """The account and the name of the key that sent a request; both empty for an administrator."""

    account: str
    key: str


ADMIN = Sender("", "")


class Pool:
    """A resource that all requests share, such as bytes of memory. Bound to one event loop.

    A key gets at most its quota, an account at most its own quota, and all together at most the
    whole. An account that holds more than would be left for others gets no more either, so one
    account alone gets at most half.

    Args:
        what: The name in answers and metrics.
        unit: The name in sentences.
        in_all: The whole amount.
        of_account: The quota of an account.
        of_key: The quota of a key.
    """

    def __init__(self, what: str, unit: str, in_all: int, of_account: int, of_key: int) -> None:
        self._what, self._unit = what, unit
        self._in_all, self._of_account, self._of_key = in_all, of_account, of_key
        self._accounts: dict[str, int] = {}
        self._keys: dict[Sender, int] = {}
        #: The amount that is taken now.
        self.taken = 0

    def take(self, sender: Sender, count: int = 1) -> None:
        """Take an amount for a sender, until `give`.

        Raises:
            RefusedError: 429; the error names the quota that is reached.
        """
        account, left = sender.account, self._in_all - self.taken - count
        of_account, of_key = self._accounts.get(account, 0), self._keys.get(sender, 0)
        if account and of_key + count > self._of_key:
            whose = f"key {sender.key!r} of account {account!r} has"
            raise self._refusal("key", self._of_key, whose, of_key)
        if account and of_account + count > self._of_account:
            whose = f"account {account!r} has"
            raise self._refusal("account", self._of_account, whose, of_account)
        if left < 0:
            raise self._refusal("all", self._in_all, "all accounts together have", self.taken)
        if account and of_account > left:
            whose = f"no account gets more than is left for the others: account {account!r} has"
            raise self._refusal("share", self._in_all, whose, of_account)
        self.taken += count
        self._accounts[account] = of_account + count
        self._keys[sender] = of_key + count

    def give(self, sender: Sender, count: int = 1) -> None:
        """Give back an amount that was taken."""
        self.taken -= count
        subtract(self._keys, sender, count)
        subtract(self._accounts, sender.account, count)

    def _refusal(self, of: str, limit: int, whose: str, held: int) -> RefusedError:
        why = f"{whose} {held} {self._unit}; the limit is {limit}"
        return over_quota(Quota(self._what, of, limit), why)


def subtract(held: dict[K, int], key: K, count: int) -> None:
    """Give back a part of what a key holds."""
    held[key] -= count
    if not held[key]:
        # A sender that holds nothing takes no memory.
        del held[key]


class Body:
    """The body of a request; its bytes are taken from the pool as they arrive.

    Args:
        pool: The pool, which has the bytes again after `release`.
        limits: How fast the body must arrive.
        request: The request.
        sender: The sender.
        limit: Most bytes; 0: the request takes no body.
    """

    def __init__(
        self, pool: Pool, limits: Limits, request: Request, sender: Sender, limit: int
    ) -> None:
        self._pool, self._sender = pool, sender
        self._limits, self._limit = limits, limit
        self._request = request
        #: Bytes that the body has taken from the pool.
        self.held = 0

    async def read(self) -> bytes:
        """Read the whole body.

        Raises:
            RefusedError: 400; the request takes no body. 408; the body arrives too slowly. 413;
                the body is too large. 429; the pool has no more bytes.
        """
        if self._request.scope.get(WHOLE):
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body: bytes = message.get("body", b"")
            self._take(len(body))
            return body
        length = self._request.headers.get("content-length", "0")
        self._check_size(int(length) if length.isdecimal() else 0)
        limits, loop = self._limits, asyncio.get_running_loop()
        until = loop.time() + limits.head_time.total_seconds()
        parts: list[bytes] = []
        try:
            async with asyncio.timeout_at(until) as deadline:
                async for part in self._request.stream():
                    self._take(len(part))
                    if part:
                        parts.append(part)
                        deadline.reschedule(until + self.held / limits.body_rate)
        except TimeoutError:
            raise RefusedError(
                f"{self.held} bytes of the body have arrived so far: a body must arrive at "
                f"{limits.body_rate} bytes a second at least",
                408,
                _CLOSE,
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def hand_over(self, sender: Sender, pool: Pool) -> None:
        """Charge the bytes to the sender, who is known by now, in the pool of known senders.

        Raises:
            RefusedError: 429; the sender holds too many bytes.
        """
        if self.held:
            pool.take(sender, self.held)
            self._pool.give(self._sender, self.held)
        self._pool, self._sender = pool, sender

    def release(self) -> None:
        """Give the bytes of the body back to the pool."""
        if self.held:
            self._pool.give(self._sender, self.held)

    def _take(self, count: int) -> None:
        self._check_size(self.held + count)
        if count:
            self._pool.take(self._sender, count)
            self.held += count

    def _check_size(self, size: int) -> None:
        if size <= self._limit:
            return
        if not self._limit:
            why = "this request takes no body: parameters are a part of the URL"
            raise RefusedError(why, 400, _CLOSE)
        raise RefusedError(
            f"the body has more than {self._limit} bytes, which is the limit: store it elsewhere "
            "and put a reference into the queue, or send several batches",
            413,
            _CLOSE,
        )


def has_body(request: Request) -> bool:
    """True if a request announces a body."""
    headers = dict(request.scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
