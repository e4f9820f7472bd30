"""What an endpoint is, and what its handler is given: one declaration for routes and OpenAPI."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from cassieq_spark.errors import OptionError
from cassieq_spark.http.accounts import Level, full_name
from cassieq_spark.http.gateway.admission import Sender
from cassieq_spark.http.gateway.authorization import ACCOUNT, Grant
from cassieq_spark.http.gateway.errors import RefusedError
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.schemas import Nothing

P = TypeVar("P", bound=BaseModel)

#: Where the queues of an account are.
QUEUES = "/api/v1/accounts/{account}/queues"
QUEUE = QUEUES + "/{queue}"
ADMIN = "/admin/api/v1"


@dataclass(slots=True)
class Call:
    """One request, as its handler sees it.

    Attributes:
        gateway: What serves it.
        request: The request itself.
        sender: Who sends it.
        names: What is in the path.
        query: Its parameters.
        grant: What who asks may do; None: an administrator asks.
        body: As it came; empty if the endpoint takes none.
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
        """Which account."""
        return self.names["account"]

    @property
    def scope(self) -> str:
        """Whose its idempotency key is, if it has one."""
        return ACCOUNT if self.grant is None else self.grant.scope

    def may(self, level: Level) -> bool:
        """Whether who asks has another right, too."""
        return self.grant is None or level in self.grant.levels

    def covers(self, queue: str) -> bool:
        """Whether the sender may do the same with another queue, named without the account."""
        return self.grant is None or self.grant.covers(queue)

    @property
    def queue(self) -> str:
        """Which queue, by the name that Spark and the client know."""
        return self.queue_named(self.names["queue"], 404)

    def queue_named(self, name: str, status: int = 400) -> str:
        """A queue of the same account.

        Raises:
            RefusedError: No queue of an account can be called so.
        """
        try:
            return full_name(self.account, name)
        except OptionError as error:
            raise RefusedError(str(error), status) from error

    def json(self, model: type[P]) -> P:
        """The body, read as JSON.

        Raises:
            RefusedError: 400; it is not JSON. 422; it is not what it should be.
        """
        try:
            return model.model_validate_json(self.body or b"{}")
        except ValidationError as error:
            is_json = error.errors()[0]["type"] != "json_invalid"
            raise RefusedError(_said(error, "body"), 422 if is_json else 400) from error


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One thing that can be asked for.

    Attributes:
        method: The verb.
        path: The path, with names in braces.
        operation: What it is called in errors, metrics and OpenAPI.
        summary: What it does, in a line.
        level: The right that it takes; None: the admin's key.
        handler: Does it.
        query: Parameters of its URL.
        body: What its body is: JSON of this model, or bytes of these media types.
        answers: Status codes with what they mean, besides those that any request may get.
        is_batch: Whether its body may be as large as that of a batch.
    """

    method: str
    path: str
    operation: str
    summary: str
    level: Level | None
    handler: Handler
    query: type[BaseModel] = Nothing
    body: type[BaseModel] | tuple[str, ...] | None = None
    answers: Mapping[int, str] = field(default_factory=dict)
    is_batch: bool = False

    def parse_query(self, request: Request) -> BaseModel:
        """The parameters of a request.

        Raises:
            RefusedError: 400; one of them is malformed, or missing.
        """
        try:
            return self.query.model_validate(query_of(request))
        except ValidationError as error:
            raise RefusedError(_said(error, "query")) from error


def _said(error: ValidationError, where: str) -> str:
    """What is wrong, with what was given left out, as it may be a secret."""
    problems = (
        f"{'.'.join(map(str, each['loc'])) or where}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)[:5]
    )
    return f"the {where} is not valid: " + "; ".join(problems)


#: Headers of a request that are headers of its message begin so; the rest is the name.
HEADER = "x-cassieq-header-"
#: All headers of a message as one JSON object: for names and values that HTTP would change.
HEADERS = "x-cassieq-headers"
#: How keys and bodies travel as text.
TEXT, BASE64 = "text", "base64"

_OF_MESSAGES = HEADER.removesuffix("-").encode()
_HEADER, _HEADERS = HEADER.encode(), HEADERS.encode()
_IDEMPOTENCY_KEY = "idempotency-key"
_LONGEST_IDEMPOTENCY_KEY = 200


def headers_of(request: Request) -> dict[str, str | None] | None:
    """The headers of a message, from those of its request; None if there are none.

    Raises:
        RefusedError: 400; a name is empty or given twice, or a text is not UTF-8.
    """
    found: dict[str, str | None] = {}
    for name, value in _pairs(request):
        if not name:
            raise RefusedError("a header of a message has a name: X-Cassieq-Header-<name>")
        if name in found:
            raise RefusedError(f"header {name[:60]!r} of the message is given twice")
        found[name] = value
    return found or None


def idempotency_key(request: Request, scope: str) -> str | None:
    """Under which a put is done once, however often it is repeated; None: there is none.

    Args:
        request: Which may have one.
        scope: Whose it is, without a slash at its end; see `access.Grant`.

    Raises:
        RefusedError: 400; it is empty, too long, or not UTF-8.
    """
    given = request.headers.get(_IDEMPOTENCY_KEY)
    if given is None:
        return None
    key = _text(given.encode("latin-1"), "Idempotency-Key")
    if not key.strip() or len(key) > _LONGEST_IDEMPOTENCY_KEY:
        raise RefusedError(
            f"an Idempotency-Key has 1 to {_LONGEST_IDEMPOTENCY_KEY} characters; take a UUID"
        )
    return f"{scope}/{key}"


def query_of(request: Request) -> Mapping[str, str]:
    """The parameters of a request's URL.

    Raises:
        RefusedError: 400; one of them is not UTF-8, or given twice.
    """
    raw: bytes = request.scope["query_string"]
    if b"%" in raw or not raw.isascii():
        try:
            unquote_to_bytes(raw).decode()
        except UnicodeDecodeError as error:
            raise RefusedError(
                "the query is not UTF-8; a key that is not text goes as key=<Base64> with "
                "keyEncoding=base64"
            ) from error
    query = dict(request.query_params)
    if len(query) < len(request.query_params.multi_items()):
        raise RefusedError("a parameter of the query is given twice")
    return query


def decoded(text: str, encoding: str, what: str) -> bytes:
    """What travelled as text.

    Args:
        text: As it came.
        encoding: `TEXT` or `BASE64`.
        what: What it is, for the error.

    Raises:
        RefusedError: 400; it is not Base64.
    """
    try:
        return text.encode() if encoding == TEXT else b64decode(text, validate=True)
    except ValueError as error:
        raise RefusedError(f"{what} is not {encoding}: {error}") from error


def _pairs(request: Request) -> Iterator[tuple[str, str | None]]:
    for name, value in request.headers.raw:
        if not name.startswith(_OF_MESSAGES):
            continue
        if name == _HEADERS:
            yield from _read_object(value)
        elif name.startswith(_HEADER):
            own = name.removeprefix(_HEADER)
            yield _text(own, "the name of a header"), _text(value, "a header")


def _read_object(value: bytes) -> Iterator[tuple[str, str | None]]:
    """The pairs of a JSON object of texts, those that are there twice, too."""
    try:
        # Objects as tuples: so they differ from arrays, and nothing of them is dropped.
        pairs: Any = json.loads(_text(value, HEADERS), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{HEADERS} is no JSON: {str(error)[:100]}") from error
    if not isinstance(pairs, tuple):
        raise RefusedError(f'{HEADERS} is a JSON object of texts, such as {{"lang": "en"}}')
    for name, text in pairs:
        if text is not None and not isinstance(text, str):
            raise RefusedError(f"header {name[:60]!r} of the message is no text: {HEADERS}")
        yield name, text


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(f"{what} is not UTF-8: send such text in {HEADERS}, as JSON") from error
