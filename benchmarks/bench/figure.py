"""Draws throughput as bars, an SVG that is readable on light and on dark pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.bench import cases
from benchmarks.bench.contest import Figure, find
from benchmarks.bench.report import show
from benchmarks.bench.systems import CASSIEQ

_WIDTH = 760
_LEFT, _BAR_WIDTH, _BAR_HEIGHT, _GAP = 200, 460, 17, 14
_TITLE_HEIGHT, _MARGIN = 34, 18
_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  .ours { fill: #2f6fb3; }
  .peer { fill: #b9c2cc; }
  .range { stroke: #57606a; stroke-width: 1.2; }
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328; }
  .title { font-size: 14px; font-weight: 600; }
  .note { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; }
    .ours { fill: #5ea0e6; }
    .peer { fill: #4b5560; }
    .range { stroke: #c3ccd5; }
    text { fill: #e6edf3; }
    .note { fill: #9aa4ae; }
  }
"""
#: What is drawn: the title of a panel, and its case.
_PANELS = (
    ("Stream write, messages a second", cases.WRITE_100K),
    ("Stream read with ack, messages a second", cases.READ_ALL),
)


def draw(figures: Sequence[Figure]) -> str:
    """The picture: for writes and for reads, and each payload, all that use Spark."""
    shapes: list[str] = []
    y = _MARGIN
    longest = max((max(each.values) for each in _drawn(figures)), default=1.0)
    for title, case in _PANELS:
        shapes.append(_text(_MARGIN, y + 14, title, "title"))
        y += _TITLE_HEIGHT
        for payload in dict.fromkeys(each.payload for each in figures if each.case == case):
            bars = _bars(figures, case, payload)
            shapes.append(_text(_MARGIN, y + 13, payload, "note"))
            for bar in bars:
                shapes += _bar(bar, y, longest)
                y += _BAR_HEIGHT
            y += _GAP
        y += _GAP
    height = y
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="Messages a second, written and read with Spark: CassieQ beside Kafka">'
    )
    card = (
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", card, *shapes, "</svg>"]) + "\n"


def _drawn(figures: Sequence[Figure]) -> Iterator[Figure]:
    for _, case in _PANELS:
        for payload in dict.fromkeys(each.payload for each in figures if each.case == case):
            yield from _bars(figures, case, payload)


def _bars(figures: Sequence[Figure], case: str, payload: str) -> list[Figure]:
    """The systems of one contest, the queue first, then the fastest."""
    found = find(figures, case=case, payload=payload, measure=cases.RATE)
    bars = [each for name, each in found.items() if name != cases.LIMIT]
    return sorted(bars, key=lambda each: (each.system != CASSIEQ, -each.median))


def _bar(figure: Figure, y: int, longest: float) -> list[str]:
    def at(value: float) -> float:
        return round(_LEFT + _BAR_WIDTH * value / longest, 1)

    kind = "ours" if figure.system == CASSIEQ else "peer"
    middle = y + _BAR_HEIGHT / 2 - 1
    least, most = at(min(figure.values)), at(max(figure.values))
    width = round(at(figure.median) - _LEFT, 1)
    return [
        _text(_LEFT - 8, y + 12, figure.system, "", anchor="end"),
        f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width}" height="{_BAR_HEIGHT - 3}"/>',
        f'<line class="range" x1="{least}" x2="{most}" y1="{middle}" y2="{middle}"/>',
        _text(max(at(figure.median), most) + 6, y + 12, show(figure.median), "note"),
    ]


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
