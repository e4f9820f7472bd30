"""What processes do not share: locks at a fork, and objects that stay where they were made.

A forked child has one thread. A lock that another thread of the parent held at that moment is
never released in the child, which would wait for it for ever. So a fork waits until no other
thread holds one of the locks made here, or imports pandas for Arrow, which takes some tenths of a
second in the first put of a process.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 (else the first connection of a process does, in some thread)
import os
import socket
import sys
import threading
from typing import Any, ClassVar, NoReturn
from weakref import WeakSet

from cassieq_spark.errors import CassieqError

#: How many seconds a fork waits for a lock. Then it goes on, as it would without this module.
_PATIENCE = 30.0
#: Characters of the name of a host that are shown.
_LONGEST_HOST = 80
#: Held while locks are made, and during a fork: of two concurrent forks, the second waits.
_turn = threading.RLock()
_locks: WeakSet[Any] = WeakSet()
_held: list[Any] = []


def lock_across_forks() -> Any:
    """Make a reentrant lock that no other thread holds when this process forks.

    For work that ends soon and waits for no other thread.
    """
    lock = threading.RLock()
    with _turn:
        _locks.add(lock)
    return lock


#: Held by a thread that imports a module late: the child would wait for the end of its import.
importing = lock_across_forks()


def _before() -> None:
    if not _turn.acquire(timeout=_PATIENCE):
        return
    _held.append(_turn)
    # Arrow has it while it imports pandas, if pandas is installed, before its first array.
    pandas = getattr(sys.modules.get("pyarrow.lib"), "_pandas_api", None)
    locks = [*_locks, *filter(None, [getattr(pandas, "_lock", None)])]
    _held.extend(lock for lock in locks if lock.acquire(timeout=_PATIENCE))


def _after() -> None:
    # `_turn` last: it was taken first.
    while _held:
        _held.pop().release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)


def process_name() -> str:
    """The name of this process, for people: that of its host, and its number."""
    return f"{socket.gethostname()[:_LONGEST_HOST]}:{os.getpid()}"


class StaysHere:
    """Base of objects that cannot be pickled, as for a closure that Spark sends to its tasks."""

    __slots__ = ()

    #: What to send instead.
    _instead: ClassVar[str]

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise CassieqError(f"{name} cannot be sent to another process: {self._instead}")
