"""Spare Spark's Python processes walks over everything that is imported.

Spark's daemon has its workers collect garbage after every task, and after every call that plans or
commits something. Most of what they look at then are modules, which never become garbage: 10 to 40
ms of processor time, again and again, beside the next task. Python itself looks at them once or
twice while more is imported, as every query begins: 15 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping

_SPARK = "pyspark."
_DAEMON = "pyspark.daemon"
_ALL = 2
#: So many objects are left by imports; what calls leave behind is far less.
_MANY = 10_000


def spare_spark() -> None:
    """If this process is one of Spark's, see to it; the collector of others is theirs."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or not spec.name.startswith(_SPARK):
        return
    gc.freeze()
    if spec.name == _DAEMON and pass_over_survivors not in gc.callbacks:
        gc.callbacks.append(pass_over_survivors)


def pass_over_survivors(phase: str, info: Mapping[str, int]) -> None:
    """After a whole collection between two calls: let the next ones pass over what survived it.

    That is no garbage. Nothing of a call is alive then, so it is modules and what they keep. Only
    if it is much: what becomes garbage later in spite of that stays for as long as the worker.
    """
    if phase != "stop" or info["generation"] != _ALL:
        return
    between_calls = sys._getframe(1).f_globals is vars(sys.modules["__main__"])  # noqa: SLF001
    if between_calls and len(gc.get_objects()) > _MANY:
        gc.freeze()
