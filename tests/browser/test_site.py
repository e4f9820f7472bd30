"""The documents as a site, in a real browser: can all use it, and does its search find things?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import NARROW, WIDE, NewPage
from tests.browser.test_every_page import complaints_of

ROOT = Path(__file__).parents[2]
#: The first page, and those with the widest tables and the most code.
PAGES = ("", "recipes/", "performance/", "kubernetes/")
#: Made by the theme's script: landmarks of copy buttons without a name; frames of wide tables.
OF_THE_THEME = (
    'landmark-unique: <nav class="md-code__nav"',
    'scrollable-region-focusable: <div class="md-typeset__scrollwrap"',
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
        del format, args


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        folder,
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_page_of_the_site_fits_and_can_be_used_by_everybody(
    new_page: NewPage, site: str, width: int, theme: str
):
    page = new_page(width=width, theme=theme)
    wrong = {}
    for path in PAGES:
        page.goto(site + path)

        found = [it for it in complaints_of(page) if not it.startswith(OF_THE_THEME)]
        wide = page.evaluate("document.documentElement.scrollWidth")
        wrong[path] = [*found, *([f"it is {wide} wide"] if wide > width else [])]

    assert {path: each for path, each in wrong.items() if each} == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("airflow", "scheduling/"),
        ("kubernetes", "kubernetes/"),
        ("delta", "recipes/"),
        ("databricks", "managed-spark/"),
    ],
)
def test_the_search_finds_what_readers_look_for(page: Page, site: str, word: str, first: str):
    page.goto(f"{site}?q={word}")

    link = page.locator("a.md-search-result__link").first
    link.wait_for(state="attached")
    assert first in (link.get_attribute("href") or "")
