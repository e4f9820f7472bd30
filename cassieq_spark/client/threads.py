"""Blocking calls from a loop: threads of its own, and what becomes of calls that are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from cassieq_spark.errors import CassieqError

T = TypeVar("T")


class Threads:
    """Runs blocking calls for one loop.

    Args:
        count: How many at a time, at the most.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="cassieq-client")
        self._count = 0
        self._changed = asyncio.Event()
        #: Whether no new calls are taken.
        self.closed = False

    async def run(self, call: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
        """Run a blocking call in a thread.

        Args:
            call: What to run. If the caller is cancelled before it has begun, it never is.
            undo: What to do with its result, in a thread, if the caller is cancelled after that.

        Raises:
            CassieqError: The client is closed.
        """
        if self.closed:
            raise CassieqError("this client is closed: make another one")
        self._count += 1
        try:
            future = self._pool.submit(call)
            try:
                return await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                if undo is not None and not future.cancel():
                    self._pool.submit(_undo, future, undo)
                raise
        finally:
            self._count -= 1
            self._changed.set()

    async def close(self, last: Callable[[], object]) -> None:
        """Take no new calls, wait for those under way and all that is undone, then do ``last``."""
        self.closed = True
        while self._count:
            self._changed.clear()
            await self._changed.wait()
        await asyncio.to_thread(partial(self._end, last))

    def _end(self, last: Callable[[], object]) -> None:
        self._pool.shutdown()
        last()


def _undo(future: Future[T], undo: Callable[[T], object]) -> None:
    undo(future.result())
