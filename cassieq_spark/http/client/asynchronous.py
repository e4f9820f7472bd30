"""`HttpQueue` for asyncio, with coroutines as methods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial, wraps
from inspect import isawaitable
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack

import httpx

from cassieq_spark.errors import CassieqError
from cassieq_spark.http.client.answers import CLOSED
from cassieq_spark.http.client.queue import LIMITS, HttpQueue, no_answer, pause_after
from cassieq_spark.settings.verbs import AsyncMessageVerbs

P = ParamSpec("P")
T = TypeVar("T")


class HttpOptions(TypedDict, total=False):
    """How to reach a gateway; see `HttpQueue`."""

    key: str | None
    signed_url: str | None
    sign: bool
    patience: timedelta
    ca_file: str | None


class _Requests(HttpQueue):
    """The methods of `HttpQueue` as coroutines: each returns what `_ask` returns."""

    def __init__(self, url: str, account: str, queue: str, **options: Unpack[HttpOptions]) -> None:
        super().__init__(url, account, queue, **options)
        self.http = httpx.AsyncClient(base_url=url, verify=self._verify, limits=LIMITS)

    async def _ask(  # type: ignore[override] # methods return what this returns
        self, method: str, rest: str | None, parse: Callable[[httpx.Response], T], **more: Any
    ) -> T:
        end = time.monotonic() + self._patience
        if self.http.is_closed:
            raise CassieqError(CLOSED)
        while True:
            request = self._request(self.http, method, rest, **more)
            try:
                answer = await self.http.send(request)
            except httpx.HTTPError as error:
                raise no_answer(error) from error
            pause = pause_after(answer, end)
            if pause is None:
                return parse(answer)
            await asyncio.sleep(pause)


def _awaited(
    method: Callable[Concatenate[HttpQueue, P], T],
) -> Callable[Concatenate[AsyncHttpQueue, P], Coroutine[Any, Any, T]]:
    """Make a coroutine from a method, with the same name, parameters, result and docstring."""

    async def call(self: AsyncHttpQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: Any = method(self._requests, *args, **kwargs)
        found: T = await result if isawaitable(result) else result
        return found

    return wraps(method)(call)


class AsyncHttpQueue(AsyncMessageVerbs):
    """`HttpQueue` for asyncio: each method is a coroutine with the same parameters and result.

    Bound to one event loop; to be used by ``async with``. A cancelled call may still take effect.

    Args:
        url: The gateway's URL.
        account: Name of the account.
        queue: Name of its queue.
        options: See `HttpQueue`.

    Raises:
        OptionError: See `HttpQueue`.
    """

    def __init__(self, url: str, account: str, queue: str, **options: Unpack[HttpOptions]) -> None:
        self._requests = _Requests(url, account, queue, **options)
        self._again = partial(type(self), url, account, queue, **options)

    def __reduce__(self) -> tuple[Callable[[], AsyncHttpQueue], tuple[()]]:
        """Pickle the settings; see `HttpQueue`."""
        return self._again, ()

    create = _awaited(HttpQueue.create)
    alter = _awaited(HttpQueue.alter)
    attributes = _awaited(HttpQueue.attributes)
    set_attributes = _awaited(HttpQueue.set_attributes)
    pause = _awaited(HttpQueue.pause)
    resume = _awaited(HttpQueue.resume)
    definition = _awaited(HttpQueue.definition)
    stats = _awaited(HttpQueue.stats)
    delete = _awaited(HttpQueue.delete)
    purge = _awaited(HttpQueue.purge)

    put = _awaited(HttpQueue.put)
    put_many = _awaited(HttpQueue.put_many)
    receive = _awaited(HttpQueue.receive)
    peek = _awaited(HttpQueue.peek)
    message = _awaited(HttpQueue.message)
    history = _awaited(HttpQueue.history)

    _settle = _awaited(HttpQueue._settle)  # noqa: SLF001 (our own)
    replace = _awaited(HttpQueue.replace)

    groups = _awaited(HttpQueue.groups)
    create_group = _awaited(HttpQueue.create_group)
    seek_group = _awaited(HttpQueue.seek_group)
    stopped = _awaited(HttpQueue.stopped)
    resume_group = _awaited(HttpQueue.resume_group)
    delete_group = _awaited(HttpQueue.delete_group)

    dead_letters = _awaited(HttpQueue.dead_letters)
    redrive = _awaited(HttpQueue.redrive)
    purge_dead_letters = _awaited(HttpQueue.purge_dead_letters)

    create_schedule = _awaited(HttpQueue.create_schedule)
    alter_schedule = _awaited(HttpQueue.alter_schedule)
    schedules = _awaited(HttpQueue.schedules)
    schedule = _awaited(HttpQueue.schedule)
    pause_schedule = _awaited(HttpQueue.pause_schedule)
    resume_schedule = _awaited(HttpQueue.resume_schedule)
    run_schedule_now = _awaited(HttpQueue.run_schedule_now)
    delete_schedule = _awaited(HttpQueue.delete_schedule)

    async def close(self) -> None:
        """Close the connections."""
        await self._requests.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
