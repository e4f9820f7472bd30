"""Group commit: threads that publish to a queue at the same moment share one LWT."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from queue import Empty, SimpleQueue

from cassieq_spark.backoff import Backoff
from cassieq_spark.errors import InvariantError, NotAppliedError, OutcomeUnknownError
from cassieq_spark.ledger.publish import MOST_BLOCKS, Published
from cassieq_spark.model import QueueId, Range, name_of
from cassieq_spark.producer.publisher import Written, publish_written
from cassieq_spark.store.protocol import Store

#: Seconds after which a waiting thread looks whether the one that publishes was interrupted.
_PATIENCE = 1.0


class _Turn(Enum):
    """The outcome of a thread for which no other thread has published."""

    #: Publish for all threads that wait now.
    LEADS = auto()
    #: Publish by yourself: the shared publish was refused, perhaps because of another thread.
    ALONE = auto()


_Outcome = Published | _Turn | BaseException


@dataclass(slots=True, eq=False)
class _Commit:
    """What one thread has written, and the outcome for which it waits.

    Attributes:
        taken_by: The thread that publishes it; None: none yet, or its own.
        is_over: Whether its thread has ended its publish, or was interrupted.
        outcome: Takes the outcome, and wakes the thread, in one step; the first one counts.
    """

    written: Sequence[Written]
    queue_id: QueueId
    taken_by: _Commit | None = None
    is_over: bool = False
    outcome: SimpleQueue[_Outcome] = field(default_factory=SimpleQueue)

    @property
    def blocks(self) -> int:
        return sum(len(each.blocks) for each in self.written)

    @property
    def messages(self) -> int:
        return sum(block.count for each in self.written for block in each.blocks)


@dataclass(slots=True)
class _Line:
    """The threads that publish to one queue: the one that leads, and those that wait."""

    leader: _Commit
    waiting: list[_Commit] = field(default_factory=list)


class _Process:
    """The threads of one process that publish or wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        #: For each queue to which a thread is publishing.
        self.lines: dict[QueueId, _Line] = {}
        #: By name of the queue, where other processes compete. One for all of its partitions: what
        #: matters is how often this process publishes.
        self.backoffs: dict[str, Backoff] = {}


