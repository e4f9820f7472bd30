"""Who is struck when: a schedule of faults by a seed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from random import Random

#: Nothing happens before everybody has begun to work.
CALM = timedelta(seconds=5)
_PROCESS_EVERY = timedelta(seconds=11)
#: A node is back, and has told the others, before the next one is struck.
_NODE_EVERY = timedelta(seconds=34)
_JITTER = 0.3
#: Around the lease of the queue, so that some leases break and some do not.
_PAUSE_SECONDS = (2.0, 22.0)
#: Around the time after which nodes take another one for dead.
_NODE_SECONDS = (2.0, 15.0)
#: A node asks for the wall clock every ten seconds, to tell how old the messages of others are.
_CLOCK_SECONDS = (12.0, 25.0)
#: By so much a node's clock is wrong.
WRONG_BY = timedelta(days=1)


class Victim(StrEnum):
    """What can be struck."""

    DRIVER = "driver"
    EXECUTOR = "executor"
    #: One of the processes in which an executor runs Python.
    WORKER = "worker"
    #: One of the Python processes beside a driver: where leases are taken and writes published.
    READER = "reader"
    REPAIR = "repair"
    NODE = "node"


class How(StrEnum):
    """In which way."""

    #: By SIGKILL.
    KILLED = "killed"
    #: Stopped for a while, by SIGSTOP and SIGCONT.
    PAUSED = "paused"
    #: A node's wall clock is `WRONG_BY` ahead for a while; set right, and the node started anew.
    AHEAD = "ahead"
    #: The same, behind.
    BEHIND = "behind"


#: How far a node's clock is ahead.
WRONG_CLOCKS = {How.AHEAD: WRONG_BY, How.BEHIND: -WRONG_BY}
_HOW_PROCESSES = (How.KILLED, How.PAUSED)
_HOW_NODES = tuple(How)


@dataclass(frozen=True, slots=True)
class Fault:
    """One of the schedule.

    Attributes:
        at: When, from the beginning.
        victim: What is struck.
        which: Chooses one of those that there are then.
        how: In which way.
        lasts: How long it stands still, its clock is wrong, or a killed node stays away; nothing
            for other killed ones, which are started again at once.
    """

    at: timedelta
    victim: Victim
    which: int
    how: How
    lasts: timedelta = timedelta(0)

    @property
    def kind(self) -> str:
        """What it is counted as."""
        return f"{self.victim}_{self.how}"

    def __str__(self) -> str:
        how = {
            How.KILLED: "killed" + (f", away for {_seconds(self.lasts)}" if self.lasts else ""),
            How.PAUSED: f"stopped for {_seconds(self.lasts)}",
            How.AHEAD: f"a day ahead for {_seconds(self.lasts)}",
            How.BEHIND: f"a day behind for {_seconds(self.lasts)}",
        }
        return f"{_seconds(self.at):>7} {self.victim} {how[self.how]}"


def plan(seed: int, length: timedelta) -> list[Fault]:
    """All faults of a run of this length, in order; of each kind as many, give or take one.

    Processes and nodes are struck independently of each other, so also at the same time; nodes
    one after the other.
    """
    chance = Random(seed)
    processes = [(victim, how) for victim, how in _ways() if victim is not Victim.NODE]
    nodes = [(victim, how) for victim, how in _ways() if victim is Victim.NODE]
    faults = _lane(chance, processes, length, _PROCESS_EVERY, _PAUSE_SECONDS)
    faults += _lane(chance, nodes, length, _NODE_EVERY, _NODE_SECONDS)
    return sorted(faults, key=lambda fault: fault.at)


def kinds() -> list[str]:
    """What faults are counted as."""
    return [f"{victim}_{how}" for victim, how in _ways()]


def _ways() -> list[tuple[Victim, How]]:
    return [
        (victim, how)
        for victim in Victim
        for how in (_HOW_NODES if victim is Victim.NODE else _HOW_PROCESSES)
    ]


def _lane(
    chance: Random,
    ways: list[tuple[Victim, How]],
    length: timedelta,
    every: timedelta,
    seconds: tuple[float, float],
) -> list[Fault]:
    faults: list[Fault] = []
    to_come: list[tuple[Victim, How]] = []
    at = CALM
    while at < length:
        if not to_come:
            to_come = list(ways)
            chance.shuffle(to_come)
        victim, how = to_come.pop()
        between = _CLOCK_SECONDS if how in WRONG_CLOCKS else seconds
        lasts = timedelta(seconds=round(chance.uniform(*between), 1))
        if how is How.KILLED and victim is not Victim.NODE:
            lasts = timedelta(0)
        faults.append(
            Fault(at=at, victim=victim, which=chance.randrange(10**6), how=how, lasts=lasts)
        )
        at += every * chance.uniform(1 - _JITTER, 1 + _JITTER)
    return faults


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.1f} s"
