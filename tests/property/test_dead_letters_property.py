"""Whatever is done to dead letters: each is dead, redriven or purged, and only one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import backoff
from cassieq_spark.dead_letters import claims as claims_module
from cassieq_spark.dead_letters import redrive as redrive_module
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import purge
from cassieq_spark.dead_letters.redrive import redrive
from cassieq_spark.dead_letters.survey import survey
from cassieq_spark.errors import ContentionError, InvariantError
from cassieq_spark.store.protocol import partition_of_queue
from cassieq_spark.testing.faults import Fault
from tests.unit.dead_letters.dead_queue import NOON, DeadQueue

QUEUES = ("orders", "payments")


@pytest.fixture(autouse=True, scope="module")
def _small_and_without_pauses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        patch.setattr(claims_module, "WINDOW", 8)
        patch.setattr(redrive_module, "BATCH", 3)
        yield


@dataclass(frozen=True)
class Step:
    """What is done, to what, and what happens to the store meanwhile."""

    purges: bool
    name: str
    criteria: Filter
    limit: int | None
    crash_after: int | None
    fault: Fault | None
    lapse: bool
    unreadable: str | None
    arrivals: Sequence[str]


HOURS = st.none() | st.integers(0, 20).map(lambda hours: NOON + timedelta(hours=hours))
FILTERS = st.builds(
    Filter,
    origin=st.sampled_from([None, *QUEUES]),
    reason=st.sampled_from([None, "often", "other", "none"]),
    since=HOURS,
    until=HOURS,
)
ORIGINS = st.lists(st.sampled_from(QUEUES), max_size=12)
STEPS = st.builds(
    Step,
    purges=st.booleans(),
    name=st.sampled_from(["dead", *QUEUES]),
    criteria=FILTERS,
    limit=st.none() | st.integers(1, 5),
    crash_after=st.none() | st.integers(0, 40),
    fault=st.none() | st.sampled_from(Fault),
    lapse=st.booleans(),
    unreadable=st.none() | st.sampled_from(QUEUES),
    arrivals=ORIGINS,
)


def crash() -> None:
    raise KeyboardInterrupt


def take_step(queue: DeadQueue, step: Step) -> int:
    """How many were purged; for a crash, at least."""
    queue.add(step.arrivals, reason="other")
    if step.lapse:
        queue.lapse()
    found = survey(queue.memory, step.name, step.criteria, limit=step.limit)
    row = queue.memory._rows[partition_of_queue(step.unreadable or "orders")][()]
    readable = row["on_dead"]
    if step.unreadable is not None:
        row["on_dead"] = "of a newer release"
    if step.crash_after is not None:
        queue.store.interrupt(crash, after=step.crash_after)
    queue.store.fault = step.fault
    try:
        if step.purges:
            return purge(queue.store, found).purged
        redrive(queue.store, found)
    except (KeyboardInterrupt, ContentionError, InvariantError):
        pass
    finally:
        row["on_dead"] = readable
        queue.store.calm()
        queue.store.arrive()
    return 0


@given(first=ORIGINS, steps=st.lists(STEPS, max_size=8))
def test_every_dead_letter_is_dead_or_redriven_or_purged(first: list[str], steps: list[Step]):
    queue = DeadQueue(first)
    purged: set[int] = set()
    for step in steps:
        before = set(queue.left())

        count = take_step(queue, step)

        redriven = [number for name in QUEUES for number in queue.arrived(name)]
        left = queue.left()
        assert len(set(redriven)) == len(redriven), "published once"
        assert not set(left) & set(redriven)
        assert not purged & {*left, *redriven}, "what is gone stays gone"
        gone = set(range(queue.count)) - {*left, *redriven} - purged
        assert step.purges or not gone, "nothing is lost"
        assert len(gone) >= count
        if gone:
            assert gone <= before | set(range(queue.count - len(step.arrivals), queue.count))
        purged |= gone

    # Whatever broke off, all of it can be had once leases have run out.
    queue.lapse()
    redrive(queue.memory, survey(queue.memory, "dead"))
    redriven = [number for name in QUEUES for number in queue.arrived(name)]
    assert queue.left() == queue.held() == []
    assert sorted([*redriven, *purged]) == list(range(queue.count))
