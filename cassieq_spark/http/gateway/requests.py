"""Endpoints, and requests as their handlers see them.

An `Endpoint` decorates its handler, with method, path, right, parameters, body and answers. Routes
and the OpenAPI description are made from these declarations.

Starlette decodes headers as Latin-1, and replaces bytes of a query that are not UTF-8 by U+FFFD.
Both would change keys and headers of messages silently. Here both must be UTF-8, or the request is
refused.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response

from cassieq_spark.errors import OptionError
from cassieq_spark.http import TEXT
from cassieq_spark.http.accounts import Right, full_name
from cassieq_spark.http.accounts.signing import BODY_DIGEST, NONCE, REQUEST_TIME, SIGNED_URL
from cassieq_spark.http.gateway.authorization import ACCOUNT, KEY, Grant
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.schemas import Nothing, Payload, Receipts
from cassieq_spark.http.members import has_more_members
from cassieq_spark.http.serving.bodies import Sender
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.settings.declaration import explain_unknown

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=Payload)

#: A request was answered.
REQUEST = "gateway.request"
#: Most characters of a path in the log and in answers.
LONGEST_PATH = 1_000
#: Rights of requests that may cost many reads.
ABOUT_QUEUES = {
    Right.GET_QUEUE_INFORMATION,
    Right.CREATE_QUEUE,
    Right.DELETE_QUEUE,
    Right.REDRIVE_MESSAGE,
}

#: The path of the queues of an account.
QUEUES = "/api/v1/accounts/{account}/queues"
QUEUE = QUEUES + "/{queue}"
ADMIN = "/admin/api/v1"

#: The prefix of request headers that are headers of the message; the rest is the header's name.
HEADER = "x-cassieq-header-"
#: All headers of a message as one JSON object, for names and values that HTTP would change.
HEADERS = "x-cassieq-headers"

_OURS, _HEADER, _HEADERS = b"x-cassieq-", HEADER.encode(), HEADERS.encode()
_KNOWN_HEADERS = (HEADERS, f"{HEADER}<name>", REQUEST_TIME, NONCE, BODY_DIGEST)
#: Most errors of one body that are described; more errors are only counted.
_MOST_DESCRIBED = 100
#: Most headers of a message in a batch; no program needs as many.
MOST_HEADERS = 1_000
#: Most members of JSON, besides receipts: headers, and the other members of a message.
MOST_MEMBERS = MOST_HEADERS + 100
_IDEMPOTENCY_KEY = "idempotency-key"
_LONGEST_IDEMPOTENCY_KEY = 200


@dataclass(slots=True)
class Call:
    """One request, as its handler sees it.

    Attributes:
        gateway: The gateway that serves the request.
        request: The HTTP request.
        sender: The account and key that sent the request.
        names: The names in the path.
        query: The parameters of the URL, validated.
        grant: The rights of the sender; None for an administrator.
        body: The body as it arrived; empty if the endpoint takes no body.
    """

    gateway: Gateway
    request: Request
    sender: Sender
    names: Mapping[str, str]
    query: Any
    grant: Grant | None
    body: bytes = b""

    @property
    def account(self) -> str:
        """The account in the path."""
        return self.names["account"]

    @property
    def queue(self) -> str:
        """The full name of the queue in the path, as Spark and the client know it.

        Raises:
            RefusedError: 404; no queue of an account can have this name.
        """
        return self.queue_named(self.names["queue"], 404)

    def queue_named(self, name: str, status: int = 400) -> str:
        """The full name of a queue of the same account.

        Raises:
            RefusedError: No queue of an account can have this name.
        """
        try:
            return full_name(self.account, name)
        except OptionError as error:
            raise RefusedError(str(error), status) from error

    def may(self, right: Right) -> bool:
        """True if the sender has another right, too."""
        return self.grant is None or right in self.grant.rights

    def covers(self, queue: str) -> bool:
        """True if the sender's rights extend to another queue, named without the account."""
        return self.grant is None or self.grant.covers(queue)

    def json(self, model: type[P]) -> P:
        """Parse the body as JSON of a model.

        Raises:
            RefusedError: 400; the body is not JSON, or has more members than any body needs. 422;
                the body does not fit the model.
        """
        receipts = self.gateway.limits.batch_count if issubclass(model, Receipts) else 0
        check_members(self.body, MOST_MEMBERS + receipts, "the body")
        try:
            return model.model_validate_json(self.body or b"{}")
        except ValidationError as error:
            is_json = "json_invalid" not in {each["type"] for each in _first_errors(error)}
            why = problems(error, model, "field", "the body")
            raise RefusedError(why, 422 if is_json else 400) from error

    def idempotency_key(self) -> str | None:
        """The key under which a put is published once, in the sender's scope; None if not given.

        Raises:
            RefusedError: 400; the key is empty, too long, or not UTF-8.
        """
        given = self.request.headers.get(_IDEMPOTENCY_KEY)
        if given is None:
            return None
        key = _text(given.encode("latin-1"), "Idempotency-Key")
        if not key.strip() or len(key) > _LONGEST_IDEMPOTENCY_KEY:
            raise RefusedError(
                f"an Idempotency-Key has 1 to {_LONGEST_IDEMPOTENCY_KEY} characters; use a UUID"
            )
        scope = ACCOUNT if self.grant is None else self.grant.scope
        return f"{scope}/{key}"

    def message_key(self) -> bytes | None:
        """The key of a message that is put alone.

        Raises:
            RefusedError: 400; the key is not Base64.
        """
        key = self.query.key
        return None if key is None else decoded(key, self.query.key_encoding, "key")

    def message_id(self) -> bytes | None:
        """The unique id of a message that is put alone.

        Raises:
            RefusedError: 400; the id is not Base64.
        """
        given = self.query.unique_id
        if given is None:
            return None
        return decoded(given, self.query.unique_id_encoding, "uniqueId")

    def message_headers(self) -> dict[str, str | None] | None:
        """The headers of a message that is put alone; None if it has none.

        Raises:
            RefusedError: 400; a name is empty or given twice, a text is not UTF-8, or another
                header begins with ``x-cassieq-``.
        """
        found: dict[str, str | None] = {}
        for name, value in _header_pairs(self.request):
            if not name:
                raise RefusedError("a header of a message has a name: X-Cassieq-Header-<name>")
            if name in found:
                raise RefusedError(f"header {name[:60]!r} of the message is given twice")
            found[name] = value
        return found or None


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(slots=True)
class Endpoint:
    """A method and a path, declared by decorating the handler that serves them.

    Attributes:
        method: The HTTP method.
        path: The path, with names in braces.
        right: The right that the endpoint needs; None: the admin key.
        query: The parameters of the URL.
        body: The body: JSON of this model, or bytes of these media types; None: no body.
        is_batch: True if the body may be as large as a batch.
        answers: Status codes and their meanings, besides the codes of all endpoints.
        examples: Bodies of answers in JSON by status code, for the description.
        other_examples: Bodies of answers 200 in other media types.
        example: A body of a request, for the description.
        handler: The decorated handler.
        operation: The name of the endpoint in errors, metrics and OpenAPI: the handler's name in
            camelCase.
        summary: The first line of the handler's docstring.
    """

    method: str
    path: str
    right: Right | None
    _: KW_ONLY
    query: type[Payload] = Nothing
    body: type[Payload] | tuple[str, ...] | None = None
    is_batch: bool = False
    answers: Mapping[int, str]
    examples: Mapping[int, Any] = field(default_factory=dict)
    other_examples: Mapping[str, str] = field(default_factory=dict)
    example: Any = None
    handler: Handler = field(init=False)
    operation: str = field(init=False)
    summary: str = field(init=False)

    def __call__(self, handler: Handler) -> Handler:
        """Declare the endpoint of a handler."""
        self.handler = handler
        self.operation = to_camel(getattr(handler, "__name__", ""))
        self.summary = (handler.__doc__ or "").partition("\n")[0]
        ENDPOINTS.append(self)
        return handler

    def parse_query(self, request: Request) -> Payload:
        """Parse the parameters of a request's URL.

        Raises:
            RefusedError: 400; a parameter is malformed, missing, not UTF-8, or given twice.
        """
        query = _query(request)
        if self.right is not None and "sig" in query:
            # The parameters of a signed URL are for the authorizer.
            query = {name: query[name] for name in query if name not in SIGNED_URL}
        try:
            return self.query.model_validate(query)
        except ValidationError as error:
            why = problems(error, self.query, "parameter", "the query")
            raise RefusedError(why) from error


