"""A real browser at a console of a filled store; `make test-browser` has what this needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.console_server import browsing, serving
from tests.support.filled_console import Filled, filled

#: Phones and screens.
NARROW, WIDE = 390, 1280
NewPage = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="session")
def operated() -> Iterator[tuple[str, Filled]]:
    """The address of a console that may change queues, and what is behind it."""
    it = filled(10, allow_changes=True)
    it.client.create_schedule("orders", "weekly", cron="0 3 * * 1", message="{{date}}")
    with serving(it.console) as url:
        yield url, it


@pytest.fixture
def new_page(browser: Browser) -> Iterator[NewPage]:
    """Makes pages; in the end none has said an error, or asked another host."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def make(*, width: int = WIDE, theme: str = "light", **options: Any) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda it: complaints.append(it.text) if it.type in {"error", "warning"} else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda it: (
                None
                if urlsplit(it.url).hostname == "127.0.0.1"
                else complaints.append(f"asked {it.url}")
            ),
        )
        return page

    yield make
    for context in contexts:
        context.close()
    # A page that is refused is an error to the browser, too.
    refusal = "the server responded with a status of "
    assert [each for each in complaints if refusal not in each] == []


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return new_page()
