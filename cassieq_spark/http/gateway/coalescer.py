"""One group's gets and acks: those who wait, and the task that takes turns for them."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import AsyncClient, AsyncExchange, Message, Wanted
from cassieq_spark.errors import CassieqError

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


logger = logging.getLogger(__name__)

#: Messages that were leased for requests which went away could not be given back.
NOT_RETURNED = "gateway.not_returned"

#: The group of those who name none; the only one that is made by itself.
DEFAULT_GROUP = "default"

#: Groups whose next messages are kept ready.
_MOST_GROUPS = 1_000


class Turns:
    """Acks and leases messages for requests: those that come during a turn share the next.

    For one loop. A turn is one LWT, however many requests it serves; none if it acks nothing and
    nothing is there. In a strictly ordered queue it leases for one request, and the next one gets
    messages once those are settled. It waits until as many have come as the last one has answered,
    as they are likely to ask again at once; but not for long.

    Args:
        client: How the queues are reached.
        most: Most messages of one turn.
        most_bytes: Most bytes of them, about; a message at least.
        linger: How long after a turn the next one waits for those that it answered.
    """

    def __init__(
        self, client: AsyncClient, most: int, linger: timedelta, most_bytes: int = 32 << 20
    ) -> None:
        self._client = client
        self._most = most
        self._most_bytes = most_bytes
        self._linger = linger.total_seconds()
        self._groups: defaultdict[str, dict[str, Group]] = defaultdict(dict)
        self._giving_back: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def get(
        self, queue: str, group: str, *, most: int, lease: timedelta | None, wait: timedelta
    ) -> list[Message]:
        """Lease messages, at least one unless none comes in time; see `AsyncClient.receive`.

        What is leased for a request that is cancelled is given back.
        """
        patience = 0.0 if self._stopped else wait.total_seconds()
        want = Want(most, lease, asyncio.get_running_loop().time() + patience)
        self._group(queue, group).want(want)
        try:
            return await want.future
        except asyncio.CancelledError:
            if want.future.done() and not want.future.cancelled():
                self.give_back(want.future.result())
            raise

    async def ack(self, queue: str, group: str, receipts: Sequence[Receipt]) -> list[bool]:
        """Ack messages.

        Returns:
            Of each, whether it was still theirs, and is done now.

        Raises:
            CassieqError: See `Exchange.turn`; it does no harm to repeat it.
        """
        mine = Ack(receipts, asyncio.get_running_loop().create_future())
        self._group(queue, group).ack(mine)
        return await mine.future

    def wake(self, queue: str) -> None:
        """Look at once for those who wait at this queue: something was put."""
        for group in self._groups.get(queue, {}).values():
            group.look()

    def stop(self) -> None:
        """Let nobody wait any more."""
        self._stopped = True
        for group in self._every_group():
            group.hurry()

    async def close(self) -> None:
        """Wait for what is under way. No get and no ack may follow."""
        self.stop()
        while tasks := [each.task for each in self._every_group() if each.task]:
            await asyncio.gather(*tasks)
        await asyncio.gather(*self._giving_back)

    def give_back(self, messages: Sequence[Message]) -> None:
        """Make messages that nobody got due again, in the background."""
        if messages:
            task = asyncio.create_task(self._release(messages))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)

    def _every_group(self) -> list[Group]:
        return [group for groups in self._groups.values() for group in groups.values()]

    def _group(self, queue: str, name: str) -> Group:
        group = self._groups.get(queue, {}).get(name)
        if group is None:
            if len(self._every_group()) >= _MOST_GROUPS:
                self._forget_idle()
            # Whoever may only read makes no groups: each would be owed everything.
            exchange = self._client.exchange(queue, name, make_group=name == DEFAULT_GROUP)
            group = self._groups[queue][name] = Group(
                exchange, self._most, self._most_bytes, self._linger, self.give_back
            )
        return group

    def _forget_idle(self) -> None:
        for queue, groups in list(self._groups.items()):
            busy = {name: group for name, group in groups.items() if group.task}
            self._groups[queue] = busy
            if not busy:
                del self._groups[queue]

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


@dataclass(frozen=True, slots=True)
class Action:
    """What is to become of messages.

    Attributes:
        kind: Given back, held for longer, or dead.
        time: How much later it is delivered again, or from now on held.
        reason: Why it is dead.
    """

    kind: Literal["release", "extend", "reject"]
    time: timedelta = timedelta(0)
    reason: str = ""


_Key = tuple[str, str, Action]
_Waiting = list[tuple[str, asyncio.Future[bool]]]


class Settles:
    """Settles what requests settle: all that comes while a call is under way by the next.

    For one loop. Acks go with the next turn of their group; for others, one LWT for each lease of
    a call.

    Args:
        client: How the queues are reached.
        turns: The turns of the groups.
    """

    def __init__(self, client: AsyncClient, turns: Turns) -> None:
        self._client = client
        self._turns = turns
        self._waiting: defaultdict[_Key, _Waiting] = defaultdict(list)
        self._tasks: dict[_Key, asyncio.Task[None]] = {}

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Ack messages of one queue; see `settle`."""
        by_group: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, receipt in enumerate(receipts):
            by_group[receipt.queue, receipt.group].append(index)
        done = [False] * len(receipts)
        for (queue, group), indices in by_group.items():
            told = await self._turns.ack(queue, group, [receipts[index] for index in indices])
            for index, is_done in zip(indices, told, strict=True):
                done[index] = is_done
        return done

    async def settle(self, receipts: Sequence[Receipt], action: Action) -> list[bool]:
        """Settle messages.

        Returns:
            Of each, whether it was still theirs, and is settled now.

        Raises:
            CassieqError: See `AsyncClient.release`; some of them may be settled.
        """
        loop = asyncio.get_running_loop()
        futures = []
        for receipt in receipts:
            key = (receipt.queue_id, receipt.group, action)
            future: asyncio.Future[bool] = loop.create_future()
            self._waiting[key].append((str(receipt), future))
            futures.append(future)
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._run(key))
        return await asyncio.gather(*futures)

    async def close(self) -> None:
        """Wait for what is under way. No settling may follow."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values())

    async def _run(self, key: _Key) -> None:
        call = self._call(key[2])
        while waiting := self._waiting.pop(key, None):
            try:
                stale = set(await call(dict.fromkeys(receipt for receipt, _ in waiting)))
            except Exception as error:  # noqa: BLE001 (whatever it is, those who asked hear it)
                for _, future in waiting:
                    if not future.done():
                        future.set_exception(error)
                continue
            for receipt, future in waiting:
                if not future.done():
                    future.set_result(receipt not in stale)
                if key[2].kind != "extend":
                    # Whoever shows the same receipt once more comes too late.
                    stale.add(receipt)
        del self._tasks[key]

    def _call(self, action: Action) -> Callable[[dict[str, None]], Awaitable[list[str]]]:
        client = self._client
        match action.kind:
            case "release":
                return lambda receipts: client.release(*receipts, delay=action.time)
            case "extend":
                return lambda receipts: client.extend(*receipts, by=action.time)
            case "reject":
                return lambda receipts: client.reject(*receipts, reason=action.reason)
