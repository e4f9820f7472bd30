"""Threads that are held up, waited for and interrupted."""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import FrameType, ModuleType
from typing import Any, TypeVar

from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Op, Partition, Store
from cassieq_spark.testing.stores import CountingStore

PATIENCE = 30

_T = TypeVar("_T")
_R = TypeVar("_R")


class GatedStore(CountingStore):
    """Holds up the first compare-and-set that comes after `shut`, until it is told what to do."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__(store or MemoryStore())
        self.reached = threading.Event()
        self._gate: Future[Callable[[Callable[[], bool]], bool]] | None = None

    def shut(self) -> None:
        self.reached.clear()
        self._gate = Future()

    def meet(self, carry_out: Callable[[Callable[[], bool]], bool]) -> None:
        """Carry out the next compare-and-set like this, and hold nobody up."""
        self.shut()
        if self._gate is not None:
            self._gate.set_result(carry_out)

    def open(self, carry_out: Callable[[Callable[[], bool]], bool] = lambda cas: cas()) -> None:
        assert self.gate is not None
        self.gate.set_result(carry_out)

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        gate, self._gate = self._gate, None
        if gate is None:
            return super().cas(partition, ops)
        self.gate = gate
        self.reached.set()
        return gate.result(PATIENCE)(lambda: super(GatedStore, self).cas(partition, ops))


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Interrupted:
    """Lets a thread make a call, and interrupts it before a line of some modules.

    Never where CPython does not look for signals: between the last call of a block and what always
    follows it, which is how ``with`` releases a lock.

    Args:
        before: Before which of the lines, by the order in which they are run.
        modules: The modules.

    Attributes:
        happened: Whether it came that far.
    """

    _ALWAYS_FOLLOWS = ("with here.lock", "mine.is_over = ")

    def __init__(self, before: int, *modules: ModuleType) -> None:
        self._left = before
        self._files = {module.__file__ for module in modules}
        self.happened = False

    def call(self, call: Callable[[_T], _R], given: _T) -> _R:
        others = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call(given)
        finally:
            sys.settrace(others)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        if self.happened or file not in self._files:
            return None
        line = linecache.getline(file, frame.f_lineno).strip()
        if event in {"call", "line"} and not line.startswith(self._ALWAYS_FOLLOWS):
            self.happened = self._left == 0
            self._left -= 1
        if self.happened:
            raise KeyboardInterrupt
        return self._trace
