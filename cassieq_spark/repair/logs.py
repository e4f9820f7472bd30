"""The log of a program that people watch: warnings, on standard error, a line each."""

from __future__ import annotations

import logging

from cassieq_spark.terminal import visible

_FORMAT = "%(levelname)s %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Show warnings of this library; not the driver's, which come with stack traces.

    What keeps the driver from its work is in our errors, in a line.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)


class _Visible(logging.Formatter):
    """Messages name queues, groups and reasons, which others have stored."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return visible(super().format(record))
