"""The client for asyncio: `Client`, `Producer` and `Exchange` with coroutines as methods.

Blocking methods run in the client's threads, so the loop never waits for Cassandra. `in_thread`
makes the coroutine, with the parameters and types of the method.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

import pyarrow as pa

from cassieq_spark.arguments import AT_ONCE, check_count
from cassieq_spark.client.client import Client
from cassieq_spark.client.exchange import Exchange
from cassieq_spark.client.receiver import Handed, QueueReceiver, lease_request
from cassieq_spark.client.shares import CALLER, Shares
from cassieq_spark.consumer.message import Message
from cassieq_spark.consumer.prefetch import PrefetchBudget
from cassieq_spark.display import Listing
from cassieq_spark.errors import CassieqError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.model import QueueDefinition
from cassieq_spark.processes import StaysHere
from cassieq_spark.producer.producer import (
    DEFAULT_LINGER,
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_BYTES,
    Producer,
)
from cassieq_spark.settings.connection import Connection
from cassieq_spark.settings.verbs import AsyncMessageVerbs
from cassieq_spark.store.protocol import Store

P = ParamSpec("P")
T = TypeVar("T")
B_co = TypeVar("B_co", covariant=True)

DEFAULT_THREADS = 8
_MOST_THREADS = 10_000


class Threads:
    """Runs blocking calls for one event loop.

    Args:
        count: Most calls at a time.
        share: Most calls at a time of one `CALLER`; further calls wait, and take no thread.
    """

    def __init__(self, count: int, share: int) -> None:
        self._shares = Shares(share)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="cassieq-client")
        self._pid = os.getpid()
        self._count = 0
        self._changed = asyncio.Event()
        #: True if new calls are refused.
        self.closed = False

    async def run(self, call: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
        """Run a blocking call in a thread.

        Args:
            call: The call, which never runs if the caller is cancelled before it begins.
            undo: Called in a thread with the result, if the caller is cancelled after the call has
                begun.

        Raises:
            CassieqError: The client is closed.
        """
        if self.closed:
            raise CassieqError("this client is closed: create another one")
        if self._pid != os.getpid():
            raise CassieqError(
                "this process was forked, and has no threads of this client: create another one"
            )
        self._count += 1
        try:
            await self._shares.take(caller := CALLER.get())
            future = self._pool.submit(call)
            try:
                return await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                if undo is not None and not future.cancel():
                    self._pool.submit(_undo, future, undo)
                raise
            finally:
                if caller is not None:
                    self._give_share(future, caller)
        finally:
            self._count -= 1
            self._changed.set()

    def _give_share(self, future: Future[T], caller: str) -> None:
        """Let the next call of a caller begin when this call has ended.

        The call may still occupy a thread after its caller was cancelled.
        """
        if future.done():
            self._shares.give(caller)
            return
        loop = asyncio.get_running_loop()

        def give(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._shares.give, caller)

        future.add_done_callback(give)

    async def close(self, last: Callable[[], object]) -> None:
        """Refuse new calls, wait for those under way and each ``undo``, then call ``last``."""
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


class InThreads(ABC, Generic[B_co]):
    """An object for asyncio around a blocking one."""

    _threads: Threads

    @property
    @abstractmethod
    def _blocking(self) -> B_co:
        """The blocking object."""


def in_thread(
    method: Callable[Concatenate[B_co, P], T],
) -> Callable[Concatenate[InThreads[B_co], P], Coroutine[Any, Any, T]]:
    """Make a coroutine from a blocking method, with its name, parameters, result and docstring."""

    async def call(self: InThreads[B_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.run(partial(method, self._blocking, *args, **kwargs))

    return wraps(method)(call)


def _published(
    method: Callable[Concatenate[Producer, P], Future[T]],
) -> Callable[Concatenate[AsyncProducer, P], Coroutine[Any, Any, T]]:
    """Make a coroutine from a method that returns a future; it awaits the future, too."""

    async def call(self: AsyncProducer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        put: Callable[[], Future[T]] = partial(method, self._blocking, *args, **kwargs)
        future = await self._threads.run(put, undo=Future.cancel)
        return await asyncio.wrap_future(future)

    return wraps(method)(call)


def _without_thread(
    method: Callable[Concatenate[Producer, P], Future[T] | None],
) -> Callable[Concatenate[AsyncProducer, P], asyncio.Future[T] | None]:
    """Make a method for the loop from one that never waits; it returns a future of the loop."""

    def call(
        self: AsyncProducer, /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T] | None:
        future = method(self._blocking, *args, **kwargs)
        return None if future is None else _Outcome(future)

    return wraps(method)(call)


class _Outcome(asyncio.Future[T]):
    """A future of the loop with the outcome of a producer's future.

    When the program asks this future for the outcome, the producer's future counts as asked, too.
    With `asyncio.wrap_future`, it would count as asked as soon as the outcome is known.
    """

    def __init__(self, source: Future[T]) -> None:
        super().__init__()
        self._source = source
        self.add_done_callback(self._cancel_source)
        source.add_done_callback(self._tell_loop)

    def __await__(self) -> Generator[Any, None, T]:
        try:
            return (yield from super().__await__())
        finally:
            self._ask()

    def result(self) -> T:
        self._ask()
        return super().result()

    def exception(self) -> BaseException | None:
        self._ask()
        return super().exception()

    def _ask(self) -> None:
        if self.done() and not self.cancelled():
            self._source.exception()

    def _cancel_source(self, _: object) -> None:
        if self.cancelled():
            self._source.cancel()

    def _tell_loop(self, _: object) -> None:
        loop = self.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        if self.done():
            return
        if self._source.cancelled():
            self.cancel()
        # The method of the base class does not count as asking.
        elif (error := Future.exception(self._source)) is not None:
            self.set_exception(error)
        else:
            self.set_result(Future.result(self._source))


class AsyncProducer(StaysHere, InThreads[Producer]):
    """`Producer` for asyncio; made by `AsyncClient.producer`, for ``async with``.

    `put` returns the position of the message once it is published: run many puts at a time, as
    tasks. A put that is cancelled before its batch has begun is left out. `try_put` takes no
    thread and never waits; it returns None if the buffer has no room.
    """

    _instead = "send the client, and make a producer where it is used"

    def __init__(self, threads: Threads, make: Callable[[], Producer]) -> None:
        self._threads = threads
        self._make = make

    put = _published(Producer.put)
    try_put = _without_thread(Producer.try_put)
    flush = in_thread(Producer.flush)

    async def __aenter__(self) -> Self:
        """Make the producer; see `Client.producer`."""
        self._producer = await self._threads.run(self._make)
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Publish all pending messages; see `Producer.close`."""
        await self._threads.run(partial(self._producer.__exit__, *raised))

    @property
    def _blocking(self) -> Producer:
        return self._producer


