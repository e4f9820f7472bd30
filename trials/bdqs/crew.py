"""One process or several that do a cell's work together, phase after phase."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from multiprocessing import get_context
from typing import Protocol, Self

from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from trials.bdqs.clients import Shift
from trials.bdqs.journal import Journal

Phase = Callable[[Store, Shift], dict[str, Journal]]


class Crew(Protocol):
    """Who carries out phases; `size` of them at a time."""

    size: int

    def work(self, phase: Phase, shifts: Sequence[Shift]) -> dict[str, Journal]:
        """Let each member carry out one shift of a phase, all at once; what they have noted."""


class Alone:
    """A crew of one, in this process.

    Args:
        store: Where the queues are.
    """

    size = 1

    def __init__(self, store: Store) -> None:
        self._store = store

    def work(self, phase: Phase, shifts: Sequence[Shift]) -> dict[str, Journal]:
        """See `Crew.work`."""
        return {queue: each for s in shifts for queue, each in phase(self._store, s).items()}


class Processes(AbstractContextManager["Processes"]):
    """A crew of processes, each with a connection of its own, while its ``with`` lasts.

    Args:
        connection: Where the queues are.
        size: How many processes.
    """

    def __init__(self, connection: ConnectionOptions, size: int) -> None:
        self.size = size
        self._connection = connection
        self._held = ExitStack()
        self._members: list[ProcessPoolExecutor] = []

    def __enter__(self) -> Self:
        for _ in range(self.size):
            # One process each: a pool could give two shifts of a phase to one of them.
            member = ProcessPoolExecutor(
                1, get_context("spawn"), initializer=_connect, initargs=(self._connection,)
            )
            self._members.append(self._held.enter_context(member))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def work(self, phase: Phase, shifts: Sequence[Shift]) -> dict[str, Journal]:
        """See `Crew.work`."""
        futures = [
            member.submit(_carry_out, phase, shift)
            for member, shift in zip(self._members, shifts, strict=False)
        ]
        return {queue: each for future in futures for queue, each in future.result().items()}


_stores: list[Store] = []


def _connect(connection: ConnectionOptions) -> None:
    # What is lost is lost on purpose.
    logging.getLogger("cassieq_spark").setLevel(logging.CRITICAL)
    _stores.append(open_store(connection))


def _carry_out(phase: Phase, shift: Shift) -> dict[str, Journal]:
    return phase(_stores[0], shift)
