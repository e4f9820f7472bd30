"""Turns: each caller does so many things at a time, and the rest of what it asks for waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

#: For whom calls are made; tasks inherit it. None: for nobody in particular, who never waits.
CALLER: ContextVar[str | None] = ContextVar("caller", default=None)


class Turns:
    """Gives each caller so many turns at a time, in the order in which it asks. For one loop.

    Args:
        most: Turns of one caller at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By caller: its free turns, and how many of its things wait or have a turn.
        self._callers: dict[str, tuple[asyncio.Semaphore, int]] = {}

    async def take(self, caller: str | None) -> None:
        """Wait for a turn; `give` it back."""
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
        """Give a turn back, which the next thing of the same caller gets."""
        if caller is not None:
            self._callers[caller][0].release()
            self._leave(caller)

    @asynccontextmanager
    async def turn(self, caller: str | None) -> AsyncIterator[None]:
        """Wait for a turn, and have it within the block."""
        await self.take(caller)
        try:
            yield
        finally:
            self.give(caller)

    def _leave(self, caller: str) -> None:
        free, count = self._callers.pop(caller)
        if count > 1:
            self._callers[caller] = free, count - 1
