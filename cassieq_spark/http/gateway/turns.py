"""Gets and acks of all requests: those for one group take turns together, one LWT each."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import AsyncClient, Message
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.gateway.group import Ack, Group, Want

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