class AsyncExchange(StaysHere, InThreads[Exchange]):
    """`Exchange` for asyncio; made by `AsyncClient.exchange`. Only one `round` at a time."""

    _instead = "send the client, and make an exchange where it is used"

    def __init__(self, threads: Threads, exchange: Exchange) -> None:
        self._threads = threads
        self._exchange = exchange

    round = in_thread(Exchange.round)
    give_back = in_thread(Exchange.give_back)

    def rest(self) -> None:
        """Drop what was read ahead, as `Exchange.rest` does; only while no round is under way."""
        self._exchange.rest()

    @property
    def _blocking(self) -> Exchange:
        return self._exchange


class AsyncReceiver(StaysHere, InThreads[QueueReceiver]):
    """`QueueReceiver` for asyncio; made by `AsyncClient.receiver`. Only one look at a time."""

    _instead = "send the client, and make a receiver where it is used"

    def __init__(self, threads: Threads, receiver: QueueReceiver) -> None:
        self._threads = threads
        self._receiver = receiver

    async def look(self, request: LeaseRequest) -> list[Message]:
        """Lease and fetch messages; see `QueueReceiver.look`.

        If the call is cancelled, the messages that it leased are released.
        """
        look = partial(self._receiver.look, request)
        return await self._threads.run(look, undo=self._receiver.give_back)

    give_back = in_thread(QueueReceiver.give_back)

    @property
    def queue(self) -> QueueDefinition:
        """The queue as it was when the messages of the last look were read."""
        return self._receiver.queue

    def pauses(self, wait: timedelta) -> Iterator[float]:
        """The pauses before further looks, of `QueueReceiver.pauses`."""
        return self._receiver.pauses(wait)

    @property
    def _blocking(self) -> QueueReceiver:
        return self._receiver


