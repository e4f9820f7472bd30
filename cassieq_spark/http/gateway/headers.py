"""What a request says in its headers and in its query, as text that arrives as it was sent.

Starlette reads headers as Latin-1 and puts U+FFFD for what is not UTF-8 in a query. Both would
change keys and headers of messages without a word; here they are UTF-8, or refused.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from cassieq_spark.http.gateway.refusals import RefusedError

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