#: All declared endpoints.
ENDPOINTS: list[Endpoint] = []


def check_members(text: bytes, most: int, where: str) -> None:
    """Refuse JSON with more members and elements than ``most``, before it is parsed.

    Raises:
        RefusedError: 400; the JSON, which the error calls ``where``, has more.
    """
    if has_more_members(text, most):
        raise RefusedError(f"{where} has more than {most} members, the limit of a request")


def decoded(text: str, encoding: str, what: str) -> bytes:
    """Decode text in an encoding: `TEXT`, or Base64.

    Raises:
        RefusedError: 400; the text, which the error calls ``what``, is not Base64.
    """
    try:
        return text.encode() if encoding == TEXT else b64decode(text, validate=True)
    except ValueError as error:
        raise RefusedError(f"{what} is not {encoding}: {error}") from error


def _query(request: Request) -> dict[str, str]:
    raw: bytes = request.scope["query_string"]
    if not raw:
        return {}
    if b"%" in raw or not raw.isascii():
        try:
            unquote_to_bytes(raw).decode()
        except UnicodeDecodeError as error:
            raise RefusedError(
                "the query is not UTF-8; send a key that is not text as key=<Base64> with "
                "keyEncoding=base64"
            ) from error
    # Parsed as by Starlette, but without its object.
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise RefusedError("a parameter of the query is given twice")
    return query


