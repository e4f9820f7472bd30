"""``python -m benchmarks.bench``: measures, and prints tables.

The folder of results gets ``figures.jsonl``, ``table.md`` and ``throughput.svg``.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.bench import names
from benchmarks.bench.cases import FULL, QUICK, contests, titles, warm_up
from benchmarks.bench.contest import Budget, Figure, hold
from benchmarks.bench.goals import Goal, earlier_goals, goals, judge
from benchmarks.bench.lab import open_lab
from benchmarks.bench.report import (
    describe_machine,
    draw,
    figures_table,
    goals_table,
    parts_table,
    processor_table,
    summarise,
    to_json,
)

#: The time for cases that are named, each with the start of the servers.
_MINUTES = 5.0
#: The part of the time that is left for warming up the servers.
_WARM = 0.3
#: Two rounds of two minutes come on top.
_REST_MINUTES = 8.0


def main(argv: Sequence[str] | None = None) -> int:
    given = _parse(argv)
    scale = QUICK if given.quick else FULL
    try:
        wanted = names.select(given.only.split(",") if given.only else [], titles(scale))
    except ValueError as error:
        sys.exit(f"{error}; --list shows all")
    if given.list:
        print(
            "\n".join(
                f"{names.name_of(each):30}{', '.join(filter(None, each))}" for each in wanted
            )
        )
        return 0
    console = Console(stderr=True)
    chance = random.Random(given.seed)
    given.into.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    began = time.monotonic()
    minutes = given.minutes or (_minutes(wanted) if given.only else None)

    def left() -> float | None:
        return None if minutes is None else minutes * 60 - (time.monotonic() - began)

    with open_lab() as lab, (given.into / "figures.jsonl").open("w") as lines:
        warm_up(lab, Budget(left(), 1, part=_WARM).next())
        budget = Budget(left(), len(wanted))
        for contest in contests(lab, scale, wanted=wanted):
            about = f"{contest.case} {contest.payload}"
            passed, load = time.monotonic() - began, os.getloadavg()[0]
            console.print(f"{passed:4.0f} s, load {load:.1f}  {about}", highlight=False)
            found = hold(
                contest,
                rounds=given.rounds or scale.rounds,
                chance=chance,
                settle=lab.settle,
                is_over=budget.next(),
            )
            figures += found
            lines.writelines(f"{to_json(each)}\n" for each in found)
            lines.flush()
    parts = (
        describe_machine(),
        summarise(figures),
        parts_table(figures),
        processor_table(figures),
        _judged(goals(), figures),
        _judged(earlier_goals(), figures),
        figures_table(figures),
    )
    report = "\n\n".join(parts) + "\n"
    (given.into / "table.md").write_text(report)
    print(report)
    draw(given.into / "throughput.svg", figures)
    console.print(f"{time.monotonic() - began:.0f} s in all; results in {given.into}")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two payloads, one round")
    parser.add_argument("--rounds", type=int, help="most rounds of each contest")
    parser.add_argument("--minutes", type=float, help="time for all; in less time, fewer rounds")
    parser.add_argument("--only", default="", metavar="CASE[,CASE]", help="the cases to run")
    parser.add_argument("--list", action="store_true", help="show the names of the cases")
    parser.add_argument("--into", type=Path, default=Path("dist/bench"), help="folder of results")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    return parser.parse_args(argv)


def _minutes(wanted: Sequence[names.Title]) -> float:
    """The time for some cases, if none is given."""
    return sum(_REST_MINUTES if case == names.REST else _MINUTES for case, _ in wanted)


def _judged(goals: Iterable[Goal], figures: Sequence[Figure]) -> str:
    return goals_table([each for goal in goals if (each := judge(goal, figures))])


if __name__ == "__main__":
    sys.exit(main())
