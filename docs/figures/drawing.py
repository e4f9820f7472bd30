"""What the pictures of the documents have in common: colours, a card around, text, arrows.

They are shown as images, light or dark as the reader's system is, and the card makes them
readable on a page that is not.
"""

from __future__ import annotations

from html import escape

_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #eaf2fb; stroke: #3b6ea5; stroke-width: 1.5; }
  .aside { fill: #f6f1e3; stroke: #a5823b; stroke-width: 1.5; }
  .end { fill: #eef6ee; stroke: #4c8a4c; stroke-width: 1.5; }
  .dead { fill: #fbeceb; stroke: #b04a42; stroke-width: 1.5; }
  .plain { fill: none; stroke: #57606a; stroke-width: 1.5; }
  .frame { fill: none; stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 7 5; }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5; }
  .answer { stroke-dasharray: 5 4; }
  .lane { stroke: #d0d7de; stroke-width: 1.5; }
  .head { fill: #57606a; }
  text { font-family: system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
  .name { font-size: 15px; font-weight: 600; }
  .note { font-size: 12px; fill: #57606a; }
  .said { font-size: 13px; }
  .lwt { font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; }
    .box { fill: #16293d; stroke: #6ea8e0; }
    .aside { fill: #332b16; stroke: #d3b05f; }
    .end { fill: #16301a; stroke: #7fbf7f; }
    .dead { fill: #3a1b19; stroke: #e08a82; }
    .plain, .frame { stroke: #9aa4ae; }
    .arrow { stroke: #9aa4ae; }
    .lane { stroke: #30363d; }
    .head { fill: #9aa4ae; }
    text { fill: #e6edf3; }
    .note { fill: #9aa4ae; }
  }
"""
_MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
)


def picture(width: int, height: int, title: str, *parts: str) -> str:
    """A card of that many pixels with these parts on it, as SVG; the title is read aloud."""
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            _MARKER,
            f'<rect class="card" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10"/>',
            *parts,
            "</svg>\n",
        )
    )


def box(middle: tuple[int, int], size: tuple[int, int], kind: str, name: str, note: str) -> str:
    """A rounded box around a point, with a name and a note in it."""
    (x, y), (width, height) = middle, size
    place = f'x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}"'
    return "\n".join(
        (
            f'<rect class="{kind}" {place} rx="8"/>',
            text(x, y - 3, "name", name),
            text(x, y + 15, "note", note),
        )
    )


def arrow(points: tuple[tuple[int, int], ...], kind: str = "arrow") -> str:
    """A line through points, with a tip at its end."""
    path = " L".join(f"{x},{y}" for x, y in points)
    return f'<path class="{kind}" marker-end="url(#tip)" d="M{path}"/>'


def text(x: int, y: int, kind: str, words: str) -> str:
    """Words, centred."""
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>'
