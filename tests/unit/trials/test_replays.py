"""The matrix of the trial of replays."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from trials.replays.__main__ import matrix
from trials.replays.cell import QUERIES, Cell, Checkpoint
from trials.replays.striking import Moment

_DIMENSIONS = {
    "source": ("queue", "kafka", "files", "rate"),
    "query": tuple(QUERIES),
    "moment": tuple(Moment),
    "kills": tuple(range(1, 7)),
    "checkpoint": tuple(Checkpoint),
}


def has(cell: Cell, **values: object) -> bool:
    return all(getattr(cell, name) == value for name, value in values.items())


@pytest.mark.parametrize("seed", [0, 1])
def test_each_two_values_meet_in_some_cell(seed: int):
    cells = matrix(seed)

    missing = [
        (one, x, other, y)
        for one, other in combinations(_DIMENSIONS, 2)
        for x, y in product(_DIMENSIONS[one], _DIMENSIONS[other])
        if not any(has(cell, **{one: x, other: y}) for cell in cells)
    ]

    # A batch that was not published is planned anew, so nobody refuses a rewound checkpoint.
    unpublished = (Moment.BEFORE, Moment.ACKED)
    assert missing == [("moment", it, "checkpoint", Checkpoint.REWOUND) for it in unpublished]
    assert len(cells) < 60
