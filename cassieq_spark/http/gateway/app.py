"""The application: routes made from the declared endpoints, and the steps of every request.

authorize -> admit -> validate parameters -> read body -> handler -> answer, metrics, log
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from cassieq_spark.client.shares import CALLER
from cassieq_spark.http.gateway import (  # noqa: F401 (their handlers declare the endpoints)
    admin,
    messages,
    openapi,
    queues,
    schedules,
)
from cassieq_spark.http.gateway.authorization import check_body
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.requests import (
    ABOUT_QUEUES,
    ENDPOINTS,
    LONGEST_PATH,
    QUEUE,
    Call,
    Endpoint,
    log_request,
)
from cassieq_spark.http.gateway.responses import PRIVATE
from cassieq_spark.http.serving.bodies import ADMIN, Body, Sender, has_body
from cassieq_spark.http.serving.errors import RefusedError, answer_to

_QUEUE_PATH = re.compile(
    QUEUE.format(account="(?P<account>[^/]+)", queue="(?P<queue>[^/]+)") + "(?P<rest>/.*)"
)
_Handler = Callable[[Request], Awaitable[Response]]
#: Encoded once: the description is large, and any stranger may ask for it.
_DESCRIPTION = json.dumps(openapi.description(ENDPOINTS), separators=(",", ":")).encode()
_REASONS = {404: "not found", 405: "method not allowed"}
#: A part of the signature of each request of an SQS client.
_OF_SQS = "/sqs/aws4_request"


def make_app(
    gateway: Callable[[], Gateway],
    lifespan: Lifespan[Starlette],
    origins: Sequence[str] = (),
    console: ASGIApp | None = None,
) -> ASGIApp:
    """Make the application.

    Args:
        gateway: Returns the gateway; called at each request.
        lifespan: Makes the gateway when the loop runs, and closes the gateway at the end.
        origins: Origins of pages that may send requests from a browser; ``*`` for any.
        console: Serves the paths below ``/console``, and checks the admin key itself.
    """
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=sorted({each.method for each in ENDPOINTS}),
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )
    serving = _Serving(gateway)
    app = Starlette(
        routes=[
            # Administration comes last, because routes are tried in this order.
            *(
                _route(each.method, each.path, serving.of(each))
                for each in sorted(ENDPOINTS, key=lambda each: each.right is None)
            ),
            # HEAD is allowed, because some load balancers send it.
            Route("/health", _health, methods=["GET"]),
            Route("/ready", serving.ready, methods=["GET"]),
            _route("GET", "/metrics", serving.metrics),
            _route("GET", "/openapi.json", _describe),
            _route("GET", "/swagger.json", _describe),
            *openapi.routes(),
            *([Route("/console", _console), Mount("/console", console)] if console else []),
        ],
        middleware=[cors] if origins else [],
        exception_handlers={HTTPException: _no_route},
        lifespan=lifespan,
    )
    # A redirect would go to the host that the request names, before any check.
    app.router.redirect_slashes = False
    # CORS adds headers to every answer, so it needs the whole stack.
    return app if origins else _Shortcut(app, serving)


class _Shortcut:
    """Serves the endpoints of messages directly, at two thirds of the cost of a request."""

    def __init__(self, app: ASGIApp, serving: _Serving) -> None:
        self._app = app
        self._serve = {
            (each.method, each.path.removeprefix(QUEUE)): serving.of(each)
            for each in ENDPOINTS
            if each.path.startswith(QUEUE + "/messages") and not each.path.endswith("}")
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


def _route(method: str, path: str, serve: _Handler) -> Route:
    route = Route(path, serve, methods=[method])
    # Starlette adds HEAD to GET, and is undone here: a HEAD of /messages/next would lease.
    route.methods = {method}
    return route


class _Serving:
    """Serves requests with the gateway that a function returns."""

    def __init__(self, gateway: Callable[[], Gateway]) -> None:
        self._gateway = gateway

    def of(self, endpoint: Endpoint) -> _Handler:
        """Make a function that serves the requests of an endpoint."""

        async def serve(request: Request) -> Response:
            began = time.perf_counter()
            gateway = self._gateway()
            try:
                response = await _answer(gateway, endpoint, request)
            except Exception as error:  # noqa: BLE001 (every error is answered)
                if isinstance(error, RefusedError) and error.quota is not None:
                    gateway.metrics.refused(error.quota)
                response = answer_to(error, endpoint.operation, _names(request.path_params))
            response.raw_headers.extend(PRIVATE)
            took = time.perf_counter() - began
            gateway.metrics.answered(endpoint.operation, response.status_code, took)
            log_request(request, endpoint.operation, response.status_code, took)
            return response

        return serve

    async def ready(self, _: Request) -> Response:
        why_not = await self._gateway().why_not_ready()
        if why_not is not None:
            return JSONResponse({"status": "not ready", "message": why_not}, 503)
        return JSONResponse({"status": "ready"})

    async def metrics(self, _: Request) -> Response:
        return Response(self._gateway().metrics.text(), media_type="text/plain; version=0.0.4")


async def _answer(gateway: Gateway, endpoint: Endpoint, request: Request) -> Response:
    names: Mapping[str, str] = request.path_params
    grant = None
    if endpoint.right is None:
        gateway.authorizer.check_admin(request)
        sender = ADMIN
    else:
        account, queue = names["account"], names.get("queue")
        # This comes before the request is admitted: at most one check per connection.
        grant = await gateway.authorizer.check(request, account, queue, endpoint.right)
        sender = Sender(account, grant.key)
        CALLER.set(account)
    admission, limits = gateway.admission, gateway.limits
    admission.requests.take(sender)
    try:
        call = Call(gateway, request, sender, names, endpoint.parse_query(request), grant)
        limit = 0
        if endpoint.body is not None:
            limit = limits.batch_bytes if endpoint.is_batch else limits.body_bytes
        elif not has_body(request):
            return await _handle(endpoint, call)
        body = Body(admission.held, limits, request, sender, limit)
        try:
            call.body = await body.read()
            await check_body(call.body, grant.body_digest if grant else None)
            return await _handle(endpoint, call)
        finally:
            body.release()
    finally:
        admission.requests.give(sender)


async def _handle(endpoint: Endpoint, call: Call) -> Response:
    if endpoint.right not in ABOUT_QUEUES:
        return await endpoint.handler(call)
    async with call.gateway.admission.about_queues(call.account):
        return await endpoint.handler(call)


def _names(path: Mapping[str, str]) -> dict[str, str]:
    """Account and queue, under the names that they have in CassieQ's errors."""
    cassieq = {"account": "account", "queue": "queueName"}
    return {name: path[ours] for ours, name in cassieq.items() if ours in path}


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def _console(_: Request) -> Response:
    """Redirect to the console's first page, by a path relative to the request's."""
    return Response(status_code=307, headers={"Location": "console/"})


async def _describe(_: Request) -> Response:
    return Response(_DESCRIPTION, media_type="application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    """The answer to a path that does not exist, or a method that the path does not allow."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    reason = f"{_REASONS.get(status, 'not served')}; see /openapi.json"
    if _OF_SQS in request.headers.get("authorization", ""):
        reason = "this gateway does not serve the clients of Amazon SQS: start it with --sqs"
    refused = RefusedError(reason, status, headers)
    return answer_to(refused, "none", {"path": request.scope["path"][:LONGEST_PATH]})
