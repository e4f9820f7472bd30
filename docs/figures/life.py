"""Draws docs/figures/life.svg, the life of a message; ``make figures`` runs it.

Boxes are states, arrows lead from one to another; the words are those of docs/design.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from docs.figures.drawing import arrow, box, picture, text

_WIDTH, _HEIGHT = 950, 370
_BOX = (128, 52)
_LINE = 14


@dataclass(frozen=True, slots=True)
class Box:
    """A state: where its middle is, what it is called, and what that means."""

    x: int
    y: int
    name: str
    note: str
    kind: str = "box"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way from one state to another: its points, and what is written at one place."""

    points: tuple[tuple[int, int], ...]
    x: int
    y: int
    lines: tuple[str, ...]


BOXES = (
    Box(90, 120, "written", "in a pending block"),
    Box(310, 120, "visible", "has its monoton"),
    Box(575, 120, "leased", "by one consumer"),
    Box(845, 120, "settled", "for this group", "end"),
    Box(310, 270, "waiting", "until its time", "aside"),
    Box(575, 270, "due", "to be leased again", "aside"),
    Box(845, 270, "dead", "with a reason", "dead"),
)
ARROWS = (
    Arrow(((154, 120), (246, 120)), 200, 100, ("publish:", "1 LWT for all")),
    Arrow(((374, 120), (511, 120)), 442, 100, ("lease and last ack:", "1 LWT")),
    Arrow(((639, 120), (781, 120)), 710, 100, ("ack", "(batch or message)")),
    Arrow(((310, 146), (310, 244)), 280, 200, ("delayed",)),
    Arrow(((530, 146), (374, 252)), 418, 192, ("release",)),
    Arrow(((558, 146), (558, 244)), 511, 218, ("lease ran out,", "batch failed")),
    Arrow(((598, 244), (598, 146)), 643, 208, ("lease,", "deliveries + 1")),
    Arrow(((374, 270), (511, 270)), 442, 289, ("its time has come",)),
    Arrow(((639, 270), (781, 270)), 710, 302, ("delivered", "max_deliveries times")),
    Arrow(((635, 146), (781, 244)), 738, 188, ("reject",)),
    Arrow(((845, 244), (845, 146)), 894, 209, ("dead-letter:", "copy, then", "remove")),
)
_BELOW = (
    "The repair finalises and deletes messages that are settled for every group. "
    "It also deletes blocks that are never published."
)


def draw() -> str:
    """The picture as SVG."""
    return picture(
        _WIDTH,
        _HEIGHT,
        "The life of a message, from written to settled",
        text(_WIDTH // 2, 38, "name", "The life of a message, for one consumer group"),
        *(_drawn(each) for each in ARROWS),
        *(box((each.x, each.y), _BOX, each.kind, each.name, each.note) for each in BOXES),
        text(_WIDTH // 2, 346, "note", _BELOW),
    )


def _drawn(each: Arrow) -> str:
    lines = [
        text(each.x, each.y + _LINE * (at + 1 - len(each.lines)), "note", line)
        for at, line in enumerate(each.lines)
    ]
    return "\n".join((arrow(each.points), *lines))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
