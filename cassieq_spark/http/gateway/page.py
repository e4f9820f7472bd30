"""The page that shows the OpenAPI description: Swagger UI, whose files come with this package.

Nothing on it comes from another host, and the browser is told to load nothing from one: people
paste keys into it. `make viewer` gets the files from npm, by version and digest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

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

# By relative paths, as a proxy may have it below one.
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
    """The page, and what it loads."""
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
