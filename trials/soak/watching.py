"""What is noted from outside while everybody works."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cassieq_spark.errors import CassieqError
from cassieq_spark.repair import expire
from trials.soak.actors import World
from trials.soak.disk import Sample


@dataclass
class Watch:
    """What is seen from outside while it runs."""

    samples: list[Sample] = field(default_factory=list)
    expired: Counter[tuple[str, str]] = field(default_factory=Counter)


@contextmanager
def alarmed(world: World) -> Iterator[None]:
    """Note what the package can't do any more: whatever it is, there is something to judge."""
    try:
        yield
    except CassieqError as error:
        world.journal.alarms.append(f"{type(error).__name__}: {error}")


@contextmanager
def expiry_counted(watch: Watch) -> Iterator[None]:
    """Count what the repair says that it lets expire."""

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told = record.__dict__
            if told.get("action") == expire.EXPIRED:
                watch.expired[told["queue"], told["group"]] += told["count"]

    handler = Counting()
    logger = logging.getLogger(expire.__name__)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
