"""Pictures of the web console, in docs/figures/console; ``make console-pictures`` takes them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.console_server import browsing, serving
from tests.support.filled_console import filled

#: Steps of twenty seconds that the store is filled for: fifty minutes.
_STEPS = 150


@dataclass(frozen=True)
class Picture:
    """A page as it is shown.

    Attributes:
        name: Of the file.
        path: Of the page.
        width: Of the screen.
        height: Of the picture; None: all of the page.
        theme: Light or dark.
        press: A button that is pressed before.
        fill: What is typed before that, by label.
    """

    name: str
    path: str
    width: int = 1280
    height: int | None = None
    theme: str = "light"
    press: str | None = None
    fill: tuple[str, str] | None = None


PICTURES = (
    Picture("overview", "/"),
    Picture("overview-dark", "/?sort=depth", theme="dark"),
    Picture("overview-phone", "/?state=due", width=390, height=844),
    Picture("queue", "/queues/orders"),
    Picture("partitions", "/queues/clickstream", height=1000, theme="dark"),
    Picture("queue-phone", "/queues/orders", width=390, height=1100, theme="dark"),
    Picture("messages", "/queues/trips/messages?n=20"),
    Picture("message", "/queues/orders/messages/0/97"),
    Picture("dead", "/queues/orders/dead", height=700),
    Picture(
        "confirm",
        "/queues/emails/groups/senders",
        height=500,
        press="Show what it does…",
        fill=("Position", "earliest"),
    ),
    Picture("settings", "/queues/trips/settings", height=1000),
    Picture("repair", "/repair", height=700),
)


def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(exist_ok=True)
    it = filled(_STEPS, runs=False, allow_changes=True)
    with serving(it.console) as url, browsing() as browser:
        for picture in PICTURES:
            _take(browser, url, picture, folder)


def _take(browser: Browser, url: str, picture: Picture, folder: Path) -> None:
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height or 900},
        color_scheme=picture.theme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    page.goto(url + picture.path)
    if picture.fill is not None:
        page.get_by_label(picture.fill[0]).first.fill(picture.fill[1])
    if picture.press is not None:
        page.get_by_role("button", name=picture.press).first.click()
        page.wait_for_selector(".confirm")
    # No picture shows where the pointer or the focus is.
    page.mouse.move(0, 0)
    page.screenshot(path=folder / f"{picture.name}.png", full_page=picture.height is None)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
