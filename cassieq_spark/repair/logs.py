"""The log of a program that people watch: warnings, on standard error, a line each."""

from __future__ import annotations

import logging


def log_to_stderr() -> None:
    """Show warnings of this library; not the driver's, which come with stack traces.

    What keeps the driver from its work is in our errors, in a line.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
