"""The store on Cassandra; only this package imports the driver.

| module           | subject                                                              |
|------------------|----------------------------------------------------------------------|
| `statements.cql` | the texts of all statements                                          |
| `statements.py`  | operations as texts and values (pure)                                |
| `schema.py`      | creates missing tables and columns                                   |
| `upgrade.py`     | compares tables with those that this release needs (pure)            |
| `inspection.py`  | reads which tables and settings there are                            |
| `session.py`     | one session per process                                              |
| `requests.py`    | repeats requests that are safe to repeat; reads and writes chunks    |
| `promises.py`    | gets past serial reads by nodes whose clock is ahead                 |
| `clocks.py`      | the nodes' clocks; nodes that most contradict are asked last         |
| `mapping.py`     | the driver's errors as ours (pure)                                   |
| `tls.py`         | encryption, and what to check when it fails                          |
| `store.py`       | the `Store` made of these                                            |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType


@contextmanager
def _archives_last() -> Iterator[None]:
    """Make imports look into folders before archives.

    The driver searches ``sys.path`` for its own version until it finds it. In Spark's processes
    two zip files and a jar come first, and reading their lists takes 45 ms in each process.
    """
    before = sys.path[:]
    sys.path.sort(key=os.path.isfile)
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _without_twisted() -> Iterator[None]:
    """Let the driver's import of its reactor for Twisted fail at once, if there is no Twisted.

    It fails anyway, but imports asyncio before that: 17 ms in each process.
    """
    reactor = "cassandra.io.twistedreactor"
    if reactor in sys.modules or find_spec("twisted") is not None:
        yield
        return
    # Python's own mark of a module that cannot be imported.
    sys.modules[reactor] = cast("ModuleType", None)
    try:
        yield
    finally:
        del sys.modules[reactor]


with _archives_last(), _without_twisted():
    import cassandra.cluster  # noqa: F401
