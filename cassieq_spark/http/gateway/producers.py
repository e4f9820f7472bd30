"""One producer per queue that is put to, which batches the puts of all requests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice

from cassieq_spark.client import AsyncClient, AsyncProducer, NewMessage
from cassieq_spark.errors import CassieqError, NotFoundError, QueueStateError
from cassieq_spark.http.serving.errors import too_busy
from cassieq_spark.model import Position

#: Producers that are kept for the next put; each has a thread while it is put to.
_MOST_PRODUCERS = 500


@dataclass(slots=True, eq=False)
class _Shared:
    """The producer of a queue, which may still be connecting, and the number of puts using it.

    Repeated puts hold ``renewing`` one after the other, and so in their order.
    """

    producer: asyncio.Task[AsyncProducer]
    users: int = 0
    renewing: asyncio.Lock = field(default_factory=asyncio.Lock)


class ProducerPool:
    """Publishes the puts of requests: one LWT for all puts that arrive within ``linger``.

    Bound to one event loop.

    Args:
        client: The client of the queues.
        linger: How long a put waits for others.
    """

    def __init__(self, client: AsyncClient, linger: timedelta) -> None:
        self._client = client
        self._linger = linger
        self._shared: OrderedDict[str, _Shared] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def put(self, queue: str, message: NewMessage) -> Position:
        """Publish a message, and return its position.

        Raises:
            RefusedError: 429; a full batch waits while another one is published.
            CassieqError: See `AsyncProducer.put`.
        """
        shared = self._shared_of(queue)
        shared.users += 1
        try:
            task = shared.producer
            # Shielded, because other puts wait for the same task.
            producer = task.result() if task.done() else await asyncio.shield(task)
            try:
                future = producer.try_put(message)
            except CassieqError:
                # The queue may have changed since the last batch: `put` checks it, in a thread.
                return await producer.put(message)
            if future is None:
                raise too_busy(f"queue {queue!r} gets more messages than can be published")
            try:
                return await future
            except NotFoundError:
                raise
            except QueueStateError:
                # The queue was created anew since the last batch, with another schema: nothing is
                # published.
                async with shared.renewing:
                    return await producer.put(message)
        finally:
            shared.users -= 1
            self._drop_if_failed(queue, shared)

    async def close(self) -> None:
        """Publish all pending messages. No put may follow."""
        for queue in list(self._shared):
            self._close(queue)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _shared_of(self, queue: str) -> _Shared:
        shared = self._shared.get(queue)
        if shared is None:
            if len(self._shared) >= _MOST_PRODUCERS:
                idle = (name for name, each in self._shared.items() if not each.users)
                for name in islice(idle, 1):
                    self._close(name)
            made = self._client.producer(queue, linger=self._linger)
            shared = self._shared[queue] = _Shared(asyncio.create_task(made.__aenter__()))
        self._shared.move_to_end(queue)
        return shared

    def _drop_if_failed(self, queue: str, shared: _Shared) -> None:
        """Forget a producer that could not be made: the queue may be created later."""
        task = shared.producer
        failed = task.done() and (task.cancelled() or task.exception() is not None)
        if failed and self._shared.get(queue) is shared:
            del self._shared[queue]

    def _close(self, queue: str) -> None:
        """Close a producer in the background."""
        closing = asyncio.create_task(_close(self._shared.pop(queue).producer))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _close(task: asyncio.Task[AsyncProducer]) -> None:
    producer = await task
    # Requests whose messages could not be published got the error.
    await producer.__aexit__(None, None, None)
