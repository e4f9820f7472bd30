"""One group's gets and acks: those who wait, and the task that takes turns for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import AsyncExchange, Message, Wanted

#: So few messages have no more bytes as stored than a turn takes; those who know more need reads.
_FEW = 4

#: Seconds between two looks for those who wait.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.75


def _new_future() -> asyncio.Future[list[Message]]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Want:
    """What one request wants."""

    most: int
    lease: timedelta | None
    deadline: float
    looked: bool = False
    future: asyncio.Future[list[Message]] = field(default_factory=_new_future)


@dataclass(slots=True, eq=False)
class Ack:
    """What one request acks; its future has whether each was still theirs."""

    receipts: Sequence[Receipt]
    future: asyncio.Future[list[bool]]


class Group:
    """Those who want and ack messages of one group, and the task that takes turns for them.

    Args:
        exchange: How that is done.
        most: Most messages of one turn.
        most_bytes: Most bytes of them, about; a message at least.
        linger: For how many seconds after a turn the next one waits for those that it answered.
        give_back: What to do with messages whose request has gone away.
    """

    def __init__(
        self,
        exchange: AsyncExchange,
        most: int,
        most_bytes: int,
        linger: float,
        give_back: Callable[[Sequence[Message]], None],
    ) -> None:
        self._give_back = give_back
        self._exchange = exchange
        self._most = most
        self._most_bytes = most_bytes
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self._wants: list[Want] = []
        self._acks: list[Ack] = []
        self._woken = asyncio.Event()
        # Whether the queue was strictly ordered when it was last looked at.
        self._is_strict = False
        # How many have come since the last turn began, and how many that has answered, and when.
        self._come = self._expected = 0
        self._complete = asyncio.Event()
        self._answered_at = 0.0
        # When to look for those who wait, unless something is put before.
        self._looks = False
        self._look_at = 0.0
        self._pause = _FIRST_PAUSE
        #: Takes turns; None while nobody is there.
        self.task: asyncio.Task[None] | None = None

    def want(self, want: Want) -> None:
        """Add somebody who wants messages."""
        self._wants.append(want)
        self.look()
        self._has_come()

    def ack(self, ack: Ack) -> None:
        """Add somebody who acks messages."""
        self._acks.append(ack)
        self._woken.set()
        self._has_come()

    def look(self) -> None:
        """Look at once for those who wait."""
        self._looks = True
        self._woken.set()

    def hurry(self) -> None:
        """Let nobody wait any more."""
        for want in self._wants:
            want.deadline = 0.0
        self.look()

    def _has_come(self) -> None:
        self._come += 1
        if self._come >= self._expected:
            self._complete.set()
        if self.task is None:
            self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._wants or self._acks:
                if not (self._acks or self._looks):
                    await self._wait(self._woken, self._look_at)
                if self._come < self._expected:
                    await self._wait(self._complete, self._answered_at + self._linger)
                if self._acks or self._looks or self._look_at <= self._loop.time():
                    await self._turn()
        finally:
            self.task = None

    async def _turn(self) -> None:
        """Ack all that is done, and lease for all who want the same lease as the first.

        In a strictly ordered queue, for the first alone: what the second gets must wait until that
        is settled.
        """
        acks, self._acks = self._acks, []
        served: list[Want] = []
        # In strict order, the next message is to be had once the one before is acked.
        frees = bool(acks) and self._is_strict
        if self._wants and (frees or self._looks or self._look_at <= self._loop.time()):
            self._looks = False
            served = [want for want in self._wants if want.lease == self._wants[0].lease]
        self._come = 0
        self._woken.clear()
        self._complete.clear()
        try:
            told = await self._exchange.turn(
                [receipt for ack in acks for receipt in ack.receipts], self._wanted(served)
            )
        except Exception as error:  # noqa: BLE001 (whatever it is, those who asked hear it)
            _fail(acks, error)
            _fail(served, error)
            messages = []
        else:
            _confirm(acks, told.stale)
            messages, self._is_strict = told.messages, told.strict
            if told.error is not None:
                _fail(served, told.error)
            takers = [want for want in served if not want.future.done()]
            self._give_back(_hand_out(takers[:1] if told.strict else takers, messages))
        self._answered_at = now = self._loop.time()
        for want in served:
            want.looked = True
            if not messages and want.deadline <= now and not want.future.done():
                want.future.set_result([])
        self._expected = len(acks) + sum(want.future.done() for want in served)
        self._sort_wants(served)
        if served:
            self._plan_look(now, found=bool(messages))

    def _wanted(self, served: Sequence[Want]) -> Wanted:
        most = min(self._most, sum(want.most for want in served))
        return Wanted(
            limit=most,
            lease=served[0].lease if served else None,
            max_bytes=self._most_bytes if most > _FEW else None,
            most_bytes=self._most_bytes,
            strict_limit=min(most, served[0].most) if served else None,
        )

    def _sort_wants(self, served: Sequence[Want]) -> None:
        """Forget those who have their answer; those with another lease are next."""
        left = [want for want in self._wants if not want.future.done()]
        just = set(served)
        self._wants = [want for want in left if want not in just]
        self._wants += [want for want in left if want in just]

    def _plan_look(self, now: float, *, found: bool) -> None:
        """Look again for those who are left: at once, if something was there, or in a while.

        In strict order there is no more for them before that is acked.
        """
        if found:
            self._pause = _FIRST_PAUSE
        looked_for_all = self._is_strict or all(want.looked for want in self._wants)
        if not looked_for_all or (found and not self._is_strict):
            self._looks = True
            return
        for want in self._wants:
            want.looked = False
        self._look_at = min([now + self._pause, *(want.deadline for want in self._wants)])
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

    async def _wait(self, event: asyncio.Event, until: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await event.wait()


def _hand_out(takers: Sequence[Want], messages: list[Message]) -> list[Message]:
    """Give each what it wants, as far as there is enough; what nobody is left for."""
    at = 0
    for want in takers:
        if at < len(messages):
            want.future.set_result(messages[at : at + want.most])
            at += want.most
    return messages[at:]


def _confirm(acks: Sequence[Ack], stale: Collection[Receipt]) -> None:
    """Tell each what it has acked; whoever shows the same receipt once more comes too late."""
    late = set(stale)
    for ack in acks:
        told = []
        for receipt in ack.receipts:
            told.append(receipt not in late)
            late.add(receipt)
        if not ack.future.done():
            ack.future.set_result(told)


def _fail(asked: Sequence[Want | Ack], error: Exception) -> None:
    for each in asked:
        if not each.future.done():
            each.future.set_exception(error)
