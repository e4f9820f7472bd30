"""All features of a queue at once, two by two, against a model: see tests/features.toml.

Each history has a queue with some settings, which a client, a gateway, a stream, an operator and
the repair use in any order. After every action all rows are compared with what must be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, example, given, settings

from tests.features import crossed_by, read_table
from tests.property.features.history import LEASE, NOTHING, History
from tests.property.features.steps import HISTORIES, QUEUES, Step, drawn

#: This number of histories crosses all pairs. Histories after the last pair are left out.
ENOUGH = 60


def run(queue: Mapping[str, Any], steps: Sequence[Step]) -> set[frozenset[str]]:
    """Take the steps, and check the end; returns the pairs of features that were crossed."""
    with History(**queue) as history:
        for each in steps:
            getattr(history, each.name)(**each.arguments)
        history.end()
        return history.model.crossed()


#: By the receive that finds a message dead, the next one of its key is delivered.
DIES_BY_A_RECEIVE = [
    Step("put", {"keys": ["b"], "by_http": False, "delay": NOTHING, "ids": ["x"]}),
    Step("receive", {"most": 1, "by_http": True}),
    Step("put", {"keys": ["b"], "by_http": False, "delay": NOTHING, "ids": [None, "x"]}),
    Step("time_passes", {"by": 3 * LEASE}),
    Step("trigger", {"limit": None}),
    Step("crash", {}),
    Step("time_passes", {"by": LEASE}),
    Step("receive", {"most": 3, "by_http": True}),
]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(queue=QUEUES, steps=HISTORIES)
@example(
    queue={
        "typed": False,
        "keep_settled": None,
        "several": False,
        "in_order": True,
        "delay": 2 * LEASE,
        "strict": False,
        "expire_after": None,
        "stops": False,
        "drops": False,
        "max_deliveries": 2,
        "partitions": 1,
    },
    steps=DIES_BY_A_RECEIVE,
)
def test_no_feature_breaks_another(queue: Mapping[str, Any], steps: Sequence[Step]):
    run(queue, steps)


def test_these_histories_cross_the_pairs_that_are_said_to_be_crossed_here():
    missing = crossed_by(read_table(), "all")

    for seed in range(ENOUGH):
        if missing:
            missing -= run(*drawn(Random(seed)))

    assert not missing, sorted(sorted(pair) for pair in missing)
