"""Puts of all requests: a producer for each queue gathers them into few publishes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime, timedelta

from cassieq_spark.client import AsyncClient, AsyncProducer
from cassieq_spark.gateway.refusals import too_busy

#: Producers that are kept for the next put; each has a thread once it was used.
_MOST_PRODUCERS = 500


class Puts:
    """Publishes what requests put, all that comes within a moment by one LWT. For one loop.

    Args:
        client: How the queues are reached.
        linger: How long a put waits for others.
    """

    def __init__(self, client: AsyncClient, linger: timedelta) -> None:
        self._client = client
        self._linger = linger
        self._producers: OrderedDict[str, asyncio.Task[AsyncProducer]] = OrderedDict()
        self._leaving: set[asyncio.Task[None]] = set()

    async def put(  # noqa: PLR0913 (each is a property of the message, by name)
        self,
        queue: str,
        value: bytes,
        *,
        key: str | None,
        headers: dict[str, str] | None,
        delay: timedelta | None,
        visible_at: datetime | None,
    ) -> int:
        """Publish a message, and return its monoton.

        Raises:
            RefusedError: 429; a whole batch waits already while another one is published.
            CassieqError: See `AsyncProducer.put`.
        """
        producer = await self._producer(queue)
        future = producer.try_put(
            value, key=key, headers=headers, delay=delay, visible_at=visible_at
        )
        if future is None:
            raise too_busy(f"queue {queue!r} gets more messages than can be published")
        return await future

    async def close(self) -> None:
        """Publish what is left. No put may follow."""
        while self._producers:
            self._let_go()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _producer(self, queue: str) -> AsyncProducer:
        task = self._producers.get(queue)
        if task is None:
            if len(self._producers) >= _MOST_PRODUCERS:
                self._let_go()
            made = self._client.producer(queue, linger=self._linger)
            task = self._producers[queue] = asyncio.create_task(made.__aenter__())
        else:
            self._producers.move_to_end(queue)
        try:
            return await asyncio.shield(task)
        except BaseException:
            if task.done() and self._producers.get(queue) is task:
                del self._producers[queue]
            raise

    def _let_go(self) -> None:
        """Close the producer that was used the longest ago, in the background."""
        _, task = self._producers.popitem(last=False)
        leaving = asyncio.create_task(_close(task))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)


async def _close(task: asyncio.Task[AsyncProducer]) -> None:
    producer = await task
    # What could not be published, its requests have heard of.
    await producer.__aexit__(None, None, None)
