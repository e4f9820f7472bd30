"""Shares: each caller has so many things under way at a time, and its others wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

#: For whom calls are made; tasks inherit it. None: for nobody in particular, who never waits.
CALLER: ContextVar[str | None] = ContextVar("caller", default=None)


class Shares:
    """Lets each caller have so many things under way, in the order in which it asks.

    For one loop.

    Args:
        most: Things of one caller at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By caller: what is free of its share, and how many of its things wait or are under way.
        self._callers: dict[str, tuple[asyncio.Semaphore, int]] = {}

    async def take(self, caller: str | None) -> None:
        """Wait until one thing more of a caller may begin; `give` ends it."""
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
        """Let the next thing of a caller begin, as one has ended."""
        if caller is not None:
            self._callers[caller][0].release()
            self._leave(caller)

    @asynccontextmanager
    async def held(self, caller: str | None) -> AsyncIterator[None]:
        """Do one thing of a caller within the block, once it may begin."""
        await self.take(caller)
        try:
            yield
        finally:
            self.give(caller)

    def _leave(self, caller: str) -> None:
        free, count = self._callers.pop(caller)
        if count > 1:
            self._callers[caller] = free, count - 1
