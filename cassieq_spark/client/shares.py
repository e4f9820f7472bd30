"""Shares: a caller that has reached its share of calls waits until one of its calls has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

#: The name of the caller for whom a task makes calls; new tasks inherit the name. A task without
#: a name never waits.
CALLER: ContextVar[str | None] = ContextVar("caller", default=None)


class Shares:
    """Limits the calls of each caller that are under way; further calls begin in their order.

    Bound to one event loop.

    Args:
        most: Most calls of one caller at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By caller: the free part of its share, and how many of its calls wait or are under way.
        self._callers: dict[str, tuple[asyncio.Semaphore, int]] = {}

    async def take(self, caller: str | None) -> None:
        """Wait until another call of a caller may begin; `give` ends it."""
        if caller is None:
            return
        free, count = self._callers.get(caller) or (asyncio.Semaphore(self._most), 0)
        self._callers[caller] = free, count + 1
        try:
            await free.acquire()
        except BaseException:
            self._leave(caller)
            raise

    def give(self, caller: str | None) -> None:
        """Let the next call of a caller begin, because one has ended."""
        if caller is not None:
            self._callers[caller][0].release()
            self._leave(caller)

    @asynccontextmanager
    async def held(self, caller: str | None) -> AsyncIterator[None]:
        """Make a call of a caller within the block, once the call may begin."""
        await self.take(caller)
        try:
            yield
        finally:
            self.give(caller)

    def _leave(self, caller: str) -> None:
        free, count = self._callers.pop(caller)
        if count > 1:
            self._callers[caller] = free, count - 1
