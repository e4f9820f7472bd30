"""Carries out message move tasks.

    receive as the reader group of SQS -> redrive, each once -> delete; repeat until none is left

| event | result |
|---|---|
| a gateway dies between redrive and delete | letters are seen again, and only deleted |
| a gateway dies | another one lets the task go on; see `Movers` |
| two gateways run the same task | each letter is moved once, and the first one ends |
| a reader holds a letter | it is not moved |
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from cassieq_spark.client import Action, DeadLetter, Message, Survey
from cassieq_spark.errors import CassieqError, NotFoundError, OutcomeUnknownError
from cassieq_spark.http import DEFAULT_GROUP
from cassieq_spark.http.accounts import Right, full_name
from cassieq_spark.http.gateway.authorization import Grant
from cassieq_spark.http.gateway.coalescer import request_of
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.sqs.settings import TASK, TO_END, milliseconds
from cassieq_spark.http.serving.errors import told_of
from cassieq_spark.http.sqs.errors import AccessDenied, QueueDoesNotExist, SqsError
from cassieq_spark.http.sqs.move_tasks import (
    CANCELLED,
    COMPLETED,
    FAILED,
    NO_SOURCE,
    RUNNING,
    MoveTask,
)
from cassieq_spark.model import QueueDefinition

logger = logging.getLogger(__name__)

#: A step of a message move task failed; the task tries the step again.
MOVE_DELAYED = "sqs.move_delayed"

#: Most messages that are moved in one step.
_BATCH = 1024
#: How often a runner checks that it is to go on, and writes what it has done.
_LOOKS_EVERY = timedelta(seconds=5)
#: Most tasks of an account that one gateway runs at once; other tasks wait for their turn.
_MOST_OF_ACCOUNT = 4
_LONGEST_PAUSE = 30.0
#: How long a task waits for messages that a failed step may have held; leases, and pauses before a
#: redelivery, are shorter.
_PATIENCE = timedelta(minutes=10)


def tasks_in(attributes: Mapping[str, str]) -> dict[str, MoveTask]:
    """The tasks among the attributes of a queue, by id."""
    parsed = {
        name.removeprefix(TASK): MoveTask.parse(text)
        for name, text in attributes.items()
        if name.startswith(TASK)
    }
    return {name: task for name, task in parsed.items() if task is not None and task.id == name}


class Movers:
    """The tasks that a gateway runs. Bound to one event loop.

    Args:
        gateway: The gateway.
        lease: How long a batch is held to be moved.
        pause: How long a task waits after its first failure; the wait grows with further failures.

    Attributes:
        gateway, lease, pause: The arguments.
        id: The id of this gateway as a runner of tasks.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        lease: timedelta = timedelta(seconds=60),
        pause: timedelta = timedelta(seconds=1),
    ) -> None:
        self.gateway, self.lease, self.pause = gateway, lease, pause
        self.id = uuid4().hex
        self._runs: dict[str, tuple[_Run, asyncio.Task[None]]] = {}
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_MOST_OF_ACCOUNT)
        )

    def run(self, queue: str, task: MoveTask, key: str, *, is_new: bool = False) -> None:
        """Run a task in the background.

        Args:
            queue: The full name of the dead-letter queue.
            task: The task, which has this gateway as its runner.
            key: The name of the key that asks for the task; when the key loses the right, the task
                fails.
            is_new: True if nobody has run the task before.
        """
        if task.id not in self._runs:
            run = _Run(self, queue, key, task, is_new=is_new)
            self._runs[task.id] = run, asyncio.create_task(self._whole(run))

    def look(self, task: str) -> None:
        """Make a task that runs here check at once whether it is to end."""
        if task in self._runs:
            self._runs[task][0].woken.set()

    async def finish(self) -> None:
        """Wait until no task runs here."""
        await asyncio.gather(*(task for _, task in self._runs.values()))

    async def close(self) -> None:
        """End all runs after the batches that they move; other gateways may continue the tasks."""
        for run, _ in self._runs.values():
            run.is_stopped = True
            run.woken.set()
        await self.finish()

    async def _whole(self, run: _Run) -> None:
        try:
            async with self._turns[run.account]:
                await run.whole()
        finally:
            del self._runs[run.task.id]


