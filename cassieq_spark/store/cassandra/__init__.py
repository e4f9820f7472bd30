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


with _archives_last():
    import cassandra  # noqa: F401
