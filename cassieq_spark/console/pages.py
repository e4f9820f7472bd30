"""What all pages share: a request as a handler sees it, how it is answered, and the routes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cassieq_spark import __version__
from cassieq_spark.console import charts, show
from cassieq_spark.console.access import Access, Session
from cassieq_spark.console.watcher import Watcher
from cassieq_spark.errors import OptionError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import read_queue
from cassieq_spark.store.protocol import Store

THEMES = ("auto", "light", "dark")
#: The cookie with the theme that the user has chosen.
THEME = "cassieq-theme"
#: The files that pages load, with their media types.
STATIC = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "idiomorph.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_LONGEST_NUMBER = 19


class Shared(Protocol):
    """The console as its pages use it: without the routes that lead to the pages.

    Attributes:
        store: Where the queues are kept.
        watcher: Reads the queues in the background.
        access: Decides who may look.
        title: The name of the store on all pages.
        allow_changes: True if pages offer to change queues.
        clock: Returns the time.
    """

    store: Store
    watcher: Watcher
    access: Access
    title: str
    allow_changes: bool
    clock: Callable[[], datetime]


@dataclass(slots=True)
class PageCall:
    """A request, for its handler.

    Attributes:
        console: The console that all requests share.
        request: The request.
        session: The sender of the request.
        form: The fields of a form that was sent.
    """

    console: Shared
    request: Request
    session: Session
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The path below which the console is."""
        root: str = self.request.scope.get("root_path", "")
        return root

    @property
    def now(self) -> datetime:
        """The time, by the clock of this machine."""
        return self.console.clock()

    def name(self, of: str = "queue") -> str:
        """A name in the path: of a queue, a group or an action."""
        name: str = self.request.path_params[of]
        return name

    def asked(self, name: str, default: str = "") -> str:
        """A parameter of the query, or a field of the form."""
        given = self.form.get(name)
        return self.request.query_params.get(name, default) if given is None else given

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**62) -> int:
        """A parameter of the query, or a field of the form, as a whole number.

        Raises:
            OptionError: It is not a whole number, or out of range.
        """
        text = self.asked(name).strip().replace(",", "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
            raise OptionError(f"{name} must be a whole number from {least} on, not {text!r}")
        if not least <= int(text) <= most:
            raise OptionError(f"{name} must be from {least} to {most}, not {text}")
        return int(text)

    def queue(self) -> QueueDefinition:
        """The definition of the queue in the path. One read."""
        return read_queue(self.console.watcher.looking, self.name())

    def url(self, *parts: object, **query: object) -> str:
        """The address of a page; parameters that are None or empty are left out."""
        given = {name: each for name, each in query.items() if each not in (None, "")}
        path = self.root + (show.path_of(*parts) if parts else "/")
        return f"{path}?{urlencode(given)}" if given else path

    def again(self, **query: object) -> str:
        """The address of this page with other parameters."""
        given = dict(self.request.query_params) | query
        kept = {name: each for name, each in given.items() if each not in (None, "")}
        path = self.request.url.path
        return f"{path}?{urlencode(kept)}" if kept else path

    def render(self, template: str, code: int = 200, **context: Any) -> Response:
        """Render a template as the answer."""
        theme = self.request.cookies.get(THEME, "")
        said = self.console.access.said(self.request)
        text = (
            templates()
            .get_template(template)
            .render(
                call=self,
                url=self.url,
                again=self.again,
                console=self.console,
                token=self.console.access.token(self.session),
                theme=theme if theme in THEMES else "auto",
                now=self.now,
                said=said,
                here=self.request.url.path
                + (f"?{self.request.url.query}" if self.request.url.query else ""),
                **context,
            )
        )
        response = HTMLResponse(text, code)
        if said is not None:
            self.console.access.forget_said(self.request, response)
        return self._with_session(response)

    def redirect(self, url: str, said: str | None = None) -> Response:
        """Send the browser to a page of the console, which may show what was done."""
        response = RedirectResponse(url, 303)
        if said is not None:
            self.console.access.say(self.request, response, said)
        return self._with_session(response)

    def _with_session(self, response: Response) -> Response:
        if self.session.is_new:
            self.console.access.begin(self.request, response, self.session)
        return response


Handler = Callable[[PageCall], Response]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    Attributes:
        path: The path below the console.
        handler: Makes the answer; it may block.
        methods: GET, POST or both.
    """

    path: str
    handler: Handler
    methods: tuple[str, ...]


#: All pages, in the order in which their modules are imported.
PAGES: list[Page] = []


def page(path: str, *methods: str) -> Callable[[Handler], Handler]:
    """Make a function the handler of a page."""

    def register(handler: Handler) -> Handler:
        PAGES.append(Page(path, handler, methods or ("GET",)))
        return handler

    return register


@cache
def templates() -> Environment:
    """The templates. Everything that they output is shown as text, and escaped."""
    environment = Environment(
        loader=PackageLoader("cassieq_spark.console"),
        autoescape=True,
        finalize=show.shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "age": show.age,
        "brief": show.brief,
        "cell": show.cell,
        "count": show.count,
        "exact": show.exact,
        "instant": show.instant,
        "rate": show.rate,
        "size": show.size,
        "span": show.span,
    }
    environment.globals |= {
        "version": __version__,
        "static": static_digests(),
        "strip_height": charts.STRIP_HEIGHT,
        "timedelta": timedelta,
    }
    return environment


def static_file(name: str) -> bytes:
    """A file that pages load."""
    return (files("cassieq_spark.console") / "static" / name).read_bytes()


@cache
def static_digests() -> dict[str, str]:
    """Digests that change the address of a file when its content changes."""
    return {name: hashlib.sha256(static_file(name)).hexdigest()[:12] for name in STATIC}


def flag(name: str, call: PageCall) -> bool:
    """True if a box of a form was ticked."""
    return call.form.get(name) == "yes"


def instant_of(call: PageCall, name: str) -> datetime | None:
    """A parameter of the query, or a field of the form, as an instant; None if it is empty.

    Raises:
        OptionError: It is no instant, or has no time zone.
    """
    text = call.asked(name).strip()
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise OptionError(
            f"{name} must be an instant with a time zone, such as 2026-11-20T12:00:00Z, not "
            f"{text!r}"
        )
    return instant
