"""Every page, in both themes, on a phone and on a screen: does it fit, and can all use it?"""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import NARROW, WIDE, NewPage
from tests.support.filled_console import LONG_NAME, Filled

PAGES = {
    "overview": "/",
    "overview, narrowed down": "/?state=due&sort=depth",
    "overview, nothing found": "/?q=nothing-like-this",
    "queue": "/queues/orders",
    "queue with partitions": "/queues/clickstream",
    "queue with a long name": f"/queues/{LONG_NAME}",
    "queue without groups": "/queues/audit-log",
    "group": "/queues/orders/groups/billing",
    "group of partitions": "/queues/clickstream/groups/warehouse",
    "messages": "/queues/orders/messages",
    "messages with columns": "/queues/trips/messages",
    "messages of bytes": "/queues/thumbnails/messages",
    "message": "/queues/orders/messages/0/50",
    "message with columns": "/queues/trips/messages/0/50",
    "history": "/queues/orders/messages/0/50/history",
    "message in hex": "/queues/thumbnails/messages/0/5?as=hex",
    "dead letters": "/queues/orders/dead",
    "no dead letters": "/queues/audit-log/dead",
    "schedules": "/queues/orders/schedules",
    "schedule": "/queues/orders/schedules/weekly",
    "settings": "/queues/trips/settings",
    "create": "/create",
    "repair": "/repair",
    "repair run": "/repair/9",
    "error": "/queues/nope",
}
#: Pages that only the answer to a form shows: where the form is, and its button.
CONFIRMATIONS = {
    "confirm a pause": ("/queues/orders", "Pause…", {}),
    "confirm a purge": ("/queues/trips/settings", "Purge the queue…", {}),
    "blocked by leases": ("/queues/orders/settings", "Purge the queue…", {}),
    "confirm a move": (
        "/queues/emails/groups/senders",
        "Show what it does…",
        {"to": "earliest"},
    ),
    "confirm a schedule": (
        "/queues/orders/schedules",
        "Show when it comes…",
        {"name": "nightly", "message": "{{date}}", "cron": "0 3 * * *"},
    ),
    "confirm an altered schedule": (
        "/queues/orders/schedules/weekly",
        "Show when it comes…",
        {"cron": "0 4 * * 1"},
    ),
    "confirm a purge of dead letters": ("/queues/trips/dead", "Purge…", {}),
}


def complaints_of(page: Page) -> list[str]:
    """What axe finds that matters, with the element."""
    found: dict[str, Any] = Axe().run(page).response
    return [
        f"{each['id']}: {node['html'][:160]}"
        for each in found["violations"]
        if each["impact"] in {"serious", "critical", "moderate"}
        for node in each["nodes"]
    ]


def wrong_with(page: Page, width: int) -> list[str]:
    """What is wrong with a page that is open."""
    wrong = complaints_of(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        wrong.append(f"it is {wide} wide")
    if not page.title().endswith("· cassieq") or not page.locator("main").is_visible():
        wrong.append(f"it is {page.title()!r}")
    return wrong


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_every_page_fits_and_can_be_used_by_everybody(
    new_page: NewPage, operated: tuple[str, Filled], width: int, theme: str
):
    page, wrong = new_page(width=width, theme=theme), {}
    for name, path in PAGES.items():
        page.goto(operated[0] + path)

        wrong[name] = wrong_with(page, width)

    assert {name: each for name, each in wrong.items() if each} == {}


@pytest.mark.parametrize(("theme", "width"), [("light", NARROW), ("dark", WIDE)])
def test_every_confirmation_fits_and_can_be_used_by_everybody(
    new_page: NewPage, operated: tuple[str, Filled], width: int, theme: str
):
    page, wrong = new_page(width=width, theme=theme), {}
    for name, (path, button, fields) in CONFIRMATIONS.items():
        page.goto(operated[0] + path)
        for field, text in fields.items():
            page.locator(f"main [name={field}]").fill(text)
        page.get_by_role("button", name=button).first.click()
        page.wait_for_selector(".confirm")

        wrong[name] = wrong_with(page, width)

    assert {name: each for name, each in wrong.items() if each} == {}


@pytest.mark.parametrize("width", [360, 768, 1024, 1920])
def test_no_page_is_wider_than_any_screen(
    new_page: NewPage, operated: tuple[str, Filled], width: int
):
    page = new_page(width=width)
    for path in PAGES.values():
        page.goto(operated[0] + path)

        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_the_theme_is_switched_and_remembered(page: Page, operated: tuple[str, Filled]):
    page.goto(operated[0] + "/repair")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)

    page.get_by_role("button", name="switch to dark").click()
    page.wait_for_selector('html[data-theme="dark"]')

    assert page.evaluate(ground) != light
    page.goto(operated[0] + "/")
    assert page.locator("html").get_attribute("data-theme") == "dark"
