"""The OpenAPI description of the declared endpoints."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from cassieq_spark import __version__
from cassieq_spark.http.gateway.requests import Endpoint

_JSON = "application/json"
_REF = "#/components/schemas/{model}"
_NAMES: dict[str, str | int] = {
    "account": "acme",
    "queue": "orders",
    "group": "default",
    "schedule": "nightly",
    "key": "primary",
    "monoton": 0,
}
#: Tags in the order of the page; an endpoint gets the last tag whose first word is in its path.
_TAGS = ("queues", "messages", "groups", "dead letters", "schedules", "admin")
#: Answers of every endpoint.
_ALWAYS = {
    400: "The request is malformed; the message says how",
    401: "The request has no valid key, signature or signed URL",
    403: "The key or signed URL lacks the right",
    408: "The headers arrived too slowly",
    429: "A limit or quota is reached; try again after Retry-After",
    431: "The request line and headers are too large",
    503: "Cassandra does not answer, or refuses; try again after Retry-After",
    504: "The outcome is unknown: all or a part of it may have been done, or may be yet",
}
_WITH_BODY = {408: "The headers or the body arrived too slowly", 413: "The body is too large"}
_WITH_JSON = {422: "The body is JSON, but not valid"}
_EXAMPLES = {
    "application/x-ndjson": '{"message": "one", "key": "k"}\n{"message": "two"}\n',
    "application/vnd.apache.arrow.stream": "columns value, and optionally key and headers",
    "application/octet-stream": "hello",
    "text/plain": "hello",
}
_TEXT = {"type": "string"}
_ERROR = {
    "type": "object",
    "required": ["reason", "operation", "message"],
    "properties": {
        "reason": {"enum": ["Error", "NotFound", "NotYet", "Deleted", "Conflict"]},
        "operation": _TEXT,
        "message": _TEXT,
        "quota": {
            "type": "object",
            "description": "The limit or quota that does not allow it",
            "required": ["what", "of", "limit"],
            "properties": {"what": _TEXT, "of": _TEXT, "limit": {"type": "integer"}},
        },
        "differences": {
            "type": "array",
            "description": "How a queue that exists differs from the one to create",
            "items": {
                "type": "object",
                "required": ["setting", "given"],
                "properties": {"setting": _TEXT, "given": {}, "existing": {}},
            },
        },
        "stale": {"type": "array", "items": _TEXT},
        "group": _TEXT,
        "account": _TEXT,
        "queueName": _TEXT,
    },
}


def _scheme(place: str, name: str, description: str) -> dict[str, str]:
    return {"type": "apiKey", "in": place, "name": name, "description": description}


_SECURITY = {
    "key": _scheme(
        "header",
        "Authorization",
        "`Key <key>`: a key of the account, or the admin key for /admin.",
    ),
    "signedRequest": _scheme(
        "header", "Authorization", "`Signed2 <signature>`, with three x-cassieq headers."
    ),
    "signedUrl": _scheme(
        "query",
        "sig",
        "With auth, and optionally q, st and et; see POST /admin/api/v1/permissions.",
    ),
}


def description(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 description of all endpoints."""
    models = {
        model
        for endpoint in endpoints
        for model in (endpoint.query, endpoint.body)
        if isinstance(model, type)
    }
    ordered = sorted(models, key=lambda model: model.__name__)
    _, defined = models_json_schema([(each, "validation") for each in ordered], ref_template=_REF)
    schemas = defined.get("$defs", {})
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for each in endpoints:
        paths[each.path][each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cassieq gateway",
            "version": __version__,
            "description": "A durable work queue on Apache Cassandra, by HTTP.",
        },
        "tags": [{"name": name} for name in _TAGS],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": _SECURITY,
        },
    }


def _operation(endpoint: Endpoint, schemas: Mapping[str, Any]) -> dict[str, Any]:
    is_admins = endpoint.right is None
    of = [each for each in _TAGS if f"/{each.split()[0]}" in endpoint.path]
    found: dict[str, Any] = {
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "tags": of[-1:],
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint, schemas)],
        "responses": dict(_responses(endpoint)),
        "security": [{"key": []}] if is_admins else [{each: []} for each in _SECURITY],
    }
    right = endpoint.right
    takes = "the admin key" if right is None else f"the right {right.title} ({right.value})"
    command = _command(endpoint, found["parameters"])
    found["description"] = f"Takes {takes}. For example:\n\n```sh\n{command}\n```"
    if endpoint.body is not None:
        fields = getattr(endpoint.body, "model_fields", None)
        required = fields is None or any(each.is_required() for each in fields.values())
        found["requestBody"] = {"required": required, "content": _content(endpoint)}
    return found