class AsyncClient(InThreads[Client], AsyncMessageVerbs):
    """`Client` for asyncio: each method is a coroutine with the same parameters and result.

    Bound to one event loop; to be used by ``async with``, which connects, and at the end waits for
    the calls under way. A cancelled call may still take effect, like a call whose answer is lost;
    but messages that a cancelled `receive` leases are released at once. A `receive` that waits for
    messages takes no thread.

    Args:
        threads: Most calls to Cassandra at a time.
        name: The name of the client for people; see `Client`.
        connection: How to reach Cassandra; see `ConnectionOptions`.

    Raises:
        OptionError: The number of threads is out of range.
    """

    def __init__(
        self,
        *,
        threads: int = DEFAULT_THREADS,
        name: str | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        self._begin(partial(Client, name=name, **connection), threads)

    @classmethod
    def from_store(
        cls,
        store: Store,
        *,
        threads: int = DEFAULT_THREADS,
        share: int | None = None,
        name: str | None = None,
    ) -> Self:
        """Make a client on a store that stays open when the client is closed.

        Each `CALLER` uses at most ``share`` threads at a time; None: all threads.
        """
        client = cls.__new__(cls)
        connect = partial(Client.from_store, store, name=name)
        client._begin(connect, threads, share)  # noqa: SLF001 (our own)
        return client

    def _begin(
        self, connect: Callable[[], Client], threads: int, share: int | None = None
    ) -> None:
        check_count("threads", threads, most=_MOST_THREADS)
        self._connect, self._sizes = connect, (threads, share)
        self._connected: Client | None = None
        self._threads = Threads(threads, share or threads)

    def __repr__(self) -> str:
        connected = "not connected" if self._connected is None else repr(self._connected)
        return f"<{type(self).__name__}: {connected}>"

    def __reduce__(self) -> tuple[Callable[..., AsyncClient], tuple[Any, ...]]:
        """Pickle the settings; the copy, too, connects when its ``async with`` begins."""
        return _unpickled, (type(self), self._connect, *self._sizes)

    put = in_thread(Client.put)
    put_many = in_thread(Client.put_many)
    _receiver = in_thread(Client.receiver)
    peek = in_thread(Client.peek)
    message = in_thread(Client.message)
    history = in_thread(Client.history)

    _settle = in_thread(Client._settle)  # noqa: SLF001 (our own)
    settle = in_thread(Client.settle)
    replace = in_thread(Client.replace)

    create_queue = in_thread(Client.create_queue)
    alter_queue = in_thread(Client.alter_queue)
    pause_queue = in_thread(Client.pause_queue)
    resume_queue = in_thread(Client.resume_queue)
    attributes = in_thread(Client.attributes)
    queue_with_attributes = in_thread(Client.queue_with_attributes)
    set_attributes = in_thread(Client.set_attributes)
    fix_clocks = in_thread(Client.fix_clocks)
    queue = in_thread(Client.queue)
    queues = in_thread(Client.queues)
    queue_names = in_thread(Client.queue_names)
    stats = in_thread(Client.stats)
    groups = in_thread(Client.groups)
    stored = in_thread(Client.stored)
    purge_queue = in_thread(Client.purge_queue)
    delete_queue = in_thread(Client.delete_queue)

    create_group = in_thread(Client.create_group)
    seek_group = in_thread(Client.seek_group)
    stopped = in_thread(Client.stopped)
    resume_group = in_thread(Client.resume_group)
    delete_group = in_thread(Client.delete_group)

    dead_letters = in_thread(Client.dead_letters)
    redrive = in_thread(Client.redrive)
    purge_dead_letters = in_thread(Client.purge_dead_letters)

    create_schedule = in_thread(Client.create_schedule)
    alter_schedule = in_thread(Client.alter_schedule)
    schedules = in_thread(Client.schedules)
    schedule = in_thread(Client.schedule)
    pause_schedule = in_thread(Client.pause_schedule)
    resume_schedule = in_thread(Client.resume_schedule)
    run_schedule_now = in_thread(Client.run_schedule_now)
    delete_schedule = in_thread(Client.delete_schedule)
    schedule_runner = in_thread(Client.schedule_runner)

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
        attempt: str | None = None,
    ) -> list[Message]:
        """Lease messages; see `Client.receive`. If cancelled, the messages are released."""
        request = lease_request(max, wait, lease, max_bytes, attempt)
        receiver = await self._receiver(queue, group, make_group=make_group)
        return Listing(await self._look(receiver, partial(receiver.look, request), wait))

    async def receive_table(  # noqa: PLR0913 (what to receive, and how, by name)
        self,
        queue: str,
        group: str,
        *,
        max: int = 10_000,  # noqa: A002 (the word that a user looks for)
        wait: timedelta = AT_ONCE,
        lease: timedelta | None = None,
        make_group: bool = True,
    ) -> pa.Table:
        """Lease messages as a table; see `Client.receive_table` and `receive`."""
        request = lease_request(max, wait, lease)
        receiver = await self._receiver(queue, group, make_group=make_group)
        return await self._look(receiver, partial(receiver.look_table, request), wait)

    async def _look(
        self, receiver: QueueReceiver, look: Callable[[], Handed], wait: timedelta
    ) -> Handed:
        """Look for messages until some are found, the time is over, or the client is closed."""
        pauses = receiver.pauses(wait)
        while True:
            handed = await self._threads.run(look, undo=receiver.give_back)
            pause = None if len(handed) else next(pauses, None)
            if pause is None:
                return handed
            await asyncio.sleep(pause)
            if self._threads.closed:
                return handed

    async def receiver(self, queue: str, group: str, *, make_group: bool = True) -> AsyncReceiver:
        """Make a receiver, whose looks for messages do not wait. One read."""
        made = await self._receiver(queue, group, make_group=make_group)
        return AsyncReceiver(self._threads, made)

    def producer(
        self,
        queue: str,
        *,
        linger: timedelta = DEFAULT_LINGER,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> AsyncProducer:
        """Make a producer for ``async with``, which raises the errors of `Client.producer`."""
        make = partial(
            self._blocking.producer, queue, linger=linger, max_batch=max_batch, max_bytes=max_bytes
        )
        return AsyncProducer(self._threads, make)

    def exchange(
        self,
        queue: str,
        group: str,
        *,
        make_group: bool = True,
        ahead: PrefetchBudget | None = None,
    ) -> AsyncExchange:
        """Ack and receive for one group by one LWT; see `Client.exchange`."""
        exchange = self._blocking.exchange(queue, group, make_group=make_group, ahead=ahead)
        return AsyncExchange(self._threads, exchange)

    async def close(self) -> None:
        """Refuse new calls, wait for calls under way, and disconnect."""
        client = self._connected
        await self._threads.close(client.close if client else lambda: None)

    async def __aenter__(self) -> Self:
        """Connect; see `Client` for errors."""
        self._connected = await self._threads.run(self._connect, undo=Client.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _blocking(self) -> Client:
        if self._connected is None:
            raise CassieqError(
                "this client is not connected: use it inside `async with AsyncClient(...)`"
            )
        return self._connected


def _unpickled(
    kind: type[AsyncClient], connect: Callable[[], Client], threads: int, share: int | None
) -> AsyncClient:
    """Rebuild a pickled client in this process."""
    client = kind.__new__(kind)
    client._begin(connect, threads, share)  # noqa: SLF001 (our own)
    return client
