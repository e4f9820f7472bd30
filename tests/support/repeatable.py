"""Runs that are the same each time: whatever is counted, drawn or asked of a clock is told."""

from __future__ import annotations

from itertools import count

import pytest

from cassieq_spark import backoff
from cassieq_spark.producer import blocks
from cassieq_spark.repair import steps
from tests.support import faults
from tests.support.faults import FakeClock, make_block_id


def repeatable(clock: FakeClock) -> pytest.MonkeyPatch:
    """Let blocks have the same ids in every run, begun by this clock; and let nobody pause.

    A repair takes one queue after the other, and not several in threads: nothing else happens
    while a test looks what somebody does.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr(faults, "_numbers", count(1))
    patch.setattr(blocks, "new_block_id", lambda: make_block_id(clock.now))
    patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
    patch.setattr(steps, "QUEUES_AT_ONCE", 1)
    return patch
