"""The SQS door: finds which requests are of SQS and who sent them, and answers them.

read the signature -> read the body -> check the signature -> admit -> decode -> handler -> answer
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cassieq_spark.client.shares import CALLER
from cassieq_spark.http.accounts import ALL_RIGHTS, AccountKey
from cassieq_spark.http.gateway.authorization import KEY, Grant, digest_of_body
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.requests import ABOUT_QUEUES, log_request
from cassieq_spark.http.gateway.requests import ADMIN as ADMIN_PATH
from cassieq_spark.http.gateway.responses import LARGE, PRIVATE, response_of
from cassieq_spark.http.gateway.sqs import (  # noqa: F401 (handlers declare themselves)
    messages,
    moves,
    queues,
)
from cassieq_spark.http.gateway.sqs.calls import HANDLERS, SqsCall, error_of
from cassieq_spark.http.gateway.sqs.known_queues import KnownQueues
from cassieq_spark.http.gateway.sqs.movers import Movers
from cassieq_spark.http.serving.bodies import WHOLE, Body, Sender
from cassieq_spark.http.serving.disconnects import has_left
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.http.sqs.errors import (
    AccessDenied,
    InvalidSignature,
    MissingAuthenticationToken,
    UnsupportedOperation,
)
from cassieq_spark.http.sqs.operations import Call
from cassieq_spark.http.sqs.query_protocol import protocol_of
from cassieq_spark.http.sqs.signature import Claim, claim_of
from cassieq_spark.http.sqs.texts import uuid_of
from cassieq_spark.http.sqs.wire import Answer, Protocol, Received, Stamp

#: Most bytes of a body: as JSON or a form, each byte of a batch of 1 MiB takes up to six bytes.
_LARGEST_BODY = 7 << 20
_LARGE_BODY = 1 << 18
#: The prefixes of the gateway's own paths; an account may be called ``console1``.
_OURS = ("/api/v1/", f"{ADMIN_PATH}/", "/console/")
_CONSOLE = "/console"
_TARGET = b"x-amz-target"
_LOCAL_REGION = "local"
#: A wrong signature is refused after a multiple of this many seconds: most reads take less.
_REFUSED_EVERY = 0.1
#: The name, in metrics and log, of a request whose operation is not known.
_UNKNOWN = "sqs"


class SqsDoor:
    """Serves the requests of SQS, and leaves all others to the application.

    Args:
        app: The application.
        gateway: Returns the gateway; called at each request.
        url: The base of queue URLs, such as ``https://queues.example``; None: the address at which
            the request has reached the gateway.
        unsigned: The account of requests that are not signed; None: they are refused. Only for
            a gateway that listens on loopback.
        clock: Returns the time.
    """

    def __init__(
        self,
        app: ASGIApp,
        gateway: Callable[[], Gateway],
        url: str | None = None,
        unsigned: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._app = app
        self.gateway, self.url, self.unsigned, self.clock = gateway, url, unsigned, clock
        self._parts: tuple[KnownQueues, Movers] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or let the application serve it."""
        if scope["type"] != "http" or not is_of_sqs(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        served = _Served(self, request)
        response = await served.response()
        await response(scope, receive, send)

    def parts(self, gateway: Gateway) -> tuple[KnownQueues, Movers]:
        """The queues that were read a moment ago, and the message move tasks that run here."""
        if self._parts is None:
            self._parts = KnownQueues(gateway.client), Movers(gateway)
        return self._parts

    async def close(self) -> None:
        """End the message move tasks that run here; to be called before the gateway is closed."""
        if self._parts is not None:
            await self._parts[1].close()


def is_of_sqs(scope: Scope) -> bool:
    """True if a request is one of SQS.

    Such a request names a target, or is a POST to a path that is not the gateway's own, or a GET
    with an action.
    """
    for name, _ in scope["headers"]:
        if name == _TARGET:
            return True
    if scope["path"].startswith(_OURS) or scope["path"] == _CONSOLE:
        return False
    return scope["method"] == "POST" or (
        scope["method"] == "GET" and b"Action=" in scope["query_string"]
    )


def _is_of_this_machine(request: Request) -> bool:
    """True if a program of this machine has sent a request, and no page in a browser.

    A page can send a request here by another name of this address, or without the right to see the
    answer; browsers reveal this by the headers Host and Origin, the latter with each POST.
    """
    if request.method != "POST":
        return False
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    return is_loopback(host) and not {"origin", "sec-fetch-site"} & set(request.headers)


def is_loopback(host: str) -> bool:
    """True if a host is a loopback address, which only this machine reaches.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "a.example")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _request_id() -> str:
    """The id of a request, which is no secret.

    Not a count, by which a stranger would learn how many requests others send; and not `uuid4`,
    which lets other threads run, and then waits for its turn.
    """
    return uuid_of(f"{random.getrandbits(128):032x}", 4)


def _since(began: float) -> float:
    """Seconds since a time of `perf_counter`."""
    return time.perf_counter() - began


class _Served:
    """A request of SQS while it is served."""

    def __init__(self, door: SqsDoor, request: Request) -> None:
        self._door, self._request = door, request
        self._gateway = door.gateway()
        self._now = door.clock()
        scope = request.scope
        self._received = Received(
            scope["method"],
            scope.get("raw_path") or scope["path"].encode(),
            scope["query_string"],
            scope["headers"],
        )
        self._name, self._account = _UNKNOWN, ""

    async def response(self) -> Response:
        """Serve the request, and return the answer; every error becomes an answer."""
        began = time.perf_counter()
        protocol, stamp = protocol_of(self._received), Stamp(_request_id(), self._now)
        more: dict[str, str] = {}
        try:
            answer = await self._answer(protocol, stamp)
        except Exception as error:  # noqa: BLE001 (every error is answered)
            if isinstance(error, RefusedError):
                more = error.headers
                if error.quota is not None:
                    self._gateway.metrics.refused(error.quota)
            elif isinstance(error, InvalidSignature):
                # The traceback would keep the body, whose bytes do not count any more.
                error.with_traceback(None)
                await asyncio.sleep(_REFUSED_EVERY - _since(began) % _REFUSED_EVERY)
            answer = protocol.refuse(error_of(error, self._name), stamp)
        took = _since(began)
        self._gateway.metrics.answered(self._name, answer.status, took)
        log_request(self._request, self._name, answer.status, took)
        headers = answer.headers | more if more else answer.headers
        raw = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
        ]
        body, admission = answer.body, self._gateway.admission
        return response_of(
            answer.status, [*raw, *PRIVATE], body, admission=admission, account=self._account
        )

    async def _answer(self, protocol: Protocol, stamp: Stamp) -> Answer:
        claim = self._claim()
        gateway, request = self._gateway, self._request
        # The signature is checked with the body; until then, the bytes count for the address.
        client = request.scope.get("client")
        address = client[0] if client else ""
        admission = gateway.admission
        body = Body(
            # A body that has arrived already waits for nobody.
            admission.held if request.scope.get(WHOLE) else admission.unsigned,
            gateway.limits,
            request,
            Sender(f"address {address}", ""),
            min(_LARGEST_BODY, gateway.limits.batch_bytes),
        )
        try:
            data = await body.read()
            if claim is None:
                account, key = await self._local()
            else:
                account, key = await self._check(claim, data)
            self._account, request.scope[KEY] = account, key.name
            CALLER.set(account)
            sender = Sender(account, key.name)
            body.hand_over(sender, admission.held)
            admission.requests.take(sender)
            try:
                if len(data) <= _LARGE_BODY:
                    call = protocol.decode(self._received, data)
                else:
                    call = await self._decoded(protocol, data)
                return await self._carry_out(
                    protocol, stamp, call, claim=claim, sender=sender, grant=Grant.of(key)
                )
            finally:
                admission.requests.give(sender)
        finally:
            body.release()

    def _claim(self) -> Claim | None:
        """The claim of the request; None if the request is not signed, and need not be."""
        try:
            return claim_of(self._received, self._now)
        except MissingAuthenticationToken:
            if self._door.unsigned is None or not _is_of_this_machine(self._request):
                raise
            return None

    async def _local(self) -> tuple[str, AccountKey]:
        """The account of requests that are not signed, and a key that may do everything."""
        account = self._door.unsigned or ""
        for key in await self._gateway.authorizer.keys_of(account):
            if Grant.of(key).covers_all and key.rights == ALL_RIGHTS:
                return account, key
        raise MissingAuthenticationToken

    async def _decoded(self, protocol: Protocol, body: bytes) -> Call:
        """Decode a large body in a thread, and few at a time: they would block the loop."""
        async with self._gateway.admission.decoders:
            return await asyncio.to_thread(protocol.decode, self._received, body)

    async def _check(self, claim: Claim, body: bytes) -> tuple[str, AccountKey]:
        """The account and the key that have signed the request.

        A stranger learns nothing: an unknown account, an unknown key and a wrong signature give
        the same error after the same work. `response` hides whether the account had to be read.
        """
        account, _, name = claim.key_id.partition(":")
        keys = [
            (key, key.key)
            for key in await self._gateway.authorizer.keys_of(account)
            if key.key is not None and (not name or key.name == name)
        ]
        number = claim.signer([secret for _, secret in keys], await digest_of_body(body))
        return account, keys[number][0]

    async def _carry_out(  # noqa: PLR0913 (what is known of the request by now)
        self,
        protocol: Protocol,
        stamp: Stamp,
        call: Call,
        *,
        claim: Claim | None,
        sender: Sender,
        grant: Grant,
    ) -> Answer:
        operation = call.operation
        self._name = f"sqs{operation.name}"
        if operation.right not in grant.rights:
            raise AccessDenied(f"{operation.right.title} is not a right of this key.")
        handler = HANDLERS.get(operation.name)
        if handler is None:
            raise UnsupportedOperation(f"{operation.name} is not supported by this gateway.")
        sqs_call = SqsCall(
            self._gateway,
            *self._door.parts(self._gateway),
            self._request,
            sender,
            grant,
            sender.account if claim is None else claim.key_id,
            call.input,
            call.queue,
            self._door.url,
            _LOCAL_REGION if claim is None else claim.region,
            self._now,
        )
        may_leave = False
        try:
            try:
                if operation.right in ABOUT_QUEUES:
                    async with self._gateway.admission.about_queues(sender.account):
                        output = await handler(sqs_call)
                else:
                    output = await handler(sqs_call)
                if sqs_call.held and sum(each.size for each in sqs_call.held) > LARGE:
                    answer = await asyncio.to_thread(protocol.encode, operation, output, stamp)
                else:
                    answer = protocol.encode(operation, output, stamp)
            finally:
                if sqs_call.encoded is not None:
                    await sqs_call.encoded.aclose()
            # I8: a delivery counts if the answer may have left, and only then.
            may_leave = not sqs_call.held or not has_left(self._request)
            return answer
        finally:
            if not may_leave:
                self._gateway.coalescer.give_back(sqs_call.held)
