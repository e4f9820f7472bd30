"""Caches definitions and attributes of queues, which are needed for each message sent."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from cassieq_spark.client import AsyncClient
from cassieq_spark.http.gateway.sqs.settings import KnownQueue

#: How long a queue that was read is used. At AWS, changed attributes may take 60 s to take effect.
_SECONDS = 1.0
_MOST = 10_000


class KnownQueues:
    """Reads each queue at most once a second, for all requests. Bound to one event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._known: OrderedDict[str, tuple[float, asyncio.Task[KnownQueue]]] = OrderedDict()

    async def find(self, name: str) -> KnownQueue:
        """The queue with this full name. One read if the queue was not read for a second.

        Raises:
            NotFoundError: The queue does not exist.
        """
        until, task = self._known.get(name, (0.0, None))
        if task is None or until < time.monotonic():
            task = asyncio.create_task(self.read(name))
            self._known[name] = time.monotonic() + _SECONDS, task
            self._known.move_to_end(name)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        # Shielded, because other requests wait for the same task.
        return task.result() if task.done() else await asyncio.shield(task)

    async def read(self, name: str) -> KnownQueue:
        """Read a queue now. One read.

        Raises:
            NotFoundError: The queue does not exist.
        """
        return KnownQueue(*await self._client.queue_with_attributes(name))

    def forget(self, name: str) -> None:
        """Read a queue again when it is next needed, because it was changed here."""
        self._known.pop(name, None)
