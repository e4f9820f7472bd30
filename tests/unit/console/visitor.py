"""Somebody who opens pages of a console and sends their forms, without a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx

from cassieq_spark.console import Console
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store

BASE = "http://127.0.0.1:8081"


@dataclass
class Form:
    """A form of a page: where it goes, and what its fields hold."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    button: str = ""


class Visitor:
    """Asks a console whose background does not run: what it knows is read by `look`."""

    def __init__(self, console: Console, *, app: Any = None, **client: Any) -> None:
        self.console = console
        console.watcher.start = lambda: None  # type: ignore[method-assign]
        self._runner = asyncio.Runner()
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app or console, raise_app_exceptions=True),
            **({"base_url": BASE} | client),
        )

    def look(self) -> None:
        """Let the background read everything once."""
        self.console.watcher.forget("")
        self.console.watcher.round(seconds=60)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._ask("GET", path, headers=headers)

    def page(self, path: str) -> str:
        """The text of a page that there is."""
        answer = self.get(path)
        assert answer.status_code == 200, words_of(answer.text)
        return answer.text

    def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        given = {"origin": BASE, "content-type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, content=urlencode(fields), headers=given | headers)

    def submit(self, text: str, action: str, **fields: str) -> httpx.Response:
        """Send the form of a page whose address ends so, with these fields filled in."""
        found = [form for form in forms_of(text) if form.action.endswith(action)]
        assert found, (action, [form.action for form in forms_of(text)])
        return self.post(found[0].action, found[0].fields | fields)

    def confirm(self, answer: httpx.Response, **fields: str) -> httpx.Response:
        """Confirm the change that a page asks for, and follow to where that leads."""
        assert answer.status_code == 200, words_of(answer.text)
        (form,) = [each for each in forms_of(answer.text) if "seal" in each.fields]
        path = form.action or answer.request.url.path
        done = self.post(path, form.fields | fields)
        if done.status_code != 303:
            return done
        return self.get(done.headers["location"])

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
        self.console.close()

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **more))


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open: Form | None = None
        self._area: str | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            self._open = Form(given.get("action", ""), given.get("method", "get"))
            self.forms.append(self._open)
        elif self._open is not None and tag == "input" and "name" in given:
            if given.get("type") != "checkbox" or "checked" in given:
                self._open.fields[given["name"]] = given.get("value", "")
        elif self._open is not None and tag == "textarea":
            self._area = given["name"]
            self._open.fields[self._area] = ""
        elif self._open is not None and tag == "select":
            self._open.fields[given["name"]] = ""

    def handle_data(self, data: str) -> None:
        if self._open is not None and self._area is not None:
            self._open.fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        if tag == "textarea":
            self._area = None


def forms_of(text: str) -> list[Form]:
    """The forms of a page."""
    parser = _Forms()
    parser.feed(text)
    return parser.forms


def words_of(text: str) -> str:
    """What somebody reads on a page, words apart by one space."""
    body = re.sub(r"(?s)<(script|style|title)\b.*?</\1>|<[^>]*>", " ", text)
    return " ".join(unescape(body).split())


@contextmanager
def visiting(store: Store | None = None, **console: Any) -> Iterator[Visitor]:
    """A visitor of a console of a store."""
    given = {"reads_per_second": 1e9} | console
    visitor = Visitor(Console(store or MemoryStore(), **given))
    try:
        yield visitor
    finally:
        visitor.close()
