"""The store that Cassandra is; the only part of this package that imports its driver.

statements.cql  every statement's text     statements.py  operations -> text and values (pure)
schema.py       creates what is missing    upgrade.py     compares tables with these (pure)
session.py      one session per process    inspection.py  which tables and settings there are
requests.py     requests, repeated while that is safe; chunks, pipelined
mapping.py      driver errors -> our errors               store.py  all of it as a `Store`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _archives_last() -> Iterator[None]:
    """Let imports look into folders before archives.

    The driver looks up its own version, in all of ``sys.path`` up to where it is. In Spark's
    processes two zip files and a jar come first, and reading their lists takes 45 ms in each.
    """
    before = sys.path[:]
    sys.path.sort(key=os.path.isfile)
    try:
        yield
    finally:
        sys.path[:] = before


with _archives_last():
    import cassandra  # noqa: F401