def _content(endpoint: Endpoint) -> dict[str, Any]:
    body, example = endpoint.body or (), endpoint.example
    if not isinstance(body, tuple):
        schema = {"$ref": _REF.format(model=body.__name__)}
        return {_JSON: {"schema": schema, "example": example}}
    return {
        media: {"schema": _TEXT, "example": example or _EXAMPLES.get(media, "hello")}
        for media in body
    }


def _command(endpoint: Endpoint, parameters: Sequence[Mapping[str, Any]]) -> str:
    """The example of an operation as a curl command."""
    examples = {each["name"]: each.get("example") for each in parameters if each["required"]}
    path = endpoint.path.format(**examples)
    query = urlencode(
        {name: examples[name] for name in examples if f"{{{name}}}" not in endpoint.path}
    )
    words = ["curl -sf", f"-X {endpoint.method}" * (endpoint.method != "GET")]
    words.append(f'"$GATEWAY{path}{"?" * bool(query)}{query}"')
    words.append(f'-H "Authorization: Key ${"ADMIN" if endpoint.right is None else "KEY"}"')
    if endpoint.body is not None:
        media, content = next(iter(_content(endpoint).items()))
        example = content["example"]
        body = json.dumps(example) if media == _JSON else example.rstrip("\n")
        words += [f'-H "Content-Type: {media}"', f"--data-binary {shlex.quote(body)}"]
    return " ".join(filter(None, words))


def _path_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name, example in _NAMES.items():
        if "{" + name + "}" in endpoint.path:
            is_text = isinstance(example, str)
            schema = _TEXT | {"minLength": 1} if is_text else {"type": "integer", "minimum": 0}
            where = {"name": name, "in": "path", "required": True}
            yield {**where, "schema": schema, "example": example}


def _query_parameters(endpoint: Endpoint, schemas: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    model = schemas[endpoint.query.__name__]
    for name, schema in model.get("properties", {}).items():
        parameter = {"name": name, "in": "query", "required": name in model.get("required", ())}
        parameter["schema"] = {key: value for key, value in schema.items() if key != "title"}
        if parameter["required"]:
            parameter["example"] = schema["examples"][0]
        yield parameter


def _responses(endpoint: Endpoint) -> Iterable[tuple[str, dict[str, Any]]]:
    for status, meaning in sorted(_meanings(endpoint).items()):
        answer: dict[str, Any] = {"description": meaning}
        if status >= 400:  # noqa: PLR2004 (where errors begin)
            schema = {"$ref": _REF.format(model="Error")}
            answer["content"] = {_JSON: {"schema": schema}}
        else:
            content = {_JSON: endpoint.examples[status]} if status in endpoint.examples else {}
            content |= endpoint.other_examples if status == HTTPStatus.OK else {}
            if content:
                answer["content"] = {media: {"example": it} for media, it in content.items()}
        yield str(status), answer


def _meanings(endpoint: Endpoint) -> dict[int, str]:
    """The status codes of an endpoint's answers, with their meanings."""
    meanings = dict(_ALWAYS)
    if endpoint.right is None:
        del meanings[403]
    if endpoint.body is not None:
        meanings |= _WITH_BODY
    if isinstance(endpoint.body, type):
        meanings |= _WITH_JSON
    for name in ("account", "queue", "group"):
        if "{" + name + "}" in endpoint.path and (name != "account" or endpoint.right is None):
            meanings[404] = f"There is no such {name}"
    return meanings | dict(endpoint.answers)


_FILES = Path(__file__).parent / "viewer"
_KINDS = {
    "start.js": "text/javascript",
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}
_SAFE = {
    # The viewer writes styles into its elements.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_KEPT = {"Cache-Control": "public, max-age=3600"}

# The page uses relative paths, because a proxy may serve it below another path.
_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>cassieq gateway</title>
  <link rel="stylesheet" href="viewer/swagger-ui.css">
</head>
<body>
  <div id="page">The description is at <a href="openapi.json">openapi.json</a>.</div>
  <script src="viewer/swagger-ui-bundle.js"></script>
  <script src="viewer/start.js"></script>
</body>
</html>
"""


def routes() -> list[Route]:
    """The routes of the page and of the files that it loads."""
    return [
        Route("/", _page, methods=["GET"]),
        *(Route(f"/viewer/{name}", _file(name), methods=["GET"]) for name in _KINDS),
    ]


async def _page(_: Request) -> Response:
    return Response(_PAGE, media_type="text/html; charset=utf-8", headers=_SAFE)


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def file(_: Request) -> Response:
        return FileResponse(_FILES / name, media_type=_KINDS[name], headers=_SAFE | _KEPT)

    return file
