"""Runs that are the same each time: whatever is counted, drawn or asked of a clock is told."""

from __future__ import annotations

import secrets
from itertools import count
from types import SimpleNamespace
from uuid import UUID

import pytest

from cassieq_spark import backoff, parallel
from cassieq_spark.consumer import consumer
from cassieq_spark.groups import presence
from cassieq_spark.producer import blocks
from cassieq_spark.repair import steps
from tests.support import faults
from tests.support.faults import FakeClock, make_block_id


def repeatable(clock: FakeClock) -> pytest.MonkeyPatch:
    """Let blocks have the same ids in every run, begun by this clock; and let nobody pause.

    A repair takes one queue after the other, and calls to several partitions go out one after the
    other, without threads: nothing else happens while a test looks at one call. The ids of readers
    grow in the order in which the readers are made.
    """
    patch = pytest.MonkeyPatch()
    readers = count(1)
    # The key of a presence has the upper half of the id.
    patch.setattr(presence, "uuid4", lambda: UUID(int=next(readers) << 65))

    def now() -> float:
        return clock.now.timestamp()

    patch.setattr(presence, "time", SimpleNamespace(time=now, monotonic=now))
    # What a reader knows is as old as can be.
    patch.setattr(consumer, "monotonic", lambda: 0.0)
    patch.setattr(secrets, "randbelow", lambda _: 0)
    patch.setattr(faults, "_numbers", count(1))
    patch.setattr(blocks, "new_block_id", lambda: make_block_id(clock.now))
    patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
    patch.setattr(steps, "QUEUES_AT_ONCE", 1)
    patch.setattr(parallel, "AT_ONCE", 1)
    return patch
