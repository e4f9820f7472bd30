"""Spare Spark's Python workers a walk over everything that is imported, after each task.

Spark's daemon has its workers collect garbage after every task, and after every call that plans or
commits a write. Most of what they look at then are modules, which never become garbage: some 30 ms
of processor time, again and again, for which the next task waits.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def freeze_in_worker() -> bool:
    """Let the collector pass over what there is by now, if this process is a worker of Spark's.

    For once all is imported and connected. In other processes, that is not ours to decide.

    Returns:
        Whether it is one.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or spec.name != _DAEMON:
        return False
    gc.freeze()
    return True
