"""Programs that are started again whenever they end, as a supervisor does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from trials.processes import Child

_LOOK_SECONDS = 0.5


@dataclass
class Application:
    """A program that is started again whenever it ends.

    Attributes:
        name: What it is called.
        command: What is started.
        log: Where its output goes.
        starts: How often it was started.
        child: Its latest process.
    """

    name: str
    command: list[str]
    log: Path
    starts: int = 0
    child: Child | None = field(default=None, repr=False)

    @property
    def is_running(self) -> bool:
        """Whether its process is there, stopped or not."""
        return self.child is not None and self.child.exit_code() is None

    @property
    def is_done(self) -> bool:
        """Whether it has ended in good order."""
        return self.child is not None and self.child.exit_code() == 0

    def start(self) -> None:
        """Start it; nothing of an earlier start is left then."""
        self.kill()
        self.starts += 1
        self.child = Child(self.name, self.command, log=self.log)

    def kill(self) -> None:
        """Kill it and all that it has started; harmless when it has ended."""
        if self.child is not None:
            self.child.kill()


def supervise(applications: Iterable[Application], *, for_ever: bool) -> bool:
    """Start what does not run, also for the first time.

    Args:
        applications: Which.
        for_ever: Whether also those are started again that have ended in good order.

    Returns:
        Whether any of them runs now.
    """
    runs = False
    for each in applications:
        if not each.is_running and (for_ever or not each.is_done):
            each.start()
        runs = runs or each.is_running
    return runs


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again; False if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(_LOOK_SECONDS)
    return True
