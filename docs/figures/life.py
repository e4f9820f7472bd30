"""Draws docs/figures/life.svg, the life of a message; ``make figures`` runs it.

Boxes are states, by their words in docs/design.md; arrows are what leads from one to another.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

_WIDTH, _HEIGHT = 900, 380
_BOX_WIDTH, _BOX_HEIGHT = 128, 52
_LINE = 11
_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #eaf2fb; stroke: #3b6ea5; stroke-width: 1.5; }
  .aside { fill: #f6f1e3; stroke: #a5823b; stroke-width: 1.5; }
  .end { fill: #eef6ee; stroke: #4c8a4c; stroke-width: 1.5; }
  .dead { fill: #fbeceb; stroke: #b04a42; stroke-width: 1.5; }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5; }
  .head { fill: #57606a; }
  text { font-family: system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
  .name { font-size: 15px; font-weight: 600; }
  .note { font-size: 11px; fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; }
    .box { fill: #16293d; stroke: #6ea8e0; }
    .aside { fill: #332b16; stroke: #d3b05f; }
    .end { fill: #16301a; stroke: #7fbf7f; }
    .dead { fill: #3a1b19; stroke: #e08a82; }
    .arrow { stroke: #9aa4ae; }
    .head { fill: #9aa4ae; }
    text { fill: #e6edf3; }
    .note { fill: #9aa4ae; }
  }
"""


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
    Box(90, 120, "written", "in a private block"),
    Box(310, 120, "visible", "has its monoton"),
    Box(560, 120, "leased", "one reader has it"),
    Box(815, 120, "settled", "this group is done", "end"),
    Box(310, 270, "waiting", "for its time", "aside"),
    Box(560, 270, "due", "to be offered again", "aside"),
    Box(815, 270, "dead", "its own queue", "dead"),
)
ARROWS = (
    Arrow(((154, 120), (246, 120)), 200, 100, ("publish:", "1 LWT for all")),
    Arrow(((374, 120), (496, 120)), 435, 100, ("lease: 1 LWT,", "acks the one before")),
    Arrow(((624, 120), (751, 120)), 687, 100, ("ack", "(batch or message)")),
    Arrow(((310, 146), (310, 244)), 258, 192, ("delayed",)),
    Arrow(((520, 146), (374, 252)), 408, 188, ("release",)),
    Arrow(((545, 146), (545, 244)), 497, 222, ("lease ran out,", "batch failed")),
    Arrow(((585, 244), (585, 146)), 633, 226, ("lease,", "deliveries + 1")),
    Arrow(((374, 278), (496, 278)), 435, 298, ("its time has come",)),
    Arrow(((624, 270), (751, 270)), 687, 300, ("handed out", "max_deliveries times")),
    Arrow(((620, 146), (756, 244)), 722, 186, ("reject",)),
    Arrow(((815, 244), (815, 146)), 855, 200, ("copied once,", "then let go")),
)
_BELOW = (
    "Settled for every group: finalised, then deleted by the sweep. "
    "Written and never published: deleted by the sweep."
)
_MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
)


def draw() -> str:
    """The picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        "<title>The life of a message, from written to settled</title>",
        f"<style>{_STYLE}</style>",
        _MARKER,
        f'<rect class="card" x="1" y="1" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" rx="10"/>',
        _text(_WIDTH // 2, 38, "name", "The life of a message, for one consumer group"),
        *(_arrow(each) for each in ARROWS),
        *(_box(each) for each in BOXES),
        _text(_WIDTH // 2, 345, "note", _BELOW),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> str:
    left, top = box.x - _BOX_WIDTH // 2, box.y - _BOX_HEIGHT // 2
    place = f'x="{left}" y="{top}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}"'
    return "\n".join(
        (
            f'<rect class="{box.kind}" {place} rx="8"/>',
            _text(box.x, box.y - 3, "name", box.name),
            _text(box.x, box.y + 15, "note", box.note),
        )
    )


def _arrow(arrow: Arrow) -> str:
    path = " L".join(f"{x},{y}" for x, y in arrow.points)
    lines = [
        _text(arrow.x, arrow.y + _LINE * (at + 1 - len(arrow.lines)), "note", line)
        for at, line in enumerate(arrow.lines)
    ]
    return "\n".join((f'<path class="arrow" marker-end="url(#tip)" d="M{path}"/>', *lines))


def _text(x: int, y: int, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
