"""The application: its routes, and the steps of every request.

who sends it -> may they -> the form, and its token -> handler, in a thread -> headers
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cassieq_spark.console import (  # noqa: F401 (their handlers declare the pages)
    changes,
    dead,
    messages,
    overview,
    queue,
    repairs,
    schedules,
)
from cassieq_spark.console.access import (
    Access,
    ConsoleRefusedError,
    SafeAnswers,
    Session,
    own_path,
)
from cassieq_spark.console.pages import (
    PAGES,
    STATIC,
    THEME,
    THEMES,
    Page,
    PageCall,
    static_file,
)
from cassieq_spark.console.watcher import DEFAULT_READS, Watcher
from cassieq_spark.errors import (
    CassieqError,
    MessageError,
    NotFoundError,
    OptionError,
    QueueStateError,
    SchemaError,
    StoreError,
)
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Somebody gave a key that is not the admin key.
LOGIN_REFUSED = "console.login_refused"
#: A page failed with an error that is not one of this package.
PAGE_FAILED = "console.page_failed"

#: Maximum bytes of a form of a session, and of a form that a stranger may send.
_LARGEST_FORM, _LARGEST_OF_STRANGERS = 512 * 1024, 8 * 1024
#: The name under which our servers provide a reader of forms with their limits: how fast, and how
#: many in parallel.
_READ = "cassieq-form"
_MOST_FIELDS = 100
#: How many handlers run in parallel.
_AT_ONCE = 8
_STATUS: tuple[tuple[type[CassieqError], int], ...] = (
    (NotFoundError, 404),
    (QueueStateError, 409),
    (OptionError, 400),
    (SchemaError, 400),
    (MessageError, 400),
    (StoreError, 503),
)
#: Scripts of a page that request the page again send this header.
_REFRESH = "x-refresh"
_NOBODY = Session("nobody")
_TOO_LARGE = 413


class Console:
    """The web console, an ASGI application. It starts to read with its first request.

    Args:
        store: Where the queues are kept; it stays open when the console is closed.
        title: The name of the store on all pages: the keyspace.
        admin_key: The key to log in with; None: everybody who reaches the console may look.
        allow_changes: True if the console offers to change queues.
        hosts: Without a key: names under which browsers know the console; see `hosts_of`.
        cookie: The name of the cookies.
        reads_per_second: Maximum number of background reads per second.
        rest_after: The console stops reading when there was no request for this time; None: never.
        clock: Returns the time.
    """

    def __init__(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        store: Store,
        *,
        title: str = "",
        admin_key: str | None = None,
        allow_changes: bool = False,
        hosts: frozenset[str] = frozenset(),
        cookie: str = "cassieq-console",
        reads_per_second: float = DEFAULT_READS,
        rest_after: timedelta | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.clock = clock
        self.store = store
        self.title = title
        self.allow_changes = allow_changes
        self.access = Access(admin_key, hosts=hosts, cookie=cookie)
        self.watcher = Watcher(
            store, reads_per_second=reads_per_second, rest_after=rest_after, clock=clock
        )
        self._turns = asyncio.Semaphore(_AT_ONCE)
        app = Starlette(
            routes=[
                *(Route(f"/static/{name}", _static(name), methods=["GET"]) for name in STATIC),
                Route("/login", self._login, methods=["GET", "POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Route("/theme", self._theme, methods=["POST"]),
                *(
                    Route(each.path, self._serve(each), methods=list(each.methods))
                    for each in PAGES
                ),
            ],
            exception_handlers={HTTPException: self._no_page},
        )
        # It would redirect to the host that the request names.
        app.router.redirect_slashes = False
        self._app = SafeAnswers(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """Stop reading."""
        self.watcher.close()

    def _serve(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            call = None
            try:
                session = self.access.session_of(request)
                if session is None:
                    return self._ask_for_key(request)
                # Not for strangers: it reads Cassandra from then on.
                self.watcher.start()
                call = PageCall(self, request, session)
                if request.method != "POST":
                    return await self._handle(page, call)
                async with _form_of(request, _LARGEST_FORM) as call.form:
                    self.access.check_form(request, session, call.form.get("token", ""))
                    return await self._handle(page, call)
            except Exception as error:  # noqa: BLE001 (every error has a page)
                return self._failed(call or self._stranger(request), error)

        return serve

    async def _handle(self, page: Page, call: PageCall) -> Response:
        async with self._turns:
            return await run_in_threadpool(page.handler, call)

    async def _login(self, request: Request) -> Response:
        call = self._stranger(request)
        if request.method == "GET":
            target = own_path(request.query_params.get("to", ""), call.root)
            return call.render("login.html", to=target, is_wrong=False)
        try:
            self.access.check_origin(request)
            async with _form_of(request, _LARGEST_OF_STRANGERS) as form:
                return self._log_in(call, form)
        except ConsoleRefusedError as error:
            return self._failed(call, error)

    def _log_in(self, call: PageCall, form: Mapping[str, str]) -> Response:
        """Begin a session, if the form has the key."""
        request = call.request
        target = own_path(form.get("to", ""), call.root)
        if not self.access.is_key(form.get("key", "")):
            logger.warning(
                "somebody at %s gave a key that is not the admin key",
                request.client.host if request.client else "an unknown address",
                extra={"action": LOGIN_REFUSED},
            )
            return call.render("login.html", 401, to=target, is_wrong=True)
        response = RedirectResponse(target, 303)
        self.access.begin(request, response)
        return response

    async def _logout(self, request: Request) -> Response:
        call = self._stranger(request)
        try:
            self.access.check_origin(request)
        except ConsoleRefusedError as error:
            return self._failed(call, error)
        response = RedirectResponse(call.url("login"), 303)
        self.access.end(request, response)
        return response

    async def _theme(self, request: Request) -> Response:
        call = self._stranger(request)
        try:
            self.access.check_origin(request)
            async with _form_of(request, _LARGEST_OF_STRANGERS) as form:
                response = RedirectResponse(own_path(form.get("back", ""), call.root), 303)
                if form.get("theme") in THEMES:
                    response.set_cookie(
                        THEME, form["theme"], max_age=31536000, httponly=True, samesite="strict"
                    )
                return response
        except ConsoleRefusedError as error:
            return self._failed(call, error)

    def _ask_for_key(self, request: Request) -> Response:
        call = self._stranger(request)
        if request.method == "POST" or _REFRESH in request.headers:
            return call.render("login.html", 401, to=call.url(), is_wrong=False)
        path = urlsplit(str(request.url))
        target = path.path + (f"?{path.query}" if path.query else "")
        return RedirectResponse(call.url("login", to=target), 303)

    def _stranger(self, request: Request) -> PageCall:
        """A request from an unknown sender."""
        return PageCall(self, request, _NOBODY)

    def _failed(self, call: PageCall, error: Exception) -> Response:
        headers: Mapping[str, str] = {}
        if isinstance(error, ConsoleRefusedError):
            status, headers = error.status, error.headers
        else:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        if not isinstance(error, ConsoleRefusedError | CassieqError):
            logger.error(
                "the console could not answer %s",
                call.request.scope["path"],
                exc_info=error,
                extra={"action": PAGE_FAILED},
            )
            message = f"{type(error).__name__}: {error}"
        else:
            message = str(error)
        response = call.render("error.html", status, status=status, message=message)
        response.headers.update(headers)
        return response

    async def _no_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        try:
            session = self.access.session_of(request)
        except ConsoleRefusedError as refused:
            return self._failed(self._stranger(request), refused)
        if session is None:
            return self._ask_for_key(request)
        message = (
            "there is no such page; the list of queues has links to all that there are"
            if status == 404  # noqa: PLR2004 (not found)
            else "this page does not take such a request"
        )
        call = self._stranger(request)
        return call.render("error.html", status, status=status, message=message)


@asynccontextmanager
async def _form_of(request: Request, most: int) -> AsyncIterator[Mapping[str, str]]:
    """The fields of a form of at most ``most`` bytes; the last field of each name."""
    read = request.scope.get(_READ, _read)
    try:
        async with read(request, most) as body:
            yield _fields_of(body)
    except ClientDisconnect as error:
        # Nobody reads the answer.
        raise ConsoleRefusedError("the connection ended before the form did", 400) from error
    except HTTPException as error:
        too_large = f"a form has at most {most} bytes"
        why = too_large if error.status_code == _TOO_LARGE else error.detail
        raise ConsoleRefusedError(why, error.status_code, error.headers) from error


@asynccontextmanager
async def _read(request: Request, most: int) -> AsyncIterator[bytes]:
    """Read a form in a foreign server, which has limits of its own."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(_TOO_LARGE)
    yield bytes(body)


def _fields_of(body: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as error:
        raise ConsoleRefusedError(f"this is no form: {error}", 400) from error
    # Browsers write the end of a line in their own way, and only in forms.
    return {name: text.replace("\r\n", "\n") for name, text in pairs}


def _static(name: str) -> Callable[[Request], Awaitable[Response]]:
    content, kind = static_file(name), STATIC[name]

    async def static(_: Request) -> Response:
        # Its address has a digest of it.
        kept = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(content, media_type=kind, headers=kept)

    return static
