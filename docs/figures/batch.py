"""Draws docs/figures/batch.svg, one micro-batch from lease to ack; ``make figures`` runs it.

The processes stand at the top, time goes down. Bold text is a lightweight transaction (LWT).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from docs.figures.drawing import arrow, box, picture, text

_WIDTH = 900
_TOP, _STEP = 126, 36
_BOX = (172, 52)
_TURN = 46

EXECUTORS, SPARK, READER, CASSANDRA = LANES = (106, 316, 538, 796)
_NAMES = (
    ("executors", "with Python workers"),
    ("Spark", "the driver"),
    ("reader", "a process of the driver"),
    ("Cassandra", "any node"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A call, or an answer, from one process to another; a loop, if both are the same."""

    start: int
    stop: int
    words: str
    answer: bool = False


STEPS = (
    Step(SPARK, READER, "latestOffset(end of batch 6)"),
    Step(READER, CASSANDRA, "read ledger and group state"),
    Step(READER, CASSANDRA, "LWT: ack batch 6, lease batch 7"),
    Step(READER, SPARK, "offset of batch 7 = its lease", answer=True),
    Step(SPARK, SPARK, "log the offset"),
    Step(SPARK, READER, "partitions(batch 7)"),
    Step(READER, CASSANDRA, "find the blocks"),
    Step(READER, SPARK, "tasks", answer=True),
    Step(SPARK, EXECUTORS, "tasks"),
    Step(EXECUTORS, CASSANDRA, "read chunks"),
    Step(READER, CASSANDRA, "LWT: heartbeat extends lease"),
    Step(EXECUTORS, SPARK, "done: the sink has batch 7", answer=True),
    Step(SPARK, SPARK, "log the commit"),
    Step(SPARK, READER, "latestOffset(end of batch 7)"),
    Step(READER, CASSANDRA, "LWT: ack batch 7, lease batch 8"),
)
_HEIGHT = _TOP + _STEP * len(STEPS)


def draw() -> str:
    """The picture as SVG."""
    return picture(
        _WIDTH,
        _HEIGHT,
        "One micro-batch, from its lease to its ack",
        *(f'<path class="lane" d="M{x},70 V{_HEIGHT - 16}"/>' for x in LANES),
        *(
            box((x, 46), _BOX, "box", name, note)
            for x, (name, note) in zip(LANES, _NAMES, strict=True)
        ),
        *(_drawn(each, _TOP + _STEP * at) for at, each in enumerate(STEPS)),
    )


def _drawn(step: Step, y: int) -> str:
    kind = "said lwt" if step.words.startswith("LWT") else "said"
    if step.start == step.stop:
        there = step.start + _TURN
        points = ((step.start, y - 14), (there, y - 14), (there, y), (step.start, y))
        return "\n".join((arrow(points), text(there + 62, y - 2, kind, step.words)))
    line = arrow(((step.start, y), (step.stop, y)), "arrow answer" if step.answer else "arrow")
    return "\n".join((line, text((step.start + step.stop) // 2, y - 7, kind, step.words)))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
