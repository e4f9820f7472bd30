"""One request to Cassandra, repeated while that is safe and patience lasts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from cassandra.cluster import ResponseFuture, ResultSet
from cassandra.query import BoundStatement, Statement

from cassieq_spark.store.cassandra.mapping import (
    DRIVER_ERRORS,
    Request,
    is_repeatable,
    translate,
)
from cassieq_spark.store.cassandra.session import Link

_T = TypeVar("_T")
_SHORTEST_PAUSE = timedelta(milliseconds=10)
_LONGEST_PAUSE = timedelta(seconds=1)


class Patience:
    """The pauses of one request: longer each time, jittered, until the budget is spent.

    Args:
        budget: Counts from the first pause on.
    """

    def __init__(self, budget: timedelta) -> None:
        self._budget = budget.total_seconds()
        self._deadline: float | None = None
        self._longest = _SHORTEST_PAUSE

    def pause(self) -> bool:
        """Sleep a little; False, at once, if the budget is spent."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._budget
        if now >= self._deadline:
            return False
        pause = random.uniform(0.2, 1) * self._longest.total_seconds()  # noqa: S311 - no secret
        time.sleep(min(pause, self._deadline - now))
        self._longest = min(self._longest * 2, _LONGEST_PAUSE)
        return True


def insist(link: Link, request: Request, doing: str, call: Callable[[], _T]) -> _T:
    """Call until it succeeds, fails for good, or patience is out.

    Raises:
        StoreError: Ours for the driver's last error.
    """
    patience = Patience(link.options.patience)
    while True:
        try:
            return call()
        except DRIVER_ERRORS as error:
            if not (is_repeatable(error, request) and patience.pause()):
                raise translate(error, request, doing, link.options) from error


def bind(link: Link, text: str, values: tuple[Any, ...], doing: str) -> BoundStatement:
    """Prepare a text if it is new, and bind values to it."""
    statement = insist(link, Request.READ, doing, lambda: link.prepared(text)).bind(values)
    # True of all that is sent alone; what rides in a conditional batch is not judged by this.
    statement.is_idempotent = True
    return statement


def execute(  # noqa: PLR0913 - what, how, and how to speak of it
    link: Link,
    statement: Statement,
    *,
    profile: str,
    request: Request,
    doing: str,
    paging_state: bytes | None = None,
) -> ResultSet:
    """Send a statement and wait for its first page, or the one at ``paging_state``."""
    return insist(
        link,
        request,
        doing,
        lambda: link.session.execute(
            statement, execution_profile=profile, paging_state=paging_state
        ),
    )


def start(link: Link, statement: Statement, *, profile: str) -> ResponseFuture:
    """Send a statement without waiting; whatever goes wrong shows when its result is asked for."""
    return link.session.execute_async(statement, execution_profile=profile)
