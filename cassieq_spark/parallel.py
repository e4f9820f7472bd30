"""Makes several calls that wait for Cassandra at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Most calls at the same time: one for each of the usual number of partitions.
AT_ONCE = 16


def in_parallel(
    call: Callable[[_T], _R], items: Sequence[_T], *, at_once: int | None = None
) -> list[_R]:
    """Call for each item, several at the same time, and return when all calls have ended.

    A single item is handled in the thread of the caller.

    Args:
        call: What to call.
        items: For what.
        at_once: Most calls at the same time, if fewer than usual.

    Returns:
        The results, in the order of the items.

    Raises:
        Exception: The first error, in the order of the items; the others are notes of it.
    """
    if len(items) <= 1:
        return [call(item) for item in items]
    threads = min(AT_ONCE, len(items), at_once or AT_ONCE)
    with ThreadPoolExecutor(threads, thread_name_prefix="cassieq-each") as pool:
        futures = [pool.submit(call, item) for item in items]
        wait(futures)
    errors = [error for each in futures if (error := each.exception()) is not None]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"and: {type(other).__name__}: {other}")
        raise errors[0]
    return [each.result() for each in futures]
