"""Group commit: threads that publish to a queue at the same moment share one LWT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from cassieq_spark.backoff import Backoff
from cassieq_spark.combining import Caller, Combining, Turn
from cassieq_spark.errors import InvariantError, NotAppliedError, OutcomeUnknownError
from cassieq_spark.ledger.publish import MOST_BLOCKS, Published
from cassieq_spark.ledger.window import UniqueWindows
from cassieq_spark.model import QueueId, Range, name_of
from cassieq_spark.producer.publisher import Written, publish_written
from cassieq_spark.store.protocol import Store


class _Turn(Enum):
    """The outcome of a thread for which no other thread has published."""

    #: Publish alone: the shared publish was refused, maybe because of another thread's messages.
    ALONE = auto()


@dataclass(slots=True, eq=False)
class _Commit(Caller):
    """The blocks that one thread has written, and the outcome for which it waits."""

    written: Sequence[Written]
    queue_id: QueueId

    @property
    def blocks(self) -> int:
        return sum(len(each.blocks) for each in self.written)

    @property
    def messages(self) -> int:
        return sum(block.count for each in self.written for block in each.blocks)


#: The threads that publish.
Commits = Combining[_Commit]


class GroupCommit:
    """Publishes what the threads of a process have written, safely across a fork.

    A thread publishes at once, unless another thread is publishing to the same queue. Then it
    waits, and the first waiting thread publishes for all of them. Otherwise they would race for
    the head of the ledger, and each publish would take several LWTs.

    The messages of one thread are published whole or not at all, and in the order in which they
    were written. Sharing an LWT changes nothing else.

    Processes still race for the head. A process that has lost waits a moment before its
    next publishes (see `Backoff`); the threads that come meanwhile share the LWT.

    If a thread is interrupted while it publishes for others, these others do not know the outcome;
    see `Combining`.

    Args:
        store: The store.
        commits: The threads that share LWTs, possibly of several stores of the same tables; None:
            only those of this object.
    """

    def __init__(self, store: Store, commits: Commits | None = None) -> None:
        self._store = store
        self._combining = commits or Commits()
        self._windows = UniqueWindows()

    def publish(self, written: Sequence[Written]) -> Published:
        """Make visible what one thread has written; see `publish_written`.

        One LWT and one read if no other thread publishes at that moment; waiting threads share
        them. A batch with a name is published by itself.

        Args:
            written: What the thread has written, all to one queue; at least one.

        Raises:
            CassieqError: See `publish_written`.
        """
        mine = _Commit(written, written[0].queue_id)
        if not mine.messages:
            return publish_written(self._store, written)
        if any(each.batch is not None for each in written):
            return self._publish_alone(mine)

        def lead() -> Published | _Turn:
            # One backoff for all partitions: what matters is how often this process publishes.
            with self._combining.paced(name_of(mine.queue_id)) as backoff:
                return self._publish(self._combining.take(mine.queue_id, mine, _fits), backoff)

        outcome = self._combining.run(mine.queue_id, mine, lead)
        if outcome is Turn.UNKNOWN:
            raise _for_others(None)
        return outcome if isinstance(outcome, Published) else self._publish_alone(mine)

    def _publish_alone(self, mine: _Commit) -> Published:
        with self._combining.paced(name_of(mine.queue_id)) as backoff:
            return publish_written(
                self._store, mine.written, backoff=backoff, windows=self._windows
            )

    def _publish(self, group: Sequence[_Commit], backoff: Backoff) -> Published | _Turn:
        """Publish for a group; return the first thread's outcome, and give the others theirs."""
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
                windows=self._windows,
            )
        except NotAppliedError:
            if len(group) == 1:
                raise
            return [_Turn.ALONE] * len(group)
        return _divide(published, group)


def _fits(group: Sequence[_Commit], more: _Commit) -> bool:
    """True if one publish takes the blocks of all these commits."""
    return sum(each.blocks for each in group) + more.blocks <= MOST_BLOCKS


def _divide(published: Published, group: Sequence[_Commit]) -> list[Published]:
    """Divide a publish among its threads, whose blocks it has published one after the other."""
    if published.monotons is None:
        raise InvariantError(f"{group[0].queue_id}: a publish without a name published nothing")
    parts, start, first = [], published.monotons.start, 0
    for commit in group:
        numbers = range(first, first + commit.messages)
        repeats = {
            number - first: at for number, at in published.repeats.items() if number in numbers
        }
        stop = start + commit.messages - len(repeats)
        parts.append(Published(Range(start, stop), repeats))
        start, first = stop, numbers.stop
    return parts


def _for_others(error: BaseException | None) -> BaseException:
    """The error for threads whose publish another thread has begun and ended with an error.

    Args:
        error: The error of that thread; None if it is unknown what interrupted the thread.
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
