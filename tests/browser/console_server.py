"""A console that answers at a port of this machine, and a browser that opens it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from cassieq_spark.console.app import Console

#: Where Debian has it; another one may be named.
CHROMIUM = os.environ.get("CASSIEQ_CHROMIUM", "/usr/bin/chromium")
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
]


@contextmanager
def serving(console: Any) -> Iterator[str]:
    """Serve an application in a thread; its URL, without a slash at the end."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        console,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
        if isinstance(console, Console):
            console.close()


@contextmanager
def browsing() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    assert shutil.which(CHROMIUM), f"there is no {CHROMIUM}: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()
