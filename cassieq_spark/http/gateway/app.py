"""The application: from the declared endpoints to routes, and what every request goes through.

who asks -> room -> parameters -> body -> handler -> answer, counted and logged
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from cassieq_spark.http.gateway import admin, messages, openapi, queues
from cassieq_spark.http.gateway.admission import ADMIN, Body, Sender
from cassieq_spark.http.gateway.authorization import KEY, check_body
from cassieq_spark.http.gateway.errors import RefusedError, answer_to
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.openapi import description
from cassieq_spark.http.gateway.requests import QUEUE, Call, Endpoint

logger = logging.getLogger(__name__)

#: A request was answered.
REQUEST = "gateway.request"

#: All that can be asked for; what is asked for most often is looked for first.
ENDPOINTS: tuple[Endpoint, ...] = (
    *messages.ENDPOINTS,
    *queues.ENDPOINTS,
    *admin.ENDPOINTS,
)

_QUEUE_PATH = re.compile(
    QUEUE.format(account="(?P<account>[^/]+)", queue="(?P<queue>[^/]+)") + "(?P<rest>/.*)"
)
_DESCRIPTION = description(ENDPOINTS)


def make_app(
    gateway: Callable[[], Gateway], lifespan: Lifespan[Starlette], origins: Sequence[str] = ()
) -> ASGIApp:
    """The application.

    Args:
        gateway: What all requests share; asked for at each request.
        lifespan: Makes that, once the loop runs, and lets go of it in the end.
        origins: Whose pages in a browser may ask; ``*`` for anybody's.
    """
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )
    app = Starlette(
        routes=[
            *(
                _route(endpoint.method, endpoint.path, _serve(gateway, endpoint))
                for endpoint in ENDPOINTS
            ),
            # By HEAD, too, as some balancers ask.
            Route("/health", _health, methods=["GET"]),
            Route("/ready", _ready(gateway), methods=["GET"]),
            _route("GET", "/metrics", _metrics(gateway)),
            _route("GET", "/openapi.json", _described),
            _route("GET", "/swagger.json", _described),
            *openapi.routes(),
        ],
        middleware=[cors] if origins else [],
        exception_handlers={HTTPException: _not_served},
        lifespan=lifespan,
    )
    # Pages in browsers have headers of their own to be answered, and are in no such hurry.
    return app if origins else _Shortcut(app, gateway)


class _Shortcut:
    """Goes straight to what is asked for most often, past a third of the work for a request.

    Args:
        app: Serves the rest.
        gateway: See `make_app`.
    """

    def __init__(self, app: ASGIApp, gateway: Callable[[], Gateway]) -> None:
        self._app = app
        self._serve = {
            (each.method, each.path.removeprefix(QUEUE)): _serve(gateway, each)
            for each in messages.ENDPOINTS
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = _QUEUE_PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        serve = self._serve.get((scope["method"], names["rest"])) if names else None
        if names is None or serve is None or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        scope["path_params"] = {"account": names["account"], "queue": names["queue"]}
        response = await serve(Request(scope, receive, send))
        await response(scope, receive, send)


def _route(method: str, path: str, serve: Callable[[Request], Awaitable[Response]]) -> Route:
    route = Route(path, serve, methods=[method])
    # A HEAD of what leases would lease.
    route.methods = {method}
    return route


def _serve(
    gateway_of: Callable[[], Gateway], endpoint: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        began = time.perf_counter()
        gateway = gateway_of()
        names = request.path_params
        try:
            response = await _answer(gateway, endpoint, request)
        except Exception as error:  # noqa: BLE001 (whatever it is, it gets an answer)
            if isinstance(error, RefusedError) and error.budget is not None:
                gateway.metrics.refused(error.budget)
            response = answer_to(error, endpoint.operation, _told(names))
        took = time.perf_counter() - began
        gateway.metrics.answered(endpoint.operation, response.status_code, took)
        _log(request, endpoint, response.status_code, took)
        return response

    return serve


async def _answer(gateway: Gateway, endpoint: Endpoint, request: Request) -> Response:
    names: Mapping[str, str] = request.path_params
    grant = None
    if endpoint.level is None:
        gateway.access.check_admin(request)
        sender = ADMIN
    else:
        account, queue = names["account"], names.get("queue")
        # There are as many of these as connections at most.
        grant = await gateway.access.check(request, account, queue, endpoint.level)
        sender = Sender(account, grant.key)
    room, limits = gateway.room, gateway.limits
    room.requests.take(sender)
    try:
        call = Call(gateway, request, sender, names, endpoint.parse_query(request), grant)
        if endpoint.body is None:
            return await endpoint.handler(call)
        limit = limits.batch_bytes if endpoint.is_batch else limits.body_bytes
        body = Body(room.held, limits, request, sender, limit)
        try:
            call.body = await body.read()
            await check_body(call.body, grant.body_digest if grant else None)
            return await endpoint.handler(call)
        finally:
            body.let_go()
    finally:
        room.requests.give(sender)


def _told(names: Mapping[str, str]) -> dict[str, str]:
    """Account and queue, by the names that errors had in CassieQ."""
    as_told = {"account": "account", "queue": "queueName"}
    return {told: names[name] for name, told in as_told.items() if name in names}


def _log(request: Request, endpoint: Endpoint, status: int, took: float) -> None:
    if not logging.getLogger(__name__).isEnabledFor(logging.INFO):
        return
    # Not the query: receipts and signatures are in it.
    logger.info(
        "%s %s %d",
        request.method,
        request.scope["path"],
        status,
        extra={
            "action": REQUEST,
            "operation": endpoint.operation,
            "method": request.method,
            "path": request.scope["path"],
            "status": status,
            "duration_ms": round(took * 1000, 1),
            "client": request.client.host if request.client else None,
            # By name: whose key leaked is known without the key.
            "key": request.scope.get(KEY),
        },
    )


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


def _ready(gateway_of: Callable[[], Gateway]) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_: Request) -> Response:
        why_not = await gateway_of().why_not_ready()
        if why_not is not None:
            return JSONResponse({"status": "not ready", "message": why_not}, 503)
        return JSONResponse({"status": "ready"})

    return ready


def _metrics(gateway_of: Callable[[], Gateway]) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(_: Request) -> Response:
        return Response(gateway_of().metrics.text(), media_type="text/plain; version=0.0.4")

    return metrics


async def _described(_: Request) -> Response:
    return JSONResponse(_DESCRIPTION)


async def _not_served(request: Request, error: Exception) -> Response:
    """No such path, or not by this verb."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    told = "no such path" if status == 404 else "not by this verb"  # noqa: PLR2004 (that is it)
    headers = dict(getattr(error, "headers", None) or {})
    refused = RefusedError(f"{told}; see /openapi.json", status, headers)
    return answer_to(refused, "none", {"path": request.scope["path"]})
