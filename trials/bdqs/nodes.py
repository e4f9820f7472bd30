"""Nodes that fail by a schedule, and are started again: embedded ones, or those of a cluster."""

from __future__ import annotations

import heapq
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random
from typing import Self


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a cluster, numbered from 0; ``fail`` kills one, ``repair`` starts it again."""

    count: int
    fail: Callable[[int], object]
    repair: Callable[[int], object]


def commanded_nodes(hosts: Sequence[str], *, fail: str, repair: str) -> Nodes:
    """Nodes that commands kill and start; ``{host}`` stands for the host."""

    def run(command: str, node: int) -> None:
        words = [word.replace("{host}", hosts[node]) for word in shlex.split(command)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

    return Nodes(len(hosts), partial(run, fail), partial(run, repair))


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """A node fails, or is started again, at some second."""

    at: float
    node: int
    fails: bool


def events(nodes: int, mttf: timedelta, repair: timedelta, chance: Random) -> Iterator[Event]:
    """The endless schedule: each node fails after an exponential time, and is started again.

    Args:
        nodes: The number of nodes.
        mttf: Mean time that a node runs.
        repair: How long it is down.
        chance: Decides how long each node runs.
    """
    seeds = [chance.random() for _ in range(nodes)]
    return heapq.merge(
        *(_events_of(node, mttf, repair, Random(seed)) for node, seed in enumerate(seeds))
    )


def _events_of(node: int, mttf: timedelta, repair: timedelta, chance: Random) -> Iterator[Event]:
    now = 0.0
    while True:
        now += chance.expovariate(1 / mttf.total_seconds())
        yield Event(now, node, fails=True)
        now += repair.total_seconds()
        yield Event(now, node, fails=False)


@dataclass(frozen=True, slots=True)
class Outage:
    """A node was down; seconds of the monotonic clock."""

    node: int
    began: float
    ended: float


class Wrecker(AbstractContextManager["Wrecker"]):
    """Lets nodes fail during a ``with`` block, one event after the other; at the end, all run.

    Args:
        nodes: The nodes.
        mttf: Mean time that a node runs; None: no node fails.
        repair: How long a node is down.
        chance: Decides when nodes fail.
    """

    def __init__(
        self, nodes: Nodes, mttf: timedelta | None, repair: timedelta, chance: Random
    ) -> None:
        self._nodes = nodes
        self._events: Iterator[Event] = (
            iter(()) if mttf is None else events(nodes.count, mttf, repair, chance)
        )
        self._pause = repair.total_seconds()
        self._over = threading.Event()
        self._down: dict[int, float] = {}
        self._outages: list[Outage] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        for node in list(self._down):
            self._repair(node)

    def figures(self) -> dict[str, float]:
        """The number of outages, their mean seconds, and the seconds without a quorum."""
        lengths = [outage.ended - outage.began for outage in self._outages]
        return {
            "outages": len(lengths),
            "outage_s": sum(lengths) / len(lengths) if lengths else 0.0,
            "without_quorum_s": seconds_without(self._outages, self._nodes.count // 2 + 1),
        }

    def _run(self) -> None:
        began = time.monotonic()
        try:
            for event in self._events:
                due = began + event.at
                if not event.fails:
                    # If it failed late, it is started late.
                    due = max(due, self._down[event.node] + self._pause)
                if self._over.wait(max(0.0, due - time.monotonic())):
                    return
                (self._fail if event.fails else self._repair)(event.node)
        except Exception as failure:  # noqa: BLE001 (raised where it is waited for)
            self._failure = failure

    def _fail(self, node: int) -> None:
        self._down[node] = time.monotonic()
        self._nodes.fail(node)

    def _repair(self, node: int) -> None:
        self._nodes.repair(node)
        self._outages.append(Outage(node, self._down.pop(node), time.monotonic()))


def seconds_without(outages: list[Outage], most: int) -> float:
    """The seconds for which at least ``most`` nodes were down at the same time.

    >>> seconds_without([Outage(0, 1.0, 5.0), Outage(1, 3.0, 9.0)], 2)
    2.0
    """
    changes = sorted(
        [(each.began, 1) for each in outages] + [(each.ended, -1) for each in outages]
    )
    down, since, total = 0, 0.0, 0.0
    for at, change in changes:
        if down >= most:
            total += at - since
        down, since = down + change, at
    return total
