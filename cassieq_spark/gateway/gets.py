"""Gets of all requests: those for one group share a look, whose lease is cut into single ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from cassieq_spark.client import AsyncClient, Message
from cassieq_spark.errors import CassieqError

logger = logging.getLogger(__name__)

#: Messages that were leased for requests which went away could not be given back.
NOT_RETURNED = "gateway.not_returned"

#: The group of those who name none; the only one that is made by itself.
DEFAULT_GROUP = "default"

#: About how many bytes one look takes, as stored; so few messages are never more.
_LOOK_BYTES = 64 << 20
_FEW = 8

#: Seconds between two looks for those who wait.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.75
_Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Want:
    """What one request wants."""

    most: int
    lease: timedelta | None
    deadline: float
    looked: bool = False
    future: asyncio.Future[list[Message]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Gets:
    """Leases messages for requests: those that come while a look is under way share the next.

    For one loop. A look is one LWT, however many requests it serves, and none if nothing is there.

    Args:
        client: How the queues are reached.
        most: Most messages of one look.
    """

    def __init__(self, client: AsyncClient, most: int) -> None:
        self._client = client
        self._most = most
        self._polls: dict[_Key, _Poll] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def get(
        self, queue: str, group: str, *, most: int, lease: timedelta | None, wait: timedelta
    ) -> list[Message]:
        """Lease messages, at least one unless none comes in time; see `AsyncClient.receive`.

        What is leased for a request that is cancelled is given back.
        """
        patience = 0.0 if self._stopped else wait.total_seconds()
        deadline = asyncio.get_running_loop().time() + patience
        want = _Want(most, lease, deadline)
        key = (queue, group)
        poll = self._polls.get(key)
        if poll is None:
            poll = self._polls[key] = _Poll(self, self._client, key, self._most)
        poll.add(want)
        try:
            return await want.future
        except asyncio.CancelledError:
            if want.future.done() and not want.future.cancelled():
                self.give_back(want.future.result())
            raise

    def wake(self, queue: str) -> None:
        """Look at once for those who wait at this queue: something was put."""
        for (name, _), poll in self._polls.items():
            if name == queue:
                poll.woken.set()

    def stop(self) -> None:
        """Let nobody wait any more."""
        self._stopped = True
        for poll in self._polls.values():
            poll.hurry()

    async def close(self) -> None:
        """Wait for what is under way. No get may follow."""
        self.stop()
        while self._polls:
            await asyncio.gather(*(poll.task for poll in self._polls.values()))
        await asyncio.gather(*self._giving_back)

    def give_back(self, messages: Sequence[Message]) -> None:
        """Make messages that nobody got due again, in the background."""
        if messages:
            task = asyncio.create_task(self._release(messages))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)

    def forget(self, key: _Key) -> None:
        """A poll has nobody left to look for."""
        del self._polls[key]

    async def _release(self, messages: Sequence[Message]) -> None:
        try:
            await self._client.release(*messages)
        except CassieqError as error:
            logger.warning(
                "queue %s: messages for requests that went away are due when their lease runs "
                "out: %s",
                messages[0].queue,
                error,
                extra={"action": NOT_RETURNED, "queue": messages[0].queue},
            )


class _Poll:
    """Those who want messages of one group, and the task that looks for them."""

    def __init__(self, gets: Gets, client: AsyncClient, key: _Key, most: int) -> None:
        self._gets = gets
        self._client = client
        self._key = key
        self._most = most
        self._wants: list[_Want] = []
        self.woken = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def add(self, want: _Want) -> None:
        self._wants.append(want)
        self.woken.set()

    def hurry(self) -> None:
        for want in self._wants:
            want.deadline = 0.0
        self.woken.set()

    async def _run(self) -> None:
        try:
            pause = _FIRST_PAUSE
            while self._wants:
                self.woken.clear()
                found = await self._look()
                pause = _FIRST_PAUSE if found else min(_LONGEST_PAUSE, 2 * pause)
                if not found and all(want.looked for want in self._wants):
                    await self._wait(pause)
        finally:
            self._gets.forget(self._key)

    async def _look(self) -> bool:
        """Lease for all who want the same lease as the first; whether anything was there."""
        lease = self._wants[0].lease
        served = [want for want in self._wants if want.lease == lease]
        most = min(self._most, sum(want.most for want in served))
        try:
            # Whoever may only read makes no groups: each would be owed everything.
            messages = await self._client.receive(
                *self._key,
                max=most,
                lease=lease,
                make_group=self._key[1] == DEFAULT_GROUP,
                max_bytes=_LOOK_BYTES if most > _FEW else None,
            )
        except Exception as error:  # noqa: BLE001 (whatever it is, those who asked hear it)
            for want in served:
                if not want.future.done():
                    want.future.set_exception(error)
            messages = []
        else:
            self._gets.give_back(self._hand_out(served, messages))
        now = asyncio.get_running_loop().time()
        for want in served:
            if not messages and want.deadline <= now and not want.future.done():
                want.future.set_result([])
        # Those with another lease are next.
        left = [want for want in self._wants if not want.future.done()]
        for want in served:
            want.looked = True
        others = [want for want in left if want.lease != lease]
        self._wants = others + [want for want in left if want.lease == lease]
        return bool(messages)

    @staticmethod
    def _hand_out(served: Sequence[_Want], messages: list[Message]) -> list[Message]:
        """Give each what it wants, as far as there is enough; what nobody is left for."""
        at = 0
        for want in served:
            if at < len(messages) and not want.future.done():
                want.future.set_result(messages[at : at + want.most])
                at += want.most
        return messages[at:]

    async def _wait(self, pause: float) -> None:
        if not self._wants:
            return
        for want in self._wants:
            want.looked = False
        now = asyncio.get_running_loop().time()
        left = min(want.deadline for want in self._wants) - now
        try:
            await asyncio.wait_for(self.woken.wait(), max(0.0, min(pause, left)))
        except TimeoutError:
            return