class GroupCommit:
    """Publishes what the threads of a process have written, safely across a fork.

    A thread publishes at once, unless another thread is publishing to the same queue. Then it
    waits, and the first waiting thread publishes for all of them. Otherwise they would race for
    the head of the ledger, and each publish would take several LWTs.

    The messages of one thread are published whole or not at all, and in the order in which they
    were written. To share an LWT changes nothing else.

    Processes race for the head all the same. One that has lost waits a moment before its next
    publishes (see `Backoff`); the threads that come meanwhile share the LWT.

    An interrupt may end the leading thread between any two steps. So those that wait do not rely
    on being told: they look now and then whether it has ended.

    Source: the group commit of DeWitt et al., Implementation Techniques for Main Memory Database
    Systems, SIGMOD 1984.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # One for each process: a lock that is held during a fork is never released in the child.
        self._processes: dict[int, _Process] = {}

    def publish(self, written: Sequence[Written]) -> Published:
        """Make visible what one thread has written; see `publish_written`.

        One LWT and a read if no other thread publishes at that moment; waiting threads share
        them. A batch with a name is published by itself.

        Args:
            written: At least one, all of one queue.

        Raises:
            CassieqError: See `publish_written`.
        """
        mine = _Commit(written, written[0].queue_id)
        if not mine.messages:
            return publish_written(self._store, written)
        here = self._processes.setdefault(os.getpid(), _Process())
        if any(each.batch is not None for each in written):
            return self._publish_alone(here, mine)
        try:
            outcome = _join(here, mine)
            if outcome is _Turn.LEADS:
                with _paced(here, mine.queue_id) as backoff:
                    outcome = self._publish([mine, *_take(here, mine)], backoff)
        finally:
            # A step that no interrupt can split or prevent: others see it, whatever comes next.
            mine.is_over = True
            _leave(here, mine)
        return outcome if isinstance(outcome, Published) else self._publish_alone(here, mine)

    def _publish_alone(self, here: _Process, mine: _Commit) -> Published:
        with _paced(here, mine.queue_id) as backoff:
            return publish_written(self._store, mine.written, backoff=backoff)

    def _publish(self, group: Sequence[_Commit], backoff: Backoff) -> Published | _Turn:
        """Publish for a group; the outcome of the first thread. The others get theirs."""
        others = group[1:]
        try:
            first, *rest = self._outcomes(group, backoff)
            for commit, outcome in zip(others, rest, strict=True):
                commit.outcome.put(outcome)
        except BaseException as error:
            for commit in others:
                commit.outcome.put(_for_others(error))
            raise
        return first

    def _outcomes(self, group: Sequence[_Commit], backoff: Backoff) -> Sequence[Published | _Turn]:
        try:
            published = publish_written(
                self._store,
                [written for commit in group for written in commit.written],
                backoff=backoff,
            )
        except NotAppliedError:
            if len(group) == 1:
                raise
            return [_Turn.ALONE] * len(group)
        return _divide(published, group)


@contextmanager
def _paced(here: _Process, queue_id: QueueId) -> Iterator[Backoff]:
    """Wait, if other processes compete; a backoff that has calmed down is forgotten."""
    queue = name_of(queue_id)
    backoff = here.backoffs.setdefault(queue, Backoff())
    try:
        with backoff.paced():
            yield backoff
    finally:
        if backoff.is_calm:
            here.backoffs.pop(queue, None)


def _join(here: _Process, mine: _Commit) -> Published | _Turn:
    """Wait until another thread has published it, or this thread has to publish."""
    with here.lock:
        line = here.lines.setdefault(mine.queue_id, _Line(mine))
        if line.leader is mine or line.leader.is_over:
            line.leader = mine
            return _Turn.LEADS
        line.waiting.append(mine)
    outcome: _Outcome | None = None
    while outcome is None:
        try:
            outcome = mine.outcome.get(timeout=_PATIENCE)
        except Empty:
            outcome = _look(here, mine)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _look(here: _Process, mine: _Commit) -> _Outcome | None:
    """The outcome of a waiting thread, if the one that was to tell it was interrupted."""
    with here.lock:
        if mine.taken_by is None:
            line = here.lines.setdefault(mine.queue_id, _Line(mine))
            if line.leader is mine or line.leader.is_over:
                line.leader = mine
                return _Turn.LEADS
        elif mine.taken_by.is_over:
            return _for_others(None) if mine.outcome.empty() else mine.outcome.get()
    return None


def _take(here: _Process, mine: _Commit) -> list[_Commit]:
    """The first waiting threads, as many as one publish takes."""
    with here.lock:
        line, taken = here.lines[mine.queue_id], []
        line.waiting = [each for each in line.waiting if each is not mine and not each.is_over]
        room = MOST_BLOCKS - mine.blocks
        while line.waiting and line.waiting[0].blocks <= room:
            commit = line.waiting[0]
            commit.taken_by = mine
            taken.append(line.waiting.pop(0))
            room -= commit.blocks
        return taken


def _leave(here: _Process, mine: _Commit) -> None:
    """Let the next thread publish, if none does."""
    with here.lock:
        line = here.lines.get(mine.queue_id)
        if line is None or not line.leader.is_over:
            return
        line.waiting = [each for each in line.waiting if not each.is_over]
        if line.waiting:
            line.leader = line.waiting[0]
            line.leader.outcome.put(_Turn.LEADS)
        else:
            del here.lines[mine.queue_id]


def _divide(published: Published, group: Sequence[_Commit]) -> list[Published]:
    """The monotons of each thread, which are in the order of the blocks."""
    if published.monotons is None:
        raise InvariantError(f"{group[0].queue_id}: a publish without a name published nothing")
    parts, start = [], published.monotons.start
    for commit in group:
        parts.append(Published(Range(start, start + commit.messages)))
        start += commit.messages
    return parts


def _for_others(error: BaseException | None) -> BaseException:
    """The error that the threads get for which a thread has published with this error.

    Args:
        error: None if it is not known what interrupted that thread.
    """
    if isinstance(error, Exception):
        return error
    by = "" if error is None else f" by {type(error).__name__}"
    unknown = OutcomeUnknownError(
        f"the thread that published for several was interrupted{by}: the messages may be visible, "
        "now or later"
    )
    unknown.__cause__ = error
    return unknown
