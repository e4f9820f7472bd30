"""Group commit: threads that publish to a queue at the same moment share one LWT."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto

from cassieq_spark.errors import InvariantError, NotAppliedError, OutcomeUnknownError
from cassieq_spark.ledger.publish import MOST_BLOCKS, Published
from cassieq_spark.model import QueueId, Range
from cassieq_spark.producer.publisher import Written, publish_written
from cassieq_spark.store.protocol import Store


class _Turn(Enum):
    """What a thread that waits is told, instead of what was published for it."""

    #: Publish for all that wait now.
    LEADS = auto()
    #: Publish for yourself: the publish for several was refused, perhaps because of another one.
    ALONE = auto()


@dataclass(slots=True, eq=False)
class _Commit:
    """What one thread has written, and waits for."""

    written: Sequence[Written]
    queue_id: QueueId
    leads: bool = False
    outcome: Future[Published | _Turn] = field(default_factory=Future)

    @property
    def blocks(self) -> int:
        return sum(len(each.blocks) for each in self.written)

    @property
    def messages(self) -> int:
        return sum(block.count for each in self.written for block in each.blocks)


class _Process:
    """The threads of one process that publish, and those that wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        #: Those that wait, of each queue to which a thread is publishing.
        self.waiting: dict[QueueId, list[_Commit]] = {}


class GroupCommit:
    """Publishes what the threads of a process have written, safely across a fork.

    A thread publishes at once, unless another one is publishing to the same queue. Then it waits,
    and the first of those that wait publishes for all of them. Without this they would race for
    the head of the ledger, and each publish would take several LWTs.

    What comes from one thread is published whole or not at all, and in the order in which it was
    written; that several threads share an LWT changes nothing else.

    Source: the group commit of DeWitt et al., Implementation Techniques for Main Memory Database
    Systems, SIGMOD 1984.

    Args:
        store: Where the queues are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # One for each process: a lock that is held during a fork is never released in the child.
        self._processes: dict[int, _Process] = {}

    def publish(self, written: Sequence[Written]) -> Published:
        """Make what one thread has written visible; see `publish_written`.

        At most one LWT and a read if nobody else publishes at that moment: threads that wait for
        each other share them. A batch with a name is published by itself.

        Args:
            written: At least one, all of one queue.

        Raises:
            CassieqError: See `publish_written`.
        """
        mine = _Commit(written, written[0].queue_id)
        if any(each.batch is not None for each in written) or not mine.messages:
            return publish_written(self._store, written)
        here = self._processes.setdefault(os.getpid(), _Process())
        try:
            outcome = _join(here, mine)
            if outcome is _Turn.LEADS:
                outcome = self._publish([mine, *_take(here, mine)])
        finally:
            _leave(here, mine)
        if isinstance(outcome, Published):
            return outcome
        return publish_written(self._store, written)

    def _publish(self, group: Sequence[_Commit]) -> Published | _Turn:
        """Publish for a group and tell the others; returns what the first one is to be told."""
        others = group[1:]
        try:
            first, *rest = self._outcomes(group)
            for commit, outcome in zip(others, rest, strict=True):
                commit.outcome.set_result(outcome)
        except BaseException as error:
            # Whatever happens, nobody waits for ever.
            for commit in others:
                if not commit.outcome.done():
                    commit.outcome.set_exception(_for_others(error))
            raise
        return first

    def _outcomes(self, group: Sequence[_Commit]) -> Sequence[Published | _Turn]:
        try:
            published = publish_written(
                self._store, [written for commit in group for written in commit.written]
            )
        except NotAppliedError:
            if len(group) == 1:
                raise
            return [_Turn.ALONE] * len(group)
        return _dealt(published, group)


def _join(here: _Process, mine: _Commit) -> Published | _Turn:
    """Wait until it is published, or its thread is to publish."""
    with here.lock:
        waiting = here.waiting.get(mine.queue_id)
        if waiting is None:
            mine.leads = True
            here.waiting[mine.queue_id] = []
            return _Turn.LEADS
        waiting.append(mine)
    return mine.outcome.result()


def _take(here: _Process, mine: _Commit) -> list[_Commit]:
    """Those that wait, in order, as many as one publish takes."""
    with here.lock:
        waiting, taken = here.waiting[mine.queue_id], []
        room = MOST_BLOCKS - mine.blocks
        while waiting and waiting[0].blocks <= room:
            room -= waiting[0].blocks
            taken.append(waiting.pop(0))
        return taken


def _leave(here: _Process, mine: _Commit) -> None:
    """Let the next one publish; or stop waiting, if the thread was interrupted."""
    with here.lock:
        waiting = here.waiting.get(mine.queue_id, [])
        if mine in waiting:
            waiting.remove(mine)
        elif mine.leads and waiting:
            successor = waiting.pop(0)
            successor.leads = True
            successor.outcome.set_result(_Turn.LEADS)
        elif mine.leads:
            here.waiting.pop(mine.queue_id, None)


def _dealt(published: Published, group: Sequence[_Commit]) -> list[Published]:
    """The monotons of each, which follow each other as tsuccessor blocks do."""
    if published.monotons is None:
        raise InvariantError(f"{group[0].queue_id}: a publish without a name published nothing")
    dealt, start = [], published.monotons.start
    for commit in group:
        dealt.append(Published(Range(start, start + commit.messages)))
        start += commit.messages
    return dealt


def _for_others(error: BaseException) -> BaseException:
    """The error of a thread, for those for which it published."""
    if isinstance(error, Exception):
        return error
    unknown = OutcomeUnknownError(
        f"the thread that published for several was interrupted by {type(error).__name__}: the "
        "messages may be visible, now or later"
    )
    unknown.__cause__ = error
    return unknown