class _Run:
    """A task that this gateway runs; see `Movers.run` for its arguments."""

    def __init__(
        self, movers: Movers, queue: str, key: str, task: MoveTask, *, is_new: bool
    ) -> None:
        self._gateway, self._client = movers.gateway, movers.gateway.client
        self.account, self._key = queue.partition(":")[0], key
        self.queue, self.task = queue, task
        self.woken, self.is_stopped = asyncio.Event(), False
        self._lease, self._pause = movers.lease, movers.pause.total_seconds()
        self._now = asyncio.get_running_loop().time
        self._looks_at = 0.0
        # The end of the wait for messages that a failed step may have held.
        self._waits_until = 0.0
        if not is_new:
            self._step_failed()

    def _step_failed(self) -> None:
        self._waits_until = self._now() + _PATIENCE.total_seconds()

    async def whole(self) -> None:
        """Move messages until none is left, the task is to end, or this gateway closes."""
        pause = self._pause
        while True:
            try:
                if await self._step():
                    return
                pause = self._pause
            except Exception as error:  # noqa: BLE001 (every error is told)
                self._step_failed()
                if _may_pass(error):
                    logger.warning(
                        "queue %s: a message move task tries again in %.0f s: %s",
                        self.queue,
                        pause,
                        error,
                        extra={"action": MOVE_DELAYED, "queue": self.queue},
                    )
                    if not self.is_stopped:
                        await self._wait(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE)
                        continue
                reason = _reason_of(error)
                if self.is_stopped or self.task.status != RUNNING:
                    return
                self.task = self.task.failed(reason)

    async def _step(self) -> bool:
        """Do the next step; return True if it was the last one."""
        began = self._now()
        if self.task.status != RUNNING:
            await self._write()
            return True
        if self.is_stopped:
            # As if long ago, so that another gateway need not wait.
            await self._write(beat=0)
            return True
        if self.woken.is_set() or began >= self._looks_at:
            self.woken.clear()
            self._looks_at = began + _LOOKS_EVERY.total_seconds()
            return await self._look()
        # Checked before, because messages may become available in between.
        are_withheld = began < self._waits_until and await self._are_withheld()
        count, status, reason = await self._batch()
        if status == COMPLETED and are_withheld:
            await self._wait(self._pause)
            return False
        self.task = self.task.after(count, status, reason)
        if status == RUNNING:
            # If others hold all messages, there is no hurry.
            pause = count / self.task.rate if self.task.rate else 0 if count else self._pause
            await self._wait(began + pause - self._now())
        return False

    async def _are_withheld(self) -> bool:
        """True if some messages are held, or are to be delivered later."""
        stats = await self._client.stats(self.queue)
        groups = [each for each in stats.groups if each.group == DEFAULT_GROUP]
        return any(each.leased or each.waiting for each in groups)

    async def _look(self) -> bool:
        """Check whether to go on, and write the progress; True if another runner has the task."""
        held = await self._client.attributes(self.queue)
        there = tasks_in(held).get(self.task.id)
        if there is None or there.status != RUNNING or there.runner != self.task.runner:
            return True
        if TO_END + self.task.id in held:
            self.task = self.task.after(0, CANCELLED)
        elif not await self._may():
            self.task = self.task.failed(str(AccessDenied()))
        else:
            await self._write()
        return False

    async def _may(self) -> bool:
        """True if the key that asked for the task still exists, and has the rights for it."""
        keys = await self._gateway.authorizer.keys_of(self.account)
        grants = [Grant.of(key) for key in keys if key.name == self._key]
        return any(each.covers_all and Right.REDRIVE_MESSAGE in each.rights for each in grants)

    async def _write(self, beat: int | None = None) -> None:
        beat = int(milliseconds(datetime.now(UTC))) if beat is None else beat
        self.task = self.task.model_copy(update={"beat": beat})
        await self._client.set_attributes(self.queue, {TASK + self.task.id: self.task.text})

    async def _wait(self, seconds: float) -> None:
        """Wait, unless the task is to check its state at once."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), max(0.0, seconds))

    async def _batch(self) -> tuple[int, str, str | None]:
        """Move some messages; return how many, the new status, and the reason of a failure."""
        self._gateway.storage.check_messages(self.account)
        receiver = await self._client.receiver(self.queue, DEFAULT_GROUP)
        most = min(_BATCH, self.task.rate or _BATCH)
        request = request_of(most, self._gateway.limits.answer_bytes)
        held = await receiver.look(replace(request, lease=self._lease))
        left = len(held)
        try:
            # Later messages are left out, such as moved messages that are dead again.
            due = [
                each for each in held if int(milliseconds(each.published_at)) <= self.task.started
            ]
            movable = [each for each in due if self._can_be_moved(each)]
            count = 0
            if movable:
                count, gone = await self._redrive(receiver.queue, movable)
                outcome = await self._client.settle(*gone, action=Action("ack"))
                if outcome.stale or outcome.failed:
                    # The deletion came too late, or is not certain: the messages come again, and
                    # are deleted then.
                    self._step_failed()
                left -= len(gone)
        finally:
            if left:
                # Given back uncounted, because nobody has seen the messages.
                await receiver.give_back(held)
        if len(movable) < len(due):
            return count, FAILED, NO_SOURCE
        return count, RUNNING if due else COMPLETED, None

    def _can_be_moved(self, message: Message) -> bool:
        letter = DeadLetter.of(message)
        has_way_back = letter.origin_queue is not None and not letter.is_unreadable
        return has_way_back or self.task.destination is not None

    async def _redrive(
        self, definition: QueueDefinition, messages: Sequence[Message]
    ) -> tuple[int, list[str]]:
        """Redrive messages; return how many, and the receipts of those no longer dead letters."""
        to = self.task.destination
        report = await self._client.redrive(
            Survey.among(definition, messages),
            to=None if to is None else full_name(self.account, to),
        )
        for queue in report.redriven:
            self._gateway.coalescer.wake(queue)
        # Letters that another redrive holds are left out, because it may give them back. The other
        # letters that this redrive missed were redriven or purged before.
        gone = [each.receipt for each in messages if each.monoton not in report.left]
        return sum(report.redriven.values()), gone


def _reason_of(error: Exception) -> str:
    """The reason of a failure; AWS sends a code if a queue does not exist any more."""
    is_missing = isinstance(error, NotFoundError) or isinstance(error.__cause__, NotFoundError)
    if is_missing:
        return QueueDoesNotExist.code
    return str(error) if isinstance(error, SqsError) else told_of(error, "sqsMoveMessages", {})[1]


def _may_pass(error: Exception) -> bool:
    """True if the step is worth another try; each letter is moved once, whatever happens."""
    return isinstance(error, OutcomeUnknownError) or (
        isinstance(error, CassieqError) and error.retryable
    )
