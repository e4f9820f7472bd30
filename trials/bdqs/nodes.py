"""Nodes that fail on schedule, and are started again: embedded ones, or those of a cluster."""

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
    """Nodes of a cluster, numbered from 0.

    Attributes:
        count: How many.
        fail: Lets one die at once, as a crash would.
        repair: Starts it again with its data; returns when it serves, or is about to.
    """

    count: int
    fail: Callable[[int], object]
    repair: Callable[[int], object]


def commanded_nodes(hosts: Sequence[str], *, fail: str, repair: str) -> Nodes:
    """Nodes elsewhere, killed and started by commands in which ``{host}`` stands for one."""

    def run(command: str, node: int) -> None:
        words = [word.replace("{host}", hosts[node]) for word in shlex.split(command)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

    return Nodes(len(hosts), partial(run, fail), partial(run, repair))


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """A node fails, or is started again; seconds from the beginning."""

    at: float
    node: int
    fails: bool


def events(nodes: int, mttf: timedelta, repair: timedelta, chance: Random) -> Iterator[Event]:
    """When nodes fail, each by itself after an exponential time, and are started again; for ever.

    Args:
        nodes: How many.
        mttf: Mean time that a node runs.
        repair: How long it is down.
        chance: Decides how long each runs.
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
    """A node was down; seconds of the machine's monotonic clock."""

    node: int
    began: float
    ended: float


class Wrecker(AbstractContextManager["Wrecker"]):
    """Lets nodes fail and starts them again while its ``with`` lasts; then all of them run.

    One event follows another, and is late if that takes its time.

    Args:
        nodes: Of what.
        mttf: Mean time that a node runs; None: nothing ever fails.
        repair: How long it is down before it is started again.
        chance: Decides when.
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
        """How many outages there were, and seconds: of each on average, and of several at once."""
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
                    # If it failed late, it is down for as long all the same.
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
    """For how many seconds at least ``most`` nodes were down at once.

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
