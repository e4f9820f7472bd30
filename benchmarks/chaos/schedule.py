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
_NODE_EVERY = timedelta(seconds=40)
_JITTER = 0.3
#: Around the lease of the queue, so that some leases break and some do not.
_PAUSE_SECONDS = (2.0, 22.0)
#: Around the time after which nodes take another one for dead.
_NODE_SECONDS = (2.0, 15.0)


class Victim(StrEnum):
    """What can be struck."""

    DRIVER = "driver"
    EXECUTOR = "executor"
    #: One of the processes in which an executor runs Python.
    WORKER = "worker"
    #: One of the Python processes beside a driver: where leases are taken and writes published.
    READER = "reader"
    SWEEP = "sweep"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Fault:
    """One of the schedule.

    Attributes:
        at: When, from the beginning.
        victim: What is struck.
        which: Chooses one of those that there are then.
        pause: Stopped for so long (SIGSTOP, SIGCONT); None: killed (SIGKILL).
        down: How long a killed node stays away; others are started again at once.
    """

    at: timedelta
    victim: Victim
    which: int
    pause: timedelta | None
    down: timedelta = timedelta(0)

    @property
    def kind(self) -> str:
        """What it is counted as."""
        return f"{self.victim}_{'killed' if self.pause is None else 'paused'}"

    def __str__(self) -> str:
        how = "killed" if self.pause is None else f"stopped for {_seconds(self.pause)}"
        away = f", away for {_seconds(self.down)}" if self.down else ""
        return f"{_seconds(self.at):>7} {self.victim} {how}{away}"


def plan(seed: int, length: timedelta) -> list[Fault]:
    """All faults of a run of this length, in order; of each kind as many, give or take one.

    Processes and nodes are struck independently of each other, so also at the same time; nodes
    one after the other.
    """
    chance = Random(seed)  # noqa: S311 (who is next)
    victims = [victim for victim in Victim if victim is not Victim.NODE]
    faults = _lane(chance, victims, length, _PROCESS_EVERY, _PAUSE_SECONDS)
    faults += _lane(chance, [Victim.NODE], length, _NODE_EVERY, _NODE_SECONDS)
    return sorted(faults, key=lambda fault: fault.at)


def kinds() -> list[str]:
    """What faults are counted as."""
    return [f"{victim}_{how}" for victim in Victim for how in ("killed", "paused")]


def _lane(
    chance: Random,
    victims: list[Victim],
    length: timedelta,
    every: timedelta,
    seconds: tuple[float, float],
) -> list[Fault]:
    faults: list[Fault] = []
    to_come: list[tuple[Victim, bool]] = []
    at = CALM
    while at < length:
        if not to_come:
            to_come = [(victim, is_pause) for victim in victims for is_pause in (False, True)]
            chance.shuffle(to_come)
        victim, is_pause = to_come.pop()
        span = timedelta(seconds=round(chance.uniform(*seconds), 1))
        faults.append(
            Fault(
                at=at,
                victim=victim,
                which=chance.randrange(10**6),
                pause=span if is_pause else None,
                down=span if victim is Victim.NODE and not is_pause else timedelta(0),
            )
        )
        at += every * chance.uniform(1 - _JITTER, 1 + _JITTER)
    return faults


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.1f} s"
