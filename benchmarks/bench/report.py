"""Figures as JSON lines and as tables of Markdown. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarks.bench.contest import Figure, find
from benchmarks.bench.goals import Judged
from benchmarks.bench.systems import CASSIEQ


def to_json(figure: Figure) -> str:
    """One line.

    >>> to_json(Figure("read", "flights", "Kafka", "ms", (1.0, 3.0, 2.0)))  # doctest: +ELLIPSIS
    '{"case": "read", "payload": "flights", "system": "Kafka", "measure": "ms", "median": 2.0, ...
    """
    return json.dumps(
        {
            "case": figure.case,
            "payload": figure.payload,
            "system": figure.system,
            "measure": figure.measure,
            "median": round(figure.median, 2),
            "min": round(min(figure.values), 2),
            "max": round(max(figure.values), 2),
            "values": [round(value, 2) for value in figure.values],
        }
    )


def from_json(line: str) -> Figure:
    """What `to_json` has written."""
    read = json.loads(line)
    names = ("case", "payload", "system", "measure")
    return Figure(*(read[name] for name in names), tuple(read["values"]))


def figures_table(figures: Sequence[Figure]) -> str:
    """Every figure, with how many times it the queue is, round by round."""
    rows = [
        "| case | payload | system | median | min to max | CassieQ is |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*rows, *(_row(each, figures) for each in figures)])


def goals_table(judged: Sequence[Judged]) -> str:
    """Every goal, and how far it is."""
    rows = ["| goal | wanted | reached | |", "|---|---|---|---|"]
    return "\n".join([*rows, *map(_goal_row, judged)])


def show(value: float) -> str:
    """A figure, short.

    >>> show(123_456), show(1_234), show(12.34), show(1.234)
    ('123 k', '1.2 k', '12', '1.2')
    """
    for above, text in ((100_000, f"{value / 1000:.0f} k"), (1_000, f"{value / 1000:.1f} k")):
        if value >= above:
            return text
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _row(figure: Figure, figures: Sequence[Figure]) -> str:
    same = find(figures, case=figure.case, payload=figure.payload, measure=figure.measure)
    ours = same.get(CASSIEQ)
    ratio = "" if ours is None or ours is figure else f"{ours.ratio_to(figure):.2f} times that"
    least, most = show(min(figure.values)), show(max(figure.values))
    unit = f" {figure.measure}"
    cells = (
        figure.case,
        figure.payload,
        figure.system,
        show(figure.median) + unit,
        f"{least} to {most}",
        ratio,
    )
    return f"| {' | '.join(cells)} |"


def _goal_row(judged: Judged) -> str:
    goal = judged.goal
    bound = "at most" if goal.at_most else "at least"
    measure = "" if goal.peers else goal.measure
    what = ", ".join(filter(None, (goal.of, goal.payload, measure)))
    verdict = "reached" if judged.reached else f"missing {abs(judged.missing):.0f} %"
    of = f"{what}: against {judged.peer}" if judged.peer else what
    return f"| {of} | {bound} {goal.wanted} | {judged.ratio:.2f} | {verdict} |"
