"""The client for asyncio: the same methods as coroutines, which never block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self, Unpack, overload

from cassieq_spark.arguments import AT_ONCE, check_count
from cassieq_spark.client.async_exchange import AsyncExchange
from cassieq_spark.client.async_operations import AsyncOperations
from cassieq_spark.client.async_producer import AsyncProducer
from cassieq_spark.client.client import Client
from cassieq_spark.client.messages import Headers, Message, NewMessage, StoredMessage
from cassieq_spark.client.operations import DEFAULT_MAX_DELIVERIES
from cassieq_spark.client.producer import (
    DEFAULT_LINGER,
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_BYTES,
)
from cassieq_spark.client.receiving import Wanted, check_receive, pauses_within
from cassieq_spark.client.threads import Threads
from cassieq_spark.errors import CassieqError
from cassieq_spark.model import DEFAULT_LEASE, QueueDefinition, Range
from cassieq_spark.queues.stats import QueueStats
from cassieq_spark.settings.connection import Connection
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Store

DEFAULT_THREADS = 8
_MOST_THREADS = 10_000


class AsyncClient(AsyncOperations):
    """`Client` as coroutines. The work is done in threads of its own; waiting needs none.

    A call that is cancelled may have happened all the same, like one whose answer is lost; but
    what a cancelled `receive` leased is given back at once. For one loop, with ``async with``,
    which connects and, in the end, waits for all that is under way.

    Args:
        threads: How many requests are under way at a time, at the most.
        connection: How to reach Cassandra; see `ConnectionOptions`.

    Raises:
        OptionError: There are no threads.
    """

    def __init__(
        self, *, threads: int = DEFAULT_THREADS, **connection: Unpack[Connection]
    ) -> None:
        self._begin(partial(Client, **connection), threads)

    @classmethod
    def from_store(cls, store: Store, *, threads: int = DEFAULT_THREADS) -> Self:
        """A client of a store that is open, and stays so: `MemoryStore`, in tests."""
        client = cls.__new__(cls)
        client._begin(partial(Client.from_store, store), threads)  # noqa: SLF001 (our own)
        return client

    def _begin(self, connect: Callable[[], Client], threads: int) -> None:
        check_count("threads", threads, most=_MOST_THREADS)
        self._connect = connect
        self._connected: Client | None = None
        self._threads = Threads(threads)

    async def create_queue(  # noqa: PLR0913 (each is a setting of its own, by name)
        self,
        queue: str,
        *,
        lease: timedelta = DEFAULT_LEASE,
        max_deliveries: int = DEFAULT_MAX_DELIVERIES,
        dead_letter_queue: str | None = None,
        drop_dead: bool = False,
        strict_fifo: bool = False,
        expire_after: timedelta | None = None,
        keep_settled: timedelta | None = None,
    ) -> QueueDefinition:
        """See `Client.create_queue`."""
        return await self._threads.run(
            partial(
                self._client.create_queue,
                queue,
                lease=lease,
                max_deliveries=max_deliveries,
                dead_letter_queue=dead_letter_queue,
                drop_dead=drop_dead,
                strict_fifo=strict_fifo,
                expire_after=expire_after,
                keep_settled=keep_settled,
            )
        )

    async def queue(self, queue: str) -> QueueDefinition:
        """See `Client.queue`."""
        return await self._threads.run(partial(self._client.queue, queue))

    async def stats(self, queue: str) -> QueueStats:
        """See `Client.stats`."""
        return await self._threads.run(partial(self._client.stats, queue))

    async def put(  # noqa: PLR0913 (each is a property of the message, by name)
        self,
        queue: str,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> int:
        """See `Client.put`."""
        return await self._threads.run(
            partial(
                self._client.put,
                queue,
                value,
                key=key,
                headers=headers,
                delay=delay,
                visible_at=visible_at,
            )
        )

    @overload
    async def put_many(
        self,
        queue: str,
        messages: Iterable[bytes | str | NewMessage],
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> Range: ...

    @overload
    async def put_many(
        self,
        queue: str,
        messages: Iterable[bytes | str | NewMessage],
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Range | None: ...

    async def put_many(  # noqa: PLR0913 (what to put, and how, by name)
        self,
        queue: str,
        messages: Iterable[bytes | str | NewMessage],
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Range | None:
        """See `Client.put_many`; the messages are iterated over in a thread."""
        return await self._threads.run(
            partial(
                self._client.put_many,
                queue,
                messages,
                delay=delay,
                visible_at=visible_at,
                txn_app_id=txn_app_id,
                txn_version=txn_version,
                idempotency_key=idempotency_key,
            )
        )

    def producer(
        self,
        queue: str,
        *,
        linger: timedelta = DEFAULT_LINGER,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> AsyncProducer:
        """See `Client.producer`; it is for ``async with``, which raises what that raises."""
        make = partial(
            self._client.producer, queue, linger=linger, max_batch=max_batch, max_bytes=max_bytes
        )
        return AsyncProducer(self._threads, make)

    async def receive(  # noqa: PLR0913 (what to receive, and how, by name)
        self,
        queue: str,
        group: str,
        *,
        max: int = 1,  # noqa: A002 (the word that a user looks for)
        wait: timedelta = AT_ONCE,
        lease: timedelta | None = None,
        make_group: bool = True,
        max_bytes: int | None = None,
    ) -> list[Message]:
        """See `Client.receive`. What it leases while it is cancelled is due again at once."""
        check_receive(max, wait, lease, max_bytes)
        pauses = pauses_within(wait)
        make = partial(self._client.receiver, queue, group, make_group=make_group)
        receiver = await self._threads.run(make)
        wanted = Wanted(limit=max, lease=lease, max_bytes=max_bytes, most_bytes=max_bytes)
        look = partial(receiver.look, wanted)
        while True:
            messages = await self._threads.run(look, undo=receiver.give_back)
            pause = None if messages else next(pauses, None)
            if pause is None:
                return messages
            await asyncio.sleep(pause)
            if self._threads.closed:
                return []

    def exchange(self, queue: str, group: str, *, make_group: bool = True) -> AsyncExchange:
        """See `Client.exchange`."""
        exchange = self._client.exchange(queue, group, make_group=make_group)
        return AsyncExchange(self._threads, exchange)

    async def ack(self, *messages: Message | str) -> list[str]:
        """See `Client.ack`."""
        return await self._threads.run(partial(self._client.ack, *messages))

    async def release(self, *messages: Message | str, delay: timedelta = AT_ONCE) -> list[str]:
        """See `Client.release`."""
        return await self._threads.run(partial(self._client.release, *messages, delay=delay))

    async def extend(self, *messages: Message | str, by: timedelta) -> list[str]:
        """See `Client.extend`."""
        return await self._threads.run(partial(self._client.extend, *messages, by=by))

    async def reject(self, *messages: Message | str, reason: str) -> list[str]:
        """See `Client.reject`."""
        return await self._threads.run(partial(self._client.reject, *messages, reason=reason))

    async def replace(
        self,
        message: Message | str,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta = AT_ONCE,
    ) -> list[str]:
        """See `Client.replace`."""
        return await self._threads.run(
            partial(self._client.replace, message, value, key=key, headers=headers, delay=delay)
        )

    async def peek(
        self,
        queue: str,
        *,
        max: int = 10,  # noqa: A002 (the word that a user looks for)
        start: StartingPosition = "earliest",
        max_bytes: int | None = None,
    ) -> list[StoredMessage]:
        """See `Client.peek`."""
        return await self._threads.run(
            partial(self._client.peek, queue, max=max, start=start, max_bytes=max_bytes)
        )

    async def close(self) -> None:
        """Refuse new calls, wait for those under way, and disconnect."""
        client = self._connected
        await self._threads.close(client.close if client else lambda: None)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            OptionError: The connection is malformed.
            ConnectError: Nobody answers, or the credentials are refused.
            MissingSchemaError: There is no such keyspace, or its tables are of another release.
        """
        self._connected = await self._threads.run(self._connect, undo=Client.close)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _client(self) -> Client:
        if self._connected is None:
            raise CassieqError(
                "this client is not connected: use it inside `async with AsyncClient(...)`"
            )
        return self._connected
