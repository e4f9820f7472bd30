"""The producer for asyncio: the same methods as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from cassieq_spark.client.messages import Headers
from cassieq_spark.client.producer import Producer
from cassieq_spark.client.threads import Threads


class AsyncProducer:
    """`Producer` as coroutines; made by `AsyncClient.producer`, for ``async with``."""

    def __init__(self, threads: Threads, make: Callable[[], Producer]) -> None:
        self._threads = threads
        self._make = make

    async def put(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> int:
        """Put a message, and return its monoton once it is published; see `Producer.put`.

        Run many at a time, as tasks: they are gathered. Cancelled before its batch has begun, it
        is left out.
        """
        future = await self._threads.run(
            partial(
                self._producer.put,
                value,
                key=key,
                headers=headers,
                delay=delay,
                visible_at=visible_at,
            ),
            undo=Future.cancel,
        )
        return await asyncio.wrap_future(future)

    def try_put(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> asyncio.Future[int] | None:
        """As `put`, but takes no thread and never waits: None if there is no room now.

        For servers, which would rather refuse a message than hold any number of them.
        """
        future = self._producer.try_put(
            value, key=key, headers=headers, delay=delay, visible_at=visible_at
        )
        return None if future is None else asyncio.wrap_future(future)

    async def flush(self) -> None:
        """See `Producer.flush`."""
        await self._threads.run(self._producer.flush)

    async def __aenter__(self) -> Self:
        """See `Client.producer`."""
        self._producer = await self._threads.run(self._make)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `Producer.close`."""
        await self._threads.run(partial(self._producer.__exit__, kind, error, trace))
