"""Coalesces requests: one LWT acks and leases for all requests of a group that arrive together.

receive, ack -> `Coalescer` -> the rounds of their group -> one exchange for all of them
release, extend, reject -> `Settlements` -> one call for all that arrive while one is under way
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from weakref import WeakValueDictionary

from cassieq_spark.arguments import LONGEST_CLIENT_NAME
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import (
    DEFAULT_BUDGET,
    Action,
    AsyncClient,
    LeaseRequest,
    Message,
    PrefetchBudget,
)
from cassieq_spark.client.async_client import AsyncExchange, AsyncReceiver
from cassieq_spark.client.exchange import RoundResult
from cassieq_spark.client.receiver import FIRST_PAUSE, longest_pause
from cassieq_spark.client.settling import error_of_parts
from cassieq_spark.errors import CassieqError, OutcomeUnknownError, StoreError
from cassieq_spark.http import DEFAULT_GROUP
from cassieq_spark.model import Order, QueueDefinition

logger = logging.getLogger(__name__)

#: Messages that were leased but that no request got could not be given back.
NOT_RETURNED = "gateway.not_returned"

#: Groups whose next messages are prefetched.
_MOST_GROUPS = 1_000

#: Seconds without a request after which a group drops what it has read ahead: this may be
#: megabytes per partition, and a key may ask for a thousand groups.
RESTS_AFTER = 5.0

#: Most bytes of messages read ahead for all accounts together; an account has a quarter.
AHEAD_BYTES = 4 * DEFAULT_BUDGET

#: Up to this many messages, of at most 8 MiB each, fit into the bytes of a round unchecked: a
#: check costs reads.
_FEW = 4


class Received(list[Message]):
    """Messages that were leased for a request.

    Attributes:
        queue: The queue as it was when the messages were read, so with their columns; None if
            there are no messages.
        receiver: The receiver that has leased the messages under a name; None: a round has.
    """

    def __init__(
        self,
        messages: Iterable[Message] = (),
        queue: QueueDefinition | None = None,
        receiver: AsyncReceiver | None = None,
    ) -> None:
        super().__init__(messages)
        self.queue, self.receiver = queue, receiver


def _new_future() -> asyncio.Future[Received]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class _Receive:
    """A request for messages; its future gets the messages.

    Attributes:
        most: Most messages.
        lease: How long messages are leased; None: for the queue's lease time.
        longest: The upper limit of the queue's lease time, if ``lease`` is None.
        key: The name of the key that asks; empty for an administrator.
        deadline: The end of its wait by the loop's clock; then the request gets no messages.
        looked: True if a round has looked for messages for the request since the last backoff.
    """

    most: int
    lease: timedelta | None
    longest: timedelta | None
    key: str
    deadline: float
    looked: bool = False
    future: asyncio.Future[Received] = field(default_factory=_new_future)


@dataclass(slots=True, eq=False)
class _Ack:
    """A request that acks; its future gets, per receipt, True if the receipt was still good."""

    receipts: Sequence[Receipt]
    future: asyncio.Future[list[bool]]


class _Rounds:
    """The waiting requests of one group, and the task that serves them, round by round.

    A round has at most ``most`` messages of about ``most_bytes`` bytes, but at least one message.
    ``linger`` is in seconds. ``give_back`` gives back messages that no request gets.
    """

    def __init__(
        self,
        exchange: AsyncExchange,
        most: int,
        most_bytes: int,
        linger: float,
        give_back: Callable[[Sequence[Message]], None],
    ) -> None:
        self.exchange, self._give_back = exchange, give_back
        self._most, self._most_bytes = most, most_bytes
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self._receives: list[_Receive] = []
        self._acks: list[_Ack] = []
        self._woken = asyncio.Event()
        # The order of the queue in the last round: any at all, and by key.
        self._is_ordered = self._has_lanes = False
        # The longest wait before the next look, by the number of partitions in the last round.
        self._longest_pause = longest_pause(1)
        # How many requests the last round answered, when, and how many have arrived since then.
        # Requests that arrived during the round are not counted: else clients would split into two
        # halves that take turns, at twice the LWTs.
        self._expected = self._arrived = 0
        self._complete = asyncio.Event()
        self._answered_at = 0.0
        # True if a look for messages is due at once; else `_look_at` has its time.
        self._looks = False
        self._look_at = 0.0
        self._backoff = FIRST_PAUSE
        #: The task that serves the requests; None while no request waits.
        self.task: asyncio.Task[None] | None = None
        self._rests: asyncio.TimerHandle | None = None

    def receive(self, receive: _Receive) -> None:
        self._receives.append(receive)
        self.look()
        self._count()

    def ack(self, ack: _Ack) -> None:
        self._acks.append(ack)
        self._woken.set()
        self._count()

    def look(self) -> None:
        """Look for messages at once."""
        self._looks = True
        self._woken.set()

    def end_waits(self) -> None:
        """Answer every request in the next round."""
        for receive in self._receives:
            receive.deadline = 0.0
        self.look()

    def _count(self) -> None:
        self._arrived += 1
        if self._arrived >= self._expected:
            self._complete.set()
        if self.task is None:
            self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._receives or self._acks:
                if not (self._acks or self._looks):
                    await self._wait(self._woken, self._look_at)
                if self._arrived < self._expected:
                    await self._wait(self._complete, self._answered_at + self._linger)
                if self._acks or self._looks or self._look_at <= self._loop.time():
                    await self._round()
        finally:
            self.task = None
            if self._rests is None:
                self._rests = self._loop.call_later(RESTS_AFTER, self._rest)

    def _rest(self) -> None:
        """Drop what was read ahead for the group, unless there were requests lately."""
        is_busy = self.task is not None or self._loop.time() < self._answered_at + RESTS_AFTER
        self._rests = self._loop.call_later(RESTS_AFTER, self._rest) if is_busy else None
        if not is_busy:
            self.exchange.rest()

    async def _round(self) -> None:
        """Ack for all requests, and lease for all that ask for the same duration as the first.

        In a strictly ordered queue, only the first request gets messages: the next one may have
        none before these are settled. In order by key, each request gets keys of its own.
        """
        self._receives = [each for each in self._receives if not each.future.done()]
        if not (self._receives or self._acks):
            # All requests were cancelled.
            return
        acks, self._acks = self._acks, []
        served: list[_Receive] = []
        only_news = False
        # In an ordered queue, an ack makes the next message available.
        frees = bool(acks) and self._is_ordered
        if self._receives and (frees or self._looks or self._look_at <= self._loop.time()):
            # A new request may also get messages that others have given back.
            only_news = not self._looks
            self._looks = False
            first = self._receives[0]
            wanted = (first.lease, first.longest)
            served = [each for each in self._receives if (each.lease, each.longest) == wanted]
        self._woken.clear()
        try:
            result = await self.exchange.round(
                [receipt for ack in acks for receipt in ack.receipts],
                self._request(served),
                only_news=only_news,
            )
        except Exception as error:  # noqa: BLE001 (the requests get it)
            _fail(acks, error)
            _fail(served, error)
            messages = []
        else:
            _confirm(acks, result)
            messages = result.messages
            self._is_ordered = result.queue.order is not Order.NONE
            self._has_lanes = result.queue.has_lanes
            self._longest_pause = longest_pause(result.queue.partitions)
            self._give_back(_hand_out(served, result))
            if result.error is not None:
                # There were no messages for the others.
                _fail(served, result.error)
        self._answered_at = now = self._loop.time()
        for each in served:
            each.looked = True
            if not messages and each.deadline <= now and not each.future.done():
                each.future.set_result(Received())
        self._arrived = 0
        self._complete.clear()
        self._expected = len(acks) + sum(each.future.done() for each in served)
        self._requeue(served)
        if served:
            self._plan_look(now, found=len(messages))

    def _request(self, served: Sequence[_Receive]) -> LeaseRequest:
        takers = tuple(each.most for each in served)
        request = request_of(min(self._most, sum(takers)), self._most_bytes)
        lease, longest = (served[0].lease, served[0].longest) if served else (None, None)
        by = holder_name([each.key for each in served])
        return replace(request, lease=lease, longest_lease=longest, takers=takers, by=by)

    def _requeue(self, served: Sequence[_Receive]) -> None:
        """Drop answered requests; requests with another lease time come first."""
        left = [each for each in self._receives if not each.future.done()]
        just = set(served)
        self._receives = [each for each in left if each not in just]
        self._receives += [each for each in left if each in just]

    def _plan_look(self, now: float, *, found: int) -> None:
        """Plan the next look for the remaining requests: at once if messages were found, or later.

        In an ordered queue, no more messages are available before the messages of this round are
        settled, unless the round was full.
        """
        if found:
            self._backoff = FIRST_PAUSE
        is_strict = self._is_ordered and not self._has_lanes
        looked_for_all = is_strict or all(each.looked for each in self._receives)
        is_more = (found and not self._is_ordered) or (self._has_lanes and found >= self._most)
        if not looked_for_all or is_more:
            self._looks = True
            return
        for each in self._receives:
            each.looked = False
        self._look_at = min([now + self._backoff, *(each.deadline for each in self._receives)])
        self._backoff = min(self._longest_pause, 2 * self._backoff)

    async def _wait(self, event: asyncio.Event, until: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await event.wait()


def holder_name(keys: Sequence[str]) -> str | None:
    """The name, for people, under which requests of these keys lease; None if there are none.

    >>> holder_name(["b", "a", "b"]), holder_name([""])
    ('key a, b', 'an administrator')
    """
    known = sorted({*keys} - {""})
    told = "key " + ", ".join(known) if known else "an administrator"
    return told[:LONGEST_CLIENT_NAME] if keys else None


def request_of(most: int, most_bytes: int) -> LeaseRequest:
    """A request for messages of about ``most_bytes`` bytes, but for at least one message."""
    return LeaseRequest(
        max_messages=most,
        max_bytes=most_bytes if most > _FEW else None,
        max_decoded_bytes=most_bytes,
    )


def _hand_out(served: Sequence[_Receive], result: RoundResult) -> list[Message]:
    """Give each request its messages, in order; return those that no request took."""
    if result.queue.has_lanes:
        left: list[Message] = []
        for each, messages in zip(served, result.shares, strict=False):
            if each.future.done():
                left += messages
            elif messages:
                each.future.set_result(Received(messages, result.queue))
        return left
    takers = [each for each in served if not each.future.done()]
    at = 0
    for each in takers[:1] if result.queue.order is Order.STRICT else takers:
        if at < len(result.messages):
            messages = result.messages[at : at + each.most]
            each.future.set_result(Received(messages, result.queue))
            at += each.most
    return result.messages[at:]


def _confirm(acks: Sequence[_Ack], result: RoundResult) -> None:
    """Answer each request: which of its receipts were good, or the error if an ack failed.

    A receipt is good once.
    """
    late = set(result.stale)
    for ack in acks:
        errors = [result.failed[each] for each in ack.receipts if each in result.failed]
        good = []
        for receipt in ack.receipts:
            good.append(receipt not in late)
            late.add(receipt)
        if errors:
            some = any(
                is_good and receipt not in result.failed
                for receipt, is_good in zip(ack.receipts, good, strict=True)
            )
            _fail([ack], error_of_parts(errors, partly=some))
        elif not ack.future.done():
            ack.future.set_result(good)


def _fail(requests: Sequence[_Receive | _Ack], error: Exception) -> None:
    for each in requests:
        if not each.future.done():
            each.future.set_exception(error)


class Coalescer:
    """Leases and acks for requests: those that arrive during a round share the next one.

    Bound to one event loop. A round costs one LWT, however many requests it serves, and none if
    the round acks nothing and no message is available. A round waits until as many requests have
    arrived as the last round answered, because the same clients are likely to ask again at once,
    but no longer than ``linger``. A round has at most ``most`` messages of about ``most_bytes``
    bytes, but at least one message. In a strictly ordered queue, a round leases for one request;
    in order by key, each request of a round gets keys of its own.
    """

    def __init__(
        self, client: AsyncClient, most: int, linger: timedelta, most_bytes: int = 32 << 20
    ) -> None:
        self._client = client
        self._most, self._most_bytes = most, most_bytes
        self._linger = linger.total_seconds()
        self._groups: defaultdict[str, dict[str, _Rounds]] = defaultdict(dict)
        self._ahead = PrefetchBudget(AHEAD_BYTES)
        # The budgets of accounts, while their groups are kept.
        self._own_ahead: WeakValueDictionary[str, PrefetchBudget] = WeakValueDictionary()
        self._returns: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()

    async def receive(  # noqa: PLR0913 (what to receive, and how, by name)
        self,
        queue: str,
        group: str,
        *,
        most: int,
        lease: timedelta | None,
        wait: timedelta,
        longest: timedelta | None = None,
        attempt: str | None = None,
        key: str = "",
    ) -> Received:
        """Lease messages, at least one unless none comes in time; see `AsyncClient.receive`.

        If a call is cancelled, messages that were leased for it are given back, uncounted. If
        ``lease`` is None, messages are leased for the queue's lease time, but for ``longest`` at
        most. The lease carries the name of the ``key``. A call with an ``attempt`` shares no
        round, so it costs an LWT of its own.
        """
        if attempt is not None:
            request = replace(
                request_of(most, self._most_bytes),
                lease=lease,
                longest_lease=longest,
                attempt=attempt,
                by=holder_name([key]),
            )
            return await self._receive_alone(queue, group, request, wait)
        patience = 0.0 if self._stopped.is_set() else wait.total_seconds()
        deadline = asyncio.get_running_loop().time() + patience
        receive = _Receive(most, lease, longest, key, deadline)
        self._rounds(queue, group).receive(receive)
        try:
            return await receive.future
        except asyncio.CancelledError:
            if receive.future.done() and not receive.future.cancelled():
                self.give_back(receive.future.result())
            raise

    async def _receive_alone(
        self, queue: str, group: str, request: LeaseRequest, wait: timedelta
    ) -> Received:
        make_group = group == DEFAULT_GROUP
        receiver = await self._client.receiver(queue, group, make_group=make_group)
        pauses = receiver.pauses(wait)
        while True:
            messages = await receiver.look(request)
            pause = None if messages else next(pauses, None)
            if pause is None or self._stopped.is_set():
                return Received(messages, receiver.queue, receiver)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause)

    async def ack(self, queue: str, group: str, receipts: Sequence[Receipt]) -> list[bool]:
        """Ack messages; return True per receipt that was good, so that its message is settled now.

        Raises:
            CassieqError: See `Exchange.round`; the call is safe to repeat.
        """
        mine = _Ack(receipts, asyncio.get_running_loop().create_future())
        self._rounds(queue, group).ack(mine)
        return await mine.future

    def wake(self, queue: str) -> None:
        """Look for messages at once for the requests that wait at this queue."""
        for group in self._groups.get(queue, {}).values():
            group.look()

    def stop(self) -> None:
        """Let no request wait any more."""
        self._stopped.set()
        for group in self._every_group():
            group.end_waits()

    async def close(self) -> None:
        """Wait for the calls under way. No receive and no ack may follow."""
        self.stop()
        while tasks := [each.task for each in self._every_group() if each.task]:
            await asyncio.gather(*tasks)
        await asyncio.gather(*self._returns)

    def _every_group(self) -> list[_Rounds]:
        return [group for groups in self._groups.values() for group in groups.values()]

    def _rounds(self, queue: str, name: str) -> _Rounds:
        group = self._groups.get(queue, {}).get(name)
        if group is None:
            if len(self._every_group()) >= _MOST_GROUPS:
                self._forget_idle()
            # The right to read creates no groups: each new group would be owed every message.
            exchange = self._client.exchange(
                queue, name, make_group=name == DEFAULT_GROUP, ahead=self._ahead_of(queue)
            )
            group = self._groups[queue][name] = _Rounds(
                exchange, self._most, self._most_bytes, self._linger, self.give_back
            )
        return group

    def _ahead_of(self, queue: str) -> PrefetchBudget:
        """The budget of a queue's account, with which the name of the queue begins."""
        account = queue.partition(":")[0]
        budget = self._own_ahead.get(account)
        if budget is None:
            budget = PrefetchBudget(within=self._ahead)
            self._own_ahead[account] = budget
        return budget

    def _forget_idle(self) -> None:
        for queue, groups in list(self._groups.items()):
            busy = {name: group for name, group in groups.items() if group.task}
            self._groups[queue] = busy
            if not busy:
                del self._groups[queue]

    def give_back(self, messages: Sequence[Message]) -> None:
        """Give back messages that left in no answer, in the background; see `Exchange.give_back`.

        All messages are of one group.
        """
        if messages:
            task = asyncio.create_task(self._give_back_now(messages))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _give_back_now(self, messages: Sequence[Message]) -> None:
        queue, group = messages[0].queue, messages[0].group
        receiver = messages.receiver if isinstance(messages, Received) else None
        by = receiver or self._rounds(queue, group).exchange
        try:
            await by.give_back(messages)
        except CassieqError as error:
            logger.warning(
                "queue %s: messages that no request got are delivered again when their lease "
                "ends: %s",
                queue,
                error,
                extra={"action": NOT_RETURNED, "queue": queue},
            )
        else:
            self.wake(queue)


