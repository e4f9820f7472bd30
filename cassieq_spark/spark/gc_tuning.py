"""Keep Python's garbage collector from visiting all imported modules in Spark's processes.

Spark's workers collect garbage after every task, and after every call that plans or commits
something. Most objects that the collector visits belong to modules and never become garbage: that
costs 10 to 40 ms of CPU time after each call. Python itself visits these objects once or twice
while a query begins and imports more: 15 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping

_SPARK = "pyspark."
_DAEMON = "pyspark.daemon"
_ALL = 2
#: Imports leave more objects than this number; calls leave far fewer.
_MANY = 10_000


def tune_if_of_spark() -> None:
    """Freeze the objects of imported modules, if Spark has started this process."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or not spec.name.startswith(_SPARK):
        return
    gc.freeze()
    if spec.name == _DAEMON and freeze_survivors not in gc.callbacks:
        gc.callbacks.append(freeze_survivors)


def freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    """After a full collection between two calls, freeze the objects that survived.

    No object of a call is alive then, so the survivors belong to modules. Later collections skip
    them. A frozen object that becomes garbage stays until the worker ends. So if there are only a
    few objects, they are not frozen.
    """
    if phase != "stop" or info["generation"] != _ALL:
        return
    # Without a caller, the process ends.
    caller = sys._getframe().f_back  # noqa: SLF001
    between_calls = caller and caller.f_globals is vars(sys.modules["__main__"])
    if between_calls and len(gc.get_objects()) > _MANY:
        gc.freeze()
