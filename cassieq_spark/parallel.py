"""Makes several calls that wait for Cassandra, in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Maximum number of parallel calls: one for each of the usual number of partitions.
AT_ONCE = 16


def in_parallel(
    call: Callable[[_T], _R], items: Sequence[_T], *, at_once: int | None = None
) -> list[_R]:
    """Call for each item, several in parallel, and return when all calls have ended.

    The caller's thread handles a single item, and items for which no thread can be started. This
    works even while the interpreter shuts down, when pools of threads take no more tasks.

    Args:
        call: The function to call.
        items: The arguments of the calls.
        at_once: Maximum number of parallel calls, if fewer than usual.

    Returns:
        The results, in the order of the items.

    Raises:
        Exception: The first error, in the order of the items; the other errors are its notes.
    """
    if len(items) <= 1:
        return [call(item) for item in items]
    outcomes: list[Future[_R]] = [Future() for _ in items]
    left = deque(zip(items, outcomes, strict=True))
    started: list[Thread] = []
    try:
        for number in range(min(AT_ONCE, len(items), at_once or AT_ONCE)):
            name = f"cassieq-each_{number}"
            thread = Thread(target=_work, args=(call, left), name=name, daemon=False)
            try:
                thread.start()
            except RuntimeError:
                # The system has no more threads, or the interpreter starts none at its end.
                _work(call, left)
                break
            started.append(thread)
        wait(outcomes)
    finally:
        for thread in started:
            thread.join()
    errors = [error for each in outcomes if (error := each.exception()) is not None]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"and: {type(other).__name__}: {other}")
        raise errors[0]
    return [each.result() for each in outcomes]


def _work(call: Callable[[_T], _R], left: deque[tuple[_T, Future[_R]]]) -> None:
    """Call for one item after the other, until none is left."""
    while True:
        try:
            item, outcome = left.popleft()
        except IndexError:
            return
        try:
            outcome.set_result(call(item))
        except BaseException as error:  # noqa: BLE001 (the caller raises it, whatever it is)
            outcome.set_exception(error)