def _header_pairs(request: Request) -> Iterator[tuple[str, str | None]]:
    for name, value in request.headers.raw:
        if not name.startswith(_OURS):
            continue
        if name == _HEADERS:
            yield from _read_object(value)
        elif name.startswith(_HEADER):
            own = name.removeprefix(_HEADER)
            yield _text(own, "the name of a header"), _text(value, "a header")
        elif (known := name.decode("latin-1")) not in _KNOWN_HEADERS:
            raise RefusedError(explain_unknown("header", known[:60], _KNOWN_HEADERS))


def _read_object(value: bytes) -> Iterator[tuple[str, str | None]]:
    """Parse a JSON object of texts into pairs, including repeated names."""
    try:
        # Tuples of pairs: a dict would drop repeated names, and a list would be an array.
        pairs: Any = json.loads(_text(value, HEADERS), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{HEADERS} is not JSON: {str(error)[:100]}") from error
    if not isinstance(pairs, tuple):
        raise RefusedError(f'{HEADERS} is a JSON object of texts, such as {{"lang": "en"}}')
    for name, text in pairs:
        if text is not None and not isinstance(text, str):
            raise RefusedError(f"header {name[:60]!r} of the message is not text: {HEADERS}")
        yield name, text


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(f"{what} is not UTF-8: send such text in {HEADERS}, as JSON") from error


def problems(error: ValidationError, model: type[Payload], what: str, where: str) -> str:
    """Describe what is wrong without showing the given values, which may be secrets.

    ``where`` was checked against ``model``; ``what`` is the word for its fields: field or
    parameter.
    """
    found = _first_errors(error)
    if not found:
        return f"{where} is not valid: {error.error_count()} {what}s are wrong"
    return f"{where} is not valid: " + "; ".join(_problem(each, model, what) for each in found)


def _first_errors(error: ValidationError) -> list[ErrorDetails]:
    """At most five errors; empty if there are too many to describe in a short time."""
    if error.error_count() > _MOST_DESCRIBED:
        return []
    return error.errors(include_url=False, include_input=False)[:5]


def _problem(found: ErrorDetails, model: type[Payload], what: str) -> str:
    place = ".".join(map(str, found["loc"]))
    if found["type"] != "extra_forbidden":
        return f"{place}: {found['msg']}" if place else found["msg"]
    if not model.model_fields:
        return f"this request takes no {what}s, and {place[:60]!r} is one"
    return explain_unknown(what, place[:60], model.names())


def log_request(request: Request, operation: str, status: int, took: float) -> None:
    """Log that a request was answered, after ``took`` seconds."""
    if not logger.isEnabledFor(logging.INFO):
        return
    # The query is left out: it has receipts and signatures, and a stranger's may have any length.
    path = request.scope["path"][:LONGEST_PATH]
    logger.info(
        "%s %s %d",
        request.method,
        path,
        status,
        extra={
            "action": REQUEST,
            "operation": operation,
            "method": request.method,
            "path": path,
            "status": status,
            "duration_ms": round(took * 1000, 1),
            "client": request.client.host if request.client else None,
            # The key's name shows whose key leaked, without the key.
            "key": request.scope.get(KEY),
        },
    )
