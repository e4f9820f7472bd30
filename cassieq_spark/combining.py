"""Threads that change the same thing at the same moment: one works for all waiting threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import Any, Generic, TypeVar

from cassieq_spark.backoff import SHORTER, Backoff

#: Seconds after which a waiting thread checks whether the working thread was interrupted.
_PATIENCE = 1.0


class Turn(Enum):
    """The outcome of a thread for which no other thread has worked."""

    #: Work for all threads that wait now.
    LEADS = auto()
    #: The thread that was to work for this one was interrupted; the work may be done.
    UNKNOWN = auto()


@dataclass(slots=True, eq=False, kw_only=True)
class Caller:
    """A thread's request, and the outcome for which the thread waits.

    Attributes:
        taken_by: The thread that works for this caller; None if none does yet, or its own does.
        is_over: True if the thread has ended its call, or was interrupted.
        thread: The thread that calls.
        outcome: Takes the outcome, and wakes the thread, in one step; the first one counts. An
            error is raised.
    """

    taken_by: Caller | None = None
    is_over: bool = False
    thread: int = field(default_factory=get_ident)
    outcome: SimpleQueue[Any] = field(default_factory=SimpleQueue)


_W = TypeVar("_W", bound=Caller)


@dataclass(slots=True)
class Line(Generic[_W]):
    """The threads that want to change one thing: the leading one, and the waiting ones."""

    leader: _W
    waiting: list[_W] = field(default_factory=list)


class Process(Generic[_W]):
    """The threads of one process that work or wait."""

    def __init__(self) -> None:
        # A signal handler may call in the middle of a call of its thread.
        self.lock = threading.RLock()
        #: The line of threads for each thing that a thread is changing.
        self.lines: dict[Hashable, Line[_W]] = {}
        #: The backoff for each thing that other processes compete for.
        self.backoffs: dict[Hashable, Backoff] = {}


class Combining(Generic[_W]):
    """Lets one thread work for all waiting threads, per thing, safely across a fork.

    A thread works at once, unless another thread is working. Then it waits, and the first waiting
    thread works for all of them, or for as many as fit together.

    An interrupt may end the leading thread between any two steps. So waiting threads do not rely
    on a notification: they check now and then whether the leading thread has ended.

    Source: the group commit of DeWitt et al., Implementation Techniques for Main Memory Database
    Systems, SIGMOD 1984; and flat combining, by Shavit et al., SPAA 2010.
    """

    def __init__(self) -> None:
        # One for each process: a lock that is held during a fork is never released in the child.
        self._processes: dict[int, Process[_W]] = {}

    @property
    def here(self) -> Process[_W]:
        """The threads of this process."""
        return self._processes.setdefault(os.getpid(), Process())

    def run(self, key: Hashable, mine: _W, lead: Callable[[], Any]) -> Any:
        """Wait until another thread has worked for this thread; if none does, lead the work.

        Args:
            key: The thing that is changed.
            mine: What this thread wants.
            lead: Works for this thread and for those that it takes (see `take`), puts the outcome
                of each of them, and returns its own.

        Returns:
            The outcome; `Turn.UNKNOWN` if the thread that worked for this one was interrupted.
        """
        here = self.here
        try:
            outcome = _join(here, key, mine)
            if outcome is Turn.LEADS:
                outcome = lead()
        finally:
            # A step that no interrupt can split or prevent: others see it, whatever comes next.
            mine.is_over = True
            _leave(here, key)
        return outcome

    def take(self, key: Hashable, mine: _W, fits: Callable[[Sequence[_W], _W], bool]) -> list[_W]:
        """The leading thread, and the first waiting ones, as many as fit together."""
        here = self.here
        with here.lock:
            line, taken = here.lines[key], [mine]
            line.waiting = [each for each in line.waiting if each is not mine and not each.is_over]
            while line.waiting and fits(taken, line.waiting[0]):
                line.waiting[0].taken_by = mine
                taken.append(line.waiting.pop(0))
            return taken

    @contextmanager
    def paced(self, key: Hashable, *, shorter: float = SHORTER) -> Iterator[Backoff]:
        """Wait, if other processes compete; a backoff that has calmed down is forgotten.

        Args:
            key: The thing that they compete for.
            shorter: See `Backoff`.
        """
        backoffs = self.here.backoffs
        backoff = backoffs.setdefault(key, Backoff(shorter))
        try:
            with backoff.paced():
                yield backoff
        finally:
            if backoff.is_calm:
                backoffs.pop(key, None)


def _join(here: Process[_W], key: Hashable, mine: _W) -> Any:
    """Wait until another thread has worked for this one, or this thread must work."""
    with here.lock:
        line = here.lines.setdefault(key, Line(mine))
        if line.leader is mine or line.leader.is_over:
            line.leader = mine
            return Turn.LEADS
        if line.leader.thread == mine.thread:
            # In a signal handler, which must not wait for the call that it has interrupted.
            return Turn.LEADS
        line.waiting.append(mine)
    outcome: Any = None
    while outcome is None:
        try:
            outcome = mine.outcome.get(timeout=_PATIENCE)
        except Empty:
            outcome = _look(here, key, mine)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _look(here: Process[_W], key: Hashable, mine: _W) -> Any:
    """The outcome of a waiting thread, if the thread that works for it was interrupted."""
    with here.lock:
        if mine.taken_by is None:
            line = here.lines.setdefault(key, Line(mine))
            if line.leader is mine or line.leader.is_over:
                line.leader = mine
                return Turn.LEADS
        elif mine.taken_by.is_over:
            return Turn.UNKNOWN if mine.outcome.empty() else mine.outcome.get()
    return None


def _leave(here: Process[_W], key: Hashable) -> None:
    """Let the next thread work, if none does."""
    with here.lock:
        line = here.lines.get(key)
        if line is None or not line.leader.is_over:
            return
        line.waiting = [each for each in line.waiting if not each.is_over]
        if line.waiting:
            line.leader = line.waiting[0]
            line.leader.outcome.put(Turn.LEADS)
        else:
            del here.lines[key]
