"""Decides who may use the console, and that a change was requested on its own page."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: How long a session lasts.
_SESSION_SECONDS = 12 * 3600
#: The first page after a change shows what was done; how long a cookie carries that, in seconds.
_SAID_SECONDS = 60
_MOST_SAID = 1500
_LOCAL_NAMES = ("localhost",)
#: Ports that a browser leaves out of a host name.
_DEFAULT_PORTS = (80, 443)

#: The headers of every answer. With ``no-referrer`` a browser would send forms without an origin.
_SAFE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ConsoleRefusedError(Exception):
    """A request is refused.

    Args:
        message: The reason, and what to do.
        status: The status code of the answer.
        headers: The headers of the answer.
    """

    def __init__(
        self, message: str, status: int = 403, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Session:
    """The sender of a request.

    Attributes:
        nonce: The identifier of the session.
        is_new: True if the cookie of the session is still to be set.
    """

    nonce: str
    is_new: bool = False


#: A program, which sends the key with each request. Nonces of other sessions are longer.
_PROGRAM = Session("program")


class Access:
    """Sessions, and the tokens of their forms. Keeps nothing: everything follows from a key.

    Args:
        admin_key: The key to log in with; None: everybody who reaches the console may look.
        hosts: Without a log-in: the names and addresses of the console, so that no page of
            another site can read it under a name of its own.
        cookie: The name of the cookies.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        admin_key: str | None,
        *,
        hosts: frozenset[str] = frozenset(),
        cookie: str = "cassieq-console",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._admin_key = admin_key
        self._hosts = hosts
        self._cookie = cookie
        self._clock = clock
        # Every gateway with the same secret takes the sessions of the others.
        self._key = hashlib.sha256(
            b"cassieq console " + (admin_key.encode() if admin_key else secrets.token_bytes(32))
        ).digest()

    @property
    def needs_login(self) -> bool:
        """True if a visitor must log in."""
        return self._admin_key is not None

    def is_key(self, given: str) -> bool:
        """True if ``given`` is the key to log in with; in constant time."""
        expected = (self._admin_key or "").encode()
        return self.needs_login and hmac.compare_digest(given.strip().encode(), expected)

    def session_of(self, request: Request) -> Session | None:
        """The sender of a request; None if a log-in is required.

        Raises:
            ConsoleRefusedError: The request names a host that is not the console.
        """
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind == "Key" and self.is_key(given):
            return _PROGRAM
        nonce = self._nonce_of(request.cookies.get(self._cookie, ""))
        if self.needs_login:
            return Session(nonce) if nonce else None
        self._check_host(request)
        return Session(nonce) if nonce else Session(secrets.token_urlsafe(12), is_new=True)

    def begin(self, request: Request, response: Response, session: Session | None = None) -> None:
        """Set the cookie of a session; of a new session if none is given."""
        nonce = session.nonce if session else secrets.token_urlsafe(12)
        until = int(self._clock()) + _SESSION_SECONDS
        text = f"{nonce}.{until}"
        self._set(request, response, self._cookie, f"{text}.{self._mac('session', text)}")

    def end(self, request: Request, response: Response) -> None:
        """Remove the cookie."""
        response.delete_cookie(self._cookie, path=_path(request), httponly=True, samesite="strict")

    def token(self, session: Session) -> str:
        """The token that a form of this session has, and that no other site knows."""
        return self._mac("form", session.nonce)

    def check_form(self, request: Request, session: Session, token: str) -> None:
        """Refuse a form that was not sent from a page of the console.

        Raises:
            ConsoleRefusedError: The form was sent from another page.
        """
        self.check_origin(request)
        if session == _PROGRAM:
            raise ConsoleRefusedError(
                "a program with the key only looks: log in with a browser, or use cassieq or the "
                "gateway to change something"
            )
        if not hmac.compare_digest(token.encode(), self.token(session).encode()):
            raise ConsoleRefusedError(
                "this form is not one of your session, or it is too old: go back, reload the "
                "page, and try again"
            )

    def check_origin(self, request: Request) -> None:
        """Refuse a request from a page of another site.

        Raises:
            ConsoleRefusedError: The origin is another site.
        """
        origin = request.headers.get("origin")
        if origin is None:
            # A browser that sends none says at least whether it is the same site.
            is_ours = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
        else:
            # The scheme may be another one behind a proxy.
            is_ours = _netloc(origin) == request.headers.get("host", "")
        if not is_ours:
            raise ConsoleRefusedError(
                f"this form comes from {origin or 'another site'}, and not from a page of this "
                "console: open the console, and do it there"
            )

    def seal(self, text: str) -> str:
        """A seal by which the console recognises a text that a form brings back."""
        return self._mac("seal", text)

    def is_sealed(self, text: str, seal: str) -> bool:
        """True if this console has sealed the text."""
        return hmac.compare_digest(seal.encode(), self.seal(text).encode())

    def say(self, request: Request, response: Response, text: str) -> None:
        """Make the next page show what was done."""
        coded = urlsafe_b64encode(text[:_MOST_SAID].encode(errors="replace")).decode()
        value = f"{coded}.{self._mac('said', coded)}"
        self._set(request, response, self._cookie + "-said", value, _SAID_SECONDS)

    def said(self, request: Request) -> str | None:
        """The report of the change that the previous page has made; None if there is none."""
        coded, _, mac = request.cookies.get(self._cookie + "-said", "").partition(".")
        if not coded or not hmac.compare_digest(mac.encode(), self._mac("said", coded).encode()):
            return None
        return urlsafe_b64decode(coded).decode()

    def forget_said(self, request: Request, response: Response) -> None:
        """Remove what `said` returned."""
        response.delete_cookie(self._cookie + "-said", path=_path(request))

    def _nonce_of(self, value: str) -> str | None:
        text, _, mac = value.rpartition(".")
        nonce, _, until = text.rpartition(".")
        if not nonce or not hmac.compare_digest(mac.encode(), self._mac("session", text).encode()):
            return None
        return nonce if self._clock() < int(until) else None

    def _check_host(self, request: Request) -> None:
        host = request.headers.get("host", "").lower()
        if self._hosts and host not in self._hosts:
            raise ConsoleRefusedError(
                f"this console does not answer as {host!r}: open it by the address that it "
                "printed when it started",
                400,
            )

    def _mac(self, purpose: str, text: str) -> str:
        whole = f"{purpose}\n{text}".encode()
        return urlsafe_b64encode(hmac.digest(self._key, whole, "sha256"))[:-1].decode()

    def _set(
        self, request: Request, response: Response, name: str, value: str, age: int | None = None
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=age,
            path=_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


class SafeAnswers:
    """Adds the headers that restrict browsers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with these headers; see ASGI."""

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                given = {name.lower() for name, _ in headers}
                safe = _SAFE | {"Cache-Control": "no-store"}
                headers += [
                    (name.lower().encode(), value.encode())
                    for name, value in safe.items()
                    if name.lower().encode() not in given
                ]
            await send(message)

        await self._app(scope, receive, safely)


def is_loopback(host: str) -> bool:
    """True if only programs of this machine reach an address."""
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_of(host: str, port: int) -> frozenset[str]:
    """The host names by which browsers reach a console that listens at this address."""
    names = {f"[{host}]" if ":" in host else host, "localhost", "127.0.0.1", "[::1]"}
    plain = names if port in _DEFAULT_PORTS else ()
    return frozenset([*(f"{name.lower()}:{port}" for name in names), *plain])


def own_path(given: str, root: str) -> str:
    """A path below the console as a target; the console's root for any other path.

    >>> own_path("/queues/orders?x=1", ""), own_path("//evil.example/x", "")
    ('/queues/orders?x=1', '/')
    """
    parts = urlsplit(given)
    is_path = given.startswith(root + "/") and not given.startswith(("//", "/\\"))
    is_plain = given.isascii() and given.isprintable() and "\\" not in given
    is_ours = is_path and is_plain and not parts.scheme and not parts.netloc
    return given if is_ours else root + "/"


def _path(request: Request) -> str:
    return request.scope.get("root_path") or "/"


def _netloc(origin: str) -> str | None:
    """Host and port of an origin; None if it is not a URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
