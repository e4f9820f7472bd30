"""What requests settle: acks take turns with the gets; others of one group go together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import AsyncClient
from cassieq_spark.http.gateway.turns import Turns


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