_Key = tuple[str, str, Action]
_Waiting = list[tuple[Receipt, asyncio.Future[bool]]]


class Settlements:
    """Settles messages for requests. Bound to one event loop.

    Acks go with the next round of their group. Requests for any other action wait while a call of
    the same group and action is under way, and share the next call: one LWT per lease. Each
    request gets the result of its own receipts.
    """

    def __init__(self, client: AsyncClient, coalescer: Coalescer) -> None:
        self._client, self._coalescer = client, coalescer
        self._waiting: defaultdict[_Key, _Waiting] = defaultdict(list)
        self._tasks: dict[_Key, asyncio.Task[None]] = {}

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Ack messages of one queue; see `settle`.

        If one of several groups fails, later groups are not tried.
        """
        by_group: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, receipt in enumerate(receipts):
            by_group[receipt.queue, receipt.group].append(index)
        done = [False] * len(receipts)
        for (queue, group), indices in by_group.items():
            own = [receipts[index] for index in indices]
            try:
                good = await self._coalescer.ack(queue, group, own)
            except StoreError as error:
                if not any(done):
                    raise
                raise OutcomeUnknownError(f"a part of it is done: {error}") from error
            for index, is_done in zip(indices, good, strict=True):
                done[index] = is_done
        return done

    async def settle(self, receipts: Sequence[Receipt], action: Action) -> list[bool]:
        """Settle messages; return True per receipt that was good, so that its message is settled.

        Raises:
            OutcomeUnknownError: Cassandra failed, and some of the messages may be settled.
            CassieqError: See `AsyncClient.settle`; after a `StoreError`, no message is settled.
        """
        loop = asyncio.get_running_loop()
        futures = []
        for receipt in receipts:
            key = (receipt.queue_id, receipt.group, action)
            future: asyncio.Future[bool] = loop.create_future()
            self._waiting[key].append((receipt, future))
            futures.append(future)
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._run(key))
        told = await asyncio.gather(*futures, return_exceptions=True)
        errors = [each for each in told if isinstance(each, Exception)]
        if errors:
            raise error_of_parts(errors, partly=True in told)
        return [each is True for each in told]

    async def close(self) -> None:
        """Wait for the calls under way. No call may follow."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values())

    async def _run(self, key: _Key) -> None:
        while waiting := self._waiting.pop(key, None):
            await self._settle(key[2], waiting)
        del self._tasks[key]

    async def _settle(self, action: Action, waiting: _Waiting) -> None:
        texts = [str(receipt) for receipt, _ in waiting]
        stale: set[str] = set()
        failed: Mapping[str, Exception] = {}
        try:
            outcome = await self._client.settle(*dict.fromkeys(texts), action=action)
            stale, failed = set(outcome.stale), outcome.failed
        except Exception as error:  # noqa: BLE001 (the requests get it, whatever it is)
            failed = dict.fromkeys(texts, error)
        if action.kind in {"release", "reject"}:
            # In an ordered queue, rejecting a message makes the next ones available.
            self._coalescer.wake(waiting[0][0].queue)
        for text, (_, future) in zip(texts, waiting, strict=True):
            if future.done():
                pass
            elif text in failed:
                future.set_exception(failed[text])
            else:
                future.set_result(text not in stale)
            if action.kind != "extend":
                # A receipt is good once.
                stale.add(text)
